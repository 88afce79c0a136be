"""One pass: only the writes that change something; a crash between any two of them; faults named in the status."""

import asyncio
import contextlib
import copy
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pydantic import BaseModel
from support import toy_core
from support.virtual_time import virtually

from island_operator.cluster.cache import Cache, Key
from island_operator.cluster.fake import FakeCluster
from island_operator.cluster.kinds import WATCHED
from island_operator.cluster.protocol import ApiError, Unreachable
from island_operator.core.checks import Reading
from island_operator.core.model import Plan, Refusal, Target
from island_operator.runtime.faults import blamed
from island_operator.runtime.reconciler import NotLeading, Reconciler

KEY = Key("default", "x")
CHILD = {"name": "x", "namespace": "default", "labels": {"radix-islands.dev/instance": "x"}}


class Mailbox:
    def __init__(self):
        self.posted = []

    def emit(self, parent, event):
        self.posted.append(event.reason)


class World:
    """A fake cluster, a cache fed from it, and a reconciler."""

    def __init__(self, reconcile=toy_core.reconcile, **options):
        self.cluster, self.cache, self.events = FakeCluster(), Cache(), Mailbox()
        self.recorded = []
        self.reconciler = Reconciler(
            self.cluster,
            self.cache,
            self.events,
            toy_core.core(reconcile),
            recorded=lambda old, new: self.recorded.append((old.get("phase"), new.get("phase"))),
            clock=lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            **options,
        )

    async def see(self):
        for kind in WATCHED:
            self.cache.sweep(kind, await self.cluster.list(kind))

    async def settle(self, passes=9):
        """Passes until one writes nothing."""
        for _ in range(passes):
            await self.see()
            if not (await self.reconciler(KEY)).wrote:
                return
        raise AssertionError(f"still writing after {passes} passes: {self.cluster.writes[-6:]}")

    def status(self):
        return self.cluster.objects["InferenceService", "default", "x"]["status"]

    def condition(self, kind):
        return next(c for c in self.status()["conditions"] if c["type"] == kind)

    def written(self):
        calls, self.cluster.calls[:] = self.cluster.writes, []
        return [(verb, kind) for verb, kind, _ in calls]


@pytest.fixture
async def world():
    world = World()
    world.cluster.put(toy_core.resource())
    await world.see()
    return world


async def test_the_first_pass_makes_all_in_order_and_when_all_is_there_nothing_is_written(world):
    assert (await world.reconciler(KEY)).wrote
    first = world.written()
    assert [call for call in first if call[0] == "patch"] == [
        ("patch", "Service"),
        ("patch", "Deployment"),
        ("patch", "InferenceService/status"),
    ]
    assert (await world.reconciler(KEY)).wrote, "the cache holds the answers: Pending -> Stable without any event"
    assert world.written() == [("patch", "InferenceService/status")]
    for _ in range(3):
        await world.see()
        assert not (await world.reconciler(KEY)).wrote
    assert world.written() == []
    assert world.events.posted == ["Pending", "Stable"]
    assert world.recorded == [(None, "Pending"), ("Pending", "Stable")]


async def test_only_the_child_that_differs_is_applied_and_foreign_fields_survive(world):
    await world.settle()
    world.written()
    live = world.cluster.objects["Deployment", "default", "x"]
    world.cluster.put({**live, "spec": {**live["spec"], "image": "by hand", "paused": True}})
    await world.see()
    await world.reconciler(KEY)
    assert ("patch", "Deployment") in world.written()
    assert world.cluster.objects["Deployment", "default", "x"]["spec"] == {"image": "a", "paused": True}
    await world.settle()


async def test_what_applying_cannot_remove_is_replaced(world):
    await world.settle()
    live = world.cluster.objects["Deployment", "default", "x"]
    world.cluster.put({**live, "spec": {**live["spec"], "coupled": "1"}})
    world.written()
    await world.settle()
    assert ("update", "Deployment") in world.written()
    assert world.cluster.objects["Deployment", "default", "x"]["spec"] == {"image": "a"}


async def test_a_deleted_child_comes_back(world):
    await world.settle()
    world.cluster.remove("Service", "default", "x")
    await world.settle()
    assert ("Service", "default", "x") in world.cluster.objects


async def test_a_child_being_deleted_is_left_alone(world):
    await world.settle()
    for kind in ("Deployment", "Job"):
        meta = {**CHILD, "deletionTimestamp": "2026-01-01T00:00:00Z"}
        world.cluster.put({"kind": kind, "metadata": meta, "spec": {"image": "a" if kind == "Job" else "dying"}})
    await world.see()
    world.written()
    await world.reconciler(KEY)
    assert world.written() == [("patch", "InferenceService/status")]


