"""Every arm at its own best SWA ratio, all with the same bytes of KV, on SGLang's real scheduler in virtual time.

By default an arm runs at the planner's ratio and one step of the grid to either side, and on in the direction in which
it gets better; --full runs the whole grid. An arm on one shared pool has no ratio to choose.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from island_engine.bench import plot as picture
from island_engine.bench import report
from island_engine.bench.predict import predict
from island_engine.bench.sim import options as simulation
from island_engine.bench.sim.clients import Independent, Sessions
from island_engine.bench.sim.setting import SWITCHES, UNIFIED_RATIO, Setting, pool_tokens
from island_engine.paced.profiles import PROFILES

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from rich.progress import Progress
    from rich.table import Table

NAME = "best"
HELP = "every arm at its own best ratio with the same bytes of KV, in virtual time (simulated)"
ARMS = ("lazy", "stock", "release", "unified", "islands", "islands-unified")

BUDGET = 37_000_000_000  # bytes of KV on the seed's H100-80GB
GRID = (0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09, 0.1, 0.11, 0.12, 0.15, 0.17, 0.21, 0.25, 0.32, 0.5, 0.8, 1.0)


@dataclass(frozen=True)
class Case:
    """A workload on an engine. `running`: --max-running-requests."""

    title: str
    workload: Independent | Sessions
    running: int
    profile: str = "gemma4-26b-h100"


CASES = {
    "random-48": Case("random, 32k in, 16k out, 48 at most", Independent(96, 96, 32_768, 16_384), 48),
    "random-128": Case("random, 32k in, 16k out, 128 at most", Independent(256, 256, 32_768, 16_384), 128),
    "nospec": Case(
        "random, 32k in, 8k out, no speculation",
        Independent(256, 256, 32_768, 8_192),
        256,
        "gemma4-26b-h100-nospec",
    ),
    "agentic-64": Case("agents, 64 sessions at a time", Sessions(128, 64), 128),
    "agentic-80": Case("agents, 80 sessions at a time", Sessions(160, 80), 128),
    "agentic-96": Case("agents, 96 sessions at a time", Sessions(192, 96), 128),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--workload, --full, and what simulated benches share."""
    parser.add_argument(
        "--workload",
        nargs="+",
        choices=tuple(CASES),
        default=list(CASES),
        metavar="NAME",
        help=f"of {', '.join(CASES)} (default: all)",
    )
    parser.add_argument("--full", action="store_true", help="run the whole grid of ratios (hours)")
    simulation.add_arguments(parser, seeds=(1,))


def setting(name: str, arm: str, ratio: float, seed: int) -> Setting:
    """One run: the pools of this ratio in BUDGET bytes."""
    case = CASES[name]
    tokens = pool_tokens(PROFILES[case.profile], BUDGET, ratio, unified=SWITCHES[arm].unified)
    return Setting(arm, case.workload, seed, ratio, tokens, case.running, case.profile)


def planned(name: str, arm: str) -> float:
    """The planner's ratio, rounded up to the grid; UNIFIED_RATIO where there is none to choose."""
    if SWITCHES[arm].unified:
        return UNIFIED_RATIO
    wanted = predict(setting(name, arm, 1.0, 1), BUDGET).ratio
    return min((ratio for ratio in GRID if ratio >= wanted - 0.005), default=GRID[-1])


def first(name: str, arm: str, *, full: bool) -> set[float]:
    """The ratios to begin with."""
    at = planned(name, arm)
    if SWITCHES[arm].unified:
        return {at}
    return set(GRID) if full else around(at)


def around(ratio: float) -> set[float]:
    """A ratio of the grid and its neighbours."""
    at = GRID.index(ratio)
    return set(GRID[max(0, at - 1) : at + 2])


def wanted(curve: dict[float, float]) -> set[float]:
    """The ratios to run next, of a curve ratio -> tokens/s: none once both neighbours of its best were run."""
    best = peak(curve)
    return around(best) - set(curve) if best in GRID else set()


