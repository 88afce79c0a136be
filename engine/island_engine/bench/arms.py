"""The seed's experiment on SGLang's real scheduler in virtual time: simulated, and labelled so.

The seed compares three arms on one H100 with Gemma 4 26B-A4B: A is its engine before islands at r 0.32 and 740k tokens,
B the same pools with islands, C islands at r 0.17 and 980k. Pool-bound is a burst of 96 requests, latency-bound at most
24 at a time; a request is U(1, 32k) tokens in and U(1, 16k) out, the reading of "32k-in/16k-out random" that fits the
seed's 21 -> 46 running requests. One number was fitted, on arm A (paced.roofline).
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from island_engine.bench import plot as picture
from island_engine.bench import report
from island_engine.bench.sim import options as simulation
from island_engine.bench.sim.clients import Independent
from island_engine.bench.sim.setting import SWITCHES, UNIFIED_RATIO, Setting, pool_tokens
from island_engine.paced.profiles import PROFILES

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from rich.progress import Progress
    from rich.table import Table

NAME = "arms"
HELP = "the seed's two workloads on SGLang's real scheduler in virtual time (simulated), the seed's figures beside ours"
ARMS = ("lazy", "stock", "release", "unified", "islands", "islands-unified")

PROFILE = "gemma4-26b-h100"
BUDGET = 37_000_000_000  # bytes of KV on the seed's H100-80GB
RUNNING = 48
POOLS = {0.32: 740_000, 0.17: 980_000}  # ratio -> tokens, as the seed deployed them
WORKLOADS = {
    "pool-bound": Independent(96, 96, 32_768, 16_384),
    "latency-bound": Independent(96, 24, 32_768, 16_384),
    "fixed": Independent(96, 96, 32_768, 16_384, floor=1.0),  # every request of the full size: where lazy binds
}
RATIOS = {  # what each arm runs; its headline is the first one, pool-bound
    "lazy": (0.32, 0.17),
    "stock": (0.17, 0.32),
    "release": (0.17, 0.32),
    "unified": (UNIFIED_RATIO,),
    "islands": (0.17, 0.32),
    "islands-unified": (UNIFIED_RATIO,),
}
# The seed's results: running requests, output tokens/s, mean latency in seconds.
SEED: dict[str, dict[str, float]] = {
    "A": {"running": 21, "output_tokens_per_s": 3_995, "latency_mean_s": 73.4},
    "C": {"running": 46, "output_tokens_per_s": 5_695, "latency_mean_s": 46.5},
}
# Name, workload, arm and ratio over arm and ratio, the seed's gain in throughput and change of latency in percent.
COMPARISONS: tuple[tuple[str, str, tuple[str, float], tuple[str, float], float | None, float | None], ...] = (
    ("C over A, pool-bound", "pool-bound", ("islands", 0.17), ("lazy", 0.32), 42.5, -37.0),
    ("B over A, latency-bound", "latency-bound", ("islands", 0.32), ("lazy", 0.32), 14.7, None),
    ("C over B, latency-bound", "latency-bound", ("islands", 0.17), ("islands", 0.32), 0.0, None),
    ("islands over stock, r 0.17", "pool-bound", ("islands", 0.17), ("stock", 0.17), None, None),
)
SEED_BIND = {"running": "10 to 11", "full": 0.5}  # requests of the full size at r 0.17, before islands
MEANS = (
    *("running_mean", "running_max", "running_while_queued", "full_while_queued", "retractions"),
    *("output_tokens_per_s", "latency_mean_s", "full_peak", "swa_peak", "swa_hold_mean", "recomputed_pct"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See options."""
    simulation.add_arguments(parser, seeds=(1, 2, 3))


