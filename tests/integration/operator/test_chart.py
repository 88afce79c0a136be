"""The chart under real Helm, against a real API server: rendered with many values, refused, upgraded.

`support/charts` holds the chart as it was released, made by `helm package`: a clone may lack the history.
"""

import json
import subprocess
from collections import Counter

import pytest
import yaml
from support.control_plane import CRD, ROOT, ControlPlane

CHART = ROOT / "charts/radix-islands"
BEFORE = ROOT / "tests/support/charts/radix-islands-0.1.0.tgz"
MONITORING = {"ServiceMonitor": "servicemonitors", "PodMonitor": "podmonitors", "PrometheusRule": "prometheusrules"}
PLAIN = Counter(
    CustomResourceDefinition=1, ServiceAccount=1, ClusterRole=3, ClusterRoleBinding=1, Role=1, RoleBinding=1,
    Deployment=1, Service=1, PodDisruptionBudget=1, ConfigMap=1,
)  # fmt: skip
LEAST = """
{crd: {install: false}, watch: {namespace: chart}, replicas: 1, spreadOver: [], podDisruptionBudget: {enabled: false},
metrics: {service: false}, dashboard: {enabled: false}, serviceAccount: {create: false, name: theirs}, resources: {}}
"""
MOST = """
image: {repository: registry.example:5000/a/operator, digest: "sha256:%s", pullPolicy: Always}
imagePullSecrets: [{name: registry}]
replicas: 3
serviceAccount: {annotations: {iam: role}}
metrics: {prometheusOperator: always, interval: 1m, labels: {release: prometheus}}
dashboard: {labels: {dashboards: "yes"}, annotations: {grafana_folder: Inference}}
networkPolicy: {enabled: true, apiServerPorts: [443], egress: [{ports: [{port: 8443, protocol: TCP}]}],
  prometheus: [{namespaceSelector: {matchLabels: {name: prometheus}}, podSelector: {matchLabels: {app: server}}}],
  prometheusPorts: [9090, 10902],
  scrapers: [{namespaceSelector: {matchLabels: {name: prometheus}}}]}
nodeSelector: {pool: system}
tolerations: [{key: system, operator: Exists}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
  {matchExpressions: [{key: arch, operator: In, values: [amd64]}]}]}}}
priorityClassName: system-cluster-critical
podAnnotations: {note: "1"}
podLabels: {team: inference}
""" % ("0" * 64)
ALL_MONITORING = Counter(dict.fromkeys(MONITORING, 1))


def helm(plane, *args, stdin=None, good=True):
    command = [plane.bin / "helm", *args]
    environment = {"KUBECONFIG": str(plane.kubeconfig), "HOME": str(plane.dir), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, check=False, timeout=60, env=environment
    )
    assert (done.returncode == 0) == good, done.stderr
    return done.stdout if good else done.stderr


def rendered(plane, values):
    """The manifests as this API server would get them: its version and its kinds decide too. It has the CRD already."""
    flags = ["-n", "chart", "--validate", "--take-ownership", "-f", "-"]
    text = helm(plane, "template", "it", CHART, *flags, stdin=values)
    return [obj for obj in yaml.safe_load_all(text) if obj]


def with_namespace(plane):
    """A namespace that asks for restricted pods, and where Deployments of others are warned about."""
    restricted = dict.fromkeys(("pod-security.kubernetes.io/enforce", "pod-security.kubernetes.io/warn"), "restricted")
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "chart", "labels": restricted}})
    return plane


@pytest.fixture(scope="module")
def plane(control_plane):
    return with_namespace(control_plane)


@pytest.fixture(scope="module")
def monitored():
    """Where the Prometheus Operator is installed. On a control plane of its own: a CRD that comes and goes by the same
    name is taken down after pauses that grow, once longer than two minutes, and found for a while when it is gone.
    """
    with ControlPlane() as plane:
        prometheus_operator(plane)
        yield with_namespace(plane)


