"""Watches every pod of an InferenceService and remembers what it ran with: the witness of the coupling.

A pod's switch and ratio are fixed by its arguments, so it is enough to see each pod once. The witness compares them
with the two halves it was told of and calls a pod mixed when its pair is neither.
"""

from __future__ import annotations

import datetime as dt
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from demo.kube import Follower, Kube, KubectlError, Object, documents

if TYPE_CHECKING:
    from collections.abc import Iterator

INSTANCE = "radix-islands.dev/instance"
Pair = tuple[bool, str, int]  # islands on, SWA ratio, max total tokens


@dataclass
class Seen:
    """One pod's life, in seconds since the epoch."""

    name: str
    role: str  # engine or gate
    revision: str
    owner: str  # namespace/name of the InferenceService that made it, "" for one made by hand
    pair: Pair | None  # None for a gate pod: it boots both switches by design
    created: float
    uid: str
    ready: list[tuple[float, bool]] = field(default_factory=list)  # readiness flips
    gone: float | None = None
    restarts: list[str] = field(default_factory=list)  # how each container ended that the kubelet started again


def pair_of(pod: Object) -> Pair | None:
    """What the engine container was told, read from its arguments (shape: `--flag value`)."""
    args: list[str] = next(c for c in pod["spec"]["containers"] if c["name"] == "engine").get("args", [])
    if args[:1] != ["serve"]:
        return None
    told = dict(itertools.pairwise(args))
    return told["--islands"] == "on", told["--swa-full-tokens-ratio"], int(told["--max-total-tokens"])


def is_ready(pod: Object) -> bool:
    """The pod's Ready condition; one that is being deleted drains, whatever its probe still says."""
    if pod["metadata"].get("deletionTimestamp"):
        return False
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod.get("status", {}).get("conditions", ()))


def epoch(stamp: str) -> float:
    """An API server timestamp as seconds since the epoch."""
    return dt.datetime.fromisoformat(stamp).timestamp()


def ended_at(pod: Object) -> float | None:
    """When the last of its containers ended by its kubelet's clock: a watch may tell of it seconds later."""
    states = [status.get("state", {}).get("terminated") for status in pod["status"].get("containerStatuses", ())]
    return max((epoch(state["finishedAt"]) for state in states if state and state.get("finishedAt")), default=None)


def last_words(kube: Kube, pod: Object, status: Object) -> str:
    """How a container ended before its last restart, and what it logged then, but for answers and batches."""
    ended = status.get("lastState", {}).get("terminated", {})
    told = f"{ended.get('reason', 'ended')}, exit code {ended.get('exitCode', 'unknown')}"
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    where = ("--namespace", namespace, name, "--container", status["name"])
    try:
        log = kube.run("logs", *where, "--previous", "--tail=2000")
    except KubectlError as error:  # the pod may be gone by now
        return f"{told}; {error}"
    lines = [line for line in log.splitlines() if "HTTP/1.1" not in line and " batch, #" not in line]
    return "\n".join([told, *lines[-80:]])


class Observer:
    """Follows the pods of one InferenceService, or without a name of all in all namespaces, until `stop`."""

    def __init__(self, kube: Kube, name: str | None = None) -> None:
        self.pods: dict[str, Seen] = {}
        self._kube = kube
        watch = ("--watch", "--output-watch-events", "-o", "json")
        whose = ("-l", f"{INSTANCE}={name}") if name else ("-l", INSTANCE, "--all-namespaces")
        self._follower = Follower(kube, "get", "pods", *whose, *watch, read=self._read)

    def start(self) -> None:
        """Begin to watch."""
        self._follower.start()

    def stop(self) -> None:
        """Stop the watch."""
        self._follower.stop()

    def mixed(self, halves: set[Pair]) -> list[Seen]:
        """Pods that ran with a switch and a partition that are not one of the halves."""
        return [p for p in self.pods.values() if p.pair is not None and p.pair not in halves]

    def _read(self, lines: Iterator[str]) -> None:
        for event in documents(lines):
            self._note(event["type"], event["object"])

    def _note(self, kind: str, pod: Object) -> None:
        now, meta = dt.datetime.now(dt.UTC).timestamp(), pod["metadata"]
        labels = meta["labels"]
        seen = self.pods.setdefault(
            meta["uid"],
            Seen(
                name=meta["name"],
                role=labels["radix-islands.dev/role"],
                revision=labels["radix-islands.dev/revision"],
                owner=f"{meta['namespace']}/{labels[INSTANCE]}" if meta.get("ownerReferences") else "",
                pair=pair_of(pod),
                created=epoch(meta["creationTimestamp"]),
                uid=meta["uid"],
            ),
        )
        ready = is_ready(pod) and kind != "DELETED"
        if ready != (seen.ready[-1][1] if seen.ready else False):
            seen.ready.append((now, ready))
        for container in pod.get("status", {}).get("containerStatuses", ()):
            if container["restartCount"] > len(seen.restarts):
                seen.restarts.append(last_words(self._kube, pod, container))
        finished = pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}
        if (kind == "DELETED" or finished) and seen.gone is None:
            seen.gone = (ended_at(pod) if finished else None) or now
