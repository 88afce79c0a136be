"""The timeline as a picture: pods above, what the client saw below, the operator's phases between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from demo.telling import Outcome

ISLANDS, STOCK, GATE, FAILED = "#1b7f79", "#8d99ae", "#e9a23b", "#c1121f"
PHASES = {
    "Pending": "#d9d9d9",
    "Gating": "#f6d186",
    "Canary": "#bde0c6",
    "Promoting": "#9ad1d4",
    "Stable": "#eef5ee",
    "RollingBack": "#f4a6a0",
}
HALO = [withStroke(linewidth=2.5, foreground="white")]  # words stay readable across the edges of bars


def draw(outcome: Outcome, path: Path) -> None:
    """Write the PNG. Times are minutes since the demo began."""
    figure, (pods, phases, requests) = plt.subplots(
        3, 1, sharex=True, figsize=(13, 8), height_ratios=(5, 0.6, 3), constrained_layout=True
    )
    _pods(pods, outcome)
    _phases(phases, outcome)
    _requests(requests, outcome)
    passed = (outcome.ended - outcome.began) / 60
    requests.set(xlim=(0, passed), xlabel="minutes since the demo began")
    figure.suptitle(
        f"Radix Islands, live: {len(outcome.requests)} requests, {len(outcome.failed)} failed, "
        f"{len(outcome.mixed)} pods with a switch and a ratio of different halves",
        fontsize=13,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _pods(axes: Axes, outcome: Outcome) -> None:
    seen = sorted(outcome.pods, key=lambda p: p.created)
    gates = [status.get("gate", {}) for status in outcome.statuses.values()]
    verdicts = {gate["revision"]: gate["verdict"] for gate in gates if gate.get("verdict")}
    for row, pod in enumerate(seen):
        color = GATE if pod.role == "gate" else (ISLANDS if pod.pair and pod.pair[0] else STOCK)
        left, right = _minutes(outcome, pod.created), _minutes(outcome, pod.gone or outcome.ended)
        axes.barh(row, right - left, left=left, height=0.7, color=color, alpha=0.35)
        for (since, ready), (until, _) in zip(
            pod.ready, [*pod.ready[1:], (pod.gone or outcome.ended, False)], strict=False
        ):
            if ready:
                begin = _minutes(outcome, since)
                axes.barh(row, _minutes(outcome, until) - begin, left=begin, height=0.7, color=color)
        what = (
            f"gate: {verdicts.get(pod.revision, 'no verdict')}"
            if pod.pair is None
            else f"islands {'on' if pod.pair[0] else 'off'}, ratio {pod.pair[1]}"
        )
        axes.text(left, row, f" {what}, revision {pod.revision[:6]}", va="center", fontsize=8, path_effects=HALO)
    labels: list[tuple[float, str]] = []
    axes.set(yticks=[], ylim=(len(seen) + 0.6, -1.6), ylabel="pods")  # room for the legend below
    axes.legend(
        handles=[
            Patch(color=STOCK, label="stock half, serving"),
            Patch(color=ISLANDS, label="islands half, serving"),
            Patch(color=GATE, label="gate Job"),
            Patch(color=STOCK, alpha=0.35, label="pale: booting or draining"),
        ],
        loc="lower right",
        fontsize=8,
        ncols=4,
    )
    for number, (_, at) in enumerate(outcome.chapters, start=1):
        axes.axvline(at / 60, color="black", linewidth=0.6, linestyle=":")
        if not labels or at - labels[-1][0] > (outcome.ended - outcome.began) / 50:
            labels.append((at, str(number)))
        else:  # within seconds of the one before: their numbers share a place
            labels[-1] = labels[-1][0], f"{labels[-1][1]}, {number}"
    for at, numbers in labels:
        axes.text(at / 60, -1.15, f" {numbers}", fontsize=9, fontweight="bold", path_effects=HALO)
    axes.set_title(
        "    ".join(f"{n} {title}" for n, (title, _) in enumerate(outcome.chapters, start=1)), fontsize=9, loc="left"
    )


def _phases(axes: Axes, outcome: Outcome) -> None:
    ends = [at for at, _ in outcome.phases[1:]] + [outcome.ended]
    for (since, phase), until in zip(outcome.phases, ends, strict=True):
        left, width = _minutes(outcome, since), (until - since) / 60
        axes.barh(0, width, left=left, height=1, color=PHASES.get(phase, "white"), edgecolor="white")
        narrow = until - since < (outcome.ended - outcome.began) / 20
        turned, size = (90, 6) if narrow else (0, 8)
        axes.text(left + width / 2, 0, phase, ha="center", va="center", rotation=turned, fontsize=size)
    axes.set(yticks=[], ylabel="phase")


def _requests(axes: Axes, outcome: Outcome) -> None:
    good = [r for r in outcome.requests if r.ok]
    axes.plot(
        [_minutes(outcome, r.at) for r in good],
        [r.seconds for r in good],
        ".",
        color=ISLANDS,
        markersize=3,
        label="a request, answered",
    )
    if outcome.failed:
        axes.plot(
            [_minutes(outcome, r.at) for r in outcome.failed],
            [r.seconds for r in outcome.failed],
            "x",
            color=FAILED,
            label="a request, failed",
        )
    axes.set(ylabel="request latency, s", ylim=(0, None))
    axes.legend(loc="upper right", fontsize=8)


def _minutes(outcome: Outcome, at: float) -> float:
    return (at - outcome.began) / 60
