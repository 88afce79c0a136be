"""From the API server to the queue: waiting for the CRD, urgent edits, and what no watch tells."""

import asyncio
import contextlib

from support import toy_core
from support.virtual_time import virtually

from island_operator.cluster.cache import Cache, Key
from island_operator.cluster.fake import FakeCluster
from island_operator.cluster.protocol import ApiError, Unreachable
from island_operator.runtime.feed import FOLLOW, Feed, is_urgent

KEY = Key("default", "x")


class Inbox:
    def __init__(self):
        self.added, self.forgotten = [], []

    def add(self, key, *, urgent=False):
        self.added.append((key.name, urgent))

    def forget(self, key):
        self.forgotten.append(key.name)


def feed():
    cluster, cache, inbox = FakeCluster(), Cache(), Inbox()
    return Feed(cluster, cache, inbox), cluster, cache, inbox


def served(cluster, name, observed):
    return cluster.put({**toy_core.resource(name), "status": {"observedGeneration": observed}})


def test_prime_waits_for_the_crd_and_for_an_answer_then_wakes_every_resource():
    async def story():
        it, cluster, _, inbox = feed()
        errors = [ApiError(403, "forbidden"), Unreachable("refused"), ApiError(404, "not found"), ApiError(404, "no")]

        def fault(verb, kind):
            if errors and kind == "InferenceService":
                raise errors.pop()

        cluster.fault = fault
        served(cluster, "calm", 1)
        served(cluster, "edited while we were away", 0)
        cluster.put(toy_core.resource("new"))
        await it.prime()
        assert it.primed
        assert sorted(inbox.added) == [("calm", False), ("edited while we were away", True), ("new", False)]
        return asyncio.get_running_loop().time()

    assert virtually(story()) == 8


def test_first_passes_wait_until_the_watches_have_told_of_every_resource_but_an_edit_does_not():
    async def story():
        it, cluster, _, inbox = feed()
        a, b = served(cluster, "a", 1), served(cluster, "b", 1)
        await it.prime(listen=10)
        it.event("InferenceService", a, deleted=False)
        it.event("Pod", {**b, "kind": "Pod"}, deleted=False)  # of the same name
        assert inbox.added == []
        it.event("InferenceService", cluster.put({**a, "spec": {"image": "b"}}), deleted=False)
        assert inbox.added == [("a", True)]
        it.event("InferenceService", b, deleted=False)
        assert inbox.added == [("a", True), ("a", True), ("b", False)]
        await asyncio.sleep(20)
        assert len(inbox.added) == 3

    virtually(story())


def test_first_passes_do_not_wait_for_what_no_watch_tells_of():
    async def story():
        it, cluster, _, inbox = feed()
        cluster.put(toy_core.resource("gone by now"))
        await it.prime(listen=10)
        await asyncio.sleep(9)
        assert inbox.added == []
        await asyncio.sleep(2)
        assert inbox.added == [("gone by now", False)]

    virtually(story())


def test_prime_names_the_missing_crd(caplog):
    async def story():
        it, cluster, _, _ = feed()
        left = [2]

        def fault(verb, kind):
            if left[0]:
                left[0] -= 1
                raise ApiError(404, "the server could not find the requested resource")

        cluster.fault = fault
        await it.prime()

    virtually(story())
    assert [r.message for r in caplog.records if r.levelname == "WARNING"] == [
        "waiting to list: InferenceService: the server could not find the requested resource; "
        "is the CRD installed? (island-operator crd | kubectl apply --server-side -f -)"
    ]


async def test_events_wake_their_parent_and_echoes_nobody():
    it, cluster, _, inbox = feed()
    parent = cluster.put(toy_core.resource())
    pod = cluster.put({"kind": "Pod", "metadata": {"name": "x-1", "namespace": "default", "labels": {}}})
    pod["metadata"]["labels"] = {"radix-islands.dev/instance": "x"}
    for _ in range(2):
        it.event("InferenceService", parent, deleted=False)
        it.event("Pod", pod, deleted=False)
    it.event("Pod", pod, deleted=True)
    it.event("Pod", pod, deleted=True)
    assert inbox.added == [("x", False)] * 3


async def test_a_deleted_resource_is_forgotten():
    it, cluster, cache, inbox = feed()
    parent = cluster.put(toy_core.resource())
    it.event("InferenceService", parent, deleted=False)
    it.event("InferenceService", parent, deleted=True)
    assert inbox.forgotten == ["x"]
    assert cache.snapshot(KEY) is None