def peak(curve: dict[float, float]) -> float:
    """The best ratio; of several that are equally good the leanest, which leaves most to the full pool."""
    return min(curve, key=lambda ratio: (-curve[ratio], ratio))


Key = tuple[str, str]  # workload, arm
Runs = dict[Key, dict[float, list[dict[str, Any]]]]


def run(options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """See cli.Bench."""
    keys = [(name, arm) for name in options.workload for arm in options.arm]
    runs: Runs = {key: {} for key in keys}
    todo = {key: first(*key, full=options.full) for key in keys}
    while any(todo.values()):
        _fill(runs, todo, options, progress)
        todo = {key: wanted(tokens_per_s(found)) for key, found in runs.items()}
    arms: dict[str, dict[str, Any]] = {arm: {} for arm in options.arm}
    for (name, arm), found in runs.items():
        arms[arm][name] = _summary(name, arm, found)
    geometry = {
        "model": "Gemma-4-26B-A4B",
        "kv_bytes": BUDGET,
        "chunked_prefill_size": 16_384,
        "page_size": 64,
        "seeds": list(options.seed),
        "workloads": {name: CASES[name].title for name in options.workload},
        "ratios": "the whole grid" if options.full else "the planner's, its neighbours, and on while it gets better",
    }
    return {**report.result(NAME, geometry, arms), "simulated": True}


def tokens_per_s(found: dict[float, list[dict[str, Any]]]) -> dict[float, float]:
    """Mean over the seeds, by ratio."""
    return {ratio: _mean(each, "output_tokens_per_s") for ratio, each in found.items()}


def _fill(runs: Runs, todo: dict[Key, set[float]], options: argparse.Namespace, progress: Progress) -> None:
    """Run the ratios of `todo` on every seed, into `runs`."""
    asked = [(key, ratio) for key, ratios in todo.items() for ratio in sorted(ratios)]
    settings = [setting(*key, ratio, seed) for key, ratio in asked for seed in options.seed]
    results = iter(simulation.run(options, progress, settings))
    for key, ratio in asked:
        runs[key][ratio] = [next(results) for _ in options.seed]


def _summary(name: str, arm: str, found: dict[float, list[dict[str, Any]]]) -> dict[str, Any]:
    curve = tokens_per_s(found)
    best = peak(curve)
    each = found[best]
    queued = [one["running_while_queued"] for one in each]
    return {
        "ratio": None if SWITCHES[arm].unified else best,
        "planned": None if SWITCHES[arm].unified else planned(name, arm),
        "tok_s": curve[best],
        "e2e_s": _mean(each, "latency_mean_s"),
        "running": _mean(each, "running_mean" if None in queued else "running_while_queued"),
        "retractions": _mean(each, "retractions"),
        "recomputed_pct": _mean(each, "recomputed_pct"),
        "conserved": all(one["conserved"] for results in found.values() for one in results),
        "tok_s_by_seed": [one["output_tokens_per_s"] for one in each],
        "curve": [[ratio, curve[ratio]] for ratio in sorted(curve)],
    }


def _mean(each: Iterable[dict[str, Any]], key: str) -> float:
    return round(statistics.mean(float(one[key]) for one in each), 2)


def gain(result: dict[str, Any], arm: str, name: str, base: str = "stock") -> float | None:
    """Percent of throughput that an arm has over another one's best; None when either was not measured."""
    arms = result["arms"]
    if arm not in arms or base not in arms:
        return None
    return float(100 * (arms[arm][name]["tok_s"] / arms[base][name]["tok_s"] - 1))


def table(result: dict[str, Any]) -> Table:
    """See cli.Bench."""
    columns = [
        "arm",
        "workload",
        "ratio",
        "planned",
        "tokens/s",
        "over stock",
        "E2E s",
        "running",
        "retracted",
        "again",
    ]
    caption = f"{simulation.NOTE}\nOne budget of {BUDGET / 1e9:.0f} GB. again: share of prefill computed a second time."
    made = report.table("Each arm at its own best ratio, SIMULATED", caption, columns)
    for name in result["geometry"]["workloads"]:
        for arm, values in result["arms"].items():
            one, over = values[name], gain(result, arm, name)
            made.add_row(
                report.ARMS[arm].label,
                name,
                "one pool" if one["ratio"] is None else f"{one['ratio']:g}",
                "" if one["planned"] is None else f"{one['planned']:g}",
                report.number(one["tok_s"]),
                "" if over is None else f"{over:+.1f} %",
                report.number(one["e2e_s"], 1),
                report.number(one["running"], 1),
                report.number(one["retractions"]),
                f"{one['recomputed_pct']:.1f} %",
            )
        made.add_section()
    return made


def plot(result: dict[str, Any], path: Path) -> None:
    """See cli.Bench: a panel per workload, tokens/s over the ratio; a ring marks each arm's best."""
    names = list(result["geometry"]["workloads"])
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure, panels = picture.figure(
        _headline(result, names),
        f"Output tokens/s over the SWA ratio, {BUDGET / 1e9:.0f} GB of KV in every arm, Gemma 4 26B-A4B. Rings: each"
        " arm's best. Dashed: one shared pool, no ratio to choose.",
        columns=columns,
        rows=rows,
        size=(4.6 * columns, 3.7 * rows + 1.2),
    )
    panels = panels if isinstance(panels, list) else [panels]
    for axes, name in zip(panels, names, strict=False):
        _panel(axes, result, name)
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    handles = {label: line for axes in panels for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="upper left",
        bbox_to_anchor=(0.012, 0.88),  # between the subtitle and the panels
        ncols=len(handles),
        frameon=False,
        fontsize=9.5,
        labelcolor=picture.INK,
    )
    picture.save(figure, path, note=simulation.NOTE)


def _headline(result: dict[str, Any], names: Sequence[str]) -> str:
    gains = {name: found for name in names if (found := gain(result, "islands", name)) is not None}
    if not gains:
        return "Each arm at its own best SWA ratio, simulated"
    most = max(gains, key=lambda name: gains[name])
    return f"Islands against stock, each at its own best: {gains[most]:+.0f} % on {CASES[most].title} (simulated)"


def _panel(axes: Any, result: dict[str, Any], name: str) -> None:
    ratios = set()
    for arm, values in result["arms"].items():
        one, look = values[name], report.ARMS[arm]
        if one["ratio"] is None:
            axes.axhline(one["tok_s"], color=look.color, linestyle=(0, (4, 3)), linewidth=1.6, label=look.label)
            continue
        across, up = zip(*one["curve"], strict=True)
        ratios |= set(across)
        wide = 2.4 if arm == "islands" else 1.6
        axes.plot(across, up, color=look.color, marker="o", markersize=3.5, linewidth=wide, label=look.label)
        axes.plot(
            one["ratio"], one["tok_s"], marker="o", markersize=11, color="none", markeredgecolor=look.color,
            markeredgewidth=1.6,
        )  # fmt: skip
    axes.set_title(CASES[name].title, fontsize=10.5, color=picture.INK, loc="left")
    if (over := gain(result, "islands", name)) is not None:
        said, look = f"islands over stock: {over:+.0f} %", report.ARMS["islands"]
        axes.text(0.03, 0.06, said, fontsize=11, fontweight="bold", color=look.color, transform=axes.transAxes)
    axes.set_ylim(0, 1.12 * axes.get_ylim()[1])
    if ratios:
        shown = [
            ratio for ratio in (0.03, 0.05, 0.08, 0.12, 0.17, 0.25, 0.5, 1.0) if min(ratios) <= ratio <= max(ratios)
        ]
        axes.set_xscale("log")
        axes.minorticks_off()
        axes.set_xticks(shown, [f"{ratio:g}" for ratio in shown])
    axes.grid(axis="y", color=picture.GRID, linewidth=0.8)
    axes.yaxis.set_major_formatter(lambda value, _: report.number(value))
