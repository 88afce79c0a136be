"""The scale story as a picture: running and waiting requests, the pools, and latency, minute by minute."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

from demo.picture import FAILED, HALO, ISLANDS, STOCK

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from demo.meter import Sample
    from demo.scale import Scale

BY_HAND = "#e9a23b"


def draw(story: Scale, path: Path) -> None:
    """Write the PNG. Times are minutes since the story began."""
    outcome = story.outcome
    figure, (running, pools, latency) = plt.subplots(
        3, 1, sharex=True, figsize=(13, 9), height_ratios=(3, 2, 3), constrained_layout=True
    )
    engines: dict[str, list[Sample]] = {}
    for sample in story.meter.samples:
        engines.setdefault(sample.pod, []).append(sample)
    for pod, seen in engines.items():
        color = BY_HAND if pod == story.by_hand else ISLANDS if seen[0].islands else STOCK
        at = [(s.at - outcome.began) / 60 for s in seen]
        switch = f"islands {'on' if seen[0].islands else 'off'}"
        what = f"{switch} by hand, at the lean ratio" if pod == story.by_hand else switch
        running.plot(at, [s.running for s in seen], color=color, label=f"running, {what}")
        running.fill_between(
            at, [s.queued for s in seen], color=color, alpha=0.25, linewidth=0, label=f"waiting, {what}"
        )
        pools.plot(at, [100 * s.swa for s in seen], color=color, label=f"SWA pool, {what}")
        pools.plot(at, [100 * s.full for s in seen], color=color, linestyle=":", label=f"full pool, {what}")
    running.set(ylabel="requests", ylim=(0, None))
    pools.set(ylabel="pools, % in use", ylim=(0, 105))
    good = [r for r in outcome.requests if r.ok]
    latency.plot(
        [(r.at + r.seconds - outcome.began) / 60 for r in good],
        [r.seconds for r in good],
        ".",
        color="#555555",
        markersize=3,
    )
    for request in outcome.failed:
        latency.plot((request.at - outcome.began) / 60, request.seconds, "x", color=FAILED)
    latency.set(ylabel="latency when answered, s", xlabel="minutes since the start", ylim=(0, None))
    for axes in (running, pools):
        named = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))  # a half may have had several pods
        axes.legend(named.values(), named, loc="lower left", bbox_to_anchor=(0, 1), fontsize=7, ncols=6, frameon=False)
    for axes in (running, pools, latency):
        _chapters(axes, story, words=axes is latency)
    begun = next(at for title, at in outcome.chapters if title.startswith("Serve"))
    latency.set_xlim(begun / 60, (outcome.ended - outcome.began) / 60)
    figure.suptitle(_title(story), fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _title(story: Scale) -> str:
    spans = {half: story.measured(half) for half in story.spans}
    told = "; ".join(
        f"{half}: {m.running:.0f} running, {m.latency:.0f} s, {m.tok_s:,.0f} tokens/s" for half, m in spans.items()
    )
    return f"Gemma 4 26B on a modelled H100, 96 agents (paced engine, dummy tokens)\n{told}"


def _chapters(axes: Axes, story: Scale, *, words: bool) -> None:
    for since, until in story.spans.values():
        axes.axvspan(
            (since - story.outcome.began) / 60, (until - story.outcome.began) / 60, color="#000000", alpha=0.04
        )
    titles = [title for title, _ in story.outcome.chapters]
    for title, at in story.outcome.chapters[titles.index("Install the operator") + 1 :]:
        axes.axvline(at / 60, color="black", linewidth=0.6, linestyle=":")
        if words:
            axes.text(at / 60, axes.get_ylim()[1] * 0.96, f" {title}", fontsize=8, va="top", path_effects=HALO)
