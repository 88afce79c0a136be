"""How every picture looks: a title that says what is seen, named axes, a colour per arm, labels at the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

INK, QUIET, GRID = "#1f2328", "#59636e", "#d8dee4"


@dataclass(frozen=True)
class Arm:
    """What an arm is called in tables, and its colour in every plot."""

    label: str
    color: str


ARMS = {
    "lazy": Arm("lazy (before 0.5.16)", "#8c8c8c"),
    "stock": Arm("stock 0.5.23", "#2f6db3"),
    "release": Arm("stock, release flag", "#74a9d8"),
    "unified": Arm("stock, unified memory", "#6a51a3"),
    "islands": Arm("islands", "#d9480f"),
    "islands-unified": Arm("islands, unified memory", "#f2a03d"),
}


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


def save(made: Any, path: Path, *, note: str = "") -> None:
    """Lay the figure out below its title and write it, with a palette: a third of the bytes, and nothing to see."""
    import io

    from PIL import Image  # matplotlib needs it too

    made.text(0.02, 0.02, note, fontsize=8, color=QUIET)
    made.tight_layout(rect=(0.01, 0.04 if note else 0.0, 0.99, 0.83))
    drawn = io.BytesIO()
    made.savefig(drawn, format="png")
    Image.open(drawn).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)
