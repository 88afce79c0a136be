"""`island-operator run` against a real etcd, API server and controller manager. The tests play the kubelet."""

import contextlib
import copy
import itertools
import json
import time
import urllib.request

import pytest
import yaml
from support.control_plane import ROOT, ControlPlane, OperatorProcess, until

from island_operator.runtime.lease import Terms

INSTANCE, REVISION, HALF, ROLE = (f"radix-islands.dev/{name}" for name in ("instance", "revision", "half", "role"))
CHILDREN = ("deployments", "services", "jobs", "poddisruptionbudgets")


@pytest.fixture(scope="module")
def plane():
    with ControlPlane() as plane:
        yield plane


@pytest.fixture
def operator(plane):
    with OperatorProcess(plane.kubeconfig) as process:
        yield process.serving()


@pytest.fixture
def name(request):
    return request.node.name.removeprefix("test_").replace("_", "-")[:36].strip("-")


def example(name, **spec):
    obj = yaml.safe_load((ROOT / "examples/tiny-gemma.yaml").read_text())
    obj["metadata"].update(name=name, namespace="default")
    obj["spec"].update(copy.deepcopy(spec))
    return obj


def children(plane, name):
    return {kind: plane.get(kind, **{INSTANCE: name}) for kind in CHILDREN}


def every_child(plane, name):
    return [*itertools.chain.from_iterable(children(plane, name).values())]


def said(plane, name):
    """All of the children but what their own controllers write, and may write late."""
    found = {}
    for child in every_child(plane, name):
        meta = {key: value for key, value in child["metadata"].items() if key != "resourceVersion"}
        found[meta["name"]] = {**child, "metadata": meta, "status": None}
    return found


def status(plane, name):
    return (plane.get("iisvc", name) or {}).get("status") or {}


def condition(plane, name, kind):
    return next((c for c in status(plane, name).get("conditions", ()) if c["type"] == kind), {})


