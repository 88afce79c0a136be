"""The children, as the API server would spell them; the arguments, as the engine and the gate take them."""

import json
from pathlib import Path

import pytest
import yaml
from support.world import World, inference_service, spec

from island_operator.core import gate as gates
from island_operator.core import manifests
from island_operator.core.revision import Revision, parts_of

SERVED = ["--model-path", "/model", "--served-model-name", "tiny", "--swa-full-tokens-ratio"]
SIZED = ["--page-size", "64", "--chunked-prefill-size", "512", "--max-running-requests", "8"]
SERVER = ["--host", "0.0.0.0", "--port", "30000"]  # noqa: S104 - a pod's own address


def of(**changes):
    return Revision(parts_of(spec(**changes)))


def engine(obj):
    return next(c for c in obj["spec"]["template"]["spec"]["containers"] if c["name"] == "engine")


def deployment(**changes):
    return manifests.deployment(inference_service(), of(**changes), 2)


def job(**changes):
    return manifests.gate_job(inference_service(), of(islands__enabled=True, **changes), "x-gate-1", "quick", 300)


@pytest.mark.parametrize(
    ("changes", "args"),
    [
        ({}, ["serve", "--islands", "off", *SERVED, "0.4", "--max-total-tokens", "9984"]),
        ({"islands__enabled": True}, ["serve", "--islands", "on", *SERVED, "0.15", "--max-total-tokens", "19968"]),
        (
            {"islands__enabled": True, "islands__decodeInterval": 96},
            [
                "serve",
                "--islands",
                "on",
                "--island-decode-interval",
                "96",
                *SERVED,
                "0.15",
                "--max-total-tokens",
                "19968",
            ],
        ),
    ],
    ids=["stock", "islands", "islands with an interval"],
)
def test_engine_arguments(changes, args):
    more = ["--dtype", "float32"]
    assert engine(deployment(engine__args=more, **changes))["args"] == [
        *args,
        *SIZED,
        *SERVER,
        "--enable-metrics",
        *more,
    ]


@pytest.mark.parametrize("interval", [None, 96])
def test_gate_arguments_are_the_candidates_without_switch_and_address(interval):
    got = engine(job(islands__decodeInterval=interval, engine__args=["--dtype", "float32"]))["args"]
    own = ["gate", "--profile", "quick", "--report", "/report", "--deadline", "300"]
    own += ["--island-decode-interval", "96"] if interval else []
    served = [*SERVED, "0.15", "--max-total-tokens", "19968", *SIZED, "--enable-metrics", "--dtype", "float32"]
    assert got == [*own, "--", *served]


def test_the_gates_pod_is_the_engines_pod():
    """Same image, environment, model, memory, GPU and template; what is about a server's life is left out."""
    template = {
        "metadata": {"annotations": {"team": "t"}},
        "spec": {
            "volumes": [{"name": "venv", "hostPath": {"path": "/v"}}],
            "containers": [
                {
                    "name": "engine",
                    "volumeMounts": [{"name": "venv", "mountPath": "/opt/venv"}],
                    "resources": {"limits": {"memory": "6Gi"}},
                    "startupProbe": {"failureThreshold": 1},
                    "env": [{"name": "TOKEN", "value": "t"}],
                }
            ],
        },
    }
    changes = {"podTemplate": template, "engine__env": [{"name": "A", "value": "1"}]}
    serving, proving = deployment(**changes), job(**changes)
    ours, theirs = engine(proving), engine(serving)
    for key in ("image", "env", "resources", "terminationMessagePolicy", "securityContext"):
        assert ours[key] == theirs[key]
    assert ours["resources"]["limits"] == {"nvidia.com/gpu": "1", "memory": "6Gi"}
    assert [m["mountPath"] for m in ours["volumeMounts"]] == ["/model", "/dev/shm", "/report", "/opt/venv"]
    assert not {"startupProbe", "readinessProbe", "livenessProbe", "lifecycle", "ports"} & set(ours)
    pod = proving["spec"]["template"]
    assert pod["metadata"]["annotations"] == {"team": "t"}
    assert pod["spec"]["restartPolicy"] == "Never"
    assert proving["spec"]["backoffLimit"] == 0
    assert (
        proving["spec"]["activeDeadlineSeconds"] == 330
    )  # the gate gets 300, and time to write down that it got no further


def test_what_a_pod_of_ours_always_has():
    pod = deployment()["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert pod["automountServiceAccountToken"] is False
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
    assert container["lifecycle"] == {"preStop": {"sleep": {"seconds": 5}}}
    assert container["readinessProbe"]["httpGet"]["path"] == "/health"
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 20 * 60  # a model may take that long to load
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}
    shm = next(v for v in pod["volumes"] if v["name"] == "shm")
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Gi"}
    model = next(m for m in container["volumeMounts"] if m["name"] == "model")
    assert model == {"name": "model", "mountPath": "/model", "readOnly": True}


