"""What the simulated benches share: their flags, their file of finished runs, their progress."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from island_engine import guards
from island_engine.bench.sim import forks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.progress import Progress

    from island_engine.bench.sim.setting import Setting

NOTE = "Simulated: SGLang 0.5.23's own scheduler, cache and pools; step times from a roofline model of one H100."


def add_arguments(parser: argparse.ArgumentParser, seeds: tuple[int, ...]) -> None:
    """--seed, --jobs, --resume."""
    parser.add_argument(
        "--seed",
        nargs="+",
        type=_natural,
        default=list(seeds),
        help=f"workloads to draw, results are their mean (default: {' '.join(map(str, seeds))})",
    )
    parser.add_argument(
        "--jobs",
        type=_natural,
        default=min(4, os.cpu_count() or 1),
        help="runs at a time, about 1 GB and one core each (default: one per core, at most 4)",
    )
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="FILE",
        help="keep finished runs here and do not run them again (default: beside --json, as .runs.jsonl)",
    )


def run(options: argparse.Namespace, progress: Progress, settings: Sequence[Setting]) -> list[dict[str, Any]]:
    """Run what is not there yet, with one bar for all."""
    kept = options.resume
    if kept is None and options.json and options.json != Path("-"):
        kept = options.json.with_suffix(".runs.jsonl")
    if kept is not None and kept.is_dir():
        raise guards.RefusedError(f"--resume {kept}: is a folder; give a file in it")
    bar = progress.add_task(f"{options.bench}, simulated", total=len(settings))
    return forks.run_all(settings, forks.Results(kept), options.jobs, lambda _: progress.advance(bar))


def _natural(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: use a positive whole number")
    return number
