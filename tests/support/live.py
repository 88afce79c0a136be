"""One `island-operator run` on a real API server, and stories in namespaces of their own. A story plays scheduler and
kubelet: `gpus` pods at most are started, and an engine's image tag says how it behaves, as in world.py.
"""

import base64
import contextlib
import http.client
import itertools
import json
import ssl
import time
import uuid
from datetime import UTC, datetime, timedelta

import yaml
from support.control_plane import OperatorProcess, until
from support.world import DIVERGENCE, GATES, HALF, INSTANCE, PAIR, REVISION, ROLE, owner, spec

__all__ = ["DIVERGENCE", "HALF", "REVISION", "ROLE", "Live", "Placed", "Story", "owner"]

GROUP = "/apis/radix-islands.dev/v1alpha1"
PATHS = {
    "iisvc": f"{GROUP}/namespaces/{{}}/inferenceservices",
    "deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "job": "/apis/batch/v1/namespaces/{}/jobs",
    "pdb": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "hpa": "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers",
    "slice": "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
    "route": "/apis/gateway.networking.k8s.io/v1/namespaces/{}/httproutes",
    **{
        kind: f"/api/v1/namespaces/{{}}/{kind}s"
        for kind in ("pod", "service", "configmap", "serviceaccount", "resourcequota", "limitrange")
    },
}
SCARCE = (
    "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. no new claims to deallocate, preemption: 0/1 nodes are "
    "available: 1 No preemption victims found for incoming pod."
)
READY = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")]


class Api:
    """An administrator's JSON over one connection: kubectl costs a process each time."""

    def __init__(self, plane):
        config = yaml.safe_load(plane.kubeconfig.read_text())
        pem = plane.dir / "administrator.pem"
        user, cluster = config["users"][0]["user"], config["clusters"][0]["cluster"]
        parts = (user["client-certificate-data"], user["client-key-data"])
        pem.write_bytes(b"".join(base64.b64decode(part) for part in parts))
        trust = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=trust)
        self._tls.load_cert_chain(pem)
        self._port, self._connection = plane.port, None

    def __call__(self, method, path, body=None, content="application/json"):
        """(HTTP status, answer)."""
        for last in (False, True):
            try:
                self._connection = self._connection or http.client.HTTPSConnection(
                    "127.0.0.1", self._port, context=self._tls, timeout=30
                )
                text = None if body is None else json.dumps(body)
                self._connection.request(method, path, text, {"Content-Type": content, "User-Agent": "test"})
                reply = self._connection.getresponse()
                raw = reply.read()
                return reply.status, json.loads(raw) if raw.startswith(b"{") else {"message": raw.decode()}
            except (http.client.HTTPException, OSError):
                self._connection.close()
                self._connection = None
                if last:
                    raise
        raise AssertionError

    def close(self):
        if self._connection:
            self._connection.close()


class Live:
    """The operator's process, which a test may restart."""

    def __init__(self, plane):
        self.plane, self.api = plane, Api(plane)
        self.operator = OperatorProcess(plane.kubeconfig).serving()

    def restart(self, kubeconfig=None):
        """Another process in the place of this one."""
        self.operator.__exit__()
        self.operator = OperatorProcess(kubeconfig or self.plane.kubeconfig).serving()

    @contextlib.contextmanager
    def instead(self, account):
        """Meanwhile the operator is that ServiceAccount of the namespace default."""
        config = yaml.safe_load(self.plane.kubeconfig.read_text())
        token = self.plane.kubectl("create", "token", account).strip()
        config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
        path = self.plane.dir / f"{account}.conf"
        path.write_text(yaml.safe_dump(config))
        try:
            self.restart(path)
            yield
        finally:
            self.restart()

    def close(self):
        self.operator.__exit__()
        self.api.close()


