"""spec.replicas 0: a canary that nobody can see is not promoted, and what is taken unseen is said to be."""

import pytest
from support.world import World, told

from island_operator.core.prometheus import Answer

HOURS = 9 * 3600


def reasons(world):
    return [event.reason for event in world.events]


def history(world):
    return {k["revision"]: k for k in world.status["revisions"]["history"]}


def images(world):
    return {pod["spec"]["containers"][0]["image"] for pod in world.pods()}


def says(world, kind="Ready"):
    found = world.condition(kind)
    return found["status"], found["reason"]


def in_canary(world):
    """A new image, and time for its canary to be Ready and held."""
    world.edit(engine__image="good:2")
    world.until("Canary").go(6)


@pytest.fixture
def idle():
    """It has served, and is scaled to zero."""
    world = World().settle()
    world.edit(replicas=0)
    world.settle()
    world.events.clear()
    return world


def test_a_canary_at_zero_waits_is_said_to_and_meets_no_deadline(idle):
    before = idle.status["revisions"]["active"]
    idle.edit(engine__image="good:2")
    idle.settle()
    idle.tick(HOURS)
    idle.settle()
    assert (idle.phase, says(idle), says(idle, "Progressing")) == (
        "Canary",
        ("False", "ScaledToZero"),
        ("True", "ScaledToZero"),
    )
    message = idle.condition("Ready")["message"]
    assert "set spec.replicas to 1 or more, or annotate the object with radix-islands.dev/promote" in message
    assert idle.status["revisions"]["active"] == before
    idle.edit(replicas=2)
    idle.settle()
    assert says(idle) == ("True", "Serving")
    assert images(idle) == {"good:2"}
    assert reasons(idle) == ["RolloutStarted", "CanaryPassed", "Promoted"]


def test_what_served_comes_up_first_and_a_bad_canary_is_rejected_after_all(idle):
    before = idle.status["revisions"]["active"]
    idle.edit(engine__image="crash:1")
    idle.settle()
    idle.tick(HOURS)
    idle.edit(replicas=2)
    idle.settle()
    assert (says(idle), idle.status["revisions"]["active"]) == (("False", "RolledBack"), before)
    assert images(idle) == {"good:1"}


def test_scaled_to_zero_in_a_canary_promotes_nothing_and_it_goes_on_afterwards():
    world = World(rollout__steps=[{"weight": 33, "pause": "30s"}, {"weight": 66, "pause": "30s"}]).settle()
    before = world.status["revisions"]["active"]
    in_canary(world)
    world.edit(replicas=0)
    world.settle()
    world.tick(HOURS)
    world.settle()
    assert (world.phase, world.status["revisions"]["active"], world.pods()) == ("Canary", before, [])
    world.edit(replicas=2)
    world.settle()
    assert says(world) == ("True", "Serving")
    assert images(world) == {"good:2"}


def test_promote_takes_it_unseen_says_so_and_it_is_promoted_when_it_serves(idle):
    idle.edit(engine__image="good:2")
    idle.settle()
    idle.annotate("radix-islands.dev/promote", "1")
    idle.settle()
    active = idle.status["revisions"]["active"]
    assert reasons(idle) == ["RolloutStarted", "PromotionAsked", "Taken"]
    assert "promotedAt" not in history(idle)[active]
    assert says(idle) == ("True", "ScaledToZero")
    assert f"no pod of revision {active} has been Ready yet" in idle.condition("Ready")["message"]
    idle.edit(replicas=2)
    idle.settle()
    assert reasons(idle)[-1] == "Promoted"
    assert history(idle)[active]["promotedAt"]
    assert idle.operate().requeue_after is None


def test_what_was_taken_unseen_and_crashes_hours_later_gives_way_to_what_served(idle):
    before = idle.status["revisions"]["active"]
    idle.edit(engine__image="good:2")
    idle.settle()
    idle.annotate("radix-islands.dev/promote", "1")
    idle.settle()
    idle.tick(HOURS)
    idle.edit(replicas=1)
    for _ in range(8):
        idle.operate()
        idle.tick()
        for pod in idle.pods():
            if pod["status"].get("containerStatuses") and "good:2" in images(idle):
                pod["status"]["containerStatuses"][0]["restartCount"] = 3
                idle.crash(pod)
    idle.settle()
    assert idle.status["revisions"]["active"] == before
    assert says(idle, "RolledBack") == ("True", "CrashLoop")


def test_the_first_revisions_are_taken_one_after_another_until_something_has_served():
    world = World(replicas=0).settle()
    for image in ("good:2", "good:3"):
        world.edit(engine__image=image)
        world.settle()
        assert says(world) == ("True", "ScaledToZero")
    assert "Promoted" not in reasons(world)
    world.edit(replicas=1)
    world.settle()
    assert images(world) == {"good:3"}
    assert reasons(world)[-1] == "Promoted"


