"""`island-engine bench NAME`: measure one thing on every arm; table, JSON and a picture.

A bench is a module of this package, imports neither torch nor sglang when it is imported, and offers

    NAME, HELP               name on the command line, one line of help
    ARMS                     the arms that it can measure, in the order of its table
    add_arguments(parser)    its own flags
    run(options, progress)   measure `options.arm`; the JSON object (report.result). `progress`: rich.progress.Progress
    table(result)            rich.table.Table
    plot(result, path)       write the PNG
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from island_engine import guards
from island_engine.bench import report

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

BENCHES: tuple[str, ...] = ("hold", "admission", "reuse", "overhead", "conservation", "arms", "best", "serving", "gate")

EPILOG = """example:
  island-engine bench hold --arm stock islands --json build/bench/hold.json --plot build/bench/hold.png"""


class Bench(Protocol):
    """What a bench module offers."""

    NAME: str
    HELP: str
    ARMS: tuple[str, ...]

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the bench's own flags."""

    def run(self, options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
        """Measure."""

    def table(self, result: dict[str, Any]) -> Table:
        """Show."""

    def plot(self, result: dict[str, Any], path: Path) -> None:
        """Draw."""


def load(name: str) -> Bench:
    """The module of one bench."""
    module: Any = importlib.import_module(f"island_engine.bench.{name}")
    bench: Bench = module
    return bench


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `bench` and every bench below it."""
    parser = commands.add_parser(
        "bench",
        help="measure this code against stock SGLang: table, JSON, PNG",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    names = parser.add_subparsers(dest="bench", required=True, metavar="NAME")
    for bench in map(load, BENCHES):
        add_bench(names, bench)


def add_bench(names: argparse._SubParsersAction[argparse.ArgumentParser], bench: Bench) -> None:
    """One bench: the flags that all have, then its own."""
    one = names.add_parser(
        bench.NAME,
        help=bench.HELP,
        description=bench.HELP[0].upper() + bench.HELP[1:] + ".",
        epilog=f"example:\n  island-engine bench {bench.NAME} --json build/bench/{bench.NAME}.json "
        f"--plot build/bench/{bench.NAME}.png",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    one.add_argument(
        "--arm",
        nargs="+",
        choices=bench.ARMS,
        default=list(bench.ARMS),
        metavar="ARM",
        help=f"what to measure, of {', '.join(bench.ARMS)} (default: all)",
    )
    one.add_argument("--json", type=Path, metavar="FILE", help="write the result as JSON; - prints it instead")
    one.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the result")
    bench.add_arguments(one)


def run(options: argparse.Namespace) -> int:
    """Measure, then print, write and draw; the exit code, 1 when a run did not give everything back."""
    return measure(load(options.bench), options)


def measure(bench: Bench, options: argparse.Namespace) -> int:
    """Everything that can be refused is refused before anything is measured."""
    _check(options)
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        found = bench.run(options, progress)
    if wrong := report.problems(found):
        raise AssertionError(f"bench {bench.NAME} made a wrong result: {'; '.join(wrong)}")
    if options.json == Path("-"):
        print(json.dumps(found, indent=1))
    else:
        Console(width=None if sys.stdout.isatty() else report.WIDTH).print(bench.table(found))
    if lost := report.lost(found):
        where = "" if options.json in (None, Path("-")) else f"; {options.json} was not written"
        print(f"bench {bench.NAME} FAILED: {'; '.join(lost)}{where}", file=sys.stderr)
        return 1
    if options.plot:
        bench.plot(found, options.plot)
    if options.json and options.json != Path("-"):
        report.write(found, options.json)  # last: where it is, the picture and the table are
    return 0


def _check(options: argparse.Namespace) -> None:
    guards.check_version()
    needed = ["rich"] + ["matplotlib"] * bool(options.plot)
    for name in needed:
        if importlib.util.find_spec(name) is None:
            raise guards.RefusedError(f"{name} is not installed: install radix-islands[report]")
    if options.plot and options.plot.suffix != ".png":
        raise guards.RefusedError(f"--plot {options.plot}: give a file that ends in .png")
    for flag, path in (("--json", options.json), ("--plot", options.plot)):
        if path and path.is_dir():
            raise guards.RefusedError(f"{flag} {path}: is a folder; give a file in it")
        if path and path != Path("-"):
            _make_folder(flag, path)


def _make_folder(flag: str, path: Path) -> None:
    """The folder of a result, now and not after minutes of measuring."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as fault:
        why = (fault.strerror or "unwritable").lower()
        raise guards.RefusedError(f"{flag} {path}: {path.parent}: {why}; give a file in a folder of yours") from None