def play_kubelet(plane, name):
    """Every engine pod becomes Ready, as if a node ran it."""
    for pod in plane.get("pods", **{INSTANCE: name, ROLE: "engine"}):
        if pod.get("status", {}).get("phase") != "Running" and "deletionTimestamp" not in pod["metadata"]:
            ready = [
                {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
            ]
            body = {"status": {"phase": "Running", "conditions": ready}}
            plane.merge("pod", pod["metadata"]["name"], body, subresource="status")


def is_ready(plane, name):
    """Ready and Stable, its pods having been given the chance."""
    play_kubelet(plane, name)
    return condition(plane, name, "Ready").get("status") == "True" and status(plane, name)["phase"] == "Stable"


def serve(plane, name, **spec):
    """Apply the example and wait until it serves. Returns the InferenceService."""
    plane.apply(example(name, **spec))
    until(f"{name} is Ready", lambda: is_ready(plane, name))
    return plane.get("iisvc", name)


def quiet(plane):
    """Wait until the operator lives on and writes nothing but its Lease; then nothing is to be written any more."""
    mark = plane.mark()

    def nothing():
        nonlocal mark
        if plane.writes(since=mark):
            mark = plane.mark()
        return plane.renewals(mark) >= 2

    until("nothing is written", nothing)


def lives_on(plane, mark, renewals):
    """Until the operator has renewed its Lease so often, every 2 s of its own: a stop of anything prolongs this."""
    until("the operator lives on", lambda: plane.renewals(mark) >= renewals)


def engine(plane, name, half):
    """The Deployments of one half that have pods."""
    found = plane.get("deployments", **{INSTANCE: name, HALF: half})
    return [deployment for deployment in found if deployment["spec"]["replicas"]]


def test_an_applied_resource_gets_its_children_by_server_side_apply_and_its_status(plane, operator, name):
    parent = serve(plane, name)
    made = children(plane, name)
    assert len(made["deployments"]) == 1
    assert {s["metadata"]["name"] for s in made["services"]} == {name, f"{name}-stable", f"{name}-canary"}
    assert len(made["poddisruptionbudgets"]) == 1
    assert made["jobs"] == [], "the stock half needs no gate"
    for child in every_child(plane, name):
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (parent["metadata"]["uid"], True)
        assert "finalizers" not in child["metadata"]
    live = json.loads(
        plane.kubectl(
            "get", "deploy", made["deployments"][0]["metadata"]["name"], "-o", "json", "--show-managed-fields"
        )
    )
    assert ("radix-islands", "Apply") in [(m["manager"], m["operation"]) for m in live["metadata"]["managedFields"]]
    assert "finalizers" not in parent["metadata"]
    assert "annotations" not in parent["metadata"], "no state in annotations"
    assert parent["status"]["observedGeneration"] == parent["metadata"]["generation"]
    pair = {"enabled": False, "ratio": "0.4", "maxTotalTokens": 9984, "maxRunningRequests": 8}
    assert parent["status"]["islands"] == pair
    table = plane.kubectl("get", "iisvc", name)
    assert table.split()[:8] == ["NAME", "READY", "ISLANDS", "RATIO", "PHASE", "GATE", "REPLICAS", "REASON"]
    plane.kubectl("wait", "--for=condition=Ready", f"iisvc/{name}", "--timeout=60s")


def test_events_are_posted_and_shown_by_describe(plane, operator, name):
    serve(plane, name)
    until("an event", lambda: "Events:            <none>" not in plane.kubectl("describe", "iisvc", name))
    assert "radix-islands.dev/operator" in plane.kubectl("get", "events.events.k8s.io", "-A", "-o", "yaml")


def test_row_29_idle_writes_nothing_and_so_does_a_restart(plane, name):
    with OperatorProcess(plane.kubeconfig) as first:
        first.serving()
        serve(plane, name)
        quiet(plane)
        before = said(plane, name)
        mark = plane.mark()
        lives_on(plane, mark, renewals=3)
        assert plane.writes(since=mark) == []
        assert first.stop() == 0
    with OperatorProcess(plane.kubeconfig) as second:
        second.serving()
        lives_on(plane, plane.mark(), renewals=2)  # relists and all first reconciles lie within
        assert plane.writes(since=mark) == []
        assert second.stop() == 0
    assert said(plane, name) == before


def test_row_29_what_a_hand_changed_or_deleted_is_repaired(plane, operator, name):
    serve(plane, name)
    quiet(plane)
    (deployment,) = engine(plane, name, "stock")
    target, wanted = deployment["metadata"]["name"], deployment["spec"]["template"]["spec"]["containers"]

    def containers():
        return plane.get("deploy", target)["spec"]["template"]["spec"]["containers"]

    plane.kubectl("set", "image", f"deploy/{target}", "engine=somebody/else:1")
    until("the image is back", lambda: containers() == wanted)
    plane.kubectl("scale", f"deploy/{target}", "--replicas=7")
    until("the size is back", lambda: plane.get("deploy", target)["spec"]["replicas"] == 2)
    plane.kubectl("set", "env", f"deploy/{target}", "ISLAND_ENABLED=1", "ISLAND_DECODE_INTERVAL=1", "MINE=kept")
    until("only the foreign variable that decides nothing stays", lambda: _env(containers(), wanted) == {"MINE"})
    plane.kubectl("label", f"service/{name}", f"{INSTANCE}-")
    until("the label is back", lambda: plane.get("service", name)["metadata"]["labels"][INSTANCE] == name)
    plane.kubectl("delete", f"service/{name}-stable", f"pdb/{name}", f"deploy/{target}", "--wait=false")
    until("all is back", lambda: [len(v) for v in children(plane, name).values()] == [1, 3, 0, 1])


def _env(containers, wanted):
    """Names that are in the first container and were not wanted."""
    return {e["name"] for e in containers[0].get("env", [])} - {e["name"] for e in wanted[0].get("env", [])}


def test_row_23_deleting_needs_no_operator(plane, name):
    with OperatorProcess(plane.kubeconfig) as operator:
        operator.serving()
        serve(plane, name)
        assert operator.stop() == 0
    plane.kubectl("delete", "iisvc", name, "--timeout=60s")  # a finalizer would never go
    until("the garbage collector took all", lambda: not any(children(plane, name).values()), timeout=150)


def test_a_deleted_resource_is_not_made_again(plane, operator, name):
    serve(plane, name)
    plane.kubectl("delete", "iisvc", name)
    until("all is gone", lambda: not any(children(plane, name).values()), timeout=150)
    mark = plane.mark()
    lives_on(plane, mark, renewals=2)
    assert not any(children(plane, name).values())
    assert [w for w in plane.writes(since=mark) if w[1] != "events"] == []


def test_the_kill_switch_moves_to_the_stock_half_at_once_without_a_gate(plane, operator, name):
    plane.apply(example(name, islands={"enabled": True}))
    until("the gate runs", lambda: plane.get("jobs", **{INSTANCE: name, ROLE: "gate"}))
    plane.merge("iisvc", name, {"spec": {"islands": {"enabled": False}}})

    def switched():
        play_kubelet(plane, name)
        return status(plane, name)["islands"]["ratio"] == "0.4" and engine(plane, name, "stock")

    (deployment,) = until("the stock half", switched)
    args = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert args[args.index("--islands") + 1] == "off"
    assert args[args.index("--swa-full-tokens-ratio") + 1] == "0.4"
    assert engine(plane, name, "islands") == []
    until("Ready", lambda: is_ready(plane, name))


def test_a_child_that_the_api_server_refuses_is_named_and_delays_nobody(plane, operator, name):
    wrong = {"spec": {"containers": [{"name": "engine", "resources": {"limits": {"memory": "lots"}}}]}}
    plane.apply(example(f"{name}-bad", podTemplate=wrong))
    until("it is named", lambda: condition(plane, f"{name}-bad", "Degraded")["status"] == "True")
    degraded = condition(plane, f"{name}-bad", "Degraded")
    assert (degraded["reason"], len(degraded["message"]) <= 500) == ("ApplyRefused", True)
    assert "quantit" in degraded["message"]
    serve(plane, f"{name}-good")
    quiet(plane)
    plane.merge("iisvc", f"{name}-bad", {"spec": {"podTemplate": None}})
    until("healed", lambda: is_ready(plane, f"{name}-bad"))
    assert condition(plane, f"{name}-bad", "Degraded").get("status") != "True"


def test_a_huge_status_written_by_someone_else_does_no_harm(plane, operator, name):
    serve(plane, name)
    (pod, *_) = plane.get("pods", **{INSTANCE: name})
    ended = {"exitCode": 1, "reason": "Error", "message": "last words \x00\x1b[31m" + "y" * 200_000}
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": "z" * 200_000}}
    dead = {"name": "engine", "image": "i", "imageID": "", "ready": False, "restartCount": 9, "state": state}
    dead["lastState"] = {"terminated": ended}
    unready = [{"type": "Ready", "status": "False"}, {"type": "PodScheduled", "status": "True"}]
    body = {"status": {"conditions": unready, "containerStatuses": [dead]}}
    plane.merge("pod", pod["metadata"]["name"], body, subresource="status")
    until("it is seen", lambda: status(plane, name)["readyReplicas"] == 1)
    assert len(json.dumps(status(plane, name))) < 20_000
    serve(plane, f"{name}-other")


def test_row_32_an_api_server_that_dies_and_comes_back_is_survived(plane, operator, name):
    serve(plane, name)
    began = time.monotonic()
    plane.kill_api()
    plane.start_api()
    outage, mark = time.monotonic() - began, plane.mark()
    until("it leads on, or has ended", lambda: plane.renewals(mark) or operator.process.poll() is not None)
    lives = operator.process.poll() is None
    # a machine may need so long for it that the Lease runs out; then a kubelet starts the operator again
    assert lives or (outage > Terms().deadline / 2 and operator.said("lost the lease"))
    with contextlib.nullcontext() if lives else OperatorProcess(plane.kubeconfig):
        plane.merge("iisvc", name, {"spec": {"replicas": 1}})
        until("the edit is served", lambda: sum(d["spec"]["replicas"] for d in engine(plane, name, "stock")) == 1)


def test_a_usurped_leader_ends_at_once_and_writes_nothing_more(plane, name):
    with OperatorProcess(plane.kubeconfig) as operator:
        operator.serving()
        serve(plane, name)
        lease = {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 1}}
        plane.merge("lease", "radix-islands", lease)
        assert operator.process.wait(timeout=60) == 1
        assert operator.said("lost the lease")
    assert plane.get("lease", "radix-islands")["spec"]["holderIdentity"] == "thief", "it released nothing of another's"


