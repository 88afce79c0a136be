"""How many replicas each revision gets next: the arithmetic, and its bounds for whatever is there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from island_operator.core.observe import Fleet
from island_operator.core.scale import Room, hold, rush, starved, step


def fleet(name, target, ready=None, pods=None, **more):
    ready = target if ready is None else ready
    return Fleet(revision=name, half="stock", created="t", target=target, ready=ready, pods=pods or target, **more)


def seen(*fleets):
    return {f.revision: f for f in fleets}


@pytest.mark.parametrize(
    ("mode", "n", "room"),
    [
        ("Surge", 2, Room(2, 3, 2)),
        ("Replace", 2, Room(2, 2, 1)),
        ("Replace", 1, Room(1, 2, 1)),  # the only pod is not taken away: that would be Downtime
        ("Surge", 0, Room(0, 1, 0)),
        ("Downtime", 2, Room(2, 2, 1)),
        ("Downtime", 1, Room(1, 1, 0)),
        ("Downtime", 0, Room(0, 1, 0)),
    ],
)
def test_room(mode, n, room):
    assert Room.of(n, mode) == room


SURGE, REPLACE = Room.of(2, "Surge"), Room.of(2, "Replace")


@pytest.mark.parametrize(
    ("room", "cap", "there", "wanted"),
    [
        # Surge: one extra pod, then one for one, and only for a Ready one
        (SURGE, 1, [fleet("a", 2)], {"a": 2, "b": 1}),
        (SURGE, 1, [fleet("a", 2), fleet("b", 1)], {"a": 2, "b": 1}),
        (SURGE, 3, [fleet("a", 2), fleet("b", 1, ready=0)], {"a": 2, "b": 1}),
        (SURGE, 3, [fleet("a", 2), fleet("b", 1)], {"a": 1, "b": 1}),
        (SURGE, 3, [fleet("a", 1, pods=1, terminating=1), fleet("b", 1)], {"a": 1, "b": 1}),  # it still holds its GPU
        (SURGE, 3, [fleet("a", 1), fleet("b", 1)], {"a": 1, "b": 2}),
        (SURGE, 3, [fleet("a", 1), fleet("b", 2)], {"a": 0, "b": 2}),
        # a canary of two of three
        (SURGE, 2, [fleet("a", 1), fleet("b", 2)], {"a": 1, "b": 2}),
        # Replace: one serving pod goes first
        (REPLACE, 1, [fleet("a", 2)], {"a": 1, "b": 0}),
        (REPLACE, 1, [fleet("a", 1)], {"a": 1, "b": 1}),
        (REPLACE, 2, [fleet("a", 1), fleet("b", 1)], {"a": 0, "b": 1}),
        (REPLACE, 2, [fleet("a", 0), fleet("b", 1)], {"a": 0, "b": 2}),
        # a broken stable does not stop a good canary
        (SURGE, 3, [fleet("a", 2, ready=0), fleet("b", 1)], {"a": 1, "b": 1}),
        # nothing served yet: all at once
        (SURGE, 3, [], {"b": 2}),
        # an abandoned canary gives its GPU back at once; a half promoted one keeps what the active lacks
        (SURGE, 1, [fleet("a", 2), fleet("c", 1)], {"a": 2, "c": 0, "b": 0}),
        (SURGE, 1, [fleet("a", 1), fleet("c", 1)], {"a": 1, "c": 1, "b": 1}),
        # scaled meanwhile
        (Room.of(4, "Surge"), 1, [fleet("a", 2), fleet("b", 1)], {"a": 4, "b": 1}),
        (Room.of(1, "Surge"), 1, [fleet("a", 2), fleet("b", 1)], {"a": 1, "b": 1}),
        # from zero, both at once: together they keep to the limit
        (SURGE, 2, [fleet("a", 0), fleet("b", 0)], {"a": 2, "b": 1}),
    ],
)
def test_step(room, cap, there, wanted):
    assert step(room, cap, "b", "a", seen(*there)) == wanted


def test_the_gate_counts_as_a_pod():
    assert step(SURGE, 1, "b", "a", seen(fleet("a", 1)), gate=1)["a"] == 2
    assert step(REPLACE, 1, "b", "a", seen(fleet("a", 2)), gate=1)["a"] == 1


@pytest.mark.parametrize(
    ("room", "give", "there", "wanted"),
    [
        (SURGE, False, [fleet("a", 2)], {"b": 2, "a": 2}),
        (SURGE, False, [fleet("a", 2), fleet("b", 2, ready=1)], {"b": 2, "a": 1}),
        (SURGE, False, [fleet("a", 2), fleet("b", 2)], {"b": 2, "a": 0}),
        (SURGE, True, [fleet("a", 2), fleet("b", 2, ready=0)], {"b": 2, "a": 1}),
        (SURGE, True, [fleet("a", 1), fleet("b", 2, ready=1)], {"b": 2, "a": 0}),
        (REPLACE, False, [fleet("a", 2)], {"b": 2, "a": 1}),
        (SURGE, False, [fleet("a", 2, ready=0)], {"b": 2, "a": 0}),  # never waits for a pod that does not serve
        (SURGE, False, [fleet("a", 2), fleet("c", 1)], {"b": 2, "a": 2, "c": 0}),
        (Room.of(1, "Surge"), True, [fleet("a", 1), fleet("b", 1, ready=0)], {"b": 1, "a": 0}),
    ],
)
def test_rush(room, give, there, wanted):
    assert rush(room, "b", "a", seen(*there), give=give) == wanted


@pytest.mark.parametrize(
    ("there", "answer"),
    [
        ([fleet("a", 2), fleet("b", 2, ready=0, unscheduled=2)], True),
        ([fleet("a", 2), fleet("b", 2, ready=0, unscheduled=1, booting=1)], False),
        ([fleet("a", 1, terminating=1, ending=9.0), fleet("b", 2, ready=0, unscheduled=2)], False),
        ([fleet("a", 1, terminating=1), fleet("b", 2, ready=0, unscheduled=2)], True),  # its node is lost
        ([fleet("a", 1, pods=2), fleet("b", 2, ready=0, unscheduled=2)], False),
        ([fleet("a", 2), fleet("b", 2)], False),
        ([fleet("a", 2)], False),
    ],
)
def test_starved(there, answer):
    assert starved("b", seen(*there)) is answer


def test_at_rest_only_the_active_has_pods():
    assert hold(2, "a", seen(fleet("a", 1), fleet("c", 1))) == {"a": 2, "c": 0}
    assert hold(2, None, seen(fleet("c", 1))) == {"c": 0}


@st.composite
def fleets(draw):
    made = []
    for name in draw(st.sets(st.sampled_from("abc"))):
        target = draw(st.integers(0, 4))
        pods = draw(st.integers(0, 4))
        more = {"terminating": draw(st.integers(0, 2)), "pods": pods, "ready": draw(st.integers(0, pods))}
        made.append(Fleet(revision=name, half="stock", created=name, target=target, **more))
    return seen(*made)


@given(fleets(), st.integers(0, 4), st.integers(1, 6), st.sampled_from(["Surge", "Replace"]))
def test_no_step_grows_past_the_limit_or_below_the_floor(there, n, cap, mode):
    room = Room.of(n, mode)
    wanted = step(room, min(cap, room.limit), "b", "a", there)
    assert set(wanted) == {*there, "b"}
    for name, replicas in wanted.items():
        now = there[name].target if name in there else 0
        if replicas > now:  # nobody grows into a GPU that another pod holds
            others = sum(f.holding for f in there.values() if f.revision != name)
            assert replicas + others <= room.limit
    if wanted["b"] > (there["b"].target if "b" in there else 0):  # nor into one that another was given just now
        assert wanted["b"] + sum(max(f.holding, wanted[f.revision]) for f in there.values() if f.revision != "b") <= (
            room.limit
        )
    new = there["b"].ready if "b" in there else 0
    older = sum(wanted[f] for f in wanted if f != "b")
    ready = sum(min(f.ready, f.target) for f in there.values() if f.revision != "b")
    assert older + new >= min(room.floor, ready + new) or older >= n


@given(fleets(), st.integers(0, 4), st.booleans())
def test_a_rush_keeps_only_ready_pods_and_only_what_is_missing(there, n, give):
    room = Room.of(n, "Surge")
    wanted = rush(room, "b", "a", there, give=give)
    new = there["b"].ready if "b" in there else 0
    assert wanted["b"] == n
    assert sum(wanted[f] for f in there if f != "b") <= max(0, n - new)
    assert all(wanted[f] <= min(there[f].ready, there[f].target) for f in there if f != "b")
