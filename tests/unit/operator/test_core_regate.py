"""The scheduled gate of islands that serve: it finds drift, disturbs nobody, and acts only when told to."""

import pytest
from support.world import DIVERGENCE, GATES, World, ended, termination, told

STOCK, LEAN = ("off", "0.4", "9984"), ("on", "0.15", "19968")
DRIFT = (10, termination("FAIL", divergence=DIVERGENCE))


def work(world, turns=12):
    for _ in range(turns):
        if world.operate().requeue_after != 0:
            world.tick()
    return world


@pytest.fixture
def islands():
    world = World(islands__enabled=True).settle()
    world.edit(gate__schedule="1h")
    world.events.clear()
    return world


def reasons(world):
    return [e.reason for e in world.events]


def test_it_runs_when_it_is_due_and_beside_what_serves(islands):
    before = {p["metadata"]["uid"] for p in islands.pods()}
    work(islands)
    assert len(islands.jobs_made) == 1  # the first one; it is not due yet
    assert 3000 < islands.operate().requeue_after < 3600
    fewest = []
    islands.check = lambda world: fewest.append(world.ready())
    islands.tick(3600)
    work(islands)
    assert len(islands.jobs_made) == 2
    assert islands.status["regate"]["verdict"] == "PASS"
    assert islands.status["regate"]["attempt"] == 2
    assert islands.phase == "Stable"
    assert {p["metadata"]["uid"] for p in islands.pods()} == before
    assert min(fewest) == 2
    assert reasons(islands) == ["RegateStarted", "RegatePassed"]
    work(islands)
    assert len(islands.jobs_made) == 2
    islands.tick(3600)
    work(islands)
    assert len(islands.jobs_made) == 3


def test_drift_is_told_and_what_serves_stays(islands, monkeypatch):
    monkeypatch.setitem(GATES, "good", DRIFT)
    islands.tick(3600)
    work(islands)
    assert {told(p) for p in islands.pods()} == {LEAN}
    degraded = islands.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "DriftFound")
    assert "hit/w+1 at token 3: 17 instead of 12" in degraded["message"]
    assert islands.condition("Ready")["status"] == "True"
    assert islands.status["gate"]["verdict"] == "PASS"  # of the rollout: that is history
    passed = islands.condition("GatePassed")
    assert (passed["status"], passed["reason"]) == ("False", "DriftFound")
    monkeypatch.undo()
    islands.tick(3600)
    work(islands)
    assert islands.condition("Degraded")["status"] == "False"
    assert islands.condition("GatePassed")["status"] == "True"


def test_what_has_drifted_is_proved_anew_before_it_serves_again(islands, monkeypatch):
    monkeypatch.setitem(GATES, "good", DRIFT)
    islands.tick(3600)
    work(islands)
    for on in (False, True):
        islands.edit(islands__enabled=on, gate__schedule=None)
        islands.settle()
    assert islands.status["revisions"]["rejected"][-1]["reason"] == "GateFailed"
    assert {told(p) for p in islands.pods()} == {STOCK}


def test_drift_rolls_back_where_it_is_told_to(islands, monkeypatch):
    islands.edit(gate__onDrift="Rollback")
    monkeypatch.setitem(GATES, "good", DRIFT)
    islands.tick(3600)
    work(islands, 30)
    assert {told(p) for p in islands.pods()} == {STOCK}
    assert islands.condition("RolledBack")["reason"] == "DriftFound"
    islands.edit(gate__schedule=None)
    islands.settle()
    assert {told(p) for p in islands.pods()} == {STOCK}


def test_without_a_spare_gpu_it_takes_none_and_gives_up_at_its_deadline(islands):
    islands.gpus = 2
    islands.tick(3600)
    work(islands, 12)
    assert islands.ready() == 2
    assert islands.status["regate"]["reason"] == "InsufficientGPU"
    islands.tick(600)
    work(islands, 6)
    assert islands.status["regate"]["verdict"] == "INCONCLUSIVE"
    assert islands.condition("Degraded")["status"] == "False"
    assert reasons(islands)[-1] == "RegateInconclusive"


def test_what_is_scaled_to_zero_takes_no_gpu_for_it(islands):
    islands.edit(replicas=0)
    work(islands)
    islands.tick(3600)
    work(islands)
    assert islands.holding() == []
    assert "regate" not in islands.status
    assert islands.operate().requeue_after is None, "it sleeps until it is scaled"
    islands.edit(replicas=2)
    work(islands, 20)
    assert islands.status["regate"]["verdict"] == "PASS"


@pytest.mark.parametrize(
    "change", [{"engine__image": "good:2"}, {"islands__enabled": False}, {}], ids=["image", "switch", "schedule alone"]
)
def test_it_gives_way_to_a_change_of_the_spec(islands, change, monkeypatch):
    monkeypatch.setitem(GATES, "good", None)  # it hangs
    islands.tick(3600)
    work(islands, 6)
    (pod,) = [p for p in islands.pods("gate") if not ended(p)]
    monkeypatch.undo()
    islands.edit(gate__schedule=None, **change)
    islands.settle()
    assert ("Pod", pod["metadata"]["name"]) not in islands.store
    assert islands.status["regate"]["reason"] == "Aborted"
    assert len(islands.holding()) == 2
    assert islands.condition("Ready")["status"] == "True"


def test_it_gives_its_gpu_to_a_serving_pod_that_is_missing(islands, monkeypatch):
    monkeypatch.setitem(GATES, "good", None)
    islands.tick(3600)
    work(islands, 6)
    islands.gpus = 2  # a node is gone, and a serving pod with it
    islands.store.pop(("Pod", islands.pods()[0]["metadata"]["name"]))
    work(islands, 10)
    assert islands.ready() == 2
    assert islands.status["regate"]["reason"] == "Aborted"


@pytest.mark.parametrize("change", [{"islands__enabled": False}, {"gate__enabled": False}], ids=str)
def test_what_is_not_gated_is_not_gated_again(change):
    world = World(gate__schedule="1h", **change).settle()
    world.tick(7200)
    work(world, 5)
    assert "regate" not in world.status
