"""Fills the README's table of measurements from docs/bench/*.json, so that no number there was typed by hand.

`python -m island_engine.bench.readme` renders; with `--from build/bench` it first takes over what was measured there.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from island_engine.bench import report

if TYPE_CHECKING:
    from collections.abc import Callable

BEGIN, END = "<!-- bench: made by island_engine.bench.readme -->", "<!-- /bench -->"
RESULTS = Path("docs/bench")
NAMES = ("hold", "admission", "reuse", "overhead", "conservation", "arms", "best", "gate")
COLUMNS = ("lazy", "stock", "release", "islands")

BASELINES = (
    "*lazy*: the retention before SGLang 0.5.16, on 0.5.23. *stock*: 0.5.23 as it comes. *release flag*: stock with "
    "`SGLANG_OPT_RELEASE_PREFILL_SWA=1`. w 1,024, p 64, chunk 16,384, overlap scheduling; burst: 170 requests of 32,768"
    " in, 16,384 out at once, 980,000 tokens at r, the full pool large; sustained: mean of the second half."
)

Results = dict[str, dict[str, Any]]


def load(folder: Path) -> Results:
    """What was measured, by name."""
    return {name: report.read(path) for name in NAMES if (path := folder / f"{name}.json").is_file()}


def render(results: Results) -> str:
    """Everything between the markers."""
    parts = [_in_process(results)]
    if "arms" in results:
        parts.append(_arms(results["arms"]))
    if "best" in results:
        parts.append(_best(results["best"]))
    if "conservation" in results:
        parts.append(_conservation(results["conservation"]))
    if "gate" in results:
        parts.append(_gate(results["gate"]))
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _in_process(results: Results) -> str:
    rows = []

    def row(what: str, bench: str, cell: Callable[[dict[str, Any]], str], case: str | None = None) -> None:
        arms = {arm: one[case] if case else one for arm, one in results.get(bench, {}).get("arms", {}).items()}
        if arms:
            rows.append([what, *(cell(arms[arm]) if arm in arms else "" for arm in COLUMNS)])

    n = report.number
    for where, key in (("where the SWA pool binds", "hold"), ("in a roomy pool", "roomy")):
        row(f"SWA tokens pinned a request {where}, mean / max", "hold", _mean_and_max(key))
    for name, ratio in results.get("admission", {}).get("geometry", {}).get("cases", {}).items():
        if name == f"{ratio:.2f}":
            row(f"burst, r {name}: running, sustained", "admission", lambda one: n(one["sustained"]), name)
            row(f"burst, r {name}: SWA retractions / recomputed", "admission", _lost, name)
        else:
            what = f"{name}, r {ratio:.2f}: decoded tokens a step"
            row(what, "admission", lambda one: n(one["decoded_per_step"], 1), name)
    reuse = results.get("reuse", {}).get("arms", {})
    for decoded in {one["decoded_tokens"] for one in reuse.values()}:
        row(f"hit of an extension, {n(decoded)} tokens into a generation", "reuse", lambda one: n(one["hit_tokens"]))
        row("recomputed after a retraction there", "reuse", lambda one: n(one["recompute_after_retraction"]))
    row("scheduler CPU of a decode step, ms", "overhead", lambda one: n(one["cpu_ms"], 2))
    operations = ("insert_us", "match_us", "evict_us")
    row("insert / match / evict, us", "overhead", lambda one: " / ".join(n(one[key]) for key in operations))
    head = ["SGLang's own code in process, no model", *(report.ARMS[arm].label for arm in COLUMNS)]
    return _table(head, rows) + "\n\n" + BASELINES if rows else ""


def _mean_and_max(key: str) -> Callable[[dict[str, Any]], str]:
    return lambda one: " / ".join(report.number(one[f"{key}_{which}"]) for which in ("mean", "max"))


def _lost(case: dict[str, Any]) -> str:
    return f"{case['swa_retractions']} / {case['recomputed'] / max(1, case['prefilled']):.1%}"


def _arms(result: dict[str, Any]) -> str:
    n = report.number
    rows = [
        [
            f"{one['name']}",
            f"{one['throughput_pct']:+.1f} %" + _seed(one["seed_throughput_pct"]),
            f"{one['latency_pct']:+.1f} %" + _seed(one["seed_latency_pct"]),
        ]
        for one in result["comparisons"]
    ]
    seeds = n(len(result["geometry"]["seeds"]))
    return _table([f"the seed's arms, simulated, mean of {seeds} seeds (the seed's own)", "output", "latency"], rows)


def _seed(value: float | None) -> str:
    return "" if value is None else f" ({value:+.1f} %)"


def _best(result: dict[str, Any]) -> str:
    arms = [arm for arm in ("stock", "unified", "islands", "islands-unified") if arm in result["arms"]]
    workloads = list(next(iter(result["arms"].values())))
    rows = []
    for name in workloads:
        cells = []
        for arm in arms:
            one = result["arms"][arm].get(name)
            at = f" at r {one['ratio']:g}" if one and "unified" not in arm else ""
            cells.append(f"{report.number(one['tok_s'])}, {one['e2e_s']:.1f} s{at}" if one else "")
        rows.append([name, *cells])
    head = ["each arm at its best ratio, same bytes, simulated: tokens/s, mean latency"]
    return _table([*head, *(report.ARMS[arm].label for arm in arms)], rows) + _over_unified(result["arms"])


def _over_unified(arms: dict[str, Any]) -> str:
    """Part of what islands gain, SGLang gains without them: it is not theirs."""
    if not {"unified", "islands"} <= arms.keys():
        return ""
    gains = {name: 100 * (one["tok_s"] / arms["unified"][name]["tok_s"] - 1) for name, one in arms["islands"].items()}
    listed = ", ".join(f"{name} {gain:+.1f} %" for name, gain in gains.items())
    return (
        f"\n\n*Unified memory*: SGLang's `--enable-unified-memory`. Tokens/s of islands over stock with it: {listed}."
    )


def _conservation(result: dict[str, Any]) -> str:
    one = result["arms"]["islands"]
    return (
        f"{report.number(one['runs'])} random runs (arrivals, aborts, retractions, branches, speculation, overlap): "
        f"{one['leaks']} after which a KV pool was not exactly as before; a planted wrong frontier was caught in "
        f"{one['mutants_caught']} of {one['mutants']}."
    )


def _gate(result: dict[str, Any]) -> str:
    one = result["arms"]["stock"]
    engines = ", ".join(f"{kind['runs']} {name}" for name, kind in one["engines"].items())
    tokens = report.number(sum(kind["tokens"] for kind in one["engines"].values()))
    return (
        f"{one['runs']} gates whose three boots were all stock ({engines}), {tokens} tokens with logprobs compared: "
        f"{one['fails']} FAIL."
    )


def fill(text: str, rendered: str) -> str:
    """The README with the part between the markers replaced. ValueError when a marker is missing."""
    if BEGIN not in text or END not in text:
        raise ValueError(f"the README has no {BEGIN} ... {END}: put them where the table belongs")
    before, rest = text.split(BEGIN, 1)
    return f"{before}{BEGIN}\n{rendered}{END}{rest.split(END, 1)[1]}"


def main(argv: list[str] | None = None) -> int:
    """Take over, render, write."""
    parser = argparse.ArgumentParser(prog="python -m island_engine.bench.readme", description=__doc__)
    parser.add_argument("--from", dest="source", type=Path, metavar="DIR", help="take results over from here first")
    parser.add_argument("--readme", type=Path, default=Path("README.md"), metavar="FILE", help="default README.md")
    options = parser.parse_args(argv)
    try:
        if options.source:
            for name, found in load(options.source).items():
                report.write(found, RESULTS / f"{name}.json")
        options.readme.write_text(fill(options.readme.read_text(), render(load(RESULTS))))
    except (OSError, ValueError) as fault:
        print(f"island_engine.bench.readme: {fault}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
