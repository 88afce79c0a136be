"""What the benches draw, in the look of island_engine.picture."""

from __future__ import annotations

from typing import Any

from island_engine.picture import ARMS, GRID, INK, QUIET, figure, save

__all__ = ["GRID", "INK", "QUIET", "bars", "figure", "save"]


def bars(axes: Any, arms: list[str], values: list[float], labels: list[str], *, room: float = 0.18) -> None:
    """One horizontal bar per arm, first arm on top, its label at its end; `room` for it: part of the longest bar."""
    drawn = axes.barh([ARMS[arm].label for arm in arms], values, color=[ARMS[arm].color for arm in arms], height=0.62)
    clear = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # a line that crosses a label stays behind it
    axes.bar_label(drawn, labels=labels, padding=5, fontsize=9.5, color=INK, bbox=clear)
    axes.invert_yaxis()
    axes.set_xlim(0, (max(values) or 1) * (1 + room))
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    axes.tick_params(axis="y", labelsize=10, labelcolor=INK)
    axes.xaxis.set_major_formatter("{x:,.0f}")
