"""What the core reads and what it decides: Snapshot in, Plan out. Manifests and observed objects are plain dicts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from island_operator.core.checks import Reading
    from island_operator.core.prometheus import Answer

Object = dict[str, Any]  # a Kubernetes object, `kind` always set, without managedFields


@dataclass(frozen=True)
class Refusal:
    """What the API server answered to the last write of a child, which it did not take."""

    status: int  # HTTP
    message: str  # its own sentence, after kind and name of the child


@dataclass(frozen=True)
class Snapshot:
    """One InferenceService and every object labelled as its child, as the watches last told."""

    parent: Object
    children: tuple[Object, ...] = ()  # kinds: Deployment, Service, Job, Pod, PodDisruptionBudget
    readings: Mapping[str, Reading] = field(default_factory=dict)  # of engines' /metrics, by the pod's uid
    answers: Mapping[str, Answer] = field(default_factory=dict)  # of Prometheus, by the Question's uid
    kept: frozenset[str] = frozenset()  # names of the Records that are stored by now
    refused: Mapping[tuple[str, str], Refusal] = field(default_factory=dict)  # by kind and name of the child

    def of(self, kind: str) -> tuple[Object, ...]:
        """The children of one kind, by name."""
        return tuple(sorted((c for c in self.children if c["kind"] == kind), key=lambda c: str(c["metadata"]["name"])))

    def child(self, kind: str, name: str) -> Object | None:
        """The child of that kind and name, or None."""
        return next((c for c in self.children if c["kind"] == kind and c["metadata"]["name"] == name), None)


@dataclass(frozen=True)
class Event:
    """A Kubernetes Event to post, once per transition."""

    type: str  # Normal or Warning
    reason: str  # CamelCase
    note: str  # one sentence, at most 1,000 characters


@dataclass(frozen=True)
class Target:
    """An engine whose /metrics somebody wants to know. `often`: while something rolls, and every round is news."""

    uid: str  # of its pod
    address: str  # IP
    port: int
    planned: int  # requests that it is sized to run at once
    often: bool

    @property
    def url(self) -> str:
        """Of its metrics."""
        return f"http://{f'[{self.address}]' if ':' in self.address else self.address}:{self.port}/metrics"


@dataclass(frozen=True)
class Question:
    """A query of a canary's whose answer Prometheus has."""

    name: str
    url: str  # with the query in it
    often: bool = True

    @property
    def uid(self) -> str:
        """Another query under the same name has another."""
        return f"{self.name} {self.url}"


@dataclass(frozen=True)
class Record:
    """A gate's report to be stored once: the ConfigMap, and the pod whose log goes into it (None: it is gone)."""

    manifest: Object
    pod: str | None

    @property
    def name(self) -> str:
        """Of the ConfigMap."""
        return str(self.manifest["metadata"]["name"])


@dataclass(frozen=True)
class Plan:
    """What one pass wants. `desired` is applied in order, then `delete`, then `status` is written if it differs."""

    desired: tuple[Object, ...] = ()
    delete: tuple[Object, ...] = ()  # children to remove (background propagation)
    status: Object = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    requeue_after: float | None = None  # seconds; None: only a change wakes us
    clear_annotations: tuple[str, ...] = ()  # verbs that were carried out
    watch: tuple[Target, ...] = ()  # engines to read
    ask: tuple[Question, ...] = ()  # of Prometheus
    records: tuple[Record, ...] = ()  # reports to store
