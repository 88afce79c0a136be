"""Prometheus metrics of the operator, all named island_operator_*."""

from __future__ import annotations

from collections import Counter as Counts
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily

from island_engine.gate.report import Verdict
from island_operator.core.clock import elapsed
from island_operator.core.verbs import VERBS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client import Metric

    from island_operator.core.model import Object

READS = {"get", "list"}
VALUES = {"True": 1, "False": 0}  # of a condition
# The only causes that become a label: a gate's report may hold any word, and every word is a series for ever.
CAUSES = {
    "Aborted",
    "AdmissionRebind",
    "CheckFailed",
    "CrashLoop",
    "DeadlineExceeded",
    "EngineDied",
    "FrontierViolation",
    "GateDeadline",
    "GateFailed",
    "ImagePullFailed",
    "InsufficientGPU",
    "OOMKilled",
    "RolledBackByHand",
}


class Resources:
    """What the InferenceServices say of themselves, read in the cache when somebody asks. A standby's is empty.

    island_operator_phase{phase} counts them. island_operator_condition{namespace,inferenceservice,condition,reason} is
    1 for True and 0 for False; a condition that is Unknown has no series.
    """

    def __init__(self, parents: Callable[[], Iterable[Object]]) -> None:
        self._parents = parents

    def collect(self) -> Iterable[Metric]:
        """See prometheus_client."""
        phases = GaugeMetricFamily("island_operator_phase", "InferenceServices by phase", labels=["phase"])
        conditions = GaugeMetricFamily(
            "island_operator_condition",
            "Condition of an InferenceService, 1: True, 0: False",
            labels=["namespace", "inferenceservice", "condition", "reason"],
        )
        counts: Counts[str] = Counts()
        for parent in self._parents():
            meta, status = parent["metadata"], parent.get("status") or {}
            counts[str(status.get("phase", "Unknown"))] += 1  # Unknown before the first status
            for told in status.get("conditions") or ():
                if told.get("status") in VALUES:
                    series = [meta["namespace"], meta["name"], told["type"], told.get("reason", "")]
                    conditions.add_metric(series, VALUES[told["status"]])
        for phase, count in sorted(counts.items()):
            phases.add_metric([phase], count)
        yield phases
        yield conditions


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
        self._gate_seconds = Histogram(
            "island_operator_gate_seconds",
            "From a gate's start to its verdict, Pending included",
            ["verdict"],
            buckets=(30, 60, 120, 300, 600, 1200, 1800, 3600, 7200),
            registry=self.registry,
        )
        self._rollbacks = Counter(
            "island_operator_rollbacks", "Coupled rollbacks recorded, by cause", ["cause"], registry=self.registry
        )
        self._verbs = Counter("island_operator_verbs", "Verbs that users annotated", ["verb"], registry=self.registry)
        self._scrapes = Counter(
            "island_operator_scrapes", "Readings of engines' /metrics", ["result"], registry=self.registry
        )
        for counter, values in (  # 0 from the start: to Prometheus a series that begins at 1 never rose
            (self._reconciles, ("error", "success")),
            (self._scrapes, ("error", "success")),
            (self._gates, Verdict),
            (self._rollbacks, (*sorted(CAUSES), "Other")),
        ):
            for value in values:
                counter.labels(str(value))

    def bind(
        self,
        parents: Callable[[], Iterable[Object]],
        depth: Callable[[], int],
        leading: Callable[[], bool],
        dropped: Callable[[], int],
    ) -> None:
        """Where the gauges look."""
        self.registry.register(Resources(parents))
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
            if (begun := now.get("startedAt")) and (ended := now.get("finishedAt")):
                self._gate_seconds.labels(now["verdict"]).observe(max(0.0, elapsed(begun, ended)))
        if _is_true(new, "RolledBack") and not _is_true(old, "RolledBack"):
            cause = next(str(c.get("reason")) for c in new["conditions"] if c["type"] == "RolledBack")
            self._rollbacks.labels(cause if cause in CAUSES else "Other").inc()
        told = {(v.get("name"), v.get("at")) for v in old.get("verbs") or ()}  # another release may have written them
        for verb in new.get("verbs") or ():
            if (verb["name"], verb["at"]) not in told:
                self._verbs.labels(verb["name"] if verb["name"] in VERBS else "unknown").inc()

    def scraped(self, result: str) -> None:
        """Scraper observer: success or error."""
        self._scrapes.labels(result).inc()

    def render(self) -> bytes:
        """The text exposition."""
        return generate_latest(self.registry)


def _is_true(status: Object, kind: str) -> bool:
    return any(c.get("type") == kind and c.get("status") == "True" for c in status.get("conditions") or ())
