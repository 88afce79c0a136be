"""Whatever the status says, or does not (a downgrade, a hand, chance): the operator goes on, and what serves serves."""

import copy

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from support.damage import JSON, damaged
from support.world import World, clone, is_ready, paused_canary, told

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


def paused(phase, turns, **changes):
    """Islands on their way beside stock, and held up by a person: without that they would be promoted in a moment."""
    world = World(gpus=4, **changes).settle()
    world.edit(engine__image="good:2", islands__enabled=True)
    world.until(phase).go(turns)
    world.annotate("radix-islands.dev/pause", "1")
    world.operate()
    return world


PAUSED = {
    "gating": paused("Gating", 1),
    "canary": paused("Canary", 4),
    "the only pod": paused("Canary", 4, rollout__mode="Downtime", replicas=1),
    "promoting": paused("Promoting", 1, replicas=3),
}


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
    _, told = recovery.read(other.snapshot())
    assert (told.state.run, told.unread, told.held) == (None, ("status.run",), True)
    assert goes_on(other, 40).status["revisions"]["active"] in {
        status["revisions"]["active"],
        world.status["run"]["revision"],
    }


def says_paused(status, moment):
    """Of its run, or, where that is no longer one, of its condition."""
    run, told, conditions = status.get("run"), moment.condition("Progressing"), status.get("conditions")
    if isinstance(run, dict):
        return run.get("pausedAt") is not None
    return told["reason"] == "Paused" and isinstance(conditions, list) and told in conditions


def stays(world, moment, turns=18):
    """No pod of what rolls more than there was, and what serves is what served, whatever time passes."""
    revision, active = moment.status["run"]["revision"], moment.status["revisions"]["active"]
    pods = len(moment.pods(revision=revision))
    for _ in range(turns):
        world.operate()
        world.tick()
        assert len(world.pods(revision=revision)) <= pods
        assert world.status["revisions"]["active"] == active
    return world


@SLOW
@given(st.sampled_from(sorted(PAUSED)), st.booleans(), st.data())
def test_no_damage_lets_a_paused_run_go_on(name, run_alone, data):
    moment = PAUSED[name]
    status = data.draw(damaged(moment.status, ("run",) if run_alone else ()))
    assume(says_paused(status, moment))
    stays(later(moment, status), moment)


ILLEGIBLE = {
    "a word": {"phase": "Warming"},
    "its pause": {"pausedAt": 3},
    "its pause, of a later release": {"pausedAt": {"by": "somebody"}},
    "another revision than the spec's": {"revision": "0123456789"},
    "nothing but its pause": {"phase": None, "revision": None, "startedAt": None},
}


@pytest.mark.parametrize("change", ILLEGIBLE.values(), ids=ILLEGIBLE)
@pytest.mark.parametrize("name", PAUSED)
def test_a_paused_run_that_begins_anew_waits_for_a_verb(name, change):
    moment = PAUSED[name]
    world = later(moment, moment.status | {"run": moment.status["run"] | change})
    stays(world, moment)
    assert [e.reason for e in world.events if e.reason in {"Paused", "StatusUnreadable"}] == [
        "StatusUnreadable",
        "Paused",
    ]
    world.annotate("radix-islands.dev/resume", "1")
    world.settle()
    assert world.status["revisions"]["active"] == moment.status["run"]["revision"]


@pytest.mark.parametrize("left", [{}, {"run": 3}, {"run": {"phase": "Warming"}}], ids=str)
def test_a_pause_is_known_by_its_condition_where_nothing_is_left_of_its_run(left):
    moment = PAUSED["canary"]
    status = {name: value for name, value in moment.status.items() if name != "run"}
    world = stays(later(moment, status | left), moment)
    world.annotate("radix-islands.dev/abort", "1")
    world.settle()
    assert world.status["revisions"]["active"] == moment.status["revisions"]["active"]
    assert world.condition("RolledBack")["reason"] == "Aborted"