async def test_deletions_come_after_what_is_desired_and_before_the_status(world):
    await world.settle()
    world.cluster.put({"kind": "Job", "metadata": {**CHILD, "name": "gate"}})
    world.cluster.put(toy_core.resource(image="b"))
    await world.see()
    world.written()
    await world.reconciler(KEY)
    await world.reconciler(KEY)
    assert world.written() == [
        ("patch", "Deployment"),
        ("patch", "InferenceService/status"),
        ("delete", "Job"),
        ("patch", "InferenceService/status"),
    ]


async def test_only_verbs_that_are_there_are_cleared(world):
    world.cluster.put(toy_core.resource(**{"radix-islands.dev/retry": "1", "mine": "kept"}))
    await world.settle()
    assert world.cluster.objects["InferenceService", "default", "x"]["metadata"]["annotations"] == {"mine": "kept"}
    assert world.written().count(("patch", "InferenceService")) == 1


@pytest.mark.parametrize("heard", [True, False], ids=["the watch told of it", "nobody told of it"])
async def test_a_verb_that_is_asked_for_again_meanwhile_is_not_taken_off_before_it_is_carried_out(heard):
    """Between the pass' look at the object and its last write; another value is another asking."""
    verb, asked = "radix-islands.dev/retry", []

    def reconcile(snapshot, now):
        plan = toy_core.reconcile(snapshot, now)
        asked.append((snapshot.parent["metadata"].get("annotations") or {}).get(verb))
        status = {**plan.status, "reason": str(asked[-1])}
        return replace(plan, status=status, clear_annotations=(verb,))

    world = World(reconcile)
    world.cluster.put(toy_core.resource(**{verb: "1"}))
    await world.see()
    patch_status = world.cluster.patch_status

    async def patched(parent, status):
        got = await patch_status(parent, status)
        world.cluster.patch_status = patch_status
        asking = {"metadata": {"annotations": {verb: "2"}}}
        again = await world.cluster.patch("InferenceService", "default", "x", asking)
        if heard:
            world.cache.put("InferenceService", again)
        return got

    world.cluster.patch_status = patched
    await world.settle()
    assert "2" in asked
    assert verb not in world.cluster.objects["InferenceService", "default", "x"]["metadata"].get("annotations", {})


async def test_a_crash_before_any_write_is_repaired_by_the_next_process():
    async def story(crash_at):
        world = World()
        world.cluster.put(toy_core.resource(**{"radix-islands.dev/retry": "1"}))
        world.cluster.put({"kind": "Job", "metadata": {**CHILD, "name": "gate"}})
        count = 0

        def fault(verb, kind):
            nonlocal count
            count += verb not in {"get", "list"}
            if count == crash_at:
                raise KeyboardInterrupt

        world.cluster.fault = fault
        try:
            await world.settle()
        except KeyboardInterrupt:
            reborn = World()
            reborn.cluster, reborn.reconciler._cluster = world.cluster, world.cluster
            world = reborn
            world.cluster.fault = lambda verb, kind: None
            await world.settle()
            crashed = True
        else:
            crashed = False
        kept = {slot: {k: v for k, v in obj.items() if k != "metadata"} for slot, obj in world.cluster.objects.items()}
        world.written()
        await world.settle()
        assert world.written() == []
        return crashed, kept

    _, wanted = await story(crash_at=None)
    assert ("Job", "default", "gate") not in wanted
    crashes = [await story(n) for n in range(1, 12)]
    assert [crashed for crashed, _ in crashes].count(True) == 8, "4 for 2 new children, 2 statuses, a job, a verb"
    assert all(kept == wanted for _, kept in crashes)


async def test_nulls_in_a_status_are_no_difference(world):
    await world.settle()
    assert "reason" not in world.status()


def noted(*told):
    """A pass each: (seconds since the last, phase, note, requeue_after). Returns what came of each, and the status."""

    async def story():
        plans = []
        world, found = World(lambda snapshot, now: plans[-1]), []
        world.cluster.put(toy_core.resource())
        for seconds, phase, note, *wake in told:
            plans.append(Plan(status={"phase": phase, "note": note}, requeue_after=next(iter(wake), None)))
            await asyncio.sleep(seconds)
            await world.see()
            done = await world.reconciler(KEY)
            found.append("written" if world.written() else done.again)
            assert done.wrote == (found[-1] == "written")
        return found, world.status()

    return virtually(story())


