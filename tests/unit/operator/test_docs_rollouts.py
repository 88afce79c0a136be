"""docs/rollouts.md says what the code does: row 35, the guide is run as a test."""

import re
from pathlib import Path

import pytest
from support.world import World

from island_operator.api import crd
from island_operator.core import health
from island_operator.core.transitions import PHASES
from island_operator.core.verbs import VERBS

GUIDE = (Path(__file__).parents[3] / "docs" / "rollouts.md").read_text(encoding="utf-8")
SPEC = crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]


def table(heading):
    """Rows of the first table below a heading, cells without back quotes."""
    part = GUIDE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("|")]
    return [[cell.replace("`", "").strip() for cell in row] for row in rows[2:]]


def field(path):
    """The schema of a field below spec."""
    node = {"properties": SPEC}
    for name in path.split("."):
        node = node["properties"][name]
    return node


def test_row_35_the_verbs_are_those_that_there_are():
    assert {row[0] for row in table("Verbs")} == set(VERBS)


def test_row_35_the_phases_and_the_modes_are_those_that_there_are():
    assert [row[0] for row in table("Phases")] == list(PHASES)
    modes = [row[0].removesuffix(" (default)") for row in table("Scarce GPUs")]
    assert modes == field("rollout.mode")["enum"]
    assert field("rollout.mode")["default"] == modes[0]


def test_row_35_the_checks_are_the_fields_with_their_defaults():
    checks = field("rollout.checks")["properties"]
    rows = {row[0]: row[2] for row in table("Canary checks")}
    assert set(rows) | {"enabled"} == set(checks)
    for name, default in rows.items():
        assert str(checks[name].get("default", "not checked")) == default.strip('"')


def test_row_35_the_faults_are_those_that_the_code_names():
    text = "".join(Path(file).read_text(encoding="utf-8") for file in (health.__file__, health.checks.__file__))
    for name, *_ in table("Faults of what serves"):
        assert f'"{name}"' in text


def test_row_35_every_field_that_it_names_exists():
    named = set(re.findall(r"`(?:spec\.)?((?:rollout|islands|gate|partition|engine)\.[A-Za-z.]+)`", GUIDE))
    assert len(named) >= 5
    for path in named:
        assert field(path)["description"]


@pytest.mark.parametrize("verb", re.findall(r"radix-islands\.dev/(\w+)=1", GUIDE))
def test_row_35_the_command_of_the_guide_does_what_it_says(verb):
    world = World(rollout__steps=[{"weight": 33, "pause": "1h"}]).settle()
    world.edit(engine__image="good:2")
    world.until("Canary")
    world.annotate(f"radix-islands.dev/{verb}", "1")
    world.operate()
    assert world.condition("Progressing")["reason"] == "Paused"
