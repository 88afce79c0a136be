"""What a rollout costs the API server: every write of the runtime and the core together, Events too, counted on a
cluster in memory whose controllers take a moment for each of their steps. In virtual time.
"""

import asyncio
import contextlib
from datetime import timedelta

from support.virtual_time import virtually
from support.world import EPOCH, GATES, ROLE, clone, inference_service, is_ready

from island_operator.cluster.cache import Cache
from island_operator.cluster.fake import FakeCluster
from island_operator.cluster.kinds import MADE_ONCE, PARENT
from island_operator.core.drift import cleaned, covers
from island_operator.core.news import can_wait
from island_operator.core.plan import reconcile
from island_operator.runtime.events import Events
from island_operator.runtime.feed import Feed, hurries
from island_operator.runtime.queue import Queue
from island_operator.runtime.reconciler import Core, Reconciler

MOMENT = 0.1  # seconds between two steps of a controller


class Unobserved:
    def waited(self, seconds):
        pass

    def finished(self, result, seconds):
        pass


class Town:
    """An InferenceService, the operator's runtime but for kopf and the Lease, and Kubernetes in a few lines."""

    def __init__(self, *, boots=True):
        self.cluster, self.cache = FakeCluster(), Cache()
        self._boots, self._events = boots, Events(self.cluster, "town")
        core = Core(reconcile, covers, cleaned, can_wait)
        reconciler = Reconciler(self.cluster, self.cache, self._events, core, clock=self._clock)
        self._queue = Queue(reconciler, Unobserved(), workers=1, hurries=lambda key: hurries(self.cache, key))
        self._feed = Feed(self.cluster, self.cache, self._queue)

    @classmethod
    @contextlib.asynccontextmanager
    async def of(cls, *, boots=True, **changes):
        """`changes` of the spec, else one replica without steps; `boots`: pods become Ready."""
        town = cls(boots=boots)
        town.cluster.put(inference_service(**{"replicas": 1, "rollout__steps": [], **changes}))
        await town._feed.prime()
        parts = (town._queue.run(), town._events.run(), town._controllers())
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            yield town
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @staticmethod
    def _clock():
        return EPOCH + timedelta(seconds=asyncio.get_running_loop().time())

    # --- the user -----------------------------------------------------------------------------------------------------

    @property
    def parent(self):
        return self.cluster.objects[PARENT, "default", "x"]

    def condition(self, kind):
        return next(c for c in self.parent["status"]["conditions"] if c["type"] == kind)

    def edit(self, **changes):
        parent = clone(self.parent)
        for path, value in changes.items():
            where = parent["spec"]
            *parents, last = path.split("__")
            for key in parents:
                where = where[key]
            where[last] = value
        self._put(parent)

    def lose_a_pod(self):
        pod = self._of("Pod")[0]["metadata"]["name"]
        self._feed.event("Pod", self.cluster.remove("Pod", "default", pod), deleted=True)

    async def rest(self, seconds=5.0):
        """Until nothing was written for so long. Returns the writes in order, and the reasons of the Events."""
        while True:
            before = len(self.cluster.calls)
            await asyncio.sleep(seconds)
            if len(self.cluster.calls) == before:
                break
        made, told = [], []
        for verb, kind, name in self.cluster.writes:
            if kind == "Event":
                told.append(self.cluster.objects["Event", "default", name]["reason"])
            elif (
                verb != "create" or kind in MADE_ONCE
            ):  # an apply that creates is one request; RBAC has two verbs for it
                made.append(f"{kind} {name}" if kind == "Service" else kind.replace(f"{PARENT}/", ""))
        self.cluster.calls.clear()
        return made, told

    # --- Kubernetes ---------------------------------------------------------------------------------------------------

    def _of(self, kind):
        return [clone(obj) for (of, _, _), obj in list(self.cluster.objects.items()) if of == kind]

    def _put(self, obj):
        self._feed.event(obj["kind"], self.cluster.put(obj), deleted=False)

    async def _controllers(self):
        """Each step is an event of its own on the operator's watches."""
        while True:
            await asyncio.sleep(MOMENT)
            pods = self._of("Pod")
            for owner in self._of("Deployment") + self._of("Job"):
                mine = [p for p in pods if p["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]]
                living = [p for p in mine if "deletionTimestamp" not in p["metadata"]]
                want = owner["spec"].get("replicas", 1)
                for pod in living[want:]:
                    self._put({**pod, "metadata": {**pod["metadata"], "deletionTimestamp": self._clock().isoformat()}})
                for number in range(len(living), want):
                    self._make(owner, f"{len(self.cluster.calls)}-{number}")
            for pod in pods:
                self._step(pod)

    def _make(self, owner, suffix):
        template, meta = clone(owner["spec"]["template"]), owner["metadata"]
        made = {**template["metadata"], "name": f"{meta['name']}-{suffix}", "namespace": "default"}
        made["creationTimestamp"] = self._clock().isoformat()
        made["ownerReferences"] = [{"kind": owner["kind"], "uid": meta["uid"]}]
        self._put({"kind": "Pod", "metadata": made, "spec": template["spec"], "status": {"phase": "Pending"}})

    def _step(self, pod):
        """Bound, then Ready or, of a gate, ended with its Job; once it leaves, gone."""
        status, container = pod["status"], pod["spec"]["containers"][0]
        if "deletionTimestamp" in pod["metadata"]:
            self._feed.event("Pod", self.cluster.remove("Pod", "default", pod["metadata"]["name"]), deleted=True)
        elif "nodeName" not in pod["spec"]:
            waiting = {
                "name": container["name"],
                "restartCount": 0,
                "state": {"waiting": {"reason": "ContainerCreating"}},
            }
            pod["spec"]["nodeName"] = "node"
            self._put({**pod, "status": {**status, "containerStatuses": [waiting]}})
        elif pod["metadata"]["labels"][ROLE] == "gate" and status["phase"] == "Pending":
            code, message = GATES[container["image"].split(":")[0]]
            ended = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "message": message}}
            status["containerStatuses"][0]["state"] = ended
            self._put({**pod, "status": {**status, "phase": "Failed" if code else "Succeeded"}})
            job = next(j for j in self._of("Job") if pod["metadata"]["name"].startswith(j["metadata"]["name"]))
            told = [{"type": "Failed" if code else "Complete", "status": "True", "reason": "Ended"}]
            self._put({**job, "status": {"conditions": told}})
        elif pod["metadata"]["labels"][ROLE] == "engine" and self._boots and not is_ready(pod):
            running = [{"name": container["name"], "restartCount": 0, "state": {"running": {}}}]
            ready = [{"type": "Ready", "status": "True"}]
            self._put({**pod, "status": {"phase": "Running", "conditions": ready, "containerStatuses": running}})


