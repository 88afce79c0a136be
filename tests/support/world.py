"""A small cluster for the pure core: an object store, the Deployment and Job controllers, a scheduler with N GPUs and a
kubelet, all in one `tick`. Nothing in it reads the core's code: what pods were told is judged from their arguments.
"""

from __future__ import annotations

import itertools
import json
import marshal
from datetime import UTC, datetime, timedelta

from island_operator.core.drift import cleaned, covers
from island_operator.core.model import Refusal, Snapshot
from island_operator.core.plan import reconcile

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
INSTANCE, REVISION = "radix-islands.dev/instance", "radix-islands.dev/revision"
ROLE, HALF = "radix-islands.dev/role", "radix-islands.dev/half"
RETRY = "radix-islands.dev/retry"
PAIR = ("--islands", "--swa-full-tokens-ratio", "--max-total-tokens", "--max-running-requests")
CHILDREN = ("Deployment", "Service", "Job", "Pod", "PodDisruptionBudget")


def clone(value):
    """A deep copy of what JSON can say. copy.deepcopy took four fifths of every test in this world, a walk in Python a
    quarter. Version 2 of the format shares no parts between copies.
    """
    return marshal.loads(marshal.dumps(value, 2))  # noqa: S302 - what was dumped on the same line


def spec(**changes):
    """A spec as the API server would have defaulted it; `image` says how engine and gate behave."""
    made = {
        "model": {"name": "tiny", "source": {"hostPath": "/models/tiny"}},
        "engine": {
            "image": "good:1",
            "args": [],
            "env": [],
            "pageSize": 64,
            "chunkedPrefillSize": 512,
            "maxRunningRequests": 8,
            "port": 30000,
        },
        "islands": {"enabled": False},
        "partition": {
            "islands": {"swaFullTokensRatio": "0.15", "maxTotalTokens": 19968},
            "stock": {"swaFullTokensRatio": "0.4", "maxTotalTokens": 9984},
        },
        "geometry": {"slidingWindow": 128, "draftBytesPerToken": 0},
        "accelerator": {"resource": "nvidia.com/gpu", "count": 1, "nodeSelector": {}, "tolerations": []},
        "replicas": 2,
        "rollout": {
            "mode": "Surge",
            "steps": [{"weight": 33, "pause": "5s"}],
            "deadline": "10m",
            "autoRollback": True,
            "watch": "1h",
            "checks": {"enabled": True, "minRequests": 50, "maxErrorRate": "0.05"},
            "historyLimit": 5,
        },
        "gate": {"enabled": True, "deadline": "5m", "profile": "quick"},
        "podTemplate": {},
    }
    for path, value in changes.items():
        where = made
        *parents, last = path.split("__")
        for key in parents:
            where = where[key]
        where[last] = value
    return made


def inference_service(**changes):
    return {
        "apiVersion": "radix-islands.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "x", "namespace": "default", "uid": "uid-x", "generation": 1, "resourceVersion": "1"},
        "spec": spec(**changes),
    }


def termination(verdict, **more):
    """What the gate writes (schema radix-islands.dev/gate/v1)."""
    report = {"schema": "radix-islands.dev/gate/v1", "verdict": verdict, "reason": "Told", "message": "as told", **more}
    return json.dumps({"fingerprint": "sha256:f", "probes": 12, "tokens": 340, "seconds": 61.5, **report})


DIVERGENCE = {"probe": "hit/w+1", "index": 3, "expected": 12, "got": 17, "cached_tokens": 129, "frontier_distance": 1}
# image tag -> exit code and termination message of the gate
GATES = {
    "good": (0, termination("PASS")),
    "wrong": (10, termination("FAIL", divergence=DIVERGENCE)),
    "noise": (11, termination("INCONCLUSIVE", reason="Nondeterminism")),
    "gatedies": (12, termination("ERROR", reason="EngineDied", message="boom")),
    "silent": (0, "hello"),
    "liar": (0, termination("FAIL", divergence=DIVERGENCE)),
    "crash": (0, termination("PASS")),  # passes its gate and dies at boot
    "late": (0, termination("PASS")),  # passes its gate and dies nine seconds after it was bound
    "nopull": None,
    "long": (10, termination("FAIL", message="m" * 2**20, divergence=DIVERGENCE)),
    "hangs": None,
}


