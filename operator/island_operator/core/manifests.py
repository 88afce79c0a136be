"""The children of an InferenceService. Only fields that we mean to own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from island_operator.core.drift import signed
from island_operator.core.gate import GRACE
from island_operator.core.observe import ENGINE, GATE, INSTANCE, REVISION, ROLE
from island_operator.core.pod import MANAGED, engine_template, gate_template, labels
from island_operator.core.revision import SNAPSHOT

if TYPE_CHECKING:
    from island_operator.core.model import Object
    from island_operator.core.revision import Revision
    from island_operator.core.traffic import Traffic


def deployment(parent: Object, revision: Revision, replicas: int) -> Object:
    """One Deployment per revision: its pods never change what they run, revisions replace each other.

    A change to the template (a hand's edit, undone at once) must not take a pod down: maxUnavailable 0.
    """
    instance = parent["metadata"]["name"]
    mine = labels(instance, revision, ENGINE)
    return signed(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": _meta(parent, f"{instance}-{revision.hash}", mine, {SNAPSHOT: revision.text}),
            "spec": {
                "replicas": replicas,
                "revisionHistoryLimit": 1,
                "progressDeadlineSeconds": 1800,
                "selector": {"matchLabels": {k: mine[k] for k in (INSTANCE, REVISION, ROLE)}},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                "template": engine_template(instance, revision),
            },
        }
    )


def services(parent: Object, port: int, kept: Revision | None, traffic: Traffic | None) -> tuple[Object, ...]:
    """`<name>`: every engine pod, so that traffic is weighted by replicas. `-stable` and `-canary`: as traffic.py says.
    The former keeps the snapshot of what serves a second time.
    """
    name = parent["metadata"]["name"]
    every = {INSTANCE: name, ROLE: ENGINE}
    made = [_service(parent, name, every, port)]
    if traffic:
        keep = {SNAPSHOT: kept.text} if kept else None
        made.append(_service(parent, f"{name}-stable", {**every, REVISION: traffic.stable}, port, keep))
        made.append(_service(parent, f"{name}-canary", {**every, REVISION: traffic.canary}, port))
    return tuple(made)


def http_route(parent: Object, gateway: Object, port: int, share: int) -> Object:
    """Gateway API v1. `gateway`: spec.gatewayRef; `share`: per cent for the canary. Lists are atomic there, so that
    every default is spelled as the API server spells it.
    """
    name = parent["metadata"]["name"]
    where = {key: gateway[key] for key in ("name", "namespace", "sectionName") if gateway.get(key)}
    weights = ((f"{name}-stable", 100 - share), (f"{name}-canary", share))
    hosts = gateway.get("hostnames")
    return signed(
        {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "HTTPRoute",
            "metadata": _meta(parent, name, _base(name)),
            "spec": {
                "parentRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", **where}],
                **({"hostnames": list(hosts)} if hosts else {}),
                "rules": [
                    {
                        "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
                        "backendRefs": [
                            {"group": "", "kind": "Service", "name": service, "port": port, "weight": weight}
                            for service, weight in weights
                        ],
                    }
                ],
            },
        }
    )


def disruption_budget(parent: Object) -> Object:
    """At most one pod at a time is evicted; minAvailable would block every drain at one replica."""
    name = parent["metadata"]["name"]
    return signed(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": _meta(parent, name, _base(name)),
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {INSTANCE: name, ROLE: ENGINE}}},
        }
    )


def gate_job(parent: Object, revision: Revision, name: str, profile: str, deadline: int) -> Object:
    """One attempt: no retries of its own, and the deadline counts from the Job's start, Pending included."""
    instance = parent["metadata"]["name"]
    return signed(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": _meta(parent, name, labels(instance, revision, GATE)),
            "spec": {
                "backoffLimit": 0,
                "activeDeadlineSeconds": deadline + GRACE,
                "template": gate_template(instance, revision, profile, deadline),
            },
        }
    )


def _service(
    parent: Object, name: str, selector: dict[str, str], port: int, notes: dict[str, str] | None = None
) -> Object:
    instance = parent["metadata"]["name"]
    return signed(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": _meta(parent, name, _base(instance), notes),
            "spec": {
                "selector": selector,
                "ports": [{"name": "http", "port": port, "targetPort": "http", "protocol": "TCP"}],
            },
        }
    )


def _base(instance: str) -> dict[str, str]:
    return {MANAGED: "radix-islands", INSTANCE: instance}


def _meta(parent: Object, name: str, mine: dict[str, str], notes: dict[str, str] | None = None) -> Object:
    owner = parent["metadata"]
    return {
        "name": name,
        "namespace": owner["namespace"],
        "labels": mine,
        **({"annotations": notes} if notes else {}),
        "ownerReferences": [
            {
                "apiVersion": parent["apiVersion"],
                "kind": parent["kind"],
                "name": owner["name"],
                "uid": owner["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