def plan(arms: Sequence[str], seeds: Sequence[int]) -> list[tuple[str, Setting]]:
    """Every run, with the name of its workload. Pure."""
    runs = []
    for arm in arms:
        for name, workload in WORKLOADS.items():
            for ratio in RATIOS[arm]:
                unified = SWITCHES[arm].unified
                if name == "fixed" and ratio not in (0.17, UNIFIED_RATIO):
                    continue
                tokens = pool_tokens(PROFILES[PROFILE], BUDGET, ratio, unified=True) if unified else POOLS[ratio]
                drawn = seeds[:1] if name == "fixed" else seeds  # lengths are fixed, so a seed changes nothing
                runs += [(name, Setting(arm, workload, seed, ratio, tokens, RUNNING, PROFILE)) for seed in drawn]
    return runs


def run(options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """See cli.Bench."""
    runs = plan(options.arm, options.seed)
    results = simulation.run(options, progress, [setting for _, setting in runs])
    by_run: dict[str, dict[str, dict[str, list[dict[str, Any]]]]] = {}
    for (name, setting), found in zip(runs, results, strict=True):
        ratios = by_run.setdefault(setting.arm, {}).setdefault(name, {})
        ratios.setdefault(str(setting.ratio), []).append(found)
    arms = {}
    for arm, workloads in by_run.items():
        means = {name: {ratio: _mean(found) for ratio, found in ratios.items()} for name, ratios in workloads.items()}
        headline = str(RATIOS[arm][0])
        arms[arm] = {**means["pool-bound"][headline], "ratio": float(headline), "workloads": means}
    geometry = {
        "model": "Gemma-4-26B-A4B",
        "profile": PROFILE,
        "kv_bytes": BUDGET,
        "max_running_requests": RUNNING,
        "chunked_prefill_size": 16_384,
        "page_size": 64,
        "seeds": list(options.seed),
        "pools": {str(ratio): tokens for ratio, tokens in POOLS.items()},
    }
    found = report.result(NAME, geometry, arms)
    found["seed_figures"] = SEED
    found["comparisons"] = [one for one in (_compare(by_run, *c) for c in COMPARISONS) if one]
    if "lazy" in arms:
        bind = arms["lazy"]["workloads"]["fixed"]["0.17"]
        found["bind"] = {"running": bind["running_while_queued"], "full": bind["full_while_queued"], "seed": SEED_BIND}
    return found


def _mean(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The mean of a run over its seeds, None where one has none; `seeds` keeps each."""
    values: dict[str, Any] = {}
    for key in MEANS:
        each = [one[key] for one in found]
        values[key] = None if None in each else round(statistics.mean(each), 4)
    values["simulated"] = True
    values["conserved"] = all(one["conserved"] for one in found)
    values["seeds"] = [{key: one[key] for key in ("output_tokens_per_s", "latency_mean_s")} for one in found]
    return values


def _compare(
    runs: dict[str, Any],
    name: str,
    workload: str,
    ours: tuple[str, float],
    base: tuple[str, float],
    throughput: float | None,
    latency: float | None,
) -> dict[str, Any] | None:
    """Change in percent, per seed and in the mean; None when an arm was not asked for."""
    if not {ours[0], base[0]} <= set(runs):
        return None
    one, other = (runs[arm][workload][str(ratio)] for arm, ratio in (ours, base))

    def change(key: str) -> list[float]:
        return [round(100 * (a[key] / b[key] - 1), 1) for a, b in zip(one, other, strict=True)]

    gains, waits = change("output_tokens_per_s"), change("latency_mean_s")
    return {
        "name": name,
        "throughput_pct": round(statistics.mean(gains), 1),
        "throughput_pct_by_seed": gains,
        "latency_pct": round(statistics.mean(waits), 1),
        "latency_pct_by_seed": waits,
        "seed_throughput_pct": throughput,
        "seed_latency_pct": latency,
    }


def table(result: dict[str, Any]) -> Table:
    """See cli.Bench."""
    lines = [simulation.NOTE, "Queued: mean running requests while others wait. Peaks without what could be evicted."]
    lines += [_sentence(one) for one in result["comparisons"]]
    if bind := result.get("bind"):
        lines.append(
            f"lazy, r 0.17, every request of the full size: {bind['running']:.1f} run while the full pool is "
            f"{bind['full']:.0%} used; the seed: {bind['seed']['running']} at {bind['seed']['full']:.0%}."
        )
    columns = ["arm", "workload", "ratio", "queued", "mean", "max", "retracted", "tokens/s", "E2E s", "full", "SWA"]
    made = report.table("The seed's arms, SIMULATED", "\n".join(lines), columns)
    for arm, values in result["arms"].items():
        for workload, ratios in values["workloads"].items():
            for ratio, one in ratios.items():
                queued = one["running_while_queued"]
                made.add_row(
                    report.ARMS[arm].label,
                    workload,
                    "one pool" if SWITCHES[arm].unified else ratio,
                    "-" if queued is None else report.number(queued, 1),
                    report.number(one["running_mean"], 1),
                    report.number(one["running_max"], 0),
                    report.number(one["retractions"], 0),
                    report.number(one["output_tokens_per_s"]),
                    report.number(one["latency_mean_s"], 1),
                    f"{one['full_peak']:.0%}",
                    f"{one['swa_peak']:.0%}",
                )
        made.add_section()
    return made


def _sentence(one: dict[str, Any]) -> str:
    seed = [
        f"{value:+.1f} % {what}"
        for value, what in ((one["seed_throughput_pct"], "throughput"), (one["seed_latency_pct"], "latency"))
        if value is not None
    ]
    said = f"; the seed: {', '.join(seed)}" if seed else ""
    return f"{one['name']}: {one['throughput_pct']:+.1f} % throughput, {one['latency_pct']:+.1f} % latency{said}."


def plot(result: dict[str, Any], path: Path) -> None:
    """See cli.Bench: pool-bound throughput, latency and running requests; the seed's A and C as marks."""
    bars = [
        (arm, ratio, one)
        for arm, values in result["arms"].items()
        for ratio, one in values["workloads"]["pool-bound"].items()
    ]
    names = [report.ARMS[arm].label + ("" if SWITCHES[arm].unified else f", r {ratio}") for arm, ratio, _ in bars]
    gain = next((one for one in result["comparisons"] if one["name"] == COMPARISONS[0][0]), None)
    title = "The seed's pool-bound experiment, simulated"
    if gain:
        title = f"Islands at r 0.17 over lazy at r 0.32: {gain['throughput_pct']:+.0f} % output, simulated"
    figure, panels = picture.figure(
        title,
        "96 requests at once, at most 48 running, U(1, 32k) tokens in, U(1, 16k) out; mean of seeds "
        f"{', '.join(map(str, result['geometry']['seeds']))}. Diamonds: the seed's measured arms A and C.",
        columns=3,
        size=(13.2, 5.6),
    )
    marked = {("lazy", "0.32"): "A", ("islands", "0.17"): "C"}
    shown = (
        ("output_tokens_per_s", "output tokens/s", 0, "output_tokens_per_s"),
        ("latency_mean_s", "mean latency, s", 1, "latency_mean_s"),
        ("running_while_queued", "running requests while others wait", 1, "running"),
    )
    for index, (axes, (key, label, digits, of_seed)) in enumerate(zip(panels, shown, strict=True)):
        places = range(len(bars))
        values = [one[key] or 0 for _, _, one in bars]
        drawn = axes.barh(places, values, color=[report.ARMS[arm].color for arm, _, _ in bars], height=0.66)
        axes.bar_label(
            drawn, labels=[report.number(value, digits) for value in values], padding=5, fontsize=9, color=picture.INK
        )
        for place, (arm, ratio, _) in zip(places, bars, strict=True):
            if mark := marked.get((arm, ratio)):
                axes.plot(
                    result["seed_figures"][mark][of_seed], place, marker="D", markersize=7, color="white",
                    markeredgecolor=picture.INK, markeredgewidth=1.4, zorder=3,
                )  # fmt: skip
        axes.set_yticks(places, names if index == 0 else [""] * len(bars))
        axes.tick_params(axis="y", labelsize=10, labelcolor=picture.INK)
        axes.invert_yaxis()
        axes.margins(x=0.2)
        axes.grid(axis="x", color=picture.GRID, linewidth=0.8)
        axes.set_xlabel(label, color=picture.QUIET)
    picture.save(figure, path, note=simulation.NOTE)