class World:
    """`gpus` in all; `check` is called with the world after every write and every tick."""

    def __init__(self, gpus=3, check=lambda world: None, **changes):
        self.gpus, self.check, self.seconds, self._ids = gpus, check, 0, itertools.count(1)
        self.store = {}
        self.parent = inference_service(**changes)
        self.events, self.writes = [], []
        self.readings = {}  # by a pod's uid, what a scraper would know
        self.refuse = lambda want: None  # the API server's sentence about a child that it does not take
        self.refused = {}  # what the runtime would remember of that
        self.kept = frozenset()  # names of the gates' reports that are stored
        self.answers = {}  # of Prometheus, by a question's uid
        self.whole = False  # all pods Ready at rest, and nothing but the operator has taken any away since
        self.been_ready = set()  # revisions of which a pod ever was
        self.cannot_boot = lambda pod: False  # a pod whose engine dies, whatever its image
        self.crash_at = None  # the operator is killed after this write, counted from the first
        self.jobs_made = []
        self._late_pods = None
        self.legal_pairs = set()
        self._legalise()

    # --- the user ---------------------------------------------------------------------------------------------------

    def edit(self, **changes):
        """A user's edit of the spec; one that changes nothing has no new generation."""
        before = clone(self.parent["spec"])
        for path, value in changes.items():
            where = self.parent["spec"]
            *parents, last = path.split("__")
            for key in parents:
                where = where[key]
            where[last] = value
        if self.parent["spec"] != before:
            self.parent["metadata"]["generation"] += 1
            self._legalise()

    def disrupted(self):
        """Somebody other than the operator takes pods away, or asks for others."""
        self.whole = False

    def annotate(self, name, value):
        self.parent["metadata"].setdefault("annotations", {})[name] = value

    def _legalise(self):
        """What a pod of this spec may be told: by the spec, not by the code under test."""
        spec = self.parent["spec"]
        for half, on in (("islands", "on"), ("stock", "off")):
            cap = spec["engine"]["maxRunningRequests"]
            if spec["partition"].get("mode") == "unified":
                self.legal_pairs.add((on, "unified", "unified", str(cap)))
            else:
                side = spec["partition"][half]
                cap = side.get("maxRunningRequests", cap)
                self.legal_pairs.add((on, side["swaFullTokensRatio"], str(side["maxTotalTokens"]), str(cap)))

    # --- the operator -----------------------------------------------------------------------------------------------

    @property
    def now(self):
        return (EPOCH + timedelta(seconds=self.seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")

    @property
    def status(self):
        return self.parent.get("status") or {}

    @property
    def phase(self):
        return self.status.get("phase")

    def condition(self, kind):
        return next(c for c in self.status["conditions"] if c["type"] == kind)

    def snapshot(self, late=False):
        """What the cache holds; `late`: its pods are a tick old, because watches of two kinds are not ordered."""
        pods = self._late_pods if late and self._late_pods is not None else self.of("Pod")
        rest = [o for o in self.store.values() if o["kind"] != "Pod"]
        return Snapshot(
            clone(self.parent),
            tuple(clone([*rest, *pods])),
            readings=dict(self.readings),
            answers=dict(self.answers),
            kept=self.kept,
            refused=dict(self.refused),
        )

    def operate(self, crash_after=None, late=False):
        """One pass of the operator, killed after so many writes. Returns the plan."""
        plan = reconcile(self.snapshot(late), self.now)
        for write in itertools.islice(self._writes(plan), crash_after):
            write()
            self.check(self)
            if len(self.writes) == self.crash_at:
                break
        return plan

    def _writes(self, plan):
        if plan.desired:
            self.refused = {}
        for want in plan.desired:
            slot = (want["kind"], want["metadata"]["name"])
            live = self.store.get(slot)
            if live is not None and covers(live, want):
                continue
            if told := self.refuse(want):
                self.refused[slot] = Refusal(403, f"{' '.join(slot)}: {told}")
            else:
                yield lambda want=want, live=live: self._apply(want, live)
        for child in plan.delete:
            yield lambda child=child: self._delete(child)
        if plan.status != self.status:
            yield lambda: self._write_status(plan)
        held = self.parent["metadata"].get("annotations", {})
        for verb in plan.clear_annotations:
            if verb in held:
                yield lambda verb=verb: held.pop(verb)

    def _apply(self, want, live):
        self.writes.append(("apply", want["kind"], want["metadata"]["name"]))
        if want["kind"] == "Job":
            self.jobs_made.append(want["metadata"]["name"])
        base = (cleaned(live, want) or live) if live else self._born(want)
        new = clone({**base, **clone(want)})
        new["metadata"] = {**base["metadata"], **clone(want["metadata"])}
        if "status" in base:
            new["status"] = base["status"]
        self.store[want["kind"], want["metadata"]["name"]] = new

    def _delete(self, child):
        self.writes.append(("delete", child["kind"], child["metadata"]["name"]))
        self.store.pop((child["kind"], child["metadata"]["name"]), None)

    def _write_status(self, plan):
        self.writes.append(("status", "InferenceService", plan.status["phase"]))
        self.parent["status"] = json.loads(json.dumps(plan.status, allow_nan=False))
        self.events += plan.events

    def _born(self, want):
        meta = {"uid": f"uid-{next(self._ids)}", "creationTimestamp": self.now, "generation": 1}
        return {**want, "metadata": {**want["metadata"], **meta}}

    # --- the cluster ------------------------------------------------------------------------------------------------

    def of(self, kind):
        return [o for (k, _), o in sorted(self.store.items()) if k == kind]

    def pods(self, role="engine", revision=None):
        return [
            p
            for p in self.of("Pod")
            if p["metadata"]["labels"][ROLE] == role and revision in {None, p["metadata"]["labels"][REVISION]}
        ]

    def ready(self, revision=None):
        return sum(is_ready(p) and not leaving(p) for p in self.pods(revision=revision))

    def holding(self):
        """Pods that sit on a GPU."""
        return [p for p in self.of("Pod") if p["spec"].get("nodeName") and not ended(p)]

    def tick(self, seconds=1):
        """Every controller has a turn, and time passes."""
        self._late_pods = clone(self.of("Pod"))
        self.seconds += seconds
        for part in (self._kubelet, self._jobs, self._deployments, self._orphans, self._scheduler):
            part()
        self.check(self)

    def _deployments(self):
        for deployment in self.of("Deployment"):
            uid, want = deployment["metadata"]["uid"], deployment["spec"]["replicas"]
            mine = [p for p in self.pods() if owner(p) == uid and not leaving(p)]
            for pod in sorted(mine, key=lambda p: (is_ready(p), bool(p["spec"].get("nodeName"))))[
                : max(0, len(mine) - want)
            ]:
                pod["metadata"]["deletionTimestamp"] = self.now
            for _ in range(want - len(mine)):
                self._make_pod(deployment)

    def _jobs(self):
        for job in self.of("Job"):
            if any(c["status"] == "True" for c in job.get("status", {}).get("conditions", ())):
                continue
            mine = [p for p in self.pods("gate") if owner(p) == job["metadata"]["uid"]]
            begun = job.setdefault("status", {}).setdefault("startTime", self.now)
            late = self._since(begun) > job["spec"]["activeDeadlineSeconds"]
            if late:
                for pod in mine:
                    self.store.pop(("Pod", pod["metadata"]["name"]))
                self._finish(job, "Failed", "DeadlineExceeded")
            elif not mine:
                self._make_pod(job)
            elif mine[0]["status"].get("phase") == "Succeeded":
                self._finish(job, "Complete", "CompletionsReached")
            elif mine[0]["status"].get("phase") == "Failed":
                self._finish(job, "Failed", "BackoffLimitExceeded")

    def _finish(self, job, kind, reason):
        job["status"]["conditions"] = [
            {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": self.now}
        ]

    def _make_pod(self, parent):
        name = f"{parent['metadata']['name']}-{next(self._ids)}"
        template = clone(parent["spec"]["template"])
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**template["metadata"], "name": name, "namespace": "default"},
        }
        pod["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": self.now}
        pod["metadata"]["ownerReferences"] = [{"kind": parent["kind"], "uid": parent["metadata"]["uid"]}]
        pod |= {"spec": template["spec"], "status": {"phase": "Pending", "conditions": []}}
        self.store["Pod", name] = pod

    def _orphans(self):
        alive = {o["metadata"]["uid"] for o in self.store.values()}
        for pod in self.of("Pod"):
            if owner(pod) not in alive:
                pod["metadata"].setdefault("deletionTimestamp", self.now)

    def _scheduler(self):
        for pod in self.of("Pod"):
            if pod["spec"].get("nodeName") or leaving(pod):
                continue
            if len(self.holding()) < self.gpus:
                pod["spec"]["nodeName"] = "node"
                creating = {"name": "engine", "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}}
                pod["status"] |= {"containerStatuses": [creating], "startTime": self.now, "podIP": "10.0.0.1"}
                pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
            else:
                told = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
                refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": told}
                pod["status"]["conditions"] = [refused]

    def _kubelet(self):
        for pod in self.of("Pod"):
            if leaving(pod):
                if self._since(pod["metadata"]["deletionTimestamp"]) >= 1 or not pod["spec"].get("nodeName"):
                    self.store.pop(("Pod", pod["metadata"]["name"]))
            elif pod["spec"].get("nodeName") and not ended(pod) and self._since(pod["status"]["startTime"]) >= 1:
                self._run(pod)

    def _run(self, pod):
        image = pod["spec"]["containers"][0]["image"]
        behaviour, status = image.split(":")[0], pod["status"]
        gate = pod["metadata"]["labels"][ROLE] == "gate"
        if behaviour == "nopull":
            waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{image}"'}
            status["containerStatuses"] = [
                {"name": "engine", "image": image, "restartCount": 0, "state": {"waiting": waiting}}
            ]
        elif gate:
            self._run_gate(status, behaviour)
        elif (
            behaviour == "crash"
            or self.cannot_boot(pod)
            or (behaviour == "late" and self._since(status["startTime"]) >= 9)
        ):
            self.crash(pod)
        elif not is_ready(pod):
            status["phase"] = "Running"
            status["containerStatuses"][0]["state"] = {"running": {"startedAt": self.now}}
            status["conditions"] = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}]

    def _run_gate(self, status, behaviour):
        if GATES[behaviour] and self._since(status["startTime"]) >= 3:
            code, message = GATES[behaviour]
            ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "message": message}
            status["phase"] = "Succeeded" if code == 0 else "Failed"
            status["containerStatuses"] = [{"name": "engine", "restartCount": 0, "state": {"terminated": ended}}]
        else:
            status["phase"] = "Running"
            status["containerStatuses"][0]["state"] = {"running": {}}

    def crash(self, pod, message="Traceback\n  deep\nRuntimeError: no \x1b[31mluck\n"):
        """The engine container dies; it stays in back-off, so that a crash loop is a state and not a stream of news."""
        state = pod["status"]["containerStatuses"][0]["state"]
        if state.get("waiting", {}).get("reason") == "CrashLoopBackOff":
            return
        self.disrupted()
        old = pod["status"]["containerStatuses"][0]["restartCount"]
        ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": message}}
        pod["status"]["containerStatuses"] = [
            {
                "name": "engine",
                "restartCount": old + 1,
                "lastState": ended,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            }
        ]
        pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "False"}]

    def _since(self, stamp):
        return (EPOCH + timedelta(seconds=self.seconds) - datetime.fromisoformat(stamp)).total_seconds()

    # --- both -------------------------------------------------------------------------------------------------------

    def go(self, turns):
        """Operator and controllers by turns, a second each."""
        for _ in range(turns):
            self.operate()
            self.tick()
        return self

    def settle(self, limit=400):
        """Operator and controllers by turns until neither changes anything, time-driven steps included."""
        quiet = 0
        for _ in range(limit):
            before = (dict(self.store), self.status)  # a write of the operator puts a new object in its place
            plan = self.operate()
            wait = plan.requeue_after
            if (self.store, self.status) == before and wait != 0:
                quiet += 1
                if quiet > 3 and wait is None:
                    return self
                self.tick(1 if quiet < 3 or wait is None else max(1, int(wait) + 1))
            else:
                quiet = 0
                if wait != 0:
                    self.tick()
        raise AssertionError(f"not settled: {self.phase} {json.dumps(self.status, indent=1)[:3000]}")

    def until(self, phase, limit=200):
        """As settle, until the status says that phase."""
        for _ in range(limit):
            if self.phase == phase:
                return self
            if self.operate().requeue_after != 0:
                self.tick()
        raise AssertionError(f"never {phase}: {json.dumps(self.status, indent=1)[:3000]}")


def told(pod):
    """Switch, ratio and tokens that an engine pod was told."""
    return coupled(pod)[:3]


def coupled(pod):
    """Switch, ratio, tokens and cap that an engine pod was told."""
    args = pod["spec"]["containers"][0]["args"]
    said = {flag: args[args.index(flag) + 1] for flag in PAIR if flag in args}
    assert ("--enable-unified-memory" in args) == ("--swa-full-tokens-ratio" not in said)
    return tuple(said.get(flag, "unified") for flag in PAIR)


def is_ready(pod):
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ()))


def leaving(pod):
    return "deletionTimestamp" in pod["metadata"]


def ended(pod):
    return pod["status"].get("phase") in {"Succeeded", "Failed"}


def owner(pod):
    return pod["metadata"]["ownerReferences"][0]["uid"]


def paused_canary():
    """Stock serves, islands are a canary that is paused, and one image was refused before."""
    world = World(rollout__steps=[{"weight": 33, "pause": "1h"}]).settle()
    world.edit(engine__image="wrong:1", islands__enabled=True)
    world.settle()
    world.edit(engine__image="good:1")
    world.until("Canary").go(6)
    world.annotate("radix-islands.dev/pause", "1")
    world.operate()
    return world
