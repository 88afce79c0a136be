"""Many rollouts at once on one real API server, each by an operator of its own in this process: everything of the
runtime but kopf and the Lease. So an operator can be killed at a chosen write, and its calls can be made to fail.
"""

import asyncio
import contextlib
import json
from collections import defaultdict

from support.watching import connect, eventually, set_status, watch
from support.world import GATES, HALF, PAIR, ROLE

from island_operator.cluster.cache import Cache
from island_operator.cluster.client import KubernetesCluster
from island_operator.cluster.kinds import PARENT, WATCHED
from island_operator.cluster.protocol import ApiError, Unreachable
from island_operator.core.drift import cleaned, covers
from island_operator.core.news import can_wait
from island_operator.core.plan import reconcile
from island_operator.runtime.events import Events
from island_operator.runtime.feed import Feed
from island_operator.runtime.queue import Queue
from island_operator.runtime.reconciler import Core, Reconciler

WRITES = {"apply", "patch_status", "patch", "create", "replace", "delete"}
NAME = "x"


class Unobserved:
    def waited(self, seconds):
        pass

    def finished(self, result, seconds):
        pass


class Life:
    """One operator of one namespace, until it is cancelled."""

    def __init__(self, cluster, namespace):
        self.cache, events = Cache(), Events(cluster, "arena")
        reconciler = Reconciler(cluster, self.cache, events, Core(reconcile, covers, cleaned, can_wait))
        self._queue = Queue(reconciler, Unobserved(), workers=1, base=0.1, cap=1.0)
        self.feed, self._events = Feed(cluster, self.cache, self._queue, namespace), events

    @property
    def is_idle(self):
        """Nothing waits, nothing runs, and nothing failed that is to be tried again."""
        return not self._queue.stalled() and not self._queue._failures

    def see(self, kind, obj, deleted):
        self.feed.event(kind, obj, deleted=deleted)

    async def run(self):
        await self.feed.prime()
        async with asyncio.TaskGroup() as parts:
            for part in (self._queue.run(), self._events.run(), self.feed.resync(2.0)):
                parts.create_task(part)


class Mortal:
    """A cluster whose client dies once its n-th write has reached the API server: it never hears the answer."""

    def __init__(self, cluster):
        self._cluster, self.writes, self.after, self.died = cluster, [], None, asyncio.Event()

    def arm(self, after):
        """Die after so many writes from now; 0: never."""
        self.writes, self.after = [], after
        return self

    def __getattr__(self, name):
        method = getattr(self._cluster, name)
        return self._counted(name, method) if name in WRITES else method

    def _counted(self, name, method):
        async def call(*args):
            got = await method(*args)
            kind = PARENT if name == "patch_status" else args[0] if name == "patch" else args[0]["kind"]
            if kind != "Event":  # written by another lane, in no order
                self.writes.append((name, kind))
                if len(self.writes) == self.after:
                    self.died.set()
                    await asyncio.Future()
            return got

        return call


class Flaky(KubernetesCluster):
    """Of all calls, reads too, a share is answered with 409, 429 or 500, or not at all; half of those were heard."""

    def sometimes(self, rng, share):
        self._rng, self._share, self.faults = rng, share, 0
        return self

    async def _call(self, *args, **kwargs):
        if self._rng.random() >= self._share:
            return await super()._call(*args, **kwargs)
        self.faults += 1
        fault = self._rng.choice([409, 429, 500, "lost", "unheard"])
        if fault == "unheard":
            with contextlib.suppress(ApiError):
                await super()._call(*args, **kwargs)
        if isinstance(fault, int):
            raise ApiError(fault, "planted")
        raise Unreachable("planted")