def test_what_only_words_the_status_anew_waits_for_the_next_change_and_a_second_at_most():
    told = [(0, "A", "1"), (9, "A", "2"), (0.5, "A", "3"), (0.25, "A", "4"), (0.25, "A", "5")]
    assert noted(*told) == (["written", 1.0, 0.5, 0.25, "written"], {"phase": "A", "note": "5"})


def test_what_cannot_wait_takes_it_along_and_the_next_wording_waits_anew():
    told = [(0, "A", "1"), (9, "A", "2"), (0.5, "B", "3"), (0.25, "B", "4"), (0.75, "B", "4"), (0.25, "B", "4")]
    assert noted(*told)[0] == ["written", 1.0, "written", 1.0, 0.25, "written"]


def test_a_wording_that_returns_to_what_is_written_costs_nothing():
    assert noted((0, "A", "1"), (9, "A", "2"), (0.5, "A", "1"), (9, "A", "2"))[0] == ["written", 1.0, None, 1.0]


def test_what_waits_does_not_put_off_what_the_core_wants_to_look_at_sooner():
    assert noted((0, "A", "1"), (9, "A", "2", 0.125), (0.125, "A", "2", 60.0))[0] == ["written", 0.125, 0.875]


def test_a_status_that_waited_and_was_not_taken_is_due_at_every_retry():
    """A pass that would only wait again ends well, and the pauses between retries would never grow."""

    async def story():
        plan = Plan(status={"phase": "A", "note": "1"})
        world = World(lambda snapshot, now: plan)
        world.cluster.put(toy_core.resource())
        await world.see()
        await world.reconciler(KEY)
        plan = Plan(status={"phase": "A", "note": "2"})
        assert (await world.reconciler(KEY)).again == 1.0
        await asyncio.sleep(1)
        world.cluster.fault = _refusing("patch", "InferenceService/status", ApiError(429, "too many requests"))
        for _ in range(3):
            with pytest.raises(ApiError):
                await world.reconciler(KEY)
        world.cluster.fault = lambda verb, kind: None
        assert (await world.reconciler(KEY)).wrote
        plan = Plan(status={"phase": "A", "note": "3"})
        return (await world.reconciler(KEY)).again

    assert virtually(story()) == 1.0


def _refusing(verb, kind, error):
    def fault(*call):
        if call == (verb, kind):
            raise error

    return fault


async def test_what_the_api_server_stores_in_another_spelling_is_said_once(world):
    world.reconciler._core = replace(toy_core.core(), covers=lambda live, want: False)
    await world.settle()
    applied = world.written().count(("patch", "Deployment"))
    await world.settle()
    assert (applied, world.written()) == (2, [])
    world.cluster.put({**world.cluster.objects["Deployment", "default", "x"], "spec": {"image": "by hand"}})
    await world.settle()
    assert world.cluster.objects["Deployment", "default", "x"]["spec"] == {"image": "a"}


async def test_an_edit_between_snapshot_and_status_makes_us_look_again_not_fail(world):
    world.cluster.put(toy_core.resource(image="b"))  # the cache does not know yet
    done = await world.reconciler(KEY)
    assert done.wrote
    assert "status" not in world.cluster.objects["InferenceService", "default", "x"], (
        "decided on old news: not recorded"
    )
    assert world.events.posted == []
    assert world.cache.parent(KEY)["spec"] == {"image": "b"}
    await world.settle()
    assert world.status()["observedGeneration"] == 2


async def test_a_resource_deleted_under_our_hands_ends_quietly(world):
    world.cluster.remove("InferenceService", "default", "x")
    await world.reconciler(KEY)
    assert world.cache.parent(KEY) is None
    assert not (await world.reconciler(KEY)).wrote


async def test_a_resource_that_is_being_deleted_gets_no_write(world):
    obj = toy_core.resource()
    obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.cluster.put(obj)
    await world.see()
    await world.reconciler(KEY)
    assert world.written() == []


