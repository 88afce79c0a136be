"""`bench conservation`: random lives of an engine, after each of which both pools must be exactly as they began.

Arrivals, lengths, shared documents, branches, aborts and retractions at random, with and without overlap, without
speculation, with n-gram and with EAGLE's bigram keys, in pools where everything runs short. All along, what kernels
would read must be what they have written. A planted wrong frontier must be caught, or the bench proves nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from island_engine.bench import geometry, report, worker
from island_engine.bench import plot as look
from island_engine.islands import mutation

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path

    from rich.progress import Progress
    from rich.table import Table

NAME = "conservation"
HELP = "random runs after which both pools must be exactly as before, with a planted fault as control"
ARMS = ("islands",)
MUTANTS = 60  # at most: runs with the planted fault


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How many."""
    parser.add_argument("--runs", type=geometry.positive, default=1000, metavar="N", help="random runs (default 1000)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the first run (default 0)")


def run(options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """On every arm."""
    arms = worker.measure(options.arm, progress, NAME, measure, options.runs, options.seed)
    return report.result(NAME, {"seed": options.seed}, arms)


def measure(arm: str, runs: int, seed: int) -> Iterator[float | dict[str, Any]]:
    """In the arm's process."""
    import os

    from island_engine.bench import traffic

    cache_class = worker.cache_class(arm)
    mutants = min(MUTANTS, runs)
    modes: dict[str, dict[str, int]] = {}
    counted: Counter[str] = Counter()
    wrong: list[str] = []
    for index in range(runs):
        life = traffic.draw(seed + index)
        engine, found, aborted = traffic.live(life, cache_class)
        mode = modes.setdefault(life.mode, {"runs": 0, "leaks": 0})
        mode["runs"] += 1
        mode["leaks"] += bool(found)
        wrong += [f"seed {life.seed} ({life.mode}): {one}" for one in found]
        counted.update(steps=engine.clock, requests=len(engine.seeds), aborted=aborted, retracted=engine.retractions)
        counted.update(hits=sum(engine.tally.hits.values()), crossed=engine.tally.crossed)
        counted.update({f"{phase}_islands": count for phase, count in engine.tally.islands.items()})
        yield index / (runs + mutants)
    os.environ |= {mutation.MUTATE: mutation.FRONTIER, mutation.ALLOW: "1"}
    caught = 0
    for index in range(mutants):
        caught += bool(traffic.live(traffic.draw(seed + index), cache_class)[1])
        yield (runs + index) / (runs + mutants)
    yield {
        "runs": runs,
        "leaks": sum(mode["leaks"] for mode in modes.values()),
        "modes": modes,
        **counted,
        "mutants": mutants,
        "mutants_caught": caught,
        "wrong": wrong[:20],
    }


def table(result: dict[str, Any]) -> Table:
    """A row per mode, and the control."""
    made = report.table(
        "Random runs, and runs after which a pool was not as before",
        "Wrong: a pool not exactly at its baseline, KV read that was freed or overwritten, a token nobody answers for.",
        ["arm", "mode", "runs", "wrong"],
    )
    for arm, found in result["arms"].items():
        for mode, one in sorted(found["modes"].items()):
            made.add_row(report.ARMS[arm].label, mode, str(one["runs"]), str(one["leaks"]))
        made.add_row(report.ARMS[arm].label, "all", str(found["runs"]), str(found["leaks"]), end_section=True)
        made.add_row("", "planted wrong frontier", str(found["mutants"]), str(found["mutants_caught"]))
        told = ", ".join(
            f"{report.number(found[key])} {key.replace('_', ' ')}"
            for key in ("steps", "requests", "aborted", "retracted", "prefill_islands", "decode_islands", "crossed")
        )
        made.caption = f"{made.caption}\nIn them: {told}." + "".join(f"\n{one}" for one in found["wrong"])
    return made


def plot(result: dict[str, Any], path: Path) -> None:
    """Runs per mode, all of them back at the baseline, and the control."""
    arm, found = next(iter(result["arms"].items()))
    made, axes = look.figure(
        f"{found['runs']:,} random runs: {found['leaks']} leaks",
        f"After each run both KV pools must be exactly as they began; in them {report.number(found['retracted'])} "
        f"retractions, {report.number(found['aborted'])} aborts, {report.number(found['decode_islands'])} decode "
        f"islands.\nControl: a wrong frontier was planted in {found['mutants']} runs and caught in "
        f"{found['mutants_caught']}.",
    )
    modes = sorted(found["modes"].items())
    names = [name for name, _ in modes]
    good = [one["runs"] - one["leaks"] for _, one in modes]
    bad = [one["leaks"] for _, one in modes]
    drawn = axes.barh(names, good, color=report.ARMS[arm].color, height=0.62)
    axes.bar_label(drawn, [f"{count} runs, {leaks} leaks" for count, leaks in zip(good, bad, strict=True)], padding=5)
    axes.barh(names, bad, left=good, color=look.INK, height=0.62)
    axes.invert_yaxis()
    axes.set_xlim(0, max(one["runs"] for _, one in modes) * 1.35)
    axes.set_xlabel("runs that ended with both pools exactly at their baseline", color=look.QUIET, fontsize=9)
    axes.grid(axis="x", color=look.GRID, linewidth=0.8)
    look.save(made, path, note="SGLang 0.5.23's pools, trees, admission and retraction in process, no model.")
