"""Children that the API server does not take: named, in nobody's way, and no reason to miss a deadline."""

import json
import re
from pathlib import Path

import pytest
import yaml
from support.world import World

from island_operator.core.security import RESTRICTED

QUOTA = (
    'deployments.apps "x" is forbidden: exceeded quota: few, requested: count/deployments.apps=1, used: 2, limited: 2'
)


def refusing(kind, told=QUOTA):
    """An API server that takes no new child of that kind."""
    return lambda want: told if want["kind"] == kind else None


def turns(world, count, seconds=1):
    for _ in range(count):
        if world.operate().requeue_after != 0:
            world.tick(seconds)
    return world


def test_a_canary_that_is_refused_is_named_and_meets_the_deadline_of_the_rollout():
    world = World().settle()
    before = {p["metadata"]["uid"] for p in world.pods()}
    world.refuse = refusing("Deployment")
    world.edit(engine__image="good:2")
    world.until("Canary")
    turns(world, 5)
    for kind, status in (("Ready", "False"), ("Progressing", "True"), ("Degraded", "True")):
        told = world.condition(kind)
        assert (told["status"], told["reason"]) == (status, "ApplyRefused")
        assert "exceeded quota: few" in told["message"]
    assert world.condition("Available")["status"] == "True"
    turns(world, 5, 90)
    assert world.phase == "Canary"
    turns(world, 9, 90)
    assert world.phase == "Stable"
    told = world.condition("RolledBack")
    assert (told["status"], told["reason"]) == ("True", "ApplyRefused")
    assert "no progress for 600 s (spec.rollout.deadline): Deployment x-" in told["message"]
    assert {p["metadata"]["uid"] for p in world.pods()} == before


def test_a_first_revision_that_is_refused_is_named_and_heals_by_itself():
    world = World()
    world.refuse = refusing("Deployment")
    turns(world, 6, 300)
    assert world.condition("Ready")["reason"] == "ApplyRefused"
    world.refuse = lambda want: None
    world.settle()
    assert world.condition("Ready")["status"] == "True"
    assert world.condition("Degraded")["status"] == "False"


@pytest.mark.parametrize("kind", ["Service", "PodDisruptionBudget"])
def test_another_child_that_is_refused_is_told_and_the_rollout_goes_on(kind):
    world = World()
    world.refuse = refusing(kind, "services is forbidden: User cannot patch resource")
    turns(world, 12)
    assert world.condition("Ready")["status"] == "True"
    assert world.condition("Degraded")["reason"] == "ApplyRefused"
    assert "User cannot patch" in world.condition("Degraded")["message"]


def test_a_gate_job_that_is_refused_is_named_and_meets_the_gates_deadline():
    world = World().settle()
    world.refuse = refusing("Job")
    world.edit(islands__enabled=True)
    turns(world, 4)
    assert (world.phase, world.condition("Ready")["reason"]) == ("Gating", "ApplyRefused")
    turns(world, 6, 70)
    assert world.status["gate"]["verdict"] == "INCONCLUSIVE"
    assert world.status["gate"]["reason"] == "ApplyRefused"
    assert world.condition("RolledBack")["status"] == "True"
    assert world.ready() == 2


def gate_without_a_pod(**changes):
    """What is said of a gate whose Job controller is refused every pod."""
    world = World(**changes).settle()
    world._jobs = lambda: None
    world.edit(islands__enabled=True)
    turns(world, 4)
    assert world.condition("Ready")["reason"] == "Gating"
    turns(world, 3, 10)
    assert world.condition("Ready")["reason"] == "PodsRefused"
    assert f"kubectl describe job {world.status['gate']['job']} says which" in world.condition("Ready")["message"]
    return world.condition("Ready")["message"]


def test_a_gate_whose_pod_is_refused_is_named_though_nobody_but_an_event_tells():
    told = gate_without_a_pod()
    assert f"; if pod security does, add to spec.podTemplate: {RESTRICTED}; {INSTEAD}" in told
    assert told.count("pod security") == 2


def test_a_gate_whose_pod_meets_the_restricted_standard_is_refused_by_something_else():
    fits = {"podTemplate": json.loads(RESTRICTED), "model__source": {"pvc": "weights"}}
    assert ": a quota or a LimitRange refuses it, " in gate_without_a_pod(**fits)
    assert f"does, {INSTEAD}" in gate_without_a_pod(podTemplate=json.loads(RESTRICTED))
    sidecar = [{"name": "engine"}, {"name": "beside", "image": "x"}]
    assert "does, add to" in gate_without_a_pod(**fits | {"podTemplate": {"spec": {"containers": sidecar}}})


