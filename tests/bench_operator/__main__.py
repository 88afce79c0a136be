"""`make bench-operator`. Ctrl-C ends all that it started."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from pathlib import Path

from support.watching import connect

from bench_operator import fleet, soak
from bench_operator.eye import Eye
from bench_operator.plane import Fleet, engines
from bench_operator.report import Report

PARTS = {
    "core": (),  # needs no cluster
    "soak": (soak.rollouts,),
    "silence": (soak.silence,),
    "fleet": (fleet.converge, fleet.restart),
}


def interrupt(*_: object) -> None:
    """SIGTERM ends it as Ctrl-C does."""
    raise KeyboardInterrupt


async def measure(plane: Fleet, parts: list[str], count: int, report: Report) -> None:
    """Each part in turn, on one cluster."""
    async with engines() as port, contextlib.AsyncExitStack() as clients:
        api, watcher = [await connect(plane.kubeconfig) for _ in range(2)]
        for client in (api, watcher):
            clients.push_async_callback(client.close)
        eye = Eye(api, watcher)
        async with asyncio.TaskGroup() as group:  # an eye that fails ends it all
            looking = group.create_task(eye.run())
            bench = fleet.Bench(plane, api, eye, port, count, report)
            for part in parts:
                print(f"{part} ...", file=sys.stderr)
                for step in PARTS[part]:
                    await step(bench)
            looking.cancel()


def main() -> int:
    """0: every target was met, 1: one was missed, 130: interrupted."""
    parser = argparse.ArgumentParser(
        prog="make bench-operator",
        description="Measure the operator on a real API server with a fleet of InferenceServices. No root, no GPU.",
        epilog="example: make bench-operator BENCH_OPERATOR='--resources 200 --only fleet'",
    )
    parser.add_argument("--resources", type=int, default=1000, metavar="N", help="size of the fleet (default 1000)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts to run (default: all)")
    parser.add_argument("--json", type=Path, help="where the numbers go (default: docs/bench, of a part build/bench)")
    parser.add_argument("--plot", type=Path, help="where the picture goes (default: docs/img, of a part build/bench)")
    options = parser.parse_args()
    if options.resources < 1:
        parser.error(f"--resources {options.resources} is no fleet: use 1 or more")
    whole = options.resources == parser.get_default("resources") and {*options.only} == {*PARTS}
    numbers = options.json or Path("docs/bench/operator.json" if whole else "build/bench/operator.json")
    picture = options.plot or Path("docs/img/operator.png" if whole else "build/bench/operator.png")
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, interrupt)
    report = Report()
    try:
        if "core" in options.only:
            print("core ...", file=sys.stderr)
            soak.core(report)
        if {"soak", "silence", "fleet"} & {*options.only}:
            with Fleet() as plane:
                asyncio.run(measure(plane, [p for p in PARTS if p in options.only], options.resources, report))
    except KeyboardInterrupt:
        print("\ninterrupted: all processes of the bench are ended", file=sys.stderr)
        return 130
    report.write(numbers, options.resources)
    report.draw(picture)
    print(f"\n{numbers}, {picture}; {len(report.missed)} targets missed")
    return 1 if report.missed else 0


if __name__ == "__main__":
    sys.exit(main())