class Story:
    """One InferenceService `x` in a namespace of its own."""

    def __init__(self, live, gpus=4, name="x", labels=None, prepare=lambda story: None, **changes):
        """`labels` of the namespace; `prepare(story)`: what is in it before the InferenceService."""
        self.live, self.api, self.gpus, self.name = live, live.api, gpus, name
        self.namespace = f"s-{uuid.uuid4().hex[:8]}"
        self.pairs, self.fewest = set(), None  # pairs that pods were told; Ready engines at least, once watched
        self.loading = False  # a world that stands still for as long as a test looks at it: see `loaded`
        meta = {"name": self.namespace, **({"labels": labels} if labels else {})}
        status, told = self.api("POST", "/api/v1/namespaces", {"metadata": meta})
        assert status == 201, told
        until("pods can be made", lambda: self.get("serviceaccount", "default"))  # else refused for that, for a moment
        prepare(self)
        self.spec = spec(**changes)
        self.spec.pop("podTemplate") if not self.spec["podTemplate"] else None
        self.apply()

    # --- the user -----------------------------------------------------------------------------------------------------

    def apply(self):
        body = {"apiVersion": "radix-islands.dev/v1alpha1", "kind": "InferenceService"}
        body |= {"metadata": {"name": self.name, "namespace": self.namespace}, "spec": self.spec}
        path = f"{self.path('iisvc')}/{self.name}?fieldManager=user&force=true"
        status, told = self.api("PATCH", path, body, "application/apply-patch+yaml")
        assert status in {200, 201}, told
        return told

    def edit(self, **changes):
        for path, value in changes.items():
            where = self.spec
            *parents, last = path.split("__")
            for key in parents:
                where = where[key]
            where[last] = value
        return self.apply()

    def replace(self):
        """kubectl replace of a file that holds nothing but the spec: annotations and labels are gone. Was it taken?"""
        parent = self.parent
        body = {key: parent[key] for key in ("apiVersion", "kind", "spec")}
        body["metadata"] = {key: parent["metadata"][key] for key in ("name", "namespace", "resourceVersion")}
        return self.api("PUT", f"{self.path('iisvc')}/{self.name}", body)[0] == 200

    def annotate(self, *verbs):
        self.patch("iisvc", self.name, {"metadata": {"annotations": {f"radix-islands.dev/{v}": "1" for v in verbs}}})

    def elapse(self, **span):
        """So much time goes by for the run in progress: in its status, which is all that the operator knows of time."""
        past = (datetime.now(UTC) - timedelta(**span)).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.patch("iisvc", f"{self.name}/status", {"status": {"run": {"startedAt": past, "progressAt": past}}})
        return past

    def scale(self, replicas):
        """As an HPA does it: by the scale subresource."""
        self.spec["replicas"] = replicas
        self.patch("iisvc", f"{self.name}/scale", {"spec": {"replicas": replicas}})

    # --- the cluster --------------------------------------------------------------------------------------------------

    def path(self, kind):
        return PATHS[kind].format(self.namespace)

    def list(self, kind, **labels):
        labels = {INSTANCE: self.name} | labels
        selector = ",".join(f"{key}={value}" for key, value in labels.items()).replace("/", "%2F")
        status, told = self.api("GET", f"{self.path(kind)}?labelSelector={selector}")
        assert status == 200, told
        return told["items"]

    def get(self, kind, name):
        status, told = self.api("GET", f"{self.path(kind)}/{name}")
        return told if status == 200 else None

    def create(self, kind, body):
        status, told = self.api("POST", self.path(kind), body)
        assert status == 201, told
        return told

    def patch(self, kind, name, body):
        status, told = self.api("PATCH", f"{self.path(kind)}/{name}", body, "application/merge-patch+json")
        assert status == 200, told
        return told

    def delete(self, kind, name):
        self.api("DELETE", f"{self.path(kind)}/{name}")

    def pods(self, role="engine", **labels):
        return [p for p in self.list("pod", **{ROLE: role}, **labels) if "deletionTimestamp" not in p["metadata"]]

    def ready(self, **labels):
        return [p for p in self.pods(**labels) if is_ready(p)]

    def play(self):
        """Scheduler and kubelet have a turn."""
        pods = sorted(self.list("pod"), key=lambda p: (p["metadata"]["creationTimestamp"], p["metadata"]["name"]))
        alive = [p for p in pods if "deletionTimestamp" not in p["metadata"] and not ended(p)]
        self.pairs |= {coupled(p) for p in pods if p["metadata"]["labels"][ROLE] == "engine"}
        ready = sum(map(is_ready, alive))
        self.fewest = ready if self.fewest is None else min(self.fewest, ready)
        holding = sum(started(p) for p in alive)
        for pod in alive:
            if started(pod):
                continue
            if holding < self.gpus:
                holding += 1
                self.tell(pod, self._begun(pod))
            elif not pod["status"].get("conditions"):
                refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": SCARCE}
                self.tell(pod, {"conditions": [refused]})

    def loaded(self):
        """The engines that were started while `loading` are Ready, and those to come are so at once."""
        self.loading = False
        for pod in filter(started, self.pods()):
            self.tell(pod, {"conditions": READY})

    def tell(self, pod, status):
        """A pod's status, as its kubelet patches it; a pod that is gone by now is told nothing."""
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        path = f"{self.path('pod')}/{pod['metadata']['name']}/status"
        code, told = self.api("PATCH", path, body, "application/merge-patch+json")
        assert code in {200, 404, 409}, told

    def _begun(self, pod):
        image = pod["spec"]["containers"][0]["image"]
        behaviour = image.split(":")[0]
        if behaviour == "nopull":
            waiting = {"reason": "ImagePullBackOff", "message": f"Back-off pulling image {image}"}
            return {"containerStatuses": [container(image, {"waiting": waiting})], "conditions": READY[:1]}
        if pod["metadata"]["labels"][ROLE] == "gate":
            if not GATES[behaviour]:
                return {"phase": "Running", "containerStatuses": [container(image, {"running": {}})]}
            code, message = GATES[behaviour]
            state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "message": message}}
            return {"phase": "Failed" if code else "Succeeded", "containerStatuses": [container(image, state)]}
        if behaviour == "crash":
            return self.crashed(image)
        ready = READY[:2] if self.loading or behaviour == "never" else READY
        return {"phase": "Running", "conditions": ready, "containerStatuses": [container(image, {"running": {}})]}

    @staticmethod
    def crashed(image, restarts=3, message="Traceback\nRuntimeError: no luck\n"):
        """An engine that dies again and again."""
        last = {"terminated": {"exitCode": 1, "reason": "Error", "message": message}}
        state = {"waiting": {"reason": "CrashLoopBackOff"}}
        dead = container(image, state) | {"lastState": last, "restartCount": restarts}
        return {
            "phase": "Running",
            "conditions": [READY[0], {"type": "Ready", "status": "False"}],
            "containerStatuses": [dead],
        }

    # --- what is told -------------------------------------------------------------------------------------------------

    @property
    def parent(self):
        return self.get("iisvc", self.name)

    @property
    def status(self):
        return self.parent.get("status") or {}

    @property
    def active(self):
        return self.status["revisions"]["active"]

    def condition(self, kind):
        """A condition that is about the spec as it is now."""
        parent = self.parent
        conditions = {c["type"]: c for c in parent["status"]["conditions"]}
        assert parent["status"]["observedGeneration"] == parent["metadata"]["generation"]
        return conditions[kind]

    def told(self, kind):
        found = self.condition(kind)
        return found["status"], found["reason"]

    def until(self, what, check, timeout=60.0):
        """Play on until `check()` is true; an assertion or a key that fails inside it is not yet."""
        end, last = time.monotonic() + timeout, None
        while time.monotonic() < end:
            self.play()
            try:
                if found := check():
                    return found
            except (AssertionError, KeyError, TypeError, IndexError) as error:
                last = error
            time.sleep(0.08)
        raise AssertionError(f"not within {timeout} s: {what} ({last!r}): {json.dumps(self.status)[:3000]}")

    def until_phase(self, phase):
        return self.until(phase, lambda: self.condition("Ready") and self.status["phase"] == phase)

    def serve(self):
        """Until the spec as it is now serves with all its pods."""
        self.until("it serves", lambda: self.told("Ready")[0] == "True")
        return self

    def rest(self):
        """Until nothing rolls any more, whatever came of it."""
        self.until("it rests", lambda: self.status["phase"] == "Stable" and self.told("Progressing")[0] == "False")
        return self


