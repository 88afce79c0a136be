"""A real Prometheus, configured as the Prometheus Operator would from the chart's monitors: every panel has data.

The engine is played: it serves each series that dashboard and alerts ask for, with SGLang's client library. That a real
one has these series and labels is tested in tests/integration/engine/test_dashboard.py.
"""

import json
import re
import socket
import subprocess
import urllib.parse
import urllib.request
from collections import defaultdict

import prometheus_client
import pytest
import yaml
from support import promql
from support.control_plane import ROOT, binaries, until

from cluster import debs

POD = {"namespace": "ns", "pod": "a-1234-x", "endpoint": "http", "container": "engine"}  # by the Prometheus Operator
PODS = {"instance": "a", "revision": "1234", "half": "islands"}  # labels radix-islands.dev/...
SERVICE = {"namespace": "system", "pod": "operator-1", "endpoint": "metrics"}
VALUES = {"phase": "prefill", "stat": "mean", "origin": "running", "mode": "decode", "status_code": "500",
          "endpoint": "/generate", "condition": "Degraded", "reason": "CheckFailed", "result": "error"}  # fmt: skip


def monitors():
    """The first endpoint of both, as the chart has them."""
    command = [binaries() / "helm", "template", "r", ROOT / "charts/radix-islands", "--kube-version", "1.34.0"]
    command += ["--set", "metrics.prometheusOperator=always", "-s", "templates/podmonitor.yaml"]
    done = subprocess.run([*command, "-s", "templates/servicemonitor.yaml"], capture_output=True, text=True, check=True)
    objects = {obj["kind"]: obj["spec"] for obj in yaml.safe_load_all(done.stdout) if obj}
    return objects["PodMonitor"]["podMetricsEndpoints"][0], objects["ServiceMonitor"]["endpoints"][0]


def snake(rules):
    """Relabelings as Prometheus spells their fields."""
    return [{re.sub(r"[A-Z]", lambda c: f"_{c[0].lower()}", k): v for k, v in rule.items()} for rule in rules]


def job(name, endpoint, port, labels):
    return {
        "job_name": name,
        "scrape_interval": "1s",
        "honor_labels": endpoint.get("honorLabels", False),
        "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": labels}],
        "relabel_configs": snake(endpoint.get("relabelings", ())),
        "metric_relabel_configs": snake(endpoint.get("metricRelabelings", ())),
    }


def series():
    """(engine's, operator's): metric -> labels that somebody asks for and that are its own, from every expression."""
    wanted = defaultdict(set)
    given = {"namespace", "pod", "inferenceservice", "revision", "half", "le"}
    for expression in promql.expressions().values():
        for selector in promql.asked(expression):
            ours = selector.metric == "island_operator_condition"
            wanted[selector.metric] |= selector.labels - (given - {"namespace", "inferenceservice"} if ours else given)
    engine = {name: labels for name, labels in wanted.items() if not name.startswith("island_operator_")}
    return engine, {name: labels for name, labels in wanted.items() if name not in engine}


def played(wanted):
    """A port that serves them, and a function that lets everything happen once more."""
    registry, seen = prometheus_client.CollectorRegistry(), {}
    for name, labels in wanted.items():
        family = re.sub(r"_(bucket|sum|count)$", "", name)
        if family in seen:
            continue
        kind = {family != name: prometheus_client.Histogram, name.endswith("_total"): prometheus_client.Counter}.get(
            True, prometheus_client.Gauge
        )
        metric = kind(family, "played", sorted(labels), registry=registry)
        values = {"namespace": "ns", "inferenceservice": "a", **VALUES}
        seen[family] = metric.labels(**{label: values.get(label, "x") for label in labels}) if labels else metric

    def again():
        for metric in seen.values():
            if isinstance(metric, prometheus_client.Histogram):
                metric.observe(1)
            elif isinstance(metric, prometheus_client.Counter):
                metric.inc()
            else:
                metric.set(1)

    server, _ = prometheus_client.start_http_server(0, "127.0.0.1", registry)
    return server, again


@pytest.fixture
def prometheus(tmp_path):
    """`ask(query)`: the result, while both play."""
    (engine, more), (operator, more_of_it) = map(played, series())
    pods, service = monitors()
    meta = {f"__meta_kubernetes_pod_label_radix_islands_dev_{name}": value for name, value in PODS.items()}
    jobs = [
        job("engines", pods, engine.server_port, POD | meta),
        job("operator", service, operator.server_port, SERVICE),
    ]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump({"scrape_configs": jobs}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    flags = [f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
    command = ["setpriv", "--pdeathsig", "KILL", debs.program("prometheus"), *flags, f"--web.listen-address={address}"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)

    def ask(query):
        more(), more_of_it()
        try:
            with urllib.request.urlopen(
                f"http://{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
            ) as it:
                return json.load(it)["data"]["result"]
        except OSError:
            assert process.poll() is None, (tmp_path / "log").read_text()
            return []

    yield ask
    process.kill()
    process.wait()
    for server in (engine, operator):
        server.shutdown()
        server.server_close()


def test_every_panel_and_variable_finds_its_series(prometheus):
    until("both are scraped", lambda: len(prometheus("up == 1")) == 2)
    variables = {"$namespace": "ns", "$inferenceservice": "a", "$__rate_interval": "1m", "[1h]": "[1m]"}
    queries = {where: query for where, query in promql.expressions().items() if not where.startswith("alert")}
    for where, query in queries.items():
        for name, value in variables.items():
            query = query.replace(name, value)
        until(where, lambda query=query: prometheus(query), timeout=30.0, every=0.5)
    (found,) = prometheus("sglang:swa_token_usage")
    assert found["metric"].items() >= {"namespace": "ns", "inferenceservice": "a", "half": "islands"}.items()
    (found,) = prometheus("sglang:http_responses_total")
    assert found["metric"]["endpoint"] == "/generate"
    (found,) = prometheus("island_operator_condition")
    assert found["metric"]["namespace"] == "ns", "of the InferenceService, not the operator's own"
