"""One GPU in all: Downtime stops what serves, proves the change on its GPU, and on every way out something serves."""

import pytest
from support.world import REVISION, World, told

STOCK, LEAN = ("off", "0.4", "9984"), ("on", "0.15", "19968")


def one_gpu(**changes):
    return World(1, replicas=1, rollout__mode="Downtime", **changes).settle()


def pair(world):
    return [told(p) for p in world.pods()]


def test_row_1_one_gpu_in_all_the_update_finishes():
    world = one_gpu()
    ready = []
    world.check = lambda w: ready.append(w.ready())
    world.edit(islands__enabled=True)
    world.settle()
    assert world.condition("Ready")["status"] == "True"
    assert pair(world) == [LEAN]
    assert min(ready) == 0  # that is what the mode says
    assert len(world.jobs_made) == 1


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        ("wrong:1", "GateFailed"),
        ("noise:1", "Nondeterminism"),
        ("gatedies:1", "EngineDied"),
        ("silent:1", "NoReport"),
        ("nopull:1", "ImagePullFailed"),
        ("hangs:1", "GateDeadline"),
        ("crash:1", "EngineDied"),  # passes its gate and dies as canary
    ],
)
def test_stable_comes_back_on_every_way_out(image, reason):
    world = one_gpu()
    world.edit(islands__enabled=True, engine__image=image)
    world.settle()
    assert world.status["revisions"]["rejected"][-1]["reason"] == reason
    assert pair(world) == [STOCK]
    assert world.ready() == 1
    assert world.condition("Available")["status"] == "True"


def test_stable_comes_back_when_the_change_is_taken_back_half_way():
    world = one_gpu()
    world.edit(islands__enabled=True, engine__image="hangs:1")
    world.until("Gating")
    world.go(6)
    assert world.pods() == []
    world.edit(islands__enabled=False, engine__image="good:1")
    world.settle()
    assert pair(world) == [STOCK]
    assert world.condition("Ready")["status"] == "True"


def test_the_kill_switch_takes_the_one_gpu_at_once():
    world = one_gpu(islands__enabled=True)
    world.edit(islands__enabled=False)
    begun = world.seconds
    world.settle()
    assert pair(world) == [STOCK]
    assert world.seconds - begun < 15


def test_while_nothing_serves_the_status_says_so():
    world = one_gpu()
    world.edit(islands__enabled=True)
    world.until("Gating")
    world.go(3)
    available = world.condition("Available")
    assert (available["status"], available["reason"]) == ("False", "Downtime")
    assert "spec.rollout.mode" in available["message"]


def test_downtime_with_two_replicas_stops_one():
    world = World(2, replicas=2, rollout__mode="Downtime").settle()
    ready = []
    world.check = lambda w: ready.append(w.ready())
    world.edit(islands__enabled=True)
    world.settle()
    assert min(ready) == 1
    assert pair(world) == [LEAN, LEAN]


def story(crash_at=None):
    """A change that fails its gate, then a good one."""
    world = World(1, replicas=1, rollout__mode="Downtime")
    world.crash_at = crash_at
    for change in ({}, {"islands__enabled": True, "engine__image": "wrong:1"}, {"engine__image": "good:1"}):
        world.edit(**change)
        world.settle()
    return world


def test_row_13_the_operator_killed_after_every_write_leaves_something_that_serves():
    whole = story()
    for n in range(1, len(whole.writes) + 1):
        world = story(crash_at=n)
        assert pair(world) == pair(whole) == [LEAN], n
        assert world.jobs_made == whole.jobs_made, n
        assert {p["metadata"]["labels"][REVISION] for p in world.pods()} == {world.status["revisions"]["active"]}, n
