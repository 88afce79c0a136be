"""Names and figures in the documentation are those of the code and of docs/bench: conditions, alerts, annotations,
variables, gains.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from island_operator.api import crd
from island_operator.core.verbs import VERBS

ROOT = Path(__file__).resolve().parents[3]
PAGES = {path.name: path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]}
EVERYTHING = "\n".join(PAGES.values())
BENCH = ROOT / "docs/bench"
BEST = json.loads((BENCH / "best.json").read_text())["arms"]
HOLD = json.loads((BENCH / "hold.json").read_text())
OPERATOR = json.loads((BENCH / "operator.json").read_text())
STATUS = crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]


def source(*folders: str) -> str:
    """Python and chart files, without the documentation."""
    kinds = {".py", ".yaml", ".json", ".tpl", ".txt"}
    return "".join(p.read_text() for f in folders for p in sorted((ROOT / f).rglob("*")) if p.suffix in kinds)


CODE = source("operator", "engine", "charts", "e2e")


def test_conditions_are_those_of_the_status():
    there = set(re.findall(r"[A-Z]\w+", STATUS["conditions"]["description"]))
    table = PAGES["operations.md"].split("## Conditions")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == there
    assert {w for w in re.findall(r"condition `?([A-Z][a-zA-Z]+)", EVERYTHING) if w not in there} == set()


def test_alerts_are_those_of_the_chart():
    groups = yaml.safe_load((ROOT / "charts/radix-islands/files/alerts.yaml").read_text())["groups"]
    rules = {rule["alert"]: rule["labels"]["severity"] for group in groups for rule in group["rules"]}
    table = dict(re.findall(r"^\| `(Islands\w+)` \| (\w+) \|", PAGES["monitoring.md"], re.MULTILINE))
    assert table == rules
    assert set(re.findall(r"\bIslands[A-Z]\w+", EVERYTHING)) <= set(rules)


def test_annotations_and_labels_exist():
    named = set(re.findall(r"radix-islands\.dev/([a-z][a-z-]*)(?![\w-])", EVERYTHING))
    assert len(named) > 3
    assert {name for name in named - set(VERBS) if f"radix-islands.dev/{name}" not in CODE} == set()


def test_variables_are_read_somewhere():
    named = set(re.findall(r"\bISLAND_[A-Z_]+\b", EVERYTHING))
    assert len(named) > 4
    assert {name for name in named if name not in CODE} == set()


def gains(kind: str, arm: str, key: str, over: str = "stock") -> list[float]:
    """Per cent of `arm` over another in each simulated workload of a kind, each at its own best ratio."""
    names = [name for name in BEST[arm] if name.startswith("agentic") == (kind == "agents")]
    return [100 * (BEST[arm][name][key] / BEST[over][name][key] - 1) for name in names]


@pytest.mark.parametrize(
    ("kind", "page", "says"),
    [
        ("agents", "index.md", "{low:.0f} to {high:.0f} % more tokens/s than stock"),
        ("prompts", "index.md", "{low:+.0f} to {high:+.0f} % tokens/s"),
        ("prompts", "faq.md", "{low:+.0f} to {high:+.0f} % tokens/s"),
    ],
)
def test_what_may_be_expected_was_simulated(kind, page, says):
    found = gains(kind, "islands", "tok_s")
    assert says.format(low=min(found), high=max(found)) in PAGES[page]


@pytest.mark.parametrize("kind", ["agents", "prompts"])
def test_how_many_more_run_was_simulated(kind):
    most = max(gains(kind, "islands", "running"))
    assert f"up to {most:.0f} % more requests running" in PAGES["index.md"]


def test_unified_is_as_near_to_the_best_ratio_as_is_said():
    every = [gains(kind, "islands-unified", "tok_s", "islands") for kind in ("agents", "prompts")]
    worst = -min(map(min, every))
    assert re.findall(r"within ([\d.]+) % of the best", EVERYTHING) == [f"{worst + 0.05:.1f}"] * 2


def table_row(row):
    """A row of what make bench-operator measured."""
    at_most = "" if row["limit"] is None else f"{row['limit']:g} {row['unit']}".strip()
    measured = f"{row['value']:,.4g} {row['unit']}" if row["value"] < 10_000 else f"{row['value']:,.0f} {row['unit']}"
    return f"| {row['what'].strip()} | {at_most} | {measured.strip()} | {row['verdict']} |"


def test_the_operator_s_table_is_what_was_measured():
    assert OPERATOR["resources"] == 1000
    assert len(OPERATOR["rows"]) > 25
    assert "\n".join(map(table_row, OPERATOR["rows"])) in PAGES["benchmarks.md"]


def test_what_concepts_says_a_request_holds_was_measured():
    window, page = (HOLD["geometry"][key] for key in ("window", "page"))
    assert HOLD["arms"]["stock"]["hold_max"] == 2 * window + 2 * page
    assert "stock SGLang 0.5.23 holds 2w + 2p per running request" in PAGES["concepts.md"]
    assert window + page <= HOLD["arms"]["islands"]["hold_mean"] < HOLD["arms"]["islands"]["hold_max"]
    assert HOLD["arms"]["islands"]["hold_max"] == window + 2 * page


def test_an_example_whose_bytes_are_those_of_fp8_asks_for_fp8():
    """SGLang's default for Gemma is bf16: half the tokens would fit."""
    seen = 0
    for path in sorted((ROOT / "examples").glob("*.yaml")):
        spec = yaml.safe_load(path.read_text())["spec"]
        if spec.get("geometry", {}).get("swaBytesPerToken") == 95_000 and "--pace" not in spec["engine"]["args"]:
            args = spec["engine"]["args"]
            assert args[args.index("--kv-cache-dtype") + 1] == "fp8_e4m3", path.name
            seen += 1
    assert seen == 4
