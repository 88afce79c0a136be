"""What dashboard and alerts ask of an engine, against the metrics that SGLang's own collectors and ours register."""

from __future__ import annotations

from typing import Any

import prometheus_client
import pytest
from prometheus_client import Counter
from support import promql

from island_engine import metrics as ours

# What the chart's PodMonitor adds to every series of an engine; le is a histogram's own.
TARGET = {"namespace", "pod", "inferenceservice", "revision", "half", "le"}

LABELS = {"model_name": "m", "moe_ep_rank": "1"}  # of a scheduler


class Off:
    """SGLang's settings with everything off that a collector asks about."""

    prefill_delayer_max_delay_passes = 30

    def __getattr__(self, _: str) -> Any:
        return None


def recording(kind: Any, found: dict[str, set[str]]) -> Any:
    """`kind`, each in a registry of its own, which tells the names of its series."""

    def make(*args: Any, **kwargs: Any) -> Any:
        registry = prometheus_client.CollectorRegistry()
        metric = kind(*args, registry=registry, **kwargs)
        (names,) = registry._collector_to_names.values()
        found.update({name: set(metric._labelnames) for name in names if kind is not Counter or name != metric._name})
        return metric

    return make


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """Series name -> label names, of everything that an engine with --enable-metrics registers."""
    found: dict[str, set[str]] = {}
    for name in ("Counter", "Gauge", "Histogram", "Summary"):
        monkeypatch.setattr(prometheus_client, name, recording(getattr(prometheus_client, name), found))
    from sglang.srt.observability import http_request_metrics, metrics_collector

    for settings in ("get_schedule", "get_observability"):
        monkeypatch.setattr(metrics_collector, settings, Off)
    metrics_collector.SchedulerMetricsCollector(labels=LABELS, server_args=Off())
    metrics_collector.TokenizerMetricsCollector(server_args=Off(), labels=LABELS)
    http_request_metrics._HttpRequestMetrics()
    ours.speaking.cache_clear()
    ours.announce(enabled=True, ratio=0.17, paced=False)
    ours.speaking.cache_clear()
    return found


def test_every_series_of_an_engine_that_is_asked_for_exists_with_its_labels(exported: dict[str, set[str]]) -> None:
    checked = 0
    for where, expression in promql.expressions().items():
        for selector in promql.asked(expression):
            if selector.metric.startswith("island_operator_"):
                continue
            assert selector.metric in exported, where
            assert selector.labels <= exported[selector.metric] | TARGET, where
            checked += 1
    assert checked > 20
