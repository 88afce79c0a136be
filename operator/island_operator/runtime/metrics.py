"""Prometheus metrics of the operator, all named island_operator_*."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily

if TYPE_CHECKING:
    from collections import Counter as Counts
    from collections.abc import Callable, Iterable

    from prometheus_client import Metric

    from island_operator.core.model import Object

READS = {"get", "list"}


class Phases:
    """island_operator_phase{phase}, counted in the cache when somebody asks."""

    def __init__(self, phases: Callable[[], Counts[str]]) -> None:
        self._phases = phases

    def collect(self) -> Iterable[Metric]:
        """See prometheus_client."""
        family = GaugeMetricFamily("island_operator_phase", "InferenceServices by phase", labels=["phase"])
        for phase, count in sorted(self._phases().items()):
            family.add_metric([phase], count)
        yield family


class Metrics:
    """One registry of its own. The methods are the observers that the other modules ask for."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._reconciles = Counter("island_operator_reconciles", "Passes ended", ["result"], registry=self.registry)
        self._seconds = Histogram(
            "island_operator_reconcile_seconds", "One pass, with its writes", registry=self.registry
        )
        self._waits = Histogram(
            "island_operator_queue_wait_seconds", "From an event to its pass", registry=self.registry
        )
        self._depth = Gauge("island_operator_queue_depth", "Keys that wait for a worker", registry=self.registry)
        self._leading = Gauge("island_operator_leading", "1: this process holds the Lease", registry=self.registry)
        self._writes = Counter(
            "island_operator_api_writes", "Writes sent to the API server", ["verb", "kind"], registry=self.registry
        )
        self._errors = Counter(
            "island_operator_api_errors", "Requests that failed; code 0: no answer", ["code"], registry=self.registry
        )
        self._events = Counter(
            "island_operator_watch_events", "Events the watches told", ["kind"], registry=self.registry
        )
        self._dropped = Gauge(
            "island_operator_events_dropped", "Kubernetes Events that were not posted", registry=self.registry
        )
        self._gates = Counter(
            "island_operator_gate_results", "Gate verdicts recorded", ["verdict"], registry=self.registry
        )
        self._rollbacks = Counter("island_operator_rollbacks", "Coupled rollbacks recorded", registry=self.registry)
        self._reconciles.labels("error"), self._reconciles.labels("success")  # 0 from the start, so that rate() works

    def bind(
        self,
        phases: Callable[[], Counts[str]],
        depth: Callable[[], int],
        leading: Callable[[], bool],
        dropped: Callable[[], int],
    ) -> None:
        """Where the gauges look."""
        self.registry.register(Phases(phases))
        self._depth.set_function(depth)
        self._leading.set_function(leading)
        self._dropped.set_function(dropped)

    def waited(self, seconds: float) -> None:
        """Queue observer."""
        self._waits.observe(seconds)

    def finished(self, result: str, seconds: float) -> None:
        """Queue observer."""
        self._reconciles.labels(result).inc()
        self._seconds.observe(seconds)

    def requested(self, verb: str, kind: str, status: int) -> None:
        """Client observer. The Lease's own renewals are not counted: idle means 0."""
        if verb not in READS and kind != "Lease":
            self._writes.labels(verb, kind).inc()
        if status == 0 or status >= 400:
            self._errors.labels(str(status)).inc()

    def seen(self, kind: str) -> None:
        """Trigger observer."""
        self._events.labels(kind).inc()

    def recorded(self, old: Object, new: Object) -> None:
        """Reconciler observer. A verdict counts once per Job, a rollback when its condition turns."""
        was, now = old.get("gate") or {}, new.get("gate") or {}
        if now.get("verdict") and (now.get("verdict"), now.get("job")) != (was.get("verdict"), was.get("job")):
            self._gates.labels(now["verdict"]).inc()
        if _is_true(new, "RolledBack") and not _is_true(old, "RolledBack"):
            self._rollbacks.inc()

    def render(self) -> bytes:
        """The text exposition."""
        return generate_latest(self.registry)


def _is_true(status: Object, kind: str) -> bool:
    return any(c["type"] == kind and c["status"] == "True" for c in status.get("conditions") or ())