@pytest.mark.parametrize(
    ("source", "volume", "path"),
    [
        ({"hostPath": "/m"}, {"hostPath": {"path": "/m", "type": "Directory"}}, "/model"),
        ({"pvc": "weights"}, {"persistentVolumeClaim": {"claimName": "weights", "readOnly": True}}, "/model"),
        ({"huggingFace": "google/gemma"}, None, "google/gemma"),
    ],
    ids=str,
)
def test_model_sources(source, volume, path):
    pod = deployment(model__source=source)["spec"]["template"]["spec"]
    found = [{k: v for k, v in each.items() if k != "name"} for each in pod["volumes"] if each["name"] == "model"]
    assert found == ([volume] if volume else [])
    assert bool(volume) == any(m["name"] == "model" for m in pod["containers"][0]["volumeMounts"])
    args = pod["containers"][0]["args"]
    assert args[args.index("--model-path") + 1] == path


def test_no_accelerator_where_none_is_asked_for():
    assert "resources" not in engine(deployment(accelerator__count=0))


def test_where_pods_may_go():
    tolerations = [{"key": "gpu", "operator": "Exists"}]
    made = deployment(accelerator__nodeSelector={"gpu": "h200"}, accelerator__tolerations=tolerations)
    assert made["spec"]["template"]["spec"]["nodeSelector"] == {"gpu": "h200"}
    assert made["spec"]["template"]["spec"]["tolerations"] == tolerations


LABELS = {
    "app.kubernetes.io/managed-by": "radix-islands",
    "radix-islands.dev/instance": "x",
    "radix-islands.dev/revision": of().hash,
    "radix-islands.dev/half": "stock",
    "radix-islands.dev/role": "engine",
}


def test_labels_of_a_deployment_and_its_pods():
    made = deployment()
    assert made["metadata"]["name"] == f"x-{of().hash}"
    assert made["metadata"]["labels"] == made["spec"]["template"]["metadata"]["labels"] == LABELS
    # nothing that a setting decides is in the selector, which is immutable, but the revision that names the Deployment
    assert made["spec"]["selector"]["matchLabels"].items() <= LABELS.items()
    assert "radix-islands.dev/half" not in made["spec"]["selector"]["matchLabels"]


def test_services_and_budget():
    world = World(islands__enabled=True).settle()
    old = world.status["revisions"]["active"]
    world.edit(engine__image="good:2")
    world.until("Canary")
    world.go(3)
    services = {s["metadata"]["name"]: s["spec"] for s in world.of("Service")}
    every = {"radix-islands.dev/instance": "x", "radix-islands.dev/role": "engine"}
    new = world.status["revisions"]["canary"]
    assert services["x"]["selector"] == every
    assert services["x-stable"]["selector"] == {**every, "radix-islands.dev/revision": old}
    assert services["x-canary"]["selector"] == {**every, "radix-islands.dev/revision": new}
    assert services["x"]["ports"] == [{"name": "http", "port": 30000, "targetPort": "http", "protocol": "TCP"}]
    world.settle()
    services = {s["metadata"]["name"]: s["spec"]["selector"] for s in world.of("Service")}
    assert services["x-stable"] == services["x-canary"] == {**every, "radix-islands.dev/revision": new}
    (budget,) = world.of("PodDisruptionBudget")
    assert budget["spec"] == {"maxUnavailable": 1, "selector": {"matchLabels": every}}


def test_every_child_belongs_to_its_parent():
    world = World(islands__enabled=True).settle()
    kinds = {o["kind"] for o in world.store.values() if o["kind"] != "Pod"}
    assert kinds == {"Deployment", "Service", "Job", "PodDisruptionBudget"}
    for child in world.store.values():
        if child["kind"] != "Pod":
            (owner,) = child["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["name"], owner["uid"]) == ("InferenceService", "x", "uid-x")
            assert owner["controller"] is owner["blockOwnerDeletion"] is True
            assert child["metadata"]["labels"]["radix-islands.dev/instance"] == "x"


def test_spelled_as_the_api_server_spells_it():
    """Nulls, empty lists, empty strings and bare numbers for quantities come back otherwise: a write per event."""

    def walk(value, path=""):
        assert value is not None, path
        assert value not in ([], ""), path
        assert value != {} or path.endswith("emptyDir"), path
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in items:
            assert key not in {"limits", "requests"} or all(isinstance(q, str) for q in inner.values()), path
            walk(inner, f"{path}.{key}")

    env = [{"name": "EMPTY", "value": ""}, {"name": "A", "value": "1"}]
    walk(deployment(engine__env=env, islands__enabled=True))
    walk(job(engine__env=env))
    assert engine(deployment(engine__env=env))["env"] == [{"name": "EMPTY"}, {"name": "A", "value": "1"}]


def test_names_fit_where_kubernetes_puts_them():
    """63 characters for a Job and its pods' label."""
    assert len(gates.job_name("n" * 63, "uid", "0123456789", 12)) <= 63
    names = {gates.job_name("x", uid, rev, n) for uid in "ab" for rev in ("r1", "r2") for n in (1, 2)}
    assert len(names) == 8


def test_the_example_makes_pods():
    root = Path(__file__).parents[3]
    example = yaml.safe_load((root / "examples" / "tiny-gemma.yaml").read_text())["spec"]
    merged = spec()
    for key, value in example.items():
        merged[key] = {**merged[key], **value} if isinstance(merged[key], dict) and key != "podTemplate" else value
    made = manifests.deployment(inference_service(), Revision(parts_of(merged)), 2)
    assert engine(made)["resources"]["limits"] == {"nvidia.com/gpu": "1", "memory": "6Gi"}
    assert {"name": "venv", "mountPath": "/opt/venv", "readOnly": True} in engine(made)["volumeMounts"]
    json.dumps(made)
