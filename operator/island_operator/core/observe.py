"""What the children look like now: one Fleet per revision, and what its pods complain of."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from island_operator.core import security, volumes
from island_operator.core.clock import elapsed
from island_operator.core.text import escaped, last_line

if TYPE_CHECKING:
    from island_operator.core.model import Object, Snapshot

INSTANCE, REVISION = "radix-islands.dev/instance", "radix-islands.dev/revision"
ROLE, HALF = "radix-islands.dev/role", "radix-islands.dev/half"
ENGINE, GATE = "engine", "gate"
LOOP = 3  # restarts of a container that is in back-off: chance kills an engine once, not three times
BINDING = 5.0  # seconds: longer than the scheduler takes to bind a new pod, or a GPU that was just given back
OVERDUE = 30.0  # seconds after its grace that a pod may take to go; one whose node is lost never does
SLOW_VOLUMES = 20  # seconds in ContainerCreating after which volumes are worth naming

_PULL = {
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
}
_PULL_FATAL = _PULL - {"ErrImagePull", "RegistryUnavailable"}  # those two come with the first hiccup of a registry
NO_GATEWAY_API = (
    "spec.gatewayRef needs the Gateway API, which this cluster does not serve: install its standard CRDs "
    "(gateway.networking.k8s.io/v1), or remove spec.gatewayRef; until then requests are weighted by pods"
)
SCHEDULING = {"InsufficientGPU", "Unschedulable"}  # troubles of pods that have no node yet
_BACKED_OFF = re.compile(r'Back-off pulling image "[^"]*": \w+: (?=\S)')  # what kubelets say before the error itself
_NODES = re.compile(r"(\d+)/(\d+) nodes are available: (.*?)(?:\. |$)")
_START = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError", "ContainerCannotRun"}


@dataclass(frozen=True)
class Trouble:
    """What keeps a pod from serving. `fatal`: waiting will not help a new revision."""

    reason: str  # CamelCase, such as InsufficientGPU: docs/operations.md has them all
    message: str
    fatal: bool = False
    advice: str = ""  # where to look while the pod is there, or which field to change


@dataclass(frozen=True)
class Fleet:
    """The Deployment of one revision and its pods."""

    revision: str
    half: str  # islands or stock
    created: str
    target: int = 0  # spec.replicas of the Deployment
    deployment: Object | None = None
    engines: tuple[tuple[str, str, str], ...] = ()  # name, uid and IP of its Ready pods
    pods: int = 0  # not terminating, not finished
    ready: int = 0
    served: tuple[str, ...] = ()  # when those that are Ready were made
    unready: tuple[str, ...] = ()  # when those that are neither terminating nor Ready were made
    terminating: int = 0  # still hold their GPU; without those that are lost
    ending: float | None = None  # seconds in which the last of them is gone, or is lost; None: none ends
    booting: int = 0  # on a node, not ready
    creating: int = 0  # of those, waiting for volumes and network, and not for long enough to be named
    unscheduled: int = 0  # the scheduler has looked, and found no node
    fresh: int = 0  # of those, not for long enough to be named
    troubles: tuple[Trouble, ...] = ()  # of pods that are not ready, what most wants mending first
    crashes: tuple[Trouble, ...] = ()  # of every pod that ever restarted, ready again or not
    looping: tuple[Trouble, ...] = ()  # of those that crash again and again

    @property
    def holding(self) -> int:
        """Pods that hold, or ask for, a GPU."""
        return self.pods + self.terminating

    @property
    def idle(self) -> bool:
        """Neither has pods nor asks for any."""
        return not self.target and not self.pods and not self.terminating


def fleets(snapshot: Snapshot, now: str) -> dict[str, Fleet]:
    """Every revision that has a Deployment or a pod, by its hash."""
    pods: dict[str, list[Object]] = {}
    for pod in snapshot.of("Pod"):
        if label(pod, ROLE) == ENGINE and not ended(pod):
            pods.setdefault(label(pod, REVISION), []).append(pod)
    deployments = {
        label(d, REVISION): d for d in snapshot.of("Deployment") if label(d, ROLE) == ENGINE and not leaving(d)
    }
    instance = snapshot.parent["metadata"]["name"]
    refused = {child.removeprefix(f"{instance}-") for kind, child in snapshot.refused if kind == "Deployment"}
    return {
        name: _fleet(name, deployments.get(name), pods.get(name, []), snapshot, now)
        for name in sorted({*deployments, *pods, *refused} - {""})
    }


def _fleet(name: str, deployment: Object | None, pods: list[Object], snapshot: Snapshot, now: str) -> Fleet:
    living = [p for p in pods if not leaving(p)]
    ills = {p["metadata"]["name"]: trouble(p, now, snapshot) for p in living if not is_ready(p)}
    some: Object = deployment or next(iter(pods), {"metadata": {}})
    refused = refusal(snapshot, "Deployment", f"{snapshot.parent['metadata']['name']}-{name}")
    unscheduled = [p["metadata"]["name"] for p in living if _unplaced(p)]
    found = (*((refused,) if refused else ()), *(ill for ill in ills.values() if ill), *_refusals(deployment))
    return Fleet(
        revision=name,
        half=label(some, HALF),
        created=str(some["metadata"].get("creationTimestamp", "")),
        target=int(deployment["spec"].get("replicas", 0)) if deployment else 0,
        deployment=deployment,
        engines=tuple(_engine(p) for p in living if is_ready(p)),
        pods=len(living),
        ready=sum(is_ready(p) for p in living),
        served=tuple(_born(p, now) for p in living if is_ready(p)),
        unready=tuple(_born(p, now) for p in living if not is_ready(p)),
        terminating=sum(leaving(p) and not lost(p, now) for p in pods),
        ending=max((_left(p, now) for p in pods if leaving(p) and not lost(p, now)), default=None),
        creating=sum(_creating(p) and ills.get(p["metadata"]["name"]) is None for p in living),
        booting=sum(placed(p) and not is_ready(p) for p in living),
        unscheduled=len(unscheduled),
        fresh=sum(ills.get(pod) is None for pod in unscheduled),
        troubles=tuple(sorted(found, key=_rank)),
        crashes=tuple(t for p in living for s in container_statuses(p) if (t := _crash(p, s))),
        looping=tuple(t for p in living for s in container_statuses(p) if (t := _loop(p, s))),
    )


def _born(pod: Object, now: str) -> str:
    return str(pod["metadata"].get("creationTimestamp", now))


def _rank(trouble: Trouble) -> tuple[bool, bool]:
    """A pod that cannot start frees no GPU for the next one: it goes before what the scheduler says of that. Kubelets
    alternate between an image's first hiccup and its back-off, which must not change what is named.
    """
    return trouble.reason in SCHEDULING, not (trouble.fatal or trouble.reason == "ImagePullFailed")


def _engine(pod: Object) -> tuple[str, str, str]:
    return pod["metadata"]["name"], pod["metadata"]["uid"], str((pod.get("status") or {}).get("podIP", ""))


def _refusals(deployment: Object | None) -> tuple[Trouble, ...]:
    """A quota, a LimitRange or pod security that lets no pod be made: only the Deployment tells."""
    failure = condition(deployment or {}, "ReplicaFailure")
    if failure.get("status") != "True":
        return ()
    told = str(failure.get("message", ""))
    return (Trouble("PodsRefused", f"the cluster refuses pods: {escaped(told)}{security.advice(told)}"),)


def refusal(snapshot: Snapshot, kind: str, name: str) -> Trouble | None:
    """Why a child is not what it should be: the API server did not take it."""
    told = snapshot.refused.get((kind, name))
    if told and kind == "HTTPRoute" and told.status == 404:  # not the route is missing, but what would hold it
        return Trouble("GatewayApiMissing", NO_GATEWAY_API)
    return Trouble("ApplyRefused", escaped(told.message)) if told else None


def route_trouble(route: Object | None) -> Trouble | None:
    """Why a Gateway does not take a route."""
    for parent in ((route or {}).get("status") or {}).get("parents") or ():
        for kind in ("Accepted", "ResolvedRefs"):
            told = condition({"status": parent}, kind)
            if told.get("status") == "False":
                why = f"{kind} is False: {told.get('reason')}: {told.get('message')}"
                return Trouble("RouteNotAccepted", escaped(f"the Gateway of spec.gatewayRef does not take it, {why}"))
    return None


def label(obj: Object, name: str) -> str:
    """A label's value, empty where it is not there."""
    return str((obj["metadata"].get("labels") or {}).get(name, ""))