@pytest.mark.parametrize(("verb", "phase"), [("abort", "Stable"), ("promote", "Stable"), ("pause", "Canary")])
def test_a_verb_in_the_pass_that_cannot_read_a_paused_run_is_about_that_run(verb, phase):
    moment = PAUSED["canary"]
    world = later(moment, moment.status | {"run": moment.status["run"] | {"phase": "Warming"}})
    world.annotate(f"radix-islands.dev/{verb}", "2")
    assert world.go(40).phase == phase
    (said,) = [v for v in world.status["verbs"] if v["value"] == "2"]
    assert ("was refused" in said["outcome"]) is (verb == "pause")
    served = world.status["revisions"]["active"] == moment.status["revisions"]["active"]
    assert served is (verb != "promote")


def test_the_kill_switch_waits_for_no_pause_that_cannot_be_read():
    moment = PAUSED["canary"]
    world = later(moment, moment.status | {"run": moment.status["run"] | {"phase": "Warming"}})
    world.edit(islands__enabled=False)
    world.settle()
    assert {p["metadata"]["labels"]["radix-islands.dev/half"] for p in world.pods()} == {"stock"}
    assert [e.reason for e in world.events].count("KillSwitchStarted") <= 1


def test_a_gated_run_without_steps_begins_anew_and_is_promoted():
    world = World(gpus=4).settle()
    world.edit(islands__enabled=True)
    world.until(GATING)
    other = later(world, world.status | {"run": world.status["run"] | {"steps": []}})
    other.settle()
    assert other.status["islands"]["enabled"] is True


def test_a_run_without_what_it_leaves_is_still_rolled_back():
    world = MOMENTS["canary"]
    status = clone(world.status)
    del status["run"]["previous"]
    _, told = recovery.read(later(world, status).snapshot())
    assert told.state.run.previous == status["revisions"]["active"]


@pytest.mark.parametrize("name", MOMENTS)
def test_what_our_own_release_wrote_is_read_whole(name):
    snapshot = MOMENTS[name].snapshot()
    read, told = recovery.read(snapshot)
    assert (told.unread, told.held) == ((), False)
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


AHEAD = "2099-01-01T00:00:00Z"  # of an older release, on a node whose clock was wrong, or before the clock was set back


@pytest.mark.parametrize(("gpus", "stamp", "end"), [(2, "progressAt", "good:1"), (3, "heldSince", "good:2")])
def test_a_stamp_that_lies_ahead_stops_no_deadline_and_no_pause(gpus, stamp, end):
    """A canary that finds no GPU is given up in time, one that holds goes on."""
    world = World(gpus=gpus, rollout__steps=[{"weight": 33, "pause": "30s"}]).settle()
    world.edit(engine__image="good:2")
    world.until("Canary").go(8)
    assert stamp in world.status["run"]
    world.status["run"][stamp] = AHEAD
    since = world.seconds
    world.settle()
    assert world.seconds - since < 3600
    assert {pod["spec"]["containers"][0]["image"] for pod in world.pods()} == {end}


def test_a_starved_kill_switch_gets_its_gpu_whatever_the_clock_said():
    world = World(gpus=2, islands__enabled=True, rollout__mode="Surge").settle()
    world.edit(islands__enabled=False)
    for _ in range(3):
        world.operate()
        world.tick(1)
    assert world.status["run"]["starvedSince"]
    world.status["run"]["starvedSince"] = AHEAD
    since = world.seconds
    world.settle()
    assert world.seconds - since < 3600
    assert {told(pod)[0] for pod in world.pods()} == {"off"}


def test_a_gate_that_began_ahead_of_time_is_late_in_time():
    world = World(gate__deadline="1m").settle()
    world.edit(islands__enabled=True, engine__image="hangs:1")
    world.until("Gating").go(2)
    world.status["gate"]["startedAt"] = AHEAD
    world.operate()
    assert world.status["gate"]["startedAt"] == world.now
