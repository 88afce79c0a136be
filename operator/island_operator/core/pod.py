"""The pods of a revision: the engine's, and the gate's, which is the same pod with another job to do.

Spelled as the API server spells them: no empty lists, no nulls, quantities in canonical form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from island_operator.core.merge import ENGINE, merge
from island_operator.core.observe import ENGINE as ENGINE_ROLE
from island_operator.core.observe import GATE as GATE_ROLE
from island_operator.core.observe import HALF, INSTANCE, REVISION, ROLE
from island_operator.core.volumes import MODEL

if TYPE_CHECKING:
    from island_operator.core.model import Object
    from island_operator.core.revision import Revision

MANAGED = "app.kubernetes.io/managed-by"
MODEL_PATH, REPORT_PATH = "/model", "/report"
SHM_SIZE = "1Gi"  # of node memory, only as it is used; spec.podTemplate's volume `shm` changes it
STARTUP = {"periodSeconds": 5, "failureThreshold": 240}  # 20 minutes to load a model before the kubelet gives up
DRAIN = 5  # seconds that a leaving pod still takes requests, until every proxy has forgotten it
GRACE = 120  # seconds for the longest stream to end
PROBE_TIMEOUT = 20  # /health generates a token behind the running batch: slow is not dead


def labels(instance: str, revision: Revision, role: str) -> dict[str, str]:
    """Labels of a revision's pods and of what makes them."""
    return {
        MANAGED: "radix-islands",
        INSTANCE: instance,
        REVISION: revision.hash,
        HALF: revision.half.label,
        ROLE: role,
    }


def engine_template(instance: str, revision: Revision) -> Object:
    """The pod template of a revision's Deployment."""
    parts, half = revision.parts, revision.half
    port = parts["engine"]["port"]
    health = {"httpGet": {"path": "/health", "port": "http", "scheme": "HTTP"}, "timeoutSeconds": PROBE_TIMEOUT}
    container = _container(
        revision,
        ["serve", *half.switch, *_sized(revision), "--host", "0.0.0.0", "--port", str(port), *_rest(revision)],  # noqa: S104 - a pod's own address
    )
    container |= {
        "ports": [{"name": "http", "containerPort": port, "protocol": "TCP"}],
        "startupProbe": {**health, **STARTUP},
        "readinessProbe": {**health, "periodSeconds": 2, "failureThreshold": 3},
        "livenessProbe": {**health, "periodSeconds": 20, "failureThreshold": 6},
        "lifecycle": {"preStop": {"sleep": {"seconds": DRAIN}}},
    }
    return _template(instance, revision, ENGINE_ROLE, container, {"terminationGracePeriodSeconds": GRACE})


def gate_template(instance: str, revision: Revision, profile: str, deadline: int) -> Object:
    """The pod template of a gate Job: same image, environment, volumes and GPU; it boots both switches itself."""
    arguments = ["gate", "--profile", profile, "--report", REPORT_PATH, "--deadline", str(deadline)]
    container = _container(revision, [*arguments, *revision.half.interval, "--", *_sized(revision), *_rest(revision)])
    container["volumeMounts"] = [*container["volumeMounts"], {"name": "report", "mountPath": REPORT_PATH}]
    extra = {"restartPolicy": "Never", "terminationGracePeriodSeconds": DRAIN}
    return _template(instance, revision, GATE_ROLE, container, extra, {"name": "report", "emptyDir": {}})


def _sized(revision: Revision) -> list[str]:
    """What the engine serves and how it is sized; the pools come from the half alone."""
    engine, half = revision.parts["engine"], revision.half
    return [
        *("--model-path", _model(revision), "--served-model-name", revision.parts["model"]["name"]),
        *half.pools,
        *("--page-size", str(engine["pageSize"]), "--chunked-prefill-size", str(engine["chunkedPrefillSize"])),
        *half.cap,
    ]


def _rest(revision: Revision) -> list[str]:
    return ["--enable-metrics", *revision.parts["engine"].get("args", ())]


def _container(revision: Revision, args: list[str]) -> Object:
    parts = revision.parts
    accelerator = parts["accelerator"]
    container: Object = {
        "name": ENGINE,
        "image": parts["engine"]["image"],
        "args": args,
        "terminationMessagePolicy": "FallbackToLogsOnError",  # a dead boot's last lines are then in the pod's status
        "securityContext": {"allowPrivilegeEscalation": False},
        "volumeMounts": [
            *(
                [{"name": MODEL, "mountPath": MODEL_PATH, "readOnly": True}]
                if _source(parts["model"]["source"])
                else []
            ),
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - a volume of the pod's own
        ],
    }
    if parts["engine"].get("env"):
        container["env"] = [_env(entry) for entry in parts["engine"]["env"]]
    if accelerator.get("count"):
        gpus = {accelerator["resource"]: str(accelerator["count"])}
        container["resources"] = {"limits": gpus, "requests": gpus}
    return container


def _env(entry: Object) -> Object:
    """The API server drops an empty value."""
    return {k: v for k, v in entry.items() if v not in (None, "")}


def _template(
    instance: str, revision: Revision, role: str, container: Object, extra: Object, *volumes: Object
) -> Object:
    accelerator = revision.parts["accelerator"]
    spec: Object = {
        "automountServiceAccountToken": False,
        "containers": [container],
        "volumes": [
            *_source(revision.parts["model"]["source"]),
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": SHM_SIZE}},
            *volumes,
        ],
        **extra,
    }
    if accelerator.get("nodeSelector"):
        spec["nodeSelector"] = accelerator["nodeSelector"]
    if accelerator.get("tolerations"):
        spec["tolerations"] = accelerator["tolerations"]
    template: Object = {"metadata": {"labels": labels(instance, revision, role)}, "spec": spec}
    merged: Object = merge(template, revision.parts.get("podTemplate") or {})
    if role == GATE_ROLE:  # what the template says about a server's life is not about a gate
        engine = next(c for c in merged["spec"]["containers"] if c["name"] == ENGINE)
        for name in ("startupProbe", "readinessProbe", "livenessProbe", "lifecycle", "ports"):
            engine.pop(name, None)
    return merged


def _model(revision: Revision) -> str:
    return str(revision.parts["model"]["source"].get("huggingFace") or MODEL_PATH)


def _source(source: Object) -> list[Object]:
    """The volume that holds the model; none where the engine downloads it."""
    if "hostPath" in source:
        return [{"name": MODEL, "hostPath": {"path": source["hostPath"], "type": "Directory"}}]  # never made if missing
    if "pvc" in source:
        return [{"name": MODEL, "persistentVolumeClaim": {"claimName": source["pvc"], "readOnly": True}}]
    return []
