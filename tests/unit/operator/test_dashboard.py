"""What dashboard and alerts ask of the operator, against what it exports. tests/integration/engine asks the engine."""

import json
import re

import pytest
from prometheus_client import Counter, Gauge, Histogram
from support import promql

from island_operator.runtime.metrics import Metrics

TARGET = {"namespace", "pod", "instance", "job"}  # what a ServiceMonitor's scrape adds
OURS = "island_operator_"
ROOT = promql.FILES.parents[2]


def exported():
    """Series name -> its labels."""
    metrics = Metrics()
    held = {"metadata": {"namespace": "n", "name": "x"}, "status": {"conditions": [
        {"type": "Ready", "status": "True", "reason": "Why"}]}}  # fmt: skip
    metrics.bind(lambda: [held], lambda: 0, lambda: True, lambda: 0)
    found = {}
    for collector, names in metrics.registry._collector_to_names.items():
        if isinstance(collector, (Counter, Gauge, Histogram)):
            names = [name for name in names if isinstance(collector, Gauge) or name != collector._name]
            found |= {name: set(collector._labelnames) | {"le"} for name in names}
        else:
            found |= {s.name: set(s.labels) for family in collector.collect() for s in family.samples}
    return found


def test_every_series_of_the_operator_that_is_asked_for_exists_with_its_labels():
    known = exported()
    for where, expression in promql.expressions().items():
        for selector in promql.asked(expression):
            if selector.metric.startswith(OURS):
                assert selector.metric in known, where
                assert selector.labels - TARGET <= known[selector.metric] | {"namespace"}, where


def test_every_condition_and_reason_that_is_asked_for_is_one_that_the_operator_gives():
    source = "\n".join(path.read_text() for path in (ROOT / "operator/island_operator/core").glob("*.py"))
    for where, expression in promql.expressions().items():
        for label, values in re.findall(r'(condition|reason)[=!]~?"([^"]+)"', expression):
            for value in values.split("|"):
                assert f'"{value}"' in source, (where, label)


def test_only_counters_are_rated():
    for where, expression in promql.expressions().items():
        for selector in promql.asked(expression):
            assert selector.rated == selector.metric.endswith(("_total", "_bucket", "_sum", "_count")) or (
                selector.metric.endswith("_total") and "rate(" not in expression
            ), where


@pytest.mark.parametrize(
    ("expression", "metric", "labels", "rated"),
    [
        ('max by (a, b) (x:y{c=~"d, e{", f!="g"}) > 0', "x:y", {"a", "b", "c", "f"}, False),
        ("histogram_quantile(0.9, sum by (le) (rate(h_bucket[$__rate_interval])))", "h_bucket", {"le"}, True),
        ("absent(u)", "u", set(), False),
    ],
)
def test_the_reader_of_queries_reads(expression, metric, labels, rated):
    assert promql.asked(expression) == [promql.Asked(metric, frozenset(labels), rated)]


def test_the_reader_of_queries_finds_every_operand():
    found = promql.asked("a and on (l) rate(b_total[5m]) >= 0.9 unless on (l) c == 1 or absent(d)")
    assert [selector.metric for selector in found] == ["a", "b_total", "c", "d"]


def test_the_dashboard_shows_what_it_promises_and_its_panels_do_not_overlap():
    queries = " ".join(promql.expressions().values())
    for metric in (
        "sglang:swa_token_usage",
        "sglang:full_token_usage",
        "sglang:num_running_reqs",
        "sglang:num_queue_reqs",
        "sglang:num_retracted_requests_total",
        "island_published_total",
        "island_hold_tokens",
        "island_operator_gate_results_total",
        "island_operator_rollbacks_total",
    ):
        assert metric in queries
    dashboard = json.loads((promql.FILES / "dashboard.json").read_text())
    taken = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["description"], panel["title"]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_monitoring_md_explains_every_alert():
    text = (ROOT / "docs/monitoring.md").read_text()
    for rule in promql.rules():
        assert f"## {rule['alert']}\n" in text or f"`{rule['alert']}`" in text, rule["alert"]
