"""docs/img/phases.svg: every way from one phase of a rollout to another, from the table that the operator runs on.

`make pictures` writes it; a test holds it to the table.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from island_operator.core.transitions import PHASES, ROLLING_BACK, STABLE, TABLE, Cause, Row

PICTURE = Path(__file__).resolve().parents[1] / "img/phases.svg"
LEFT, COLUMN, TOP, LINE = 330, 106, 64, 30  # pixels: of the causes, of a phase, of the head, of a row
INK, QUIET, GRID = "#1f2328", "#59636e", "#d8dee4"
FORWARD, BACK, SAFE = "#0b7a75", "#d9480f", "#b42318"  # towards Stable, away from the new revision, the kill switch
FONT = "font-family='system-ui, -apple-system, Segoe UI, Roboto, sans-serif'"


def render() -> str:
    """The SVG. One row a cause: from any of the dots to the arrow's head; a ring is a phase that begins anew."""
    width, height = LEFT + COLUMN * len(PHASES), TOP + LINE * len(TABLE) + 16
    label = "From which phase, for which cause, to which phase"
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}' "
        f"role='img' aria-label='{label}' {FONT} font-size='13'>",
        f"<rect width='{width}' height='{height}' rx='6' fill='white'/>",
        f"<text x='14' y='36' fill='{QUIET}'>because of ...</text>",
    ]
    bottom = height - 12
    for phase in PHASES:
        x = _x(phase)
        parts += [
            f"<line x1='{x}' y1='48' x2='{x}' y2='{bottom}' stroke='{GRID}'/>",
            f"<rect x='{x - 48}' y='18' width='96' height='30' rx='6' fill='{_fill(phase)}'/>",
            f"<text x='{x}' y='38' fill='white' font-weight='600' text-anchor='middle'>{phase}</text>",
        ]
    for index, row in enumerate(TABLE):
        parts += _row(row, TOP + LINE * index + LINE // 2)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _row(row: Row, y: int) -> list[str]:
    """A cause: its words, its dots, its arrow."""
    target, color = _x(row.target), _color(row)
    parts = [f"<text x='14' y='{y + 4}' fill='{INK}'>{escape(row.cause)}</text>"]
    for source in row.sources:
        x = _x(source)
        if source == row.target:
            parts.append(f"<circle cx='{x}' cy='{y}' r='9' fill='white' stroke='{color}' stroke-width='2'/>")
            continue
        near = target - 13 if x < target else target + 13
        parts += [
            f"<line x1='{x}' y1='{y}' x2='{near}' y2='{y}' stroke='{color}' stroke-width='2'/>",
            f"<circle cx='{x}' cy='{y}' r='4.5' fill='{color}'/>",
        ]
    for side in (-1, 1):
        if any((_x(source) - target) * side > 0 for source in row.sources):
            tip, foot = target + side * (10 if row.target in row.sources else 2), target + side * 20
            parts.append(f"<path d='M{tip} {y} L{foot} {y - 6} L{foot} {y + 6} Z' fill='{color}'/>")
    return parts


def _x(phase: str) -> int:
    return LEFT + COLUMN * PHASES.index(phase) + COLUMN // 2


def _fill(phase: str) -> str:
    return {STABLE: FORWARD, ROLLING_BACK: BACK}.get(phase, QUIET)


def _color(row: Row) -> str:
    if row.cause is Cause.KILL_SWITCH:
        return SAFE
    return BACK if row.cause in {Cause.REVERTED, Cause.FAILED, Cause.GIVEN_UP, Cause.FAULT} else FORWARD


if __name__ == "__main__":
    PICTURE.write_text(render(), encoding="utf-8")