def prometheus_operator(plane):
    """Its three kinds, with the fields that we use and no others (monitoring.coreos.com/v1)."""
    text = {"type": "string"}
    texts, mapping = {"type": "array", "items": text}, {"type": "object", "additionalProperties": text}

    def obj(**fields):
        return {"type": "object", "properties": fields}

    def objs(**fields):
        return {"type": "array", "items": obj(**fields)}

    relabeling = objs(sourceLabels=texts, targetLabel=text, action=text, regex=text, replacement=text)
    endpoint = {"port": text, "path": text, "interval": text, "honorLabels": {"type": "boolean"}}
    endpoints = objs(**endpoint, relabelings=relabeling, metricRelabelings=relabeling)
    namespaces = obj(any={"type": "boolean"}, matchNames=texts)
    rule = {"alert": text, "expr": text, "for": text, "labels": mapping, "annotations": mapping}
    specs = {
        "ServiceMonitor": obj(selector=obj(matchLabels=mapping), namespaceSelector=namespaces, endpoints=endpoints),
        "PodMonitor": obj(
            selector=obj(matchLabels=mapping), namespaceSelector=namespaces, podMetricsEndpoints=endpoints
        ),
        "PrometheusRule": obj(groups=objs(name=text, rules=objs(**rule))),
    }
    for kind, plural in MONITORING.items():
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": obj(spec=specs[kind])}}
        plane.apply(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"{plural}.monitoring.coreos.com"},
                "spec": {
                    "group": "monitoring.coreos.com",
                    "scope": "Namespaced",
                    "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
                    "versions": [version],
                },
            }
        )
    crds = [f"crd/{plural}.monitoring.coreos.com" for plural in MONITORING.values()]
    plane.kubectl("wait", "--for=condition=Established", *crds)


def test_helm_finds_nothing_to_complain_about(plane):
    helm(plane, "lint", "--strict", CHART)
    helm(plane, "lint", "--strict", CHART, "-f", "-", stdin=MOST)


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        ("{}", PLAIN),
        (LEAST, Counter(Role=2, RoleBinding=2, Deployment=1)),
        (MOST, PLAIN + ALL_MONITORING + Counter(NetworkPolicy=1)),
        ("{networkPolicy: {enabled: true}, watch: {namespace: chart}, metrics: {rules: false}}",
         PLAIN - Counter(ClusterRole=3, ClusterRoleBinding=1) + Counter(Role=1, RoleBinding=1, NetworkPolicy=1)
         + ALL_MONITORING - Counter(PrometheusRule=1)),
        ("{metrics: {prometheusOperator: never}, users: {aggregate: false}}", PLAIN - Counter(ClusterRole=2)),
    ],
    ids=["default", "least", "most", "one namespace", "never"],
)  # fmt: skip
def test_the_api_server_takes_every_object_as_it_is(request, values, kinds):
    plane = request.getfixturevalue("plane" if values in {"{}", LEAST} else "monitored")
    objects = rendered(plane, values)
    assert Counter(obj["kind"] for obj in objects) == kinds
    text = yaml.safe_dump_all(obj for obj in objects if obj["kind"] != "CustomResourceDefinition")
    flags = ["--server-side", "--dry-run=server", "--validate=strict", "-n", "chart", "-f", "-"]
    done = plane.try_kubectl("apply", *flags, stdin=text)
    assert (done.returncode, done.stderr) == (0, ""), "refused, or warned of: an unknown field, a pod not restricted"


def test_what_most_values_lead_to(plane):
    objects = {obj["kind"]: obj for obj in rendered(plane, MOST.replace("always", "never"))}
    pod = objects["Deployment"]["spec"]["template"]
    spec = pod["spec"]
    assert spec["containers"][0]["image"] == f"registry.example:5000/a/operator@sha256:{'0' * 64}"
    assert spec["nodeSelector"] == {"pool": "system"}
    assert pod["metadata"]["labels"]["team"] == "inference"
    selector = objects["Deployment"]["spec"]["selector"]["matchLabels"]
    for spread in spec["topologySpreadConstraints"]:
        assert spread["labelSelector"]["matchLabels"] == selector
        assert spread["whenUnsatisfiable"] == "ScheduleAnyway"
    assert objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == selector
    policy = objects["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"] == selector
    assert policy["ingress"][0]["from"] == [{"namespaceSelector": {"matchLabels": {"name": "prometheus"}}}]
    assert policy["egress"][0] == {"ports": [{"port": 443, "protocol": "TCP"}]}
    asked, resolved, more = policy["egress"][2:]
    assert [entry["port"] for entry in asked["ports"]] == [9090, 10902]
    (peer,) = asked["to"]
    assert peer["namespaceSelector"] == {"matchLabels": {"name": "prometheus"}}
    assert peer["podSelector"] == {"matchLabels": {"app": "server"}}
    assert resolved == {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}
    assert more == {"ports": [{"port": 8443, "protocol": "TCP"}]}
    nobody = "{networkPolicy: {enabled: true, apiServerPorts: [443]}}"
    (alone,) = [obj["spec"] for obj in rendered(plane, nobody) if obj["kind"] == "NetworkPolicy"]
    assert alone["egress"] == policy["egress"][:2], "the API server and the engines"
    dashboard = objects["ConfigMap"]
    assert dashboard["metadata"]["labels"]["dashboards"] == "yes"
    text = (CHART / "files/dashboard.json").read_text()
    assert json.loads(dashboard["data"]["radix-islands.json"]) == json.loads(text)


