"""`kubectl island promote|pause|resume|abort|retry|rollback NAME`: an annotation, and what the operator made of it."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from island_operator.cli.kubectl.access import Refusal
from island_operator.cli.kubectl.text import show, show_json
from island_operator.cluster.kinds import PARENT
from island_operator.core import state
from island_operator.core.intent import PREFIX
from island_operator.core.verbs import refused

if TYPE_CHECKING:
    import argparse

    from island_operator.cli.kubectl.access import Access
    from island_operator.core.model import Object

EVERY = 0.2  # seconds between two looks


async def run(args: argparse.Namespace, access: Access) -> int:
    """Exit code 0: carried out. 1: the operator refused it, or did not take it in time."""
    space = (await access.parent(args.name))["metadata"]["namespace"]
    there = replace(access, namespace=space, everywhere=False)
    value = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")  # tells this asking from every other
    note = f"{PREFIX}{args.verb}"
    await access.cluster.patch(PARENT, space, args.name, {"metadata": {"annotations": {note: value}}})
    patience = time.monotonic() + args.timeout
    while (answer := _answer(parent := await there.parent(args.name), args.verb, value)) is None:
        if (parent["metadata"].get("annotations") or {}).get(note) != value:  # one annotation holds one asking
            told = f"{args.verb} was asked for once more at the same time, and that asking was taken"
            raise Refusal(f"{told}: kubectl island history {args.name} says what came of it", code=1)
        if time.monotonic() > patience:
            off = f"kubectl annotate iisvc {args.name} -n {space} {note}-"
            told = f"no operator has taken {args.verb} within {args.timeout} s, and one that starts later will"
            raise Refusal(f"{told}: see kubectl island doctor, or take it back with {off}", code=1)
        await asyncio.sleep(EVERY)
    done = not refused(answer)
    if args.json:
        asked = {"verb": args.verb, "name": args.name, "namespace": space}
        show_json({**asked, "done": done, "at": answer.at, "outcome": answer.outcome})
    elif done:
        show([f"{PARENT} {args.name}: {answer.outcome}"])
    else:
        sys.stderr.write(f"kubectl island: {answer.outcome}\n")
    return 0 if done else 1


def _answer(parent: Object, verb: str, value: str) -> state.Verb | None:
    verbs = state.read(parent.get("status") or {}).verbs
    return next((v for v in verbs if (v.name, v.value) == (verb, value)), None)
