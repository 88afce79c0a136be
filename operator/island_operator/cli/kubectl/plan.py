"""`kubectl island plan`: `island-engine plan` where kubectl is; with a NAME, from the values of its spec."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from island_engine import sizing
from island_engine.planner import PlanError, cli, of_spec, render

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from island_engine.planner import Plan
    from island_engine.planner.plan import Side
    from island_operator.cli.kubectl.access import Access

EXAMPLE = """examples:
  kubectl island plan gemma --isl 16384 --osl 8192       from the spec of an InferenceService
  kubectl island plan --model ~/models/gemma-4-26B-A4B-it --kv-dtype fp8_e4m3 --kv-bytes 37e9 --isl 16384 --osl 8192
"""
OWN = ("model", "geometry", "kv_bytes", "running", "chunked_prefill_size", "page_size", "ratio", "check", "plot")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """The planner's flags, and the name of an InferenceService that stands for most of them."""
    cli.add_parser(commands)
    parser = commands.choices["plan"]
    parser.epilog = EXAMPLE
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="of an InferenceService: its spec says all but the workload"
    )
    return parser


async def run(args: argparse.Namespace, access: Access) -> int:
    """Exit code 0; Refusal names the flag or the field."""
    from rich.console import Console

    from island_operator.cli.kubectl.access import Refusal
    from island_operator.cli.kubectl.legible import UNLIKE, lacking
    from island_operator.cli.kubectl.text import show, show_json

    if given := [name for name in OWN if getattr(args, name) is not None]:
        flag = f"--{given[0].replace('_', '-')}"
        raise Refusal(f"{flag} does not go with a NAME, whose spec says it: drop the one or the other")
    parent = await access.parent(args.name)
    try:
        workload, spec = cli.read_workload(args), parent["spec"]
        plan = of_spec(spec, args.name, workload)
        said, now = render.as_json(plan), list(halves(plan, spec))
    except PlanError as refused:
        raise Refusal(str(refused)) from refused
    except UNLIKE as error:
        raise Refusal(lacking(parent)) from error
    if args.json is None:
        render.show(plan, Console(width=None if sys.stdout.isatty() else cli.WIDTH), name=args.name)
        if now:
            show(["", "As it is now:", *map(_in_words, now)])
        return 0
    said["spec"] = [{"half": h.name, "running": round(h.side.running, 1), "binds": h.side.binds} for h in now]
    if args.json == "-":
        show_json(said)
        return 0
    try:
        _write(Path(args.json), said)
    except OSError as error:
        raise Refusal(f"--json {args.json} cannot be written: {error.strerror}") from error
    return 0


def _write(file: Path, said: dict[str, Any]) -> None:
    file.write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")


class Now(NamedTuple):
    """A half of the spec, and what it runs."""

    name: str
    side: Side


def halves(plan: Plan, spec: dict[str, Any]) -> Iterator[Now]:
    """What the spec's own pair runs; nothing where it is derived, which is the plan itself, or unified."""
    partition = spec.get("partition") or {}
    for name in ("islands", "stock"):
        if said := partition.get(name):
            half = sizing.Half(said["swaFullTokensRatio"], said["maxTotalTokens"])
            yield Now(name, plan.side(half, islands=name == "islands"))


def _in_words(now: Now) -> str:
    half, side = now.side.half, now.side
    pools = f"ratio {half.ratio}, {half.max_total_tokens:,} tokens"
    return (
        f"  spec.partition.{now.name}: {pools} run {side.running:,.0f} at once, limited by {render.BINDS[side.binds]}"
    )