def test_a_standby_takes_over_when_the_leader_stops(plane, name):
    with OperatorProcess(plane.kubeconfig) as first, OperatorProcess(plane.kubeconfig) as second:
        leader = until("one leads", lambda: next((p for p in (first, second) if p.said("serving ")), None))
        standby = second if leader is first else first
        until("the standby stands by", lambda: standby.said("probes"))
        serve(plane, name)
        assert not standby.said("leading")
        assert leader.stop() == 0
        standby.serving()
        plane.merge("iisvc", name, {"spec": {"replicas": 3}})
        until("it serves", lambda: sum(d["spec"]["replicas"] for d in engine(plane, name, "stock")) == 3)
        standby.stop()


def test_probes_and_metrics_answer(plane, operator, name):
    serve(plane, name)
    url = f"http://127.0.0.1:{operator.port}"
    for path in ("/healthz", "/readyz"):
        assert _fetch(url + path) == "ok\n"
    lines = _fetch(url + "/metrics").splitlines()
    assert "island_operator_leading 1.0" in lines
    assert any(line.startswith('island_operator_phase{phase="Stable"}') for line in lines)
    assert any(line.startswith('island_operator_api_writes_total{kind="Deployment",verb="apply"}') for line in lines)
    rss = next(float(line.split()[1]) for line in lines if line.startswith("process_resident_memory_bytes"))
    assert rss < 120 * 2**20


def _fetch(url):
    with urllib.request.urlopen(url, timeout=10) as reply:  # noqa: S310 - our own probe on loopback
        return reply.read().decode()


def test_a_taken_port_is_refused_with_one_sentence(plane, operator):
    with OperatorProcess(plane.kubeconfig, "--port", str(operator.port)) as second:
        assert second.process.wait(timeout=60) == 2
        assert f"--port {operator.port} cannot be served" in second.lines()[-1]["message"]
