"""What of a status may be told a moment later: nothing that the next pass or a client acts on. And which children's own
status wakes nobody: what no decision reads.
"""

import dataclasses

import pytest
from support.world import World, clone

from island_operator.core.news import can_wait, wakes
from island_operator.core.plan import reconcile


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


BUSY = {"observedGeneration": 9, "replicas": 7, "readyReplicas": 7, "currentHealthy": 7, "loadBalancer": {}}
REFUSED = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}


def busy(child, **more):
    meta = {**child["metadata"], "resourceVersion": "999"}
    return {**child, "metadata": meta, "status": {**BUSY, **more}} if child["kind"] != "Pod" else child


@pytest.mark.parametrize("image", ["good:2", "crash:2", "wrong:2"])
def test_no_plan_reads_a_status_that_wakes_nobody(image):
    world = World(islands__enabled=True).settle()
    world.edit(engine__image=image)
    for _ in range(40):
        seen = world.snapshot()
        told = [c for c in seen.children if c["kind"] != "Job"]
        assert not [c for c in told if wakes(c, busy(c)) and c["kind"] != "Pod"]
        louder = dataclasses.replace(seen, children=tuple(c if c["kind"] == "Job" else busy(c) for c in seen.children))
        plan, other = reconcile(seen, world.now), reconcile(louder, world.now)
        ours = {**dataclasses.asdict(plan), "delete": [d["metadata"]["name"] for d in plan.delete]}
        assert ours == {**dataclasses.asdict(other), "delete": [d["metadata"]["name"] for d in other.delete]}
        world.go(1)


def test_all_else_wakes():
    world = World(replicas=1).settle()
    deployment, pod, budget = (world.of(kind)[0] for kind in ("Deployment", "Pod", "PodDisruptionBudget"))
    assert wakes(deployment, busy(deployment, conditions=[REFUSED]))
    assert wakes(busy(deployment, conditions=[REFUSED]), deployment)
    assert wakes(deployment, {**deployment, "spec": {**deployment["spec"], "replicas": 2}})
    assert wakes(budget, {**budget, "metadata": {**budget["metadata"], "deletionTimestamp": "now"}})
    assert wakes(budget, {**budget, "metadata": {**budget["metadata"], "labels": {}}})
    assert wakes(pod, {**pod, "status": {}})
