"""The pictures of report.html, as SVG. Pure: from report.json's object."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from island_engine.gate.probes import CLASSES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VERDICT_COLORS = {"PASS": "#2b7a4b", "FAIL": "#c1121f", "INCONCLUSIVE": "#8f5b0c", "ERROR": "#59636e"}
ARM_COLORS = {"off-A": "#2f6db3", "on": "#d9480f", "off-B": "#74a9d8", "on-B": "#f2a03d"}
PREFILL, DECODE, GRID = "#d9480f", "#f2a03d", "#d8dee4"
WIDE, HIGH, LEFT, UNDER = 640, 210, 64, 56  # of a picture, pixels; room for its axes
LETTER = 6.5  # pixels of one, about


def _svg(content: str, title: str, height: int = HIGH) -> str:
    """It scrolls by itself where the screen is narrow, so that its words stay readable."""
    head = f"<svg viewBox='0 0 {WIDE} {height}' role='img'><title>{escape(title)}</title>"
    return f"<div class='wide'>{head}{content}</svg></div>"


def _legend(names: Mapping[str, str], y: int) -> str:
    drawn, x = [], LEFT
    for name, color in names.items():
        drawn.append(f"<rect x='{x}' y='{y - 9}' width='10' height='10' fill='{color}'/>")
        drawn.append(f"<text x='{x + 14}' y='{y}'>{escape(name)}</text>")
        x += 34 + int(LETTER * len(name))
    return "".join(drawn)


def divergence(found: Mapping[str, Any]) -> str:
    """A line of positions: frontier, last commit, divergence."""
    back, commit = found["frontier_distance"] or 0, found["island_distance"] or 0
    scale = (WIDE - 2 * LEFT) / max(1, back)
    at = {
        f"frontier, {back} back": LEFT,
        f"last commit, {commit} back": LEFT + (back - commit) * scale,
        "divergence": WIDE - LEFT,
    }
    marks = [f"<line x1='{LEFT}' x2='{WIDE - LEFT}' y1='40' y2='40' stroke='#8c8c8c' stroke-width='6'/>"]
    for i, (name, x) in enumerate(at.items()):
        color = VERDICT_COLORS["FAIL"] if name == "divergence" else "#1b7f79"
        marks.append(f"<circle cx='{x:.1f}' cy='40' r='7' fill='{color}'/>")
        marks.append(f"<text x='{x:.1f}' y='{22 if i % 2 else 64}' text-anchor='middle'>{name}</text>")
    return _svg("".join(marks), f"{back} tokens from the frontier to the divergence", 80)


def islands(report: Mapping[str, Any]) -> str:
    """Prompts' and decode islands of the arm on, class by class. Empty when there were none."""
    on: dict[str, Any] = next((arm["counters"] for arm in report["arms"] if arm["name"] == "on"), {})
    grown = {**on, **report["times"]["counters"].get("on", {})}
    counters = {cls: grown[cls] for cls in CLASSES if cls in grown}
    most = max((sum(_published(growth)) for growth in counters.values()), default=0)
    if not most:
        return ""
    bars = []
    for i, (cls, growth) in enumerate(counters.items()):
        prefill, decode = _published(growth)
        y, scale = 8 + 22 * i, (WIDE - 200) / most
        bars.append(
            f"<text x='80' y='{y + 12}' text-anchor='end'>{cls}</text>"
            f"<rect x='88' y='{y}' width='{prefill * scale:.1f}' height='16' fill='{PREFILL}'/>"
            f"<rect x='{88 + prefill * scale:.1f}' y='{y}' width='{decode * scale:.1f}' height='16' fill='{DECODE}'/>"
            f"<text x='{94 + (prefill + decode) * scale:.1f}' y='{y + 12}'>{prefill:.0f} + {decode:.0f}</text>"
        )
    high = 40 + 22 * len(bars)
    bars.append(_legend({"of prompts (prefill)": PREFILL, "of generations (decode)": DECODE}, high - 8))
    return _svg("".join(bars), "islands by class", high)


def _published(growth: Mapping[str, float]) -> tuple[float, float]:
    prefill, decode = (growth.get(f"island_published_total{{phase={phase}}}", 0.0) for phase in ("prefill", "decode"))
    return prefill, decode


def pool(report: Mapping[str, Any], name: str) -> str:
    """Tokens that are used or kept for reuse, over the time of probing: a line for each arm, the classes below."""
    seen = report["times"]["pools"]
    lines: dict[str, Sequence[Mapping[str, Any]]] = {arm: seen[arm] for arm in ARM_COLORS if arm in seen}
    size = max((arm["geometry"][f"{name}_tokens"] for arm in report["arms"]), default=0) or 1
    longest = max((point["at"] for points in lines.values() for point in points), default=0.0) or 1.0
    base, across = HIGH - UNDER, (WIDE - LEFT - 8) / longest
    drawn = [
        f"<line x1='{LEFT}' x2='{WIDE}' y1='10' y2='10' stroke='{GRID}'/><text x='0' y='14'>{size:,}</text>"
        f"<line x1='{LEFT}' x2='{WIDE}' y1='{base}' y2='{base}' stroke='{GRID}'/>"
        f"<text x='0' y='{base + 4}'>0 tokens</text>"
        f"<text x='{WIDE}' y='{HIGH - 3}' text-anchor='end'>{longest:.0f} s of probing</text>"
    ]
    for arm, points in lines.items():
        places = [
            f"{LEFT + p['at'] * across:.1f},{base - (p[f'{name}_used'] + p[f'{name}_cached']) / size * (base - 10):.1f}"
            for p in points
        ]
        drawn.append(f"<polyline points='{' '.join(places)}' fill='none' stroke='{ARM_COLORS[arm]}' stroke-width='2'/>")
    drawn += _marks(next((points for points in lines.values() if points), ()), across, base)
    drawn.append(_legend({arm: ARM_COLORS[arm] for arm in lines}, HIGH - 3))
    return _svg("".join(drawn), f"occupancy of the {name} pool, by arm")


def _marks(points: Sequence[Mapping[str, Any]], across: float, base: int) -> list[str]:
    """Where the first arm began a class, named as far as there is room."""
    drawn, last, room = [], "", 0.0
    for point in points:
        if point["class"] == last:
            continue
        last, x = point["class"], LEFT + point["at"] * across
        drawn.append(f"<line x1='{x:.1f}' x2='{x:.1f}' y1='{base}' y2='{base + 5}' stroke='#8c8c8c'/>")
        if x >= room and x + LETTER * len(last) < WIDE:
            drawn.append(f"<text x='{x:.1f}' y='{base + 17}'>{last}</text>")
            room = x + LETTER * len(last) + 6
    return drawn
