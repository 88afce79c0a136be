"""Kubernetes Events: counted up instead of repeated, bounded, and never in the way."""

import asyncio
import contextlib

from island_operator.cluster.fake import FakeCluster
from island_operator.cluster.protocol import ApiError, Unreachable
from island_operator.core.model import Event
from island_operator.runtime.events import Events

PARENT = {"kind": "InferenceService", "metadata": {"name": "x", "namespace": "default", "uid": "u"}}


async def posted(cluster, *events, lane=None):
    lane = lane or Events(cluster, "me")
    task = asyncio.create_task(lane.run())
    for event in events:
        lane.emit(PARENT, event)
    for _ in range(5):  # nothing in the fake waits for anything
        await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return lane


def found(cluster):
    events = [obj for (kind, _, _), obj in cluster.objects.items() if kind == "Event"]
    return sorted((e["type"], e["reason"], e["note"], (e.get("series") or {}).get("count", 1)) for e in events)


async def test_what_happens_again_is_counted_in_one_object():
    cluster = FakeCluster()
    await posted(cluster, *[Event("Normal", "Serving", "2 of 2")] * 3, Event("Warning", "Serving", "2 of 2"))
    assert found(cluster) == [("Normal", "Serving", "2 of 2", 3), ("Warning", "Serving", "2 of 2", 1)]


async def test_another_note_is_another_event_because_notes_are_immutable():
    cluster = FakeCluster()
    await posted(cluster, Event("Warning", "Rejected", "revision a"), Event("Warning", "Rejected", "revision b"))
    assert [note for _, _, note, _ in found(cluster)] == ["revision a", "revision b"]


async def test_a_new_leader_counts_on_where_the_old_one_stopped():
    cluster = FakeCluster()
    await posted(cluster, Event("Normal", "Serving", "x"), Event("Normal", "Serving", "x"))
    await posted(cluster, Event("Normal", "Serving", "x"))
    assert found(cluster) == [("Normal", "Serving", "x", 3)]


async def test_an_event_that_expired_is_posted_anew():
    cluster = FakeCluster()
    lane = await posted(cluster, Event("Normal", "Serving", "x"))
    cluster.objects.clear()
    await posted(cluster, *[Event("Normal", "Serving", "x")] * 2, lane=lane)
    assert found(cluster) == [("Normal", "Serving", "x", 1)]
    assert lane.dropped == 1


async def test_the_note_is_bounded_and_the_name_legal():
    cluster = FakeCluster()
    parent = {**PARENT, "metadata": {**PARENT["metadata"], "name": "x" * 253}}
    lane = Events(cluster, "me")
    lane.emit(parent, Event("Normal", "Serving", "y" * 9999))
    await posted(cluster, lane=lane)
    ((_, _, name),) = cluster.objects
    assert len(name) <= 253
    assert len(found(cluster)[0][2]) == 1000


async def test_a_full_lane_drops_and_says_so_instead_of_waiting():
    lane = Events(FakeCluster(), "me", room=2)
    for _ in range(5):
        lane.emit(PARENT, Event("Normal", "Serving", "x"))
    assert lane.dropped == 3


async def test_refusals_and_outages_end_no_lane():
    cluster, errors = FakeCluster(), [ApiError(403, "namespace is being terminated"), Unreachable("reset")]

    def fault(verb, kind):
        if errors:
            raise errors.pop()

    cluster.fault = fault
    lane = await posted(cluster, *[Event("Normal", "Serving", str(n)) for n in range(3)])
    assert found(cluster) == [("Normal", "Serving", "2", 1)]
    assert lane.dropped == 2