class Arena:
    """Watches everything, plays the kubelet everywhere, and keeps the books that no story may falsify."""

    def __init__(self, cluster):
        """`cluster`: for writes; a watch occupies one of the few connections of a client, so those have their own."""
        self.cluster = cluster
        self.played, self._played, self._tasks = set(), set(), set()  # namespaces with a kubelet, pods, its doings
        self.lives = {}  # namespace -> the operator in this process that serves it
        self.objects = defaultdict(dict)  # namespace -> (kind, name) -> object
        self.gates = defaultdict(set)  # namespace -> uids of Jobs
        self.pairs = defaultdict(set)  # namespace -> pairs that pods were told

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, kubeconfig):
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(hang_up)
            writer, watcher = [await connect(kubeconfig) for _ in range(2)]
            for client in (writer, watcher):
                stack.push_async_callback(client.close)
            arena = cls(writer)
            tasks = {asyncio.create_task(watch(watcher, kind, arena._seen(kind))) for kind in WATCHED}
            try:
                yield arena
            finally:
                await ended(tasks | arena._tasks)

    def see(self, parent):
        """An edit of our own, before the watch tells of it."""
        self.objects[parent["metadata"]["namespace"]][PARENT, NAME] = parent

    def _seen(self, kind):
        def see(obj, deleted):
            meta = obj["metadata"]
            namespace = meta["namespace"]
            if deleted:
                self.objects[namespace].pop((kind, meta["name"]), None)
            else:
                self.objects[namespace][kind, meta["name"]] = obj
            if kind == "Job":
                self.gates[namespace].add(meta["uid"])
            if namespace in self.lives:
                self.lives[namespace].see(kind, obj, deleted)
            if kind == "Pod" and not deleted and namespace in self.played:
                self._pod(obj)

        return see

    def _pod(self, pod):
        meta, container = pod["metadata"], pod["spec"]["containers"][0]
        if meta["labels"][ROLE] == "engine":
            args = container["args"]
            self.pairs[meta["namespace"]].add(tuple(args[args.index(flag) + 1] for flag in PAIR))
        if meta["uid"] not in self._played and "deletionTimestamp" not in meta:
            self._played.add(meta["uid"])
            task = asyncio.create_task(self._play(pod, container))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _play(self, pod, container):
        """A kubelet in one line: engines are Ready at once, gates end at once."""
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        if pod["metadata"]["labels"][ROLE] == "gate":
            code, message = GATES[container["image"].split(":")[0]]
            state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "message": message}}
            told = {"name": container["name"], "image": "", "imageID": "", "ready": False, "restartCount": 0}
            status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [{**told, "state": state}]}
        while True:
            try:
                await set_status(self.cluster, "Pod", pod, status)
            except (ApiError, Unreachable) as error:
                if isinstance(error, ApiError) and error.status in {404, 409}:
                    return  # gone meanwhile
                await asyncio.sleep(0.2)  # an outage: a kubelet tries again
            else:
                return

    # --- one story ----------------------------------------------------------------------------------------------------

    async def create_namespace(self, name):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        url = self.cluster._configuration.host + "/api/v1/namespaces"
        reply = await self.cluster._api.rest_client.request("POST", url, body=body)
        assert reply.status == 201, await reply.read()
        self.played.add(name)

    def parent(self, namespace):
        return self.objects[namespace].get((PARENT, NAME)) or {"metadata": {"generation": 1}}

    def status(self, namespace):
        return self.parent(namespace).get("status") or {}

    def condition(self, namespace, kind):
        return next((c for c in self.status(namespace).get("conditions", ()) if c["type"] == kind), {})

    def is_at_rest(self, namespace):
        """The newest spec was decided on, and nothing goes on."""
        status, parent = self.status(namespace), self.parent(namespace)
        current = status.get("observedGeneration") == parent["metadata"]["generation"]
        return current and status["phase"] == "Stable" and self.condition(namespace, "Progressing")["status"] == "False"

    def outcome(self, namespace):
        """What must be the same however often the operator died; all but names, times and counters."""
        status = self.status(namespace)
        deployments = [o for (kind, _), o in self.objects[namespace].items() if kind == "Deployment"]
        return {
            "deployments": sorted((d["metadata"]["labels"][HALF], d["spec"]["replicas"]) for d in deployments),
            "others": sorted(kind for kind, _ in self.objects[namespace] if kind not in {"Deployment", "Pod"}),
            "pods": sorted(
                p["metadata"]["labels"][ROLE]
                for (kind, _), p in self.objects[namespace].items()
                if kind == "Pod" and "deletionTimestamp" not in p["metadata"]
            ),
            "gates": len(self.gates[namespace]),
            "pairs": sorted(self.pairs[namespace]),
            "islands": status["islands"],
            "rejected": [r["reason"] for r in status["revisions"].get("rejected", ())],
            "conditions": {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]},
        }  # fmt: skip

    def has_come_to(self, namespace, wanted, but_for=None):
        """It rests, and this is its outcome, but for one part of it."""
        if not self.is_at_rest(namespace):
            return False
        outcome = self.outcome(namespace)
        return all(outcome[part] == wanted[part] for part in outcome if part != but_for)

    async def until(self, namespace, check):
        def told():
            rests = self.is_at_rest(namespace) and self.outcome(namespace)
            return f"{namespace}: {rests} {json.dumps(self.status(namespace))[:3000]}"

        await eventually(told, check, within=90.0, every=0.02)

    @contextlib.asynccontextmanager
    async def living(self, namespace, cluster):
        """An operator serves that namespace meanwhile; however this ends, it is killed, not stopped."""
        life = self.lives[namespace] = Life(cluster, namespace)
        task = asyncio.create_task(life.run())
        try:
            yield life
        finally:
            await ended({task})
            del self.lives[namespace]


async def hang_up():
    """aiohttp says goodbye over TLS: of whoever was not answered when the loop ends, a socket would be left open."""
    for transport in list(asyncio.get_running_loop()._transports.values()):  # nothing public knows them all
        transport.abort()
    await asyncio.sleep(0)  # they close


async def ended(tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
