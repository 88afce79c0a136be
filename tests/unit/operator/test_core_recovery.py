"""Whatever the status says, or does not (a downgrade, a hand, chance): the operator goes on, and what serves serves."""

import copy

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.damage import JSON, damaged
from support.world import World, clone, is_ready, paused_canary

from island_operator.core import recovery
from island_operator.core.plan import reconcile
from island_operator.core.transitions import GATING, PHASES, PROMOTING


def at_rest():
    world = World().settle()
    world.edit(islands__enabled=True)
    return world.settle()


def moment(phase, **edits):
    world = World(gpus=4).settle()
    world.edit(**edits)
    world.until(phase)
    return world.go(3)


def rolling_back():
    world = at_rest()
    world.edit(islands__enabled=False)
    return world.go(2)


def rejected():
    world = at_rest()
    world.edit(engine__image="wrong:1")
    return world.settle()


def coming_up():
    return World().go(2)


MOMENTS = {
    "at rest": at_rest(),
    "gating": moment(GATING, engine__image="hangs:1", islands__enabled=True),
    "canary": paused_canary(),
    "promoting": moment(PROMOTING, engine__image="good:2"),
    "kill switch": rolling_back(),
    "rejected": rejected(),
    "coming up": coming_up(),
}
SLOW = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def later(world, status):
    """The same world with another status, which nobody has read yet."""
    other = copy.copy(world)
    other.store, other.parent = clone(world.store), {**clone(world.parent), "status": status}
    other.events, other.writes, other.been_ready = [], [], set(world.been_ready)
    return other


def uids(world):
    return {p["metadata"]["uid"] for p in world.pods() if is_ready(p)}


def goes_on(world, turns=12):
    """No pod fewer than serve now serves on the way."""
    least = min(world.ready(), 2)
    for _ in range(turns):
        world.operate()
        world.tick()
        assert world.ready() >= least
        assert world.phase in PHASES
    return world


@SLOW
@given(st.sampled_from(sorted(MOMENTS)), st.data())
def test_a_status_with_parts_that_are_gone_or_something_else(name, data):
    world = MOMENTS[name]
    goes_on(later(world, data.draw(damaged(world.status))))


@SLOW
@given(JSON)
@example({"revisions": {}})
@example({"phase": "Stable", "islands": {"enabled": True}})
@example({"revisions": {"active": "0123456789"}})
def test_any_json_as_a_status_leaves_the_pods_that_serve(status):
    world = later(MOMENTS["at rest"], status)
    before = uids(world)
    goes_on(world)
    assert uids(world) == before
    assert world.phase == "Stable"


@pytest.mark.parametrize("field", ["active", "desired", "history"])
def test_each_part_of_the_revisions_may_be_missing(field):
    world = MOMENTS["canary"]
    status = clone(world.status)
    was = status["revisions"].pop(field)
    back = goes_on(later(world, status)).status["revisions"]
    assert back[field] == was if field != "history" else back["active"] == world.status["revisions"]["active"]


@pytest.mark.parametrize("phase", [{}, {"phase": "Stable"}])
def test_what_serves_is_not_gated_for_want_of_all_that_was_known_of_it(phase):
    """Its gate's GPU would be its own."""
    world = MOMENTS["at rest"]
    desired = {"desired": world.status["revisions"]["desired"]}
    before = uids(world)
    world = goes_on(later(world, {**phase, "revisions": desired}))
    assert (uids(world), world.phase) == (before, "Stable")


def test_what_serves_is_found_by_its_pods_where_the_service_is_gone_too():
    world = later(MOMENTS["at rest"], {"phase": "Stable", "revisions": 3})
    world.store.pop(("Service", "x-stable"))
    world.edit(engine__image="good:7")  # what is asked for is something else
    before = uids(world)
    world.operate()
    assert world.status["revisions"]["active"] == MOMENTS["at rest"].status["revisions"]["active"]
    assert uids(world) == before


def test_it_is_told_once_and_the_status_is_whole_again():
    world = MOMENTS["at rest"]
    status = clone(world.status)
    del status["revisions"]["history"][0]["islands"]
    status["run"] = {"revision": "abc", "phase": "Warming"}
    world = goes_on(later(world, status))
    (told,) = [event for event in world.events if event.reason == "StatusUnreadable"]
    assert told.type == "Warning"
    assert told.note.startswith("this release cannot read status.revisions.history[0], status.run, and goes on")


@pytest.mark.parametrize(
    "change",
    [{"phase": "Warming"}, {"kind": "Teleport"}, {"mode": "BlueGreen"}, {"step": 7}, {"checks": {"maxErrorRate": "x"}}],
)
def test_a_run_that_this_release_cannot_follow_begins_anew(change):
    world = MOMENTS["canary"]
    status = clone(world.status)
    status["run"] |= change
    other = later(world, status)
    _, known, unread = recovery.read(other.snapshot())
    assert (known.run, unread) == (None, ("status.run",))
    assert goes_on(other, 40).status["revisions"]["active"] in {
        status["revisions"]["active"],
        world.status["run"]["revision"],
    }


def test_a_run_without_what_it_leaves_is_still_rolled_back():
    world = MOMENTS["canary"]
    status = clone(world.status)
    del status["run"]["previous"]
    _, known, _ = recovery.read(later(world, status).snapshot())
    assert known.run.previous == status["revisions"]["active"]


@pytest.mark.parametrize("name", MOMENTS)
def test_what_our_own_release_wrote_is_read_whole(name):
    snapshot = MOMENTS[name].snapshot()
    read, _, unread = recovery.read(snapshot)
    assert unread == ()
    assert read.parent == snapshot.parent | {"status": snapshot.parent.get("status") or {}}
    assert not [e for e in reconcile(snapshot, MOMENTS[name].now).events if e.reason == "StatusUnreadable"]


def test_a_gate_after_a_status_that_was_lost_is_a_job_of_its_own():
    world = MOMENTS["gating"]
    (first,) = world.jobs_made
    other = later(world, {})
    other.jobs_made = []
    goes_on(other)
    assert other.jobs_made
    assert first not in other.jobs_made
    assert ("Job", first) not in other.store  # nobody waits for it any more