def test_where_the_prometheus_operator_is_installed_it_is_found_by_itself(monitored):
    objects = {obj["kind"]: obj for obj in rendered(monitored, "{}")}
    assert set(MONITORING) <= set(objects)
    assert objects["PrometheusRule"]["spec"] == yaml.safe_load((CHART / "files/alerts.yaml").read_text())
    service, monitor = objects["Service"], objects["ServiceMonitor"]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("replica=2", "additional properties 'replica' not allowed"),
        ("replicas=0", "at '/replicas': minimum: got 0, want 1"),
        ("logFormat=xml", "at '/logFormat': value must be one of 'json', 'text'"),
        ("metrics.prometheusOperator=yes", "at '/metrics/prometheusOperator': value must be one of 'auto', 'always'"),
        ("image.digest=latest", "at '/image/digest': 'latest' does not match pattern '^(sha256:[0-9a-f]{64})?$'"),
        ("serviceAccount.create=false", "at '/serviceAccount/name': minLength: got 0, want 1"),
        ("networkPolicy.prometheus={monitoring}", "at '/networkPolicy/prometheus/0': got string, want object"),
        ("networkPolicy.prometheus[0].namespace=x", "additional properties 'namespace' not allowed"),
    ],
)
def test_a_wrong_value_is_named(plane, value, told):
    assert told in helm(plane, "template", "it", CHART, "--set", value, good=False)


def test_row_27_an_upgrade_from_the_release_before_keeps_what_serves_and_can_be_taken_back(plane):
    """--take-ownership: this API server has the CRD already, from the fixture."""
    obj = yaml.safe_load((ROOT / "examples/tiny-gemma.yaml").read_text())
    obj["metadata"]["namespace"] = "chart"
    where = ["-n", "chart"]
    helm(plane, "install", "up", BEFORE, *where, "--take-ownership", "--set", "replicas=1,workers=4")
    plane.apply(obj)
    uid = plane.get("iisvc", "tiny-gemma", "chart")["metadata"]["uid"]
    was = plane.get("deployment", "up", "chart")
    assert plane.get("pdb", "up", "chart") is None

    helm(plane, "upgrade", "up", CHART, *where, "--reset-then-reuse-values")
    made = plane.get("deployment", "up", "chart")
    assert made["metadata"]["uid"] == was["metadata"]["uid"], "updated in place: its selector is immutable"
    assert made["spec"]["replicas"] == 1, "what the user set stays set"
    assert "--workers=4" in made["spec"]["template"]["spec"]["containers"][0]["args"]
    assert plane.get("pdb", "up", "chart")
    plane.merge("iisvc", "tiny-gemma", {"spec": {"islands": {"enabled": True}}}, "chart")
    plane.merge("iisvc", "tiny-gemma", {"spec": {"islands": {"enabled": False}}}, "chart")

    helm(plane, "rollback", "up", "1", *where)
    assert plane.get("pdb", "up", "chart") is None
    helm(plane, "upgrade", "up", CHART, *where, "--reset-then-reuse-values")
    helm(plane, "uninstall", "up", *where)
    assert plane.get("iisvc", "tiny-gemma", "chart")["metadata"]["uid"] == uid
    plane.kubectl("delete", "iisvc", "tiny-gemma", "-n", "chart")
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", CRD)
