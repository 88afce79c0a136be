"""How every picture looks: a title that says what is seen, named axes, a colour per arm, labels at the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from island_engine.bench.report import ARMS

if TYPE_CHECKING:
    from pathlib import Path

INK, QUIET, GRID = "#1f2328", "#59636e", "#d8dee4"


def figure(
    title: str, subtitle: str, *, columns: int = 1, rows: int = 1, size: tuple[float, float] = (9.6, 5.4)
) -> tuple[Any, Any]:
    """A figure with `columns` axes beside each other and `rows` below each other (a list when there are several)."""
    from matplotlib.figure import Figure  # no pyplot: no display, no global state

    made = Figure(figsize=size, dpi=150, facecolor="white")
    axes = made.subplots(rows, columns, squeeze=False).ravel()
    made.text(0.02, 0.965, title, fontsize=15, fontweight="bold", color=INK, va="top")
    made.text(0.02, 0.895, subtitle, fontsize=9.5, color=QUIET, va="top", linespacing=1.4)
    for one in axes:
        one.spines[["top", "right", "left"]].set_visible(False)
        one.spines["bottom"].set_color(GRID)
        one.tick_params(colors=QUIET, labelsize=9, length=0)
        one.set_axisbelow(True)
    return made, axes[0] if len(axes) == 1 else list(axes)


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


def save(made: Any, path: Path, *, note: str = "") -> None:
    """Lay the figure out below its title and write it."""
    made.text(0.02, 0.02, note, fontsize=8, color=QUIET)
    made.tight_layout(rect=(0.01, 0.04 if note else 0.0, 0.99, 0.83))
    made.savefig(path)