async def test_every_write_is_made_in_its_turn_and_the_lease_is_asked_for_after_the_wait():
    told = []

    @contextlib.asynccontextmanager
    async def turn():
        told.append("turn")
        yield
        told.append("over")

    world = World(turn=turn, leading=lambda: told.append("leads") or True)
    world.cluster.fault = lambda verb, kind: verb in {"get", "list"} or told.append("write")
    world.cluster.put(toy_core.resource(**{"radix-islands.dev/retry": "now"}))
    world.cluster.put({"kind": "Job", "metadata": {**CHILD, "name": "x-gate"}})
    await world.settle()
    assert {verb for verb, _ in world.written()} == {"create", "patch", "delete"}
    told = [one for one, before in zip(told, ["", *told], strict=False) if one != before]  # apply: create, then patch
    assert told == ["turn", "leads", "write", "over"] * (len(told) // 4)


async def test_without_the_lease_nothing_is_written():
    world = World(leading=lambda: False)
    world.cluster.put(toy_core.resource())
    await world.see()
    with pytest.raises(NotLeading):
        await world.reconciler(KEY)
    assert world.written() == []


async def test_a_core_that_raises_is_named_in_the_status_once_and_what_serves_still_serves(world):
    await world.settle()
    served = copy.deepcopy(world.status())
    ready = {"type": "Ready", "status": "True", "reason": "Serving", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    world.cluster.put({**toy_core.resource(image="explode"), "status": {**served, "conditions": [ready]}})
    for _ in range(3):
        await world.see()
        with pytest.raises(RuntimeError):
            await world.reconciler(KEY)
    assert world.written().count(("patch", "InferenceService/status")) == 3, (
        "two of the healthy passes, one of the fault"
    )
    assert world.condition("Ready") == ready
    assert world.status()["phase"] == "Stable"
    degraded = world.condition("Degraded")
    assert (degraded["status"], degraded["reason"], degraded["message"]) == (
        "True",
        "ReconcileFailed",
        "RuntimeError: cannot happen",
    )


async def test_an_object_that_fails_validation_is_named_by_its_fields_and_is_not_ready():
    class Engine(BaseModel):
        port: int
        pages: int
        args: list[int]

    def reconcile(snapshot, now):
        Engine.model_validate({"port": "x" * 5000, "args": ["y"] * 1000})
        return Plan()

    world = World(reconcile)
    world.cluster.put(toy_core.resource())
    await world.see()
    with pytest.raises(ValueError, match="validation errors"):
        await world.reconciler(KEY)
    ready, degraded = world.condition("Ready"), world.condition("Degraded")
    assert (ready["status"], ready["reason"], degraded["status"]) == ("False", "InvalidSpec", "True")
    assert "port: Input should be a valid integer" in ready["message"]
    assert ready["message"].endswith("more")
    assert len(ready["message"]) <= 500


async def test_a_child_the_api_server_refuses_stands_in_no_others_way_and_the_core_hears_of_it(world):
    heard = []

    def reconcile(snapshot, now):
        heard.append(dict(snapshot.refused))
        plan = toy_core.reconcile(snapshot, now)
        return replace(plan, desired=plan.desired[::-1])  # the Service after the Deployment

    def fault(verb, kind):
        if (verb, kind) in {("patch", "Deployment"), ("delete", "Job")}:
            raise ApiError(422, 'Deployment "x" is invalid: spec.image: Required value')

    world.reconciler._core = toy_core.core(reconcile)
    world.cluster.fault = fault
    done = await world.reconciler(KEY)
    assert done.refused == 'Deployment x: Deployment "x" is invalid: spec.image: Required value'
    assert ("patch", "Service") in world.written()
    assert world.status()["phase"] == "Pending"
    await world.reconciler(KEY)
    assert heard[0] == {}
    assert heard[1] == {("Deployment", "x"): Refusal(422, done.refused)}
    world.cluster.fault = lambda verb, kind: None
    await world.settle()
    assert world.status()["phase"] == "Stable"
    assert heard[-1] == {}


@pytest.mark.parametrize("labels", [{}, CHILD["labels"]], ids=["unlabelled", "labelled"])
async def test_a_job_that_somebody_else_made_under_its_name_is_left_alone_and_the_core_hears_of_it(world, labels):
    """Server-side apply would make it ours, and its verdict count."""
    want = toy_core.made(toy_core.resource(), "Job", {"args": ["prove"]})
    heard = []

    def reconcile(snapshot, now):
        heard.append(snapshot)
        return Plan(desired=() if snapshot.child("Job", "x") else (want,), status={"phase": "Gating"})

    world.reconciler._core = toy_core.core(reconcile)
    meta = {"name": "x", "namespace": "default", "labels": labels, "ownerReferences": [{"uid": "theirs"}]}
    theirs = world.cluster.put({"kind": "Job", "metadata": meta, "spec": {"command": ["true"], "args": ["prove"]}})
    for _ in range(3):
        await world.reconciler(KEY)
    assert world.cluster.objects["Job", "default", "x"] == theirs
    known, refused = heard[-1].child("Job", "x"), heard[-1].refused.get(("Job", "x"))
    assert (known is not None, refused and (refused.status, refused.message)) == (
        (True, None) if labels else (False, (409, "Job x: already exists"))
    )


async def test_a_deletion_that_is_refused_is_heard_of_too(world):
    await world.settle()
    world.cluster.put({"kind": "Job", "metadata": {**CHILD, "name": "gate"}})

    def fault(verb, kind):
        if verb == "delete":
            raise ApiError(403, "forbidden")

    world.cluster.fault = fault
    await world.see()
    done = await world.reconciler(KEY)
    assert done.refused == "Job gate: forbidden"


async def test_a_pass_that_only_decides_forgets_no_refusal(world):
    plans = [Plan(desired=(toy_core.made(toy_core.resource(), "Service", {"port": 1}),)), Plan(), Plan()]
    heard = []

    def reconcile(snapshot, now):
        heard.append(len(snapshot.refused))
        return plans[len(heard) - 1]

    def fault(verb, kind):
        if kind == "Service":
            raise ApiError(403, "exceeded quota")

    world.reconciler._core, world.cluster.fault = toy_core.core(reconcile), fault
    for _ in plans:
        await world.reconciler(KEY)
    assert heard == [0, 1, 1]


async def test_a_child_that_finds_no_owner_any_more_ends_quietly(world):
    def fault(verb, kind):
        if kind == "Service":
            world.cluster.objects.pop(("InferenceService", "default", "x"), None)
            raise ApiError(404, 'namespaces "default" not found')

    world.cluster.fault = fault
    assert not (await world.reconciler(KEY)).refused
    assert world.cache.parent(KEY) is None


@pytest.mark.parametrize("error", [ApiError(429, "slow down"), ApiError(503, "boom"), Unreachable("refused")])
async def test_a_passing_fault_of_the_api_server_is_not_blamed_on_the_resource(world, error):
    def fault(verb, kind):
        if kind == "Deployment":
            raise error

    world.cluster.fault = fault
    with pytest.raises(type(error)):
        await world.reconciler(KEY)
    assert "status" not in world.cluster.objects["InferenceService", "default", "x"]


async def test_a_status_the_api_server_refuses_is_replaced_by_one_that_says_so():
    world = World(lambda snapshot, now: Plan(status={"phase": "y" * 9999}))
    world.cluster.put(toy_core.resource())
    await world.see()
    real = world.cluster.patch_status

    async def strict(parent, status):
        if len(status.get("phase", "")) > 99:
            raise ApiError(422, "status.phase: Too long: may not be more than 99 bytes")
        return await real(parent, status)

    world.cluster.patch_status = strict
    with pytest.raises(ApiError):
        await world.reconciler(KEY)
    assert world.condition("Degraded")["message"] == "status: status.phase: Too long: may not be more than 99 bytes"


class Aside:
    """Knows one reading, and remembers what was wanted."""

    def __init__(self):
        self.wanted, self.forgotten = [], []

    def known(self, key):
        return {"readings": {"uid-1": Reading(fault="HTTP 500")}}

    def want(self, key, plan):
        self.wanted.append((key, plan.watch))

    def forget(self, key):
        self.forgotten.append(key)


async def test_the_core_sees_what_was_read_of_the_engines_and_says_which_to_read():
    target, aside = Target("uid-1", "10.0.0.1", 30000, 8, often=True), Aside()

    def reconcile(snapshot, now):
        return Plan(status={"phase": snapshot.readings["uid-1"].fault}, watch=(target,))

    world = World(reconcile, besides=(aside,))
    world.cluster.put(toy_core.resource())
    await world.see()
    await world.reconciler(KEY)
    assert world.status()["phase"] == "HTTP 500"
    assert aside.wanted == [(KEY, (target,))]
    world.cluster.remove("InferenceService", "default", "x")
    await world.see()
    await world.reconciler(KEY)
    assert aside.forgotten == [KEY]


def test_what_is_refused_ends_every_wait_that_the_status_told_of():
    def told(kind, status):
        return {"type": kind, "status": status, "reason": "Canary", "message": "m", "lastTransitionTime": "then"}

    def after(ready, progressing):
        status = {"conditions": [told("Ready", ready), told("Progressing", progressing)]}
        made = blamed({"metadata": {"generation": 2}, "status": status}, "ApplyRefused", "no", "now")
        return {c["type"]: (c["status"], c["reason"], c["lastTransitionTime"]) for c in made["conditions"]}

    waits = {"Ready": ("False", "ApplyRefused", "then"), "Progressing": ("True", "ApplyRefused", "then")}
    assert after("False", "True") == {**waits, "Degraded": ("True", "ApplyRefused", "now")}
    serves = {"Ready": ("True", "Canary", "then"), "Progressing": ("False", "Canary", "then")}
    assert after("True", "False") == {**serves, "Degraded": ("True", "ApplyRefused", "now")}
