"""report.html: the report as a person reads it, one file without scripts. Pure: from report.json's object to a page."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from island_engine.gate import pictures
from island_engine.gate.pictures import VERDICT_COLORS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STYLE = """body{font:15px/1.5 system-ui,sans-serif;color:#1f2328;max-width:60rem;margin:2rem auto;padding:0 1rem;
overflow-wrap:anywhere}h1{color:#fff;padding:.6rem 1rem;border-radius:.4rem;font-size:1.6rem}h2{margin:2rem 0 .3rem}
table{border-collapse:collapse;margin:.5rem 0}th,td{padding:.25rem .8rem;border-bottom:1px solid #d8dee4;
text-align:left;vertical-align:top;overflow-wrap:normal}th.n,td.n{text-align:right;font-variant-numeric:tabular-nums}
th,td.n,td:first-child{white-space:nowrap}.facts td:first-child{white-space:normal}
.facts td:last-child{overflow-wrap:anywhere;min-width:8rem}.faults td:nth-child(2){min-width:15rem}
.wide{overflow-x:auto;background:linear-gradient(90deg,#fff 40%,#fff0) local,linear-gradient(270deg,#fff 40%,#fff0)
100% 0 local,linear-gradient(90deg,#0003,#0000),linear-gradient(270deg,#0003,#0000) 100% 0;background-repeat:no-repeat;
background-size:2rem 100%,2rem 100%,.7rem 100%,.7rem 100%}
svg{width:100%;max-width:40rem;min-width:34rem;height:auto;display:block}svg text{font-size:11px;fill:#59636e}
.quiet{color:#59636e;margin:.2rem 0}.bad{color:#c1121f;font-weight:600}"""
MEANS = {
    "PASS": "Islands change no answer of this engine. They may serve with exactly what is listed at the end.",
    "FAIL": "Islands change an answer. Keep them off; the divergence below is where to look.",
    "INCONCLUSIVE": "Nothing was proved either way. Islands stay as they are.",
    "ERROR": "The engine or its surroundings failed before anything was proved. Islands stay as they are.",
}
DIVERGENCE = {
    "probe": "question",
    "index": "generated token, from 0",
    "expected": "token with islands off",
    "got": "token with islands on",
    "kind": "what differs",
    "margin": "lead of the likeliest token, islands off (nats)",
    "margin_on": "the same, islands on",
    "cached_tokens": "tokens found in the cache",
    "frontier_distance": "tokens since the frontier",
    "island_distance": "tokens since the last commit",
    "page_offset": "place in its page",
    "chunk_offset": "place in its prefill chunk",
    "batch": "requests in flight",
}


def page(report: Mapping[str, Any]) -> str:
    """The whole page."""
    summary = report["summary"]
    verdict, color = summary["verdict"], VERDICT_COLORS[summary["verdict"]]
    meaning = "This run tested the gate itself, with planted faults." if report["self_test"] else MEANS[verdict]
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>Gate: {verdict}</title><style>{STYLE}</style>",
        f"<h1 style='background:{color}'>{verdict}: {escape(summary['reason'])}</h1>",
        f"<p>{escape(summary['message'])}</p><p>{meaning}</p>",
        f"<p class='quiet'>Profile {escape(report['profile'])}, seed {report['seed']}, "
        f"begun {escape(report['times']['started'])}, {summary['seconds']:.0f} s</p>",
    ]
    if summary["divergence"]:
        parts += ["<h2>Where the answers part</h2>", _divergence(summary["divergence"])]
    if report["mutations"]:
        parts += ["<h2>Planted faults</h2>", _mutations(report["mutations"])]
    if report["classes"] and not report["self_test"]:
        parts += ["<h2>What was compared</h2>", _classes(report)]
    if islands := pictures.islands(report):
        parts += ["<h2>Where islands were published</h2>", islands]
    if any(report["times"]["pools"].values()):
        for pool, name in (("full", "Full-attention pool"), ("swa", "Sliding-window pool")):
            parts += [f"<h2>{name}</h2>", pictures.pool(report, pool)]
    if report["arms"]:
        parts += ["<h2>Boots</h2>", _boots(report)]
    parts += ["<h2>What the verdict is about</h2>", _facts(report["facts"], summary["fingerprint"]), "</html>"]
    return "\n".join(parts) + "\n"


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]], numbers: Sequence[int] = ()) -> str:
    """`numbers`: columns of numbers, which stand to the right."""

    def cell(column: int, value: object) -> str:
        if isinstance(value, int):
            return f"<td class='n'>{value:,}</td>"
        return f"<td class='n'>{value}</td>" if column in numbers else f"<td>{escape(str(value))}</td>"

    head = "".join(f"<th{' class=n' * (i in numbers)}>{escape(h)}</th>" for i, h in enumerate(heads))
    body = "".join(f"<tr>{''.join(cell(i, v) for i, v in enumerate(row))}</tr>" for row in rows)
    return f"<div class='wide'><table>{f'<tr>{head}</tr>' if any(heads) else ''}{body}</table></div>"


def _divergence(found: Mapping[str, Any]) -> str:
    told = {key: f"{value:.3f}" if isinstance(value, float) else str(value) for key, value in found.items()}
    rows = [(name, told[key]) for key, name in DIVERGENCE.items() if found[key] is not None]
    return f"{pictures.divergence(found)}<div class='facts'>{_table(('', ''), rows)}</div>"


def _mutations(rows: Sequence[Mapping[str, Any]]) -> str:
    told = [
        (r["mutation"], r["what"], r["outcome"], r["caught_by"] or "-", r["how"] or r["expected"], r["fired"])
        for r in rows
    ]
    table = _table(
        ("fault", "what it does", "outcome", "class", "what told, or why it is harmless", "fired"), told, (5,)
    )
    for outcome in {r["outcome"] for r in rows if r["outcome"].split()[0].isupper()}:
        table = table.replace(f"<td>{outcome}</td>", f"<td class='bad'>{outcome}</td>")
    return f"<div class='faults'>{table}</div>"


def _classes(report: Mapping[str, Any]) -> str:
    classes = [*report["classes"], *report["times"]["classes"]]
    rows = [(c["name"], c["compared"], c["tokens"], c["hits"], c["retractions"], len(c["unpaired"])) for c in classes]
    told = _table(("class", "answers", "tokens", "cache hits", "retractions", "not compared"), rows, range(1, 6))
    apart = [(u["probe"], u["why"]) for c in classes for u in c["unpaired"]]
    if apart:
        told += "<p class='quiet'>Not compared, because the two were not asked the same thing:</p>"
        told += _table(("question", "why"), apart)
    return told


def _boots(report: Mapping[str, Any]) -> str:
    times = report["times"]["arms"]
    rows = [
        (
            arm["name"],
            "on" if arm["islands"] else "off",
            arm["serves"],
            *(f"{times.get(arm['name'], {}).get(what, 0.0):.1f}" for what in ("boot", "probing")),
        )
        for arm in report["arms"]
    ]
    return _table(("boot", "islands", "answers", "booting, s", "asked for, s"), rows, (2, 3, 4))


def _facts(facts: Mapping[str, Any], fingerprint: str) -> str:
    def told(value: Any) -> str:
        if isinstance(value, dict):
            return " ".join(f"{name}={inner}" for name, inner in value.items()) or "nothing set"
        return " ".join(value) if isinstance(value, list) else "not told" if value in ("", None) else str(value)

    rows = [(name.replace("_", " "), told(value)) for name, value in facts.items()]
    return (
        "<p class='quiet'>Whatever changes one of these voids the verdict.</p>"
        f"<div class='facts'>{_table(('', ''), [*rows, ('fingerprint', fingerprint)])}</div>"
    )