def leaving(obj: Object) -> bool:
    """Being deleted."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def condition(obj: Object, kind: str) -> Object:
    """A status condition, {} where it is not there."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c.get("type") == kind), {})


def is_ready(pod: Object) -> bool:
    """The pod's Ready condition."""
    return bool(condition(pod, "Ready").get("status") == "True")


def ended(pod: Object) -> bool:
    """It will never run again, and holds no GPU."""
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def placed(pod: Object) -> bool:
    """The scheduler has found a node."""
    return bool(pod["spec"].get("nodeName"))


def lost(pod: Object, now: str) -> bool:
    """It should be gone for long: its node is lost, which frees no GPU and ends nothing. Nobody waits for it."""
    return leaving(pod) and _left(pod, now) <= 0


def _left(pod: Object, now: str) -> float:
    return OVERDUE - elapsed(str(pod["metadata"]["deletionTimestamp"]), now)  # which is when its grace ends


def _unplaced(pod: Object) -> bool:
    return not placed(pod) and condition(pod, "PodScheduled").get("status") == "False"


def container_statuses(pod: Object) -> list[Any]:
    """Of init and ordinary containers, in that order."""
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def trouble(pod: Object, now: str, snapshot: Snapshot) -> Trouble | None:
    """What keeps this pod from serving, the surest cause first; None when there is nothing to say."""
    name = pod["metadata"]["name"]
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        born = pod["metadata"].get("creationTimestamp")
        if born and elapsed(born, now) < BINDING:
            return None  # the scheduler's first word is not its last
        told = escaped(str(scheduled.get("message", "")).rstrip("."))
        if short := next((r for r in _limits(pod) if f"Insufficient {r}" in told), None):
            return Trouble("InsufficientGPU", _shortage(pod, short, told, snapshot))
        return Trouble("Unschedulable", f"pod {name}: {told}")
    for status in container_statuses(pod):
        if found := _container_trouble(pod, status):
            return found
    started = (pod.get("status") or {}).get("startTime")
    if _creating(pod) and started and elapsed(started, now) >= SLOW_VOLUMES:
        where = f"on {pod['spec'].get('nodeName')}: {volumes.wanted(pod)}"
        return Trouble("VolumesNotReady", f"pod {name} waits for its volumes {where}")
    return None


