"""The pictures show what the code does now and what was measured."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from island_engine.planner.request import occupancy
from island_operator.core.transitions import TABLE, Cause

DOCS = Path(__file__).resolve().parents[3] / "docs"
FOUND = json.loads((DOCS / "pictures/occupancy.json").read_text())
SIZE = FOUND["geometry"]


def phases():
    """docs/pictures/phases.py, which is no module of a package."""
    spec = importlib.util.spec_from_file_location("phases", DOCS / "pictures/phases.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_of_the_phases_is_the_table():
    """If not: make pictures."""
    assert (DOCS / "img/phases.svg").read_text(encoding="utf-8") == phases().render()


def test_every_cause_and_every_source_is_drawn():
    drawn = phases().render()
    assert all(f">{cause}</text>" in drawn for cause in Cause)
    assert drawn.count("<circle") == sum(len(row.sources) for row in TABLE)
    assert drawn.count("<path") >= sum(set(row.sources) != {row.target} for row in TABLE)


def expected(arm):
    keys = ("window", "page", "chunk")
    return dict(occupancy(arm, SIZE["prompt"], SIZE["output"], **{key: SIZE[key] for key in keys}))


@pytest.mark.parametrize("arm", ["lazy", "stock"])
def test_what_one_request_pinned_is_what_the_planner_says(arm):
    said = expected(arm)
    generated = [(tokens, held) for tokens, held in FOUND["arms"][arm] if tokens > SIZE["prompt"] and tokens in said]
    assert len(generated) > 100
    assert [point for point in generated if said[point[0]] != point[1]] == []


def test_islands_pin_a_second_window_only_beside_a_new_island():
    least, twice = SIZE["window"] + SIZE["page"], 2 * SIZE["window"]
    held = [held for tokens, held in FOUND["arms"]["islands"] if tokens > SIZE["prompt"]]
    assert (min(held), max(held)) == (least, twice)
    assert sorted(held)[len(held) // 2] <= least + SIZE["page"]  # the median