def test_a_gate_proves_islands_at_zero_too_and_the_kill_switch_waits_for_nothing(idle):
    idle.edit(islands__enabled=True)
    idle.settle()
    assert (idle.phase, says(idle, "GatePassed")) == ("Canary", ("True", "Passed"))
    idle.edit(islands__enabled=False)
    idle.settle()
    assert says(idle) == ("True", "ScaledToZero")
    idle.edit(replicas=2)
    idle.settle()
    assert {told(pod)[0] for pod in idle.pods()} == {"off"}


@pytest.mark.parametrize("answer", [Answer(99.0), Answer(fault="no series")])
def test_a_query_about_no_pods_neither_fails_nor_passes(answer):
    query = {"name": "q", "query": "vector(1)", "max": "1"}
    checks = {"enabled": True, "minRequests": 50, "prometheus": {"address": "http://p:9090", "queries": [query]}}
    world = World(rollout__checks=checks).settle()
    world.edit(replicas=0, engine__image="good:2")
    plan = world.operate()
    for _ in range(9):
        world.answers = {question.uid: answer for question in plan.ask} or world.answers
        world.tick(600)
        plan = world.operate()
    assert (world.phase, says(world)) == ("Canary", ("False", "ScaledToZero"))


def test_a_canary_that_is_scaled_up_after_a_long_hold_has_a_deadline_of_its_own():
    world = World(gpus=9, rollout__steps=[{"weight": 33, "pause": "9h"}]).settle()
    in_canary(world)
    world.tick(3600)
    world.edit(replicas=6)
    world.go(12)
    assert "rejected" not in world.status["revisions"]
    assert world.ready(world.status["run"]["revision"]) == 2


def test_a_canary_that_loses_a_pod_after_a_long_hold_has_no_other_deadline():
    world = World(rollout__steps=[{"weight": 33, "pause": "9h"}]).settle()
    in_canary(world)
    world.tick(3600)
    (pod,) = world.pods(revision=world.status["run"]["revision"])
    pod["status"]["conditions"] = []
    world.operate()
    world.operate()
    assert world.status["revisions"]["rejected"][0]["reason"] == "DeadlineExceeded"


@pytest.mark.parametrize("hours", [0, 1])
def test_a_canary_whose_pod_is_evicted_has_a_deadline_for_another(hours):
    """A node is drained an hour into its pause: that is no fault of the revision's."""
    world = World(rollout__steps=[{"weight": 33, "pause": "9h"}]).settle()
    in_canary(world)
    world.tick(3600 * hours)
    (pod,) = world.pods(revision=world.status["run"]["revision"])
    pod["metadata"]["deletionTimestamp"] = world.now
    world.go(12)
    assert "rejected" not in world.status["revisions"]
    assert world.ready(world.status["run"]["revision"]) == 1
    (pod,) = world.pods(revision=world.status["run"]["revision"])
    pod["metadata"]["deletionTimestamp"] = world.now
    world.gpus = 2  # the next one finds no GPU
    world.settle()
    assert world.status["revisions"]["rejected"][0]["reason"] == "InsufficientGPU"


@pytest.mark.parametrize("replicas", [2, 12])
def test_a_canary_whose_pods_are_all_others_now_is_held_anew(replicas):
    """While the operator was away: as many are Ready as before, and none of them was for the whole pause."""
    world = World(gpus=40, rollout__steps=[{"weight": 33, "pause": "60s"}]).settle()
    in_canary(world)
    canary = world.status["run"]["revision"]
    world.go(30)
    world.edit(replicas=replicas)
    world.operate()
    for pod in world.pods(revision=canary):
        pod["metadata"]["deletionTimestamp"] = world.now
    for _ in range(8):
        world.tick()
    assert world.ready(canary) >= 1
    back = world.seconds
    while world.phase == "Canary":
        world.go(1)
    assert world.seconds - back >= 60
    world.settle()
    assert images(world) == {"good:2"}


def test_a_kill_switch_and_a_bad_image_at_zero_are_not_taken_together_unseen():
    """What the switch leads to has served no request, but what it was made of has: its image gives way to no other."""
    world = World(islands__enabled=True).settle()
    world.edit(replicas=0)
    world.settle()
    world.edit(islands__enabled=False, engine__image="crash:1")
    world.settle()
    assert (world.phase, says(world)) == ("Canary", ("False", "ScaledToZero"))
    world.edit(replicas=2)
    world.settle()
    assert images(world) == {"good:1"}
    assert {told(pod)[0] for pod in world.pods()} == {"off"}
    assert says(world, "Degraded")[0] == "True"
    assert [r["revision"] for r in world.status["revisions"]["rejected"]] == [world.status["revisions"]["desired"]]
