"""The chart on a real API server: it installs, its pod is restricted, and its rights suffice for a life."""

import json
import subprocess

import pytest
import yaml
from support.control_plane import ROOT, ControlPlane, OperatorProcess, until

CHART = ROOT / "charts/radix-islands"
INSTANCE = "radix-islands.dev/instance"


@pytest.fixture(scope="module")
def plane():
    with ControlPlane() as plane:
        yield plane


def helm(plane, *args):
    command = [plane.bin / "helm", "--kubeconfig", plane.kubeconfig, *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def account_kubeconfig(plane, namespace, account):
    """A kubeconfig that is that ServiceAccount."""
    token = plane.kubectl("create", "token", account, "-n", namespace).strip()
    config = yaml.safe_load(plane.kubeconfig.read_text())
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    path = plane.dir / f"{namespace}-{account}.conf"
    path.write_text(yaml.safe_dump(config))
    return path


def resource(name, namespace):
    obj = yaml.safe_load((ROOT / "examples/tiny-gemma.yaml").read_text())
    obj["metadata"].update(name=name, namespace=namespace)
    return obj


def deployments(plane, name, namespace):
    return plane.get("deployments", namespace=namespace, **{INSTANCE: name})


def until_known(plane, namespace, account, *rights):
    """Until the API server has heard of the account's rights: before that it refuses what is allowed."""
    who = f"system:serviceaccount:{namespace}:{account}"

    def may(verb, what):
        return plane.try_kubectl("auth", "can-i", verb, what, "-n", namespace, "--as", who).returncode == 0

    until("its rights are known", lambda: all(may(*right.split()) for right in rights))


def refusals(operator):
    return [line["message"] for line in operator.lines() if "forbidden" in line["message"]]


def live(plane, operator, name, namespace):
    """Create, repair, switch, gate, delete: what needs every right."""
    plane.apply(resource(name, namespace))
    (made,) = until("a deployment", lambda: deployments(plane, name, namespace))
    target = made["metadata"]["name"]
    plane.kubectl("set", "env", f"deploy/{target}", "-n", namespace, "ISLAND_ENABLED=1")
    until(
        "repaired",
        lambda: "ISLAND_ENABLED" not in json.dumps(plane.get("deploy", target, namespace)["spec"]["template"]),
    )
    plane.merge("iisvc", name, {"spec": {"islands": {"enabled": True}}}, namespace)
    plane.merge("iisvc", name, {"spec": {"islands": {"enabled": False}}}, namespace)
    plane.merge("iisvc", name, {"metadata": {"annotations": {"radix-islands.dev/retry": "1"}}}, namespace)

    def events():
        return json.loads(plane.kubectl("get", "events", "-n", namespace, "-o", "json"))["items"]

    until("an event", lambda: [e for e in events() if e["involvedObject"]["kind"] == "InferenceService"])
    plane.kubectl("delete", "iisvc", name, "-n", namespace)
    # the garbage collector looks every 30 s for kinds that are new, and tries again ever more rarely until then
    until("gone", lambda: not deployments(plane, name, namespace), timeout=150)
    assert refusals(operator) == []


def test_row_26_it_installs_into_a_restricted_namespace_and_its_account_may_do_all_it_must_and_no_more(plane):
    plane.kubectl("create", "namespace", "system")
    plane.kubectl("label", "namespace", "system", "pod-security.kubernetes.io/enforce=restricted")
    plane.kubectl("delete", "crd", "inferenceservices.radix-islands.dev")
    notes = helm(plane, "upgrade", "--install", "radix-islands", str(CHART), "--namespace", "system")
    assert "kubectl apply --server-side -f examples/tiny-gemma.yaml" in notes
    until("pod security admits its pod", lambda: plane.get("pods", namespace="system"))
    plane.kubectl("create", "namespace", "models")
    until_known(plane, "system", "radix-islands", "list iisvc", "create leases")
    with OperatorProcess(
        account_kubeconfig(plane, "system", "radix-islands"), "--lease-namespace", "system"
    ) as operator:
        operator.serving()
        live(plane, operator, "all", "models")
        assert operator.stop() == 0
    for verb, what in (
        ("get", "secrets"),
        ("delete", "iisvc"),
        ("update", "iisvc"),
        ("create", "pods"),
        ("list", "nodes"),
    ):
        answer = plane.try_kubectl(
            "auth", "can-i", verb, what, "-n", "models", "--as", "system:serviceaccount:system:radix-islands"
        )
        assert answer.stdout.strip() == "no", (verb, what)
    plane.apply(resource("kept", "models"))
    helm(plane, "uninstall", "radix-islands", "--namespace", "system")
    assert plane.get("iisvc", "kept", "models"), "the CRD and what it holds outlive the release"
    assert plane.get("serviceaccount", "radix-islands", "system") is None
    plane.kubectl("delete", "iisvc", "kept", "-n", "models")


def test_one_namespace_needs_a_role_only_there_and_nothing_elsewhere_is_served(plane):
    plane.kubectl("create", "namespace", "mine")
    values = ["--set", "watch.namespace=mine", "--set", "crd.install=false"]
    helm(plane, "upgrade", "--install", "narrow", str(CHART), "--namespace", "mine", *values)
    assert plane.get("clusterrole", "narrow") is None
    until_known(plane, "mine", "narrow", "list iisvc", "create leases")
    flags = ["--lease-namespace", "mine", "--namespace", "mine"]
    with OperatorProcess(account_kubeconfig(plane, "mine", "narrow"), *flags) as operator:
        operator.serving()
        plane.apply(resource("foreign", "default"))
        live(plane, operator, "own", "mine")
        assert deployments(plane, "foreign", "default") == []
        assert "status" not in plane.get("iisvc", "foreign")
        assert operator.stop() == 0


def test_without_the_crd_it_says_so_and_serves_once_it_comes(plane):
    plane.kubectl("delete", "crd", "inferenceservices.radix-islands.dev")
    with OperatorProcess(plane.kubeconfig) as operator:
        until("it says what is missing", lambda: operator.said("waiting to list: InferenceService: "))
        plane.kubectl("apply", "--server-side", "-f", ROOT / "crds/inferenceservices.radix-islands.dev.yaml")
        operator.serving()
        until("the kind is served", lambda: plane.try_kubectl("get", "iisvc").returncode == 0)
        plane.apply(resource("late", "default"))
        until("served", lambda: deployments(plane, "late", "default"))
        assert operator.stop() == 0
