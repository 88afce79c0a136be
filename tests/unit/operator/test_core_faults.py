"""What serves turns out to be bad: the coupled rollback after promotion."""

import pytest
from support.world import HALF, World, told

STOCK, LEAN = ("off", "0.4", "9984"), ("on", "0.15", "19968")


def crash_loop(world, restarts=3, which=0):
    pod = world.pods()[which]
    pod["status"]["containerStatuses"][0]["restartCount"] = restarts - 1
    world.crash(pod)


def active(world):
    return world.status["revisions"]["active"]


@pytest.fixture
def islands():
    world = World().settle()
    world.edit(islands__enabled=True)
    world.settle()
    world.events.clear()
    return world


def test_row_13_a_crash_loop_after_promotion_rolls_both_settings_back(islands):
    bad = active(islands)
    crash_loop(islands)
    fewest = []
    islands.check = lambda world: fewest.append(world.ready())
    islands.settle()
    assert {told(p) for p in islands.pods()} == {STOCK}
    assert islands.ready() == 2
    assert min(fewest) >= 1  # the other pod of the bad revision serves until the good ones do
    (rejected,) = islands.status["revisions"]["rejected"]
    assert (rejected["revision"], rejected["reason"]) == (bad, "CrashLoop")
    assert "restarted 3 times" in islands.condition("RolledBack")["message"]
    assert islands.parent["spec"]["islands"]["enabled"] is True  # row 34
    assert [e.reason for e in islands.events] == ["FaultFound", "RollbackStarted", "RolledBack"]


@pytest.mark.parametrize(
    ("harmless", "reason"),
    [
        (lambda world: crash_loop(world, restarts=2), "EngineDied"),
        (lambda world: (world.tick(3601), crash_loop(world)), "EngineDied"),
        (lambda world: (world.edit(rollout__autoRollback=False), crash_loop(world)), "CrashLoop"),
    ],
    ids=["two restarts", "long after its promotion", "autoRollback is false"],
)
def test_what_is_reported_and_not_rolled_back(islands, harmless, reason):
    before = active(islands)
    harmless(islands)
    islands.operate()
    assert islands.condition("Degraded")["reason"] == reason
    islands.settle()
    assert active(islands) == before
    assert "rejected" not in islands.status["revisions"]


def test_the_first_revision_of_all_falls_back_to_its_stock_half():
    world = World(islands__enabled=True).settle()
    crash_loop(world)
    world.settle()
    assert {told(p) for p in world.pods()} == {STOCK}
    assert world.condition("Available")["status"] == "True"


def test_a_stock_revision_with_nothing_before_it_stays():
    world = World().settle()
    crash_loop(world)
    world.operate()
    assert world.phase == "Stable"
    assert world.condition("Degraded")["reason"] == "CrashLoop"


def test_a_crash_loop_after_the_kill_switch_brings_no_islands_back(islands):
    islands.edit(islands__enabled=False, engine__image="good:2")
    islands.settle()
    crash_loop(islands)
    islands.settle()
    assert {told(p) for p in islands.pods()} == {STOCK}


def test_a_node_that_kills_everything_does_not_walk_back_through_the_history(islands):
    for image in ("good:2", "good:3"):
        islands.edit(engine__image=image)
        islands.settle()
    crash_loop(islands)
    islands.settle()
    second = active(islands)
    crash_loop(islands)
    islands.settle()
    assert active(islands) == second
    assert len(islands.status["revisions"]["rejected"]) == 1


def test_row_10_what_was_rolled_back_stays_so_across_restart_and_replace_until_retry(islands):
    crash_loop(islands)
    islands.settle()
    islands.parent["metadata"].pop("annotations", None)
    islands.edit(replicas=3)
    islands.gpus = 4
    islands.settle()
    assert {p["metadata"]["labels"][HALF] for p in islands.pods()} == {"stock"}
    islands.annotate("radix-islands.dev/retry", "1")
    islands.settle()
    assert {told(p) for p in islands.pods()} == {LEAN}


def test_a_fault_with_a_unified_pool_rolls_the_switch_alone():
    world = World(islands__enabled=True, partition={"mode": "unified"}).settle()
    assert {told(p) for p in world.pods()} == {("on", "unified", "unified")}
    assert world.status["islands"] == {"enabled": True, "maxRunningRequests": 8}
    crash_loop(world)
    world.settle()
    assert {told(p) for p in world.pods()} == {("off", "unified", "unified")}
    assert world.status["islands"] == {"enabled": False, "maxRunningRequests": 8}


def story(crash_at=None):
    world = World(islands__enabled=True)
    world.crash_at = crash_at
    world.settle()
    crash_loop(world)
    return world.settle()


def test_row_13_the_operator_killed_after_every_write_of_a_rollback():
    """To the stock half that never was: its parts are derived, until its own Deployment keeps them."""
    whole = story()
    for n in range(1, len(whole.writes) + 1):
        world = story(crash_at=n)
        assert [told(p) for p in world.pods()] == [STOCK, STOCK], n
        assert active(world) == active(whole), n