class Placed(Story):
    """Its pods are bound to a Node and have addresses, so that the EndpointSlices are what kube-proxy would be told;
    one that leaves answers for `drain` seconds more, as behind the preStop hook, and for as long as the controller of
    EndpointSlices is behind: how long that takes is the machine's. `play()` sends a request to whatever a proxy may
    choose.
    """

    drain = 2.0  # of the hook's 5

    def __init__(self, live, **changes):
        self.node = f"node-{uuid.uuid4().hex[:8]}"
        self.asked, self.failed, self._leaving, self._addresses = set(), [], {}, itertools.count(1)  # names of pods
        status, told = live.api("POST", "/api/v1/nodes", {"metadata": {"name": self.node}})
        assert status == 201, told
        super().__init__(live, **changes)

    def play(self):
        chosen = self._ask()
        for pod in self.list("pod"):
            meta = pod["metadata"]
            if "deletionTimestamp" in meta and not ended(pod):
                since = self._leaving.setdefault(meta["uid"], time.monotonic())
                if time.monotonic() - since >= self.drain and meta["name"] not in chosen:
                    self.delete("pod", f"{meta['name']}?gracePeriodSeconds=0")
            elif "nodeName" not in pod["spec"]:
                target = {"target": {"kind": "Node", "name": self.node}, "metadata": {"name": meta["name"]}}
                self.api("POST", f"{self.path('pod')}/{meta['name']}/binding", target)
        super().play()

    def _ask(self):
        status, told = self.api("GET", f"{self.path('slice')}?labelSelector=kubernetes.io/service-name={self.name}")
        assert status == 200, told
        chosen = [e for s in told["items"] for e in s.get("endpoints") or () if e["conditions"]["ready"]]
        answer = {p["status"].get("podIP") for p in self.list("pod", **{ROLE: "engine"}) if is_ready(p)}
        if not chosen and self.asked:
            self.failed.append("no endpoint")
        names = {endpoint["targetRef"]["name"] for endpoint in chosen}
        self.asked |= names
        self.failed += [e["targetRef"]["name"] for e in chosen if not set(e["addresses"]) & answer]
        return names

    def _begun(self, pod):
        """An address that nothing answers at: the operator's own questions fail at once."""
        ip = f"240.0.0.{next(self._addresses)}"
        return {**super()._begun(pod), "podIP": ip, "podIPs": [{"ip": ip}]}


def container(image, state):
    return {"name": "engine", "image": image, "imageID": "", "ready": False, "restartCount": 0, "state": state}


def coupled(pod):
    args = pod["spec"]["containers"][0]["args"]
    return tuple(args[args.index(flag) + 1] for flag in PAIR)


def is_ready(pod):
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ()))


def started(pod):
    return bool(pod["status"].get("containerStatuses"))


def ended(pod):
    return pod["status"].get("phase") in {"Succeeded", "Failed"}
