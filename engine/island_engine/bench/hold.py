"""`bench hold`: SWA tokens that a running request pins while it decodes, on SGLang's own pools and trees, no model.

Two situations. *The SWA pool binds*: a burst much larger than the pool, looked at in the second half of the run; this
is where the hold decides how many run. *Roomy*: a few requests and a pool that nobody fills.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from island_engine.bench import geometry, report, worker
from island_engine.bench import plot as look

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path

    from rich.progress import Progress
    from rich.table import Table

NAME = "hold"
HELP = "SWA tokens that a running request pins"
ARMS = ("lazy", "stock", "release", "islands")
KEYS = ("hold_mean", "hold_max", "roomy_mean", "roomy_max", "evictable_dead")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Geometry, and how long the burst runs."""
    geometry.add_arguments(parser)
    parser.add_argument(
        "--ratio", type=float, default=0.17, metavar="R", help="SWA pool over full pool where it binds (default 0.17)"
    )
    parser.add_argument(
        "--steps", type=geometry.positive, default=4000, metavar="N", help="scheduler steps of the burst (default 4000)"
    )
    parser.add_argument(
        "--requests", type=geometry.positive, default=170, metavar="N", help="requests in the burst (default 170)"
    )


def run(options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Both situations on every arm."""
    size = geometry.given(options)
    setting = (size, options.ratio, options.requests, options.steps, not options.sync)
    arms = worker.measure(options.arm, progress, "hold", measure, *setting)
    return report.result(NAME, size.as_json(ratio=options.ratio, overlap=not options.sync), arms)


def measure(
    arm: str, size: geometry.Geometry, ratio: float, requests: int, steps: int, overlap: bool
) -> Iterator[float | dict[str, Any]]:
    """In the arm's process."""
    from island_engine.bench import workload

    burst = workload.Burst(requests, steps, size.output, size.output)
    bound: dict[str, Any] = {}
    for item in workload.run(arm, size, burst, ratio, big=True, overlap=overlap):
        if isinstance(item, dict):
            bound = item
        else:
            yield item * 0.7
    free: dict[str, Any] = {}
    for item in roomy(arm, size, overlap):
        if isinstance(item, dict):
            free = item
        else:
            yield 0.7 + item * 0.3
    yield {key: (bound | free)[key] for key in KEYS}


def roomy(arm: str, size: geometry.Geometry, overlap: bool, count: int = 8) -> Iterator[float | dict[str, Any]]:
    """`count` requests in pools of plenty, from two windows into their generation to half of it."""
    import numpy as np

    from island_engine.bench import workload

    plenty = count * (size.prompt + size.output + 4 * size.page) + 4 * size.chunk
    engine = workload.rig(arm, size, full=plenty, swa=plenty, rows=count + 1, longest=size.output, overlap=overlap)
    for index, prompt in enumerate(workload.prompts(np.random.default_rng(1), count, size.prompt)):
        engine.add(prompt, size.output, seed=index)
    while engine.waiting or engine.chunked:
        engine.step()
    engine.step()  # with overlap the last prompt is published now
    evictable = engine.cache.swa_evictable_size() / count
    holds = []
    for step in range(size.output // 2):
        engine.step()
        if step >= 2 * size.window and step % workload.SAMPLE == 0:
            holds.append(engine.pinned_swa() / count)
        if step % workload.TELL == 0:
            yield 2 * step / size.output
    yield {"roomy_mean": round(float(np.mean(holds)), 1), "roomy_max": max(holds), "evictable_dead": evictable}


def table(result: dict[str, Any]) -> Table:
    """A row per arm."""
    made = report.table(
        "SWA tokens pinned per running request, while decoding",
        f"Window {result['geometry']['window']:,}, page {result['geometry']['page']}; a request needs one window and a "
        "page. Evictable: cached SWA tokens per request right after its prefill, in a roomy pool.",
        ["arm", "pool binds: mean", "max", "roomy: mean", "max", "evictable"],
    )
    for arm, found in result["arms"].items():
        made.add_row(report.ARMS[arm].label, *(report.number(found[key]) for key in KEYS))
    return made


def plot(result: dict[str, Any], path: Path) -> None:
    """Bars, and what a request needs."""
    size = result["geometry"]
    need = size["window"] + size["page"]
    means = {arm: found["hold_mean"] for arm, found in result["arms"].items()}
    near = {arm: mean for arm, mean in means.items() if mean < 4 * need}
    panels = [means, near] if 0 < len(near) < len(means) else [means]
    title = "What a running request pins in the SWA pool"
    if {"stock", "islands"} <= set(means):
        title = (
            f"A running request pins {means['islands']:,.0f} SWA tokens with islands, {means['stock']:,.0f} in stock"
        )
    made, axes = look.figure(
        title,
        f"Tokens per request while decoding and the SWA pool binds (r {size['ratio']}, window {size['window']:,}, "
        f"prompts of {size['prompt']:,}).\nSGLang 0.5.23's pools, trees and admission in process, no model. "
        "stock is SGLang as it comes.",
        columns=len(panels),
        size=(11.5, 5),
    )
    for one, shown in zip([axes] if len(panels) == 1 else axes, panels, strict=True):
        look.bars(one, list(shown), list(shown.values()), [report.number(value) for value in shown.values()], room=0.3)
        one.axvline(need, color=look.INK, linewidth=1, linestyle=(0, (4, 3)), zorder=1.5)
        one.set_xlabel("SWA tokens per running request, mean", color=look.QUIET, fontsize=9)
    look.save(
        made,
        path,
        note=f"Dashed: one window and a page ({need:,}), the least a decoding request can hold. Right: without lazy. "
        "Release flag: SGLANG_OPT_RELEASE_PREFILL_SWA=1.",
    )