def _creating(pod: Object) -> bool:
    if condition(pod, "PodReadyToStartContainers").get("status") == "True":
        return False  # volumes and network are there: an image is on its way
    waits = ((s.get("state") or {}).get("waiting") or {} for s in container_statuses(pod))
    return any(w.get("reason") == "ContainerCreating" for w in waits)


def _container_trouble(pod: Object, status: Object) -> Trouble | None:
    name = pod["metadata"]["name"]
    waiting = (status.get("state") or {}).get("waiting") or {}
    reason = str(waiting.get("reason", ""))
    if reason in _PULL:
        told = escaped(_BACKED_OFF.sub("", str(waiting.get("message") or reason), count=1))
        return Trouble(
            "ImagePullFailed",
            f"pod {name}: image {status.get('image')}: {told}",
            fatal=reason in _PULL_FATAL,
            advice="check spec.engine.image and its pull secret",
        )
    if reason in _START:
        return Trouble("StartFailed", f"pod {name}: {reason}: {escaped(str(waiting.get('message', '')))}")
    return _crash(pod, status)


def _crash(pod: Object, status: Object) -> Trouble | None:
    """How a container ended; None while it runs for the first time, and for an init container that succeeded."""
    ended = (status.get("state") or {}).get("terminated") or (status.get("lastState") or {}).get("terminated") or {}
    if not ended or (ended.get("exitCode") == 0 and not status.get("restartCount")):
        return None
    name, gate = pod["metadata"]["name"], label(pod, ROLE) == GATE
    if ended.get("reason") == "OOMKilled":
        told = f"pod {name}: container {status['name']} ran out of memory: raise its memory limit in spec.podTemplate"
        return Trouble("OOMKilled", told, fatal=True)
    told = f"pod {name}: {status['name']} exited {ended.get('exitCode')}"
    line, advice = last_line(str(ended.get("message", ""))), f"the whole log is in {_log(pod)}"
    told, advice = (f"{told}: {line}", advice) if line else (f"{told}: no last line; see {_log(pod)}", "")
    return Trouble("GateDied" if gate else "EngineDied", told, fatal=True, advice=advice)


def _log(pod: Object) -> str:
    """A gate's pod never restarts, so that its log is the Job's; an engine's is the one before the restart."""
    job = next((o["name"] for o in pod["metadata"].get("ownerReferences") or () if o.get("kind") == "Job"), None)
    return f"kubectl logs job/{job}" if job else f"kubectl logs --previous {pod['metadata']['name']}"


def _loop(pod: Object, status: Object) -> Trouble | None:
    """It died for the third time at least, and the kubelet has stopped believing in it."""
    waiting = (status.get("state") or {}).get("waiting") or {}
    count = int(status.get("restartCount") or 0)
    if waiting.get("reason") != "CrashLoopBackOff" or count < LOOP or (crash := _crash(pod, status)) is None:
        return None
    return replace(crash, message=f"restarted {count} times: {crash.message}")


def _limits(pod: Object) -> dict[str, int]:
    """Extended resources (GPUs) that a pod holds, whole numbers by the rules of Kubernetes."""
    found: Counter[str] = Counter()
    for container in pod["spec"].get("containers", ()):
        for name, amount in ((container.get("resources") or {}).get("limits") or {}).items():
            if "/" in name and str(amount).isdecimal():
                found[name] += int(amount)
    return dict(found)


def _shortage(pod: Object, resource: str, told: str, snapshot: Snapshot) -> str:
    """What it asks for, how many nodes have it and what keeps the others, and what its own siblings hold of it."""
    held: Counter[str] = Counter()
    for other in snapshot.of("Pod"):
        if placed(other) and not ended(other):
            held[str(other["spec"]["nodeName"])] += _limits(other).get(resource, 0)
    ours = ", ".join(f"{count} on node {node}" for node, count in sorted(held.items())[:8] if count)
    nodes = _NODES.match(told)  # of the scheduler's text, what follows is about preemption
    free = f"{nodes[1]} of {nodes[2]} nodes have free ({nodes[3]})" if nodes else f"no node has free ({told})"
    asks = f"pod {pod['metadata']['name']} asks for {_limits(pod)[resource]} {resource}, which {free}"
    return f"{asks}; this InferenceService holds {ours or 'none'}"