def test_a_kill_switch_that_is_refused_keeps_what_serves_and_goes_through_when_it_may():
    world = World(islands__enabled=True).settle()
    world.refuse = refusing("Deployment")
    world.edit(islands__enabled=False)
    turns(world, 6)
    assert world.ready() == 2
    assert world.condition("Degraded")["reason"] == "ApplyRefused"
    world.refuse = lambda want: None
    world.settle()
    assert world.status["islands"]["enabled"] is False


@pytest.mark.parametrize("image", ["crash:1", "nopull:1"])
def test_auto_rollback_false_holds_a_failed_canary_but_never_an_outage(image):
    world = World(gpus=1, replicas=1, rollout__mode="Downtime", rollout__autoRollback=False).settle()
    world.edit(engine__image=image)
    turns(world, 60, 2)
    assert world.phase == "Stable"
    assert world.ready() == 1
    assert world.condition("RolledBack")["status"] == "True"


def test_auto_rollback_false_holds_where_something_serves():
    world = World(rollout__autoRollback=False).settle()
    world.edit(engine__image="crash:1")
    turns(world, 60, 2)
    assert world.phase == "Canary"
    assert world.ready() == 2
    assert world.condition("Degraded")["reason"] == "EngineDied"


@pytest.mark.parametrize(
    "told",  # by a Job whose pod is gone: the watches of Jobs and pods are not ordered
    [{"conditions": [{"type": "FailureTarget", "status": "True", "reason": "DeadlineExceeded"}]}, {"active": 1}],
)
def test_a_job_whose_deadline_took_its_pod_keeps_what_was_wrong_with_it(told):
    world = World(gpus=2).settle()
    world.edit(islands__enabled=True)
    turns(world, 10)
    assert world.condition("Ready")["reason"] == "InsufficientGPU"
    said = world.status["gate"]["message"]
    world._jobs = lambda: None
    (job,) = world.of("Job")
    job["status"] = told
    for pod in world.pods("gate"):
        world.store.pop(("Pod", pod["metadata"]["name"]))
    turns(world, 3, 15)
    assert (world.status["gate"]["reason"], world.status["gate"]["message"]) == ("InsufficientGPU", said)


HOST_PATH = 'restricted volume types (volume "model" uses restricted volume type "hostPath")'
CAPABILITIES = (
    'unrestricted capabilities (container "engine" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot '
    '!= true (pod or container "engine" must set securityContext.runAsNonRoot=true)'
)
INSTEAD = "use spec.model.source.pvc or huggingFace, not hostPath"


@pytest.mark.parametrize(
    ("standard", "violates", "says", "never"),
    [
        ("restricted", f"{CAPABILITIES}, {HOST_PATH}", (f"add to spec.podTemplate: {RESTRICTED}", INSTEAD), "baseline"),
        ("restricted", CAPABILITIES, (f"add to spec.podTemplate: {RESTRICTED}",), "hostPath"),
        ("baseline", 'hostPath volumes (volume "model")', (INSTEAD,), "add to spec.podTemplate"),
    ],
)
def test_pods_that_pod_security_refuses_are_told_what_to_add(standard, violates, says, never):
    world = World().settle()
    (deployment,) = world.of("Deployment")
    told = f'pods "x-1" is forbidden: violates PodSecurity "{standard}:latest": {violates}'
    deployment["status"] = {"conditions": [{"type": "ReplicaFailure", "status": "True", "message": told}]}
    world.disrupted()
    for pod in world.pods():
        world.store.pop(("Pod", pod["metadata"]["name"]))
    world.operate()
    message = world.condition("Ready")["message"]
    assert world.condition("Ready")["reason"] == "PodsRefused"
    for words in says:
        assert words in message
    assert never not in message


def test_the_page_about_security_shows_what_the_status_says():
    page = (Path(__file__).parents[3] / "docs/security.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```yaml\n(podTemplate:.*?)```", page, re.DOTALL)
    assert yaml.safe_load(shown)["podTemplate"] == json.loads(RESTRICTED)
