"""What of a status may be told a moment later: nothing that the next pass or a client acts on."""

import pytest
from support.world import World, clone

from island_operator.core.news import can_wait


@pytest.fixture(scope="module")
def status():
    """Of a rollout under way, with every field that its phase has."""
    world = World(islands__enabled=True).settle()
    world.edit(engine__image="good:2")
    world.until("Canary").go(3)
    return world.status


def changed(status, *path, value="other"):
    new = clone(status)
    where = new
    for key in path[:-1]:
        where = where[key]
    where[path[-1]] = value
    return new


def test_wordings_and_counts_can_wait(status):
    for number in range(len(status["conditions"])):
        assert can_wait(status, changed(status, "conditions", number, "message"))
    for name in ("replicas", "readyReplicas"):
        assert can_wait(status, changed(status, name, value=99))


def test_nothing_else_can(status):
    conditions = [("conditions", 0, name) for name in status["conditions"][0] if name != "message"]
    fields = [(name,) for name in status if name not in {"conditions", "replicas", "readyReplicas"}]
    parts = [(name, inner) for name in ("run", "gate", "revisions") for inner in status[name]]
    assert {("observedGeneration",), ("phase",), ("run",), ("gate",), ("revisions",)} <= {*fields}
    for path in conditions + fields + parts:
        assert not can_wait(status, changed(status, *path)), path
    assert not can_wait(status, {**status, "conditions": status["conditions"][1:]})
    assert not can_wait({}, status)
    assert not can_wait(status, {name: status[name] for name in status if name != "run"})