def test_edits_of_what_is_served_and_verbs_are_urgent_a_new_resource_is_not():
    def parent(generation, observed=None, **annotations):
        status = {} if observed is None else {"observedGeneration": observed}
        return {"metadata": {"generation": generation, "annotations": annotations}, "status": status}

    assert not is_urgent(parent(1))
    assert not is_urgent(parent(3, 3))
    assert is_urgent(parent(4, 3))
    assert is_urgent(parent(3, 3, **{"radix-islands.dev/abort": "now"}))
    assert not is_urgent(parent(3, 3, **{"kubectl.kubernetes.io/last-applied-configuration": "{}"}))
    assert not is_urgent({"metadata": {"generation": 1, "annotations": None}, "status": None})


def test_a_run_that_leads_away_from_a_fault_is_urgent_to_its_end_an_ordinary_one_is_not():
    def rolling(kind):
        return {"metadata": {"generation": 2}, "status": {"observedGeneration": 2, "run": {"kind": kind}}}

    kinds = ("KillSwitch", "Rollback", "Revert", "Rollout")
    assert [is_urgent(rolling(kind)) for kind in kinds] == [True, True, True, False]


async def primed_with_a_child():
    it, cluster, cache, inbox = feed()
    cluster.put(toy_core.resource())
    child = {"name": "x", "namespace": "default", "labels": {"radix-islands.dev/instance": "x"}}
    cluster.put({"kind": "Deployment", "metadata": child})
    await it.prime()
    inbox.added.clear()
    return it, cluster, cache, inbox


def test_the_sweep_finds_what_vanished_between_two_watches_and_survives_an_outage():
    async def story():
        it, cluster, cache, inbox = await primed_with_a_child()
        task = asyncio.create_task(it.resync(100))
        await asyncio.sleep(350)
        assert inbox.added == []
        cluster.remove("Deployment", "default", "x")
        outage = [True]

        def fault(verb, kind):
            if outage and verb == "list":
                outage.clear()
                raise Unreachable("refused")

        cluster.fault = fault
        await asyncio.sleep(250)
        assert inbox.added == [("x", False)]
        assert cache.snapshot(KEY).children == ()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    virtually(story())


def test_what_a_sweep_has_found_is_told_also_where_a_later_list_of_it_fails():
    """The next sweep would not find it again: the cache knows by then, and nobody else."""

    async def story():
        it, cluster, cache, inbox = await primed_with_a_child()
        cluster.remove("Deployment", "default", "x")

        def fault(verb, kind):
            if kind == "PodDisruptionBudget":
                raise ApiError(429, "too many requests")

        cluster.fault = fault
        task = asyncio.create_task(it.resync(300))
        await asyncio.sleep(25)
        assert cache.snapshot(KEY).children == ()
        assert inbox.added == [("x", False)]
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    virtually(story())


def test_what_vanished_while_the_watches_began_is_found_by_an_early_sweep():
    async def story():
        it, cluster, cache, inbox = await primed_with_a_child()
        cluster.remove("Deployment", "default", "x")  # before kopf has listed anything: it will never hear of it
        task = asyncio.create_task(it.resync(300))
        await asyncio.sleep(25)
        assert inbox.added == [("x", False)]
        assert cache.snapshot(KEY).children == ()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    virtually(story())


def test_a_kind_that_the_cluster_need_not_have_holds_up_nobody_and_is_looked_at_while_somebody_needs_it():
    async def story():
        it, cluster, cache, inbox = feed()
        cluster.put(toy_core.resource())
        absent = [404]

        def fault(verb, kind):
            if kind == "HTTPRoute" and absent:
                raise ApiError(absent[0], "404 page not found")

        cluster.fault = fault
        await it.prime()
        task = asyncio.create_task(it.follow())
        listed = lambda: [kind for verb, kind, _ in cluster.calls if verb == "list"].count("HTTPRoute")  # noqa: E731
        cluster.calls.clear()
        await asyncio.sleep(100)
        assert listed() == 0, "nobody has a gateway"
        parent = toy_core.resource()
        parent["spec"]["gatewayRef"] = {"name": "public"}
        cache.put("InferenceService", cluster.put(parent))
        absent[0] = 403
        await asyncio.sleep(20)
        absent.clear()
        meta = {"name": "x", "namespace": "default", "labels": {"radix-islands.dev/instance": "x"}}
        cluster.put({"kind": "HTTPRoute", "metadata": meta})
        inbox.added.clear()
        await asyncio.sleep(FOLLOW + 1)
        assert inbox.added == [("x", False)]
        assert cache.snapshot(KEY).child("HTTPRoute", "x")
        absent.append(404)  # the CRD is deleted, and with it all routes
        await asyncio.sleep(FOLLOW + 1)
        assert cache.snapshot(KEY).children == ()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    virtually(story())
