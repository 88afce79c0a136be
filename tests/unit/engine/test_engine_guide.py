"""docs/engine.md names every refusal and every metric."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import island_engine
from island_engine import refusals

GUIDE = (Path(__file__).parents[3] / "docs" / "engine.md").read_text(encoding="utf-8")
METRICS = (Path(island_engine.__file__).parent / "metrics.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("rule", refusals.RULES, ids=lambda rule: rule.flag)
def test_every_refusal(rule: refusals.Rule) -> None:
    refused = GUIDE.split("## What is refused")[1].split("## What goes with islands")[0]
    assert f"`{rule.flag}`" in refused


def test_every_metric_and_no_other() -> None:
    table = GUIDE.split("## Metrics")[1].split("## What is refused")[0]
    assert set(re.findall(r"^\| `(island_\w+)", table, re.MULTILINE)) == set(re.findall(r'"(island_\w+)"', METRICS))