def story(*edits, **changes):
    """Serve, then each edit and come to rest. Returns (writes, Events) of the beginning and of each edit."""

    async def told():
        async with Town.of(**changes) as town:
            counts = [await town.rest()]
            for edit in edits:
                town.edit(**edit)
                counts.append(await town.rest())
            assert town.condition("Ready")["status"] == "True"
            return counts

    return virtually(told())


BEGIN, NEW_POD, OLD_POD = ["status"], ["Deployment", "Service x-canary"], ["Deployment", "Service x-stable"]
READY, END = ["status"], ["status"]  # the former: of a pod, which is progress by the deadline
IMAGE, ON, OFF = {"engine__image": "good:2"}, {"islands__enabled": True}, {"islands__enabled": False}


def test_a_new_object():
    made = ["Deployment", "Service x", "Service x-stable", "Service x-canary", "PodDisruptionBudget"]
    assert story() == [([*BEGIN, *made, *END], ["RolloutStarted", "Promoted"])]


def test_a_rollout_of_one_replica_without_steps():
    writes = [*BEGIN, *NEW_POD, *READY, *OLD_POD, *END]
    assert len(writes) == 7
    assert story(IMAGE)[1] == (writes, ["RolloutStarted", "Promoted"])


def test_a_gate_costs_its_job_and_what_came_of_it():
    seen, judged = ["status"], ["status"]  # the Job's uid: one that vanishes is not made again
    writes = [*BEGIN, "Job", *seen, *judged, *NEW_POD, *READY, *OLD_POD, *END]
    assert story(ON)[1] == (writes, ["RolloutStarted", "GateStarted", "GatePassed", "Promoted"])


def test_the_kill_switch():
    writes = [*BEGIN, *NEW_POD, *READY, *OLD_POD, *END]
    assert story(ON, OFF)[2] == (writes, ["KillSwitchStarted", "Promoted"])


def test_a_canary_costs_a_status_for_each_step_and_each_pod_of_the_others_place_costs_two_more():
    held, over = ["status"], ["status"]
    writes = [*BEGIN, *NEW_POD, *held, *over, "Deployment", "Deployment", *READY, *OLD_POD, *END]
    steps = {"rollout__steps": [{"weight": 33, "pause": "5s"}]}
    assert story(IMAGE, replicas=2, **steps)[1] == (writes, ["RolloutStarted", "CanaryPassed", "Promoted"])


def test_an_edit_that_rolls_nothing_costs_one_status():
    assert story({"rollout__historyLimit": 6})[1] == (["status"], [])


def test_a_pod_that_dies_and_comes_back_costs_what_flips_a_condition():
    async def told():
        async with Town.of(replicas=3) as town:
            await town.rest()
            town.lose_a_pod()
            return await town.rest()

    assert virtually(told()) == (["status", "status"], [])


def test_a_status_is_never_out_of_date_for_more_than_a_second():
    """A pod that never becomes Ready: nothing follows that would take the newest wording along."""

    async def told():
        async with Town.of(boots=False) as town:
            await asyncio.sleep(0.5)
            early = town.condition("Ready")["message"]
            await asyncio.sleep(1.0)
            return early, town.condition("Ready")["message"], town.parent["status"]["replicas"]

    early, late, replicas = virtually(told())
    assert early.endswith("its Deployment is not there yet")
    assert late.endswith("0 of 1 pods are Ready")
    assert replicas == 1
