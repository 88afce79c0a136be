"""`kubectl island status`: the tree of one InferenceService, live if asked, or a table of all."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.text import Text

from island_operator.cli.kubectl import tree, view
from island_operator.cli.kubectl.access import Refusal
from island_operator.cli.kubectl.model import plain
from island_operator.cli.kubectl.text import age, columns, console, show, show_json
from island_operator.cluster.kinds import KINDS
from island_operator.cluster.protocol import ApiError, Unreachable
from island_operator.core.gate import CONTAINER
from island_operator.core.model import Snapshot
from island_operator.core.observe import GATE, ROLE, ended, label, placed

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator

    from island_operator.cli.kubectl.access import Access
    from island_operator.cli.kubectl.model import View

EVERY = 1.0  # seconds between two looks of --watch
BUSY = {429, 500, 502, 503, 504}  # what an API server answers that is overloaded, or restarts with its etcd
PATIENCE = 2.0  # seconds for a log: a kubelet that does not answer must not hide what the API server knows


async def run(args: argparse.Namespace, access: Access) -> int:
    """Exit code 0; Refusal where there is no such InferenceService."""
    if args.name is None:
        if args.watch:
            raise Refusal(
                "--watch needs the NAME of an InferenceService; kubectl get iisvc --watch follows all of them"
            )
        return await _all(args, access)
    if args.watch:
        await _watch(args, access)
    else:
        seen = await look(access, args.name)
        if args.json:
            show_json(plain(seen))
        else:
            show(tree.render(seen, now()))
    return 0


def now() -> str:
    """The time as the API writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def look(access: Access, name: str) -> View:
    """The view of one InferenceService as it is now."""
    snapshot = await access.snapshot(name)
    return view.of(snapshot, now(), await _progress(access, snapshot))


async def _progress(access: Access, snapshot: Snapshot) -> str | None:
    """The last line of progress that a running gate printed; None where it may not be read, or there is none."""
    pods = (p for p in snapshot.of("Pod") if label(p, ROLE) == GATE and placed(p) and not ended(p))
    if (pod := next(pods, None)) is None:
        return None
    meta = pod["metadata"]
    path, query = KINDS["Pod"].path(meta["namespace"], meta["name"], "log"), {"container": CONTAINER, "tailLines": "1"}
    with contextlib.suppress(ApiError, Unreachable, TimeoutError):
        async with asyncio.timeout(PATIENCE):
            said = await access.cluster.request("get", path, "Pod/log", query=query)
        line = said.decode(errors="replace").strip()
        return line if line.startswith("gate ") else None  # its last line of all is its report
    return None


async def _all(args: argparse.Namespace, access: Access) -> int:
    moment = now()
    views = [view.of(Snapshot(parent), moment) for parent in await access.parents()]
    if args.json:
        show_json([plain(seen) for seen in views])
        return 0
    if not views:
        where = "" if access.everywhere else f" in namespace {access.namespace}"
        show([f"No InferenceServices{where}."])
        return 0
    space = ["NAMESPACE"] if access.everywhere else []
    head = [*space, "NAME", "STATUS", "ISLANDS", "RATIO", "READY", "AGE", "REASON"]
    rows: list[list[Text | str]] = [[Text(title, "bold") for title in head]]
    for seen in sorted(views, key=lambda v: (v.namespace, v.name)):
        pair = seen.pair
        rows.append(
            [
                *([seen.namespace] if space else []),
                seen.name,
                tree.marked(tree.HEALTH[seen.health], seen.phase),
                ("on" if pair.islands else "off") if pair else "",
                (pair.ratio or "unified") if pair else "",
                f"{seen.ready}/{seen.replicas}",
                age(seen.created, moment),
                seen.reason,
            ]
        )
    show(columns(rows))
    return 0


async def _views(access: Access, name: str) -> AsyncIterator[View | ApiError | Unreachable]:
    """What is seen, again and again. An API server that is silent or busy for a while is no reason to end."""
    while True:
        try:
            yield await look(access, name)
        except (ApiError, Unreachable) as error:
            if isinstance(error, ApiError) and error.status not in BUSY:
                raise
            yield error
        await asyncio.sleep(EVERY)


async def _watch(args: argparse.Namespace, access: Access) -> None:
    """On a terminal the tree is drawn over itself; elsewhere it is printed whenever it says something new."""
    out = console()
    if args.json or not out.is_terminal:
        await _print_changes(args, access)
        return
    from rich.console import Group
    from rich.live import Live

    lines: list[Text] = []
    try:
        with Live(console=out, screen=True, auto_refresh=False) as live:
            async for seen in _views(access, args.name):
                silent = isinstance(seen, Exception)
                if not isinstance(seen, Exception):
                    lines = tree.render(seen, now())
                told = [Text(sentence, "red") for sentence in access.unread]
                told += [Text(f"No answer from the API server: {seen}", "red")] if silent else []
                drawn = [line.copy() for line in lines]
                for line in drawn:
                    line.no_wrap, line.overflow = True, "ellipsis"  # a line that wraps would push the others away
                live.update(Group(*told, *drawn), refresh=True)
    finally:
        show(lines)  # the last of it stays on the terminal


async def _print_changes(args: argparse.Namespace, access: Access) -> None:
    last: View | None = None
    async for seen in _views(access, args.name):
        if isinstance(seen, Exception) or (last and unchanged(last, seen)):
            continue
        if args.json:
            show_json(plain(seen))
        else:
            show([*([Text()] if last else []), *tree.render(seen, now())])
        last = seen


def unchanged(one: View, other: View) -> bool:
    """Nothing but the clock has moved."""
    still = [replace(v, step=v.step and replace(v.step, left=None)) for v in (one, other)]
    return still[0] == still[1]
