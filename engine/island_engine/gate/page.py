"""report.html: the report as a person reads it, one file without scripts. Pure: from report.json's object to a page."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

COLORS = {"PASS": "#2b7a4b", "FAIL": "#c1121f", "INCONCLUSIVE": "#b7791f", "ERROR": "#59636e"}
ARM_COLORS = {"off-A": "#2f6db3", "on": "#d9480f", "off-B": "#74a9d8", "on-B": "#f2a03d"}
WIDE, HIGH, LEFT, UNDER = 640, 180, 64, 36  # of a picture, pixels; room for its axes
STYLE = """body{font:15px/1.5 system-ui,sans-serif;color:#1f2328;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{color:#fff;padding:.6rem 1rem;border-radius:.4rem}table{border-collapse:collapse;margin:.5rem 0 1.5rem}
th,td{padding:.25rem .8rem;border-bottom:1px solid #d8dee4;text-align:left;vertical-align:top}
td.n{text-align:right;font-variant-numeric:tabular-nums}svg text{font-size:11px;fill:#59636e}code{font-size:13px}"""


def page(report: Mapping[str, Any]) -> str:
    """The whole page."""
    summary = report["summary"]
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'>",
        f"<title>Gate: {summary['verdict']}</title><style>{STYLE}</style>",
        f"<h1 style='background:{COLORS[summary['verdict']]}'>{summary['verdict']}: {escape(summary['reason'])}</h1>",
        f"<p>{escape(summary['message'])}</p>",
        f"<p><code>{escape(summary['fingerprint'])}</code></p>",
    ]
    if summary["divergence"]:
        parts += ["<h2>Where the answers part</h2>", _divergence(summary["divergence"])]
    if report["mutations"]:
        parts += ["<h2>Planted faults</h2>", _mutations(report["mutations"])]
    parts += ["<h2>What was compared</h2>", _classes(report), "<h2>Islands, by class</h2>", _islands(report)]
    for pool, name in (("full", "Full-attention pool"), ("swa", "Sliding-window pool")):
        parts += [f"<h2>{name}</h2>", _pool(report, pool)]
    parts += ["<h2>What the verdict is about</h2>", _facts(report["facts"]), "</html>"]
    return "\n".join(parts) + "\n"


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    def cell(value: object) -> str:
        return f"<td class='n'>{value:,}</td>" if isinstance(value, int) else f"<td>{escape(str(value))}</td>"

    head = "".join(f"<th>{escape(h)}</th>" for h in heads)
    body = "".join(f"<tr>{''.join(cell(v) for v in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _svg(content: str, title: str, height: int = HIGH) -> str:
    return f"<svg viewBox='0 0 {WIDE} {height}' width='{WIDE}' role='img'><title>{escape(title)}</title>{content}</svg>"


def _divergence(found: Mapping[str, Any]) -> str:
    """A line of positions: frontier, last commit, divergence."""
    back, commit = found["frontier_distance"] or 0, found["island_distance"] or 0
    scale = (WIDE - 2 * LEFT) / max(1, back)
    at = {"frontier": LEFT, "last commit": LEFT + (back - commit) * scale, "divergence": WIDE - LEFT}
    marks = [f"<line x1='{LEFT}' x2='{WIDE - LEFT}' y1='40' y2='40' stroke='#8c8c8c' stroke-width='6'/>"]
    for i, (name, x) in enumerate(at.items()):
        color = COLORS["FAIL"] if name == "divergence" else "#1b7f79"
        marks.append(f"<circle cx='{x:.1f}' cy='40' r='7' fill='{color}'/>")
        marks.append(f"<text x='{x:.1f}' y='{22 if i % 2 else 64}' text-anchor='middle'>{name}</text>")
    rows = [(key.replace("_", " "), "" if value is None else value) for key, value in found.items()]
    return _svg("".join(marks), f"{back} tokens from the frontier to the divergence", 80) + _table(("", ""), rows)


def _mutations(rows: Sequence[Mapping[str, Any]]) -> str:
    told = [
        (r["mutation"], r["what"], r["outcome"], r["caught_by"] or "-", r["how"] or r["expected"], r["fired"])
        for r in rows
    ]
    return _table(("fault", "what", "outcome", "class", "how", "fired"), told)


def _classes(report: Mapping[str, Any]) -> str:
    rows = [
        (c["name"], c["compared"], c["tokens"], c["hits"], c["retractions"], len(c["unpaired"]))
        for c in (*report["classes"], *report["times"]["classes"])
    ]
    return _table(("class", "serves", "tokens", "hits", "retractions", "unpaired"), rows)


def _islands(report: Mapping[str, Any]) -> str:
    """Where islands were published: prompts' and decode islands of the arm on, class by class."""
    on: dict[str, Any] = next((arm["counters"] for arm in report["arms"] if arm["name"] == "on"), {})
    counters = {**on, **report["times"]["counters"].get("on", {})}
    most = max((sum(_published(growth)) for growth in counters.values()), default=0) or 1
    bars = []
    for i, (cls, growth) in enumerate(counters.items()):
        prefill, decode = _published(growth)
        y, scale = 8 + 22 * i, (WIDE - 200) / most
        bars.append(
            f"<text x='80' y='{y + 12}' text-anchor='end'>{cls}</text>"
            f"<rect x='88' y='{y}' width='{prefill * scale:.1f}' height='16' fill='#d9480f'/>"
            f"<rect x='{88 + prefill * scale:.1f}' y='{y}' width='{decode * scale:.1f}' height='16' fill='#f2a03d'/>"
            f"<text x='{94 + (prefill + decode) * scale:.1f}' y='{y + 12}'>{prefill:.0f} + {decode:.0f}</text>"
        )
    return "<p>Of prompts, and of generations.</p>" + _svg("".join(bars), "islands by class", 16 + 22 * len(bars))


def _published(growth: Mapping[str, float]) -> tuple[float, float]:
    prefill, decode = (growth.get(f"island_published_total{{phase={phase}}}", 0.0) for phase in ("prefill", "decode"))
    return prefill, decode


def _pool(report: Mapping[str, Any], pool: str) -> str:
    """Tokens that are used or kept, over the time of probing, a line for each arm; a point at the end of each class."""
    lines = report["times"]["pools"]
    size = max((arm["geometry"][f"{pool}_tokens"] for arm in report["arms"]), default=0) or 1
    longest = max((point["at"] for points in lines.values() for point in points), default=0.0) or 1.0
    drawn = [
        f"<line x1='{LEFT}' x2='{WIDE}' y1='10' y2='10' stroke='#d8dee4'/><text x='0' y='14'>{size:,}</text>"
        f"<line x1='{LEFT}' x2='{WIDE}' y1='{HIGH - UNDER}' y2='{HIGH - UNDER}' stroke='#d8dee4'/>"
        f"<text x='0' y='{HIGH - UNDER + 4}'>0 tokens</text>"
        f"<text x='{WIDE - 60}' y='{HIGH - 18}'>{longest:.0f} s</text>"
    ]
    for i, (arm, points) in enumerate(lines.items()):
        places = [
            f"{LEFT + p['at'] / longest * (WIDE - LEFT - 8):.1f},"
            f"{HIGH - UNDER - (p[f'{pool}_used'] + p[f'{pool}_cached']) / size * (HIGH - UNDER - 10):.1f}"
            for p in points
        ]
        drawn.append(f"<polyline points='{' '.join(places)}' fill='none' stroke='{ARM_COLORS[arm]}' stroke-width='2'/>")
        x = LEFT + 90 * i
        drawn.append(f"<rect x='{x}' y='{HIGH - 12}' width='10' height='10' fill='{ARM_COLORS[arm]}'/>")
        drawn.append(f"<text x='{x + 14}' y='{HIGH - 3}'>{arm}</text>")
    return _svg("".join(drawn), f"occupancy of the {pool} pool, by arm")


def _facts(facts: Mapping[str, Any]) -> str:
    rows = [(name, " ".join(value) if isinstance(value, list) else value) for name, value in facts.items()]
    return _table(("", ""), [(name, "" if value is None else str(value)) for name, value in rows])
