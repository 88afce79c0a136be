"""A core in twenty lines for the runtime's tests: one Deployment, one Service, a status of three fields.

The runtime must work with any pure core; the product's own has tests of its own.
"""

from island_operator.cluster.kinds import INSTANCE
from island_operator.core.model import Event, Plan
from island_operator.runtime.reconciler import Core


def resource(name="x", image="a", namespace="default", **annotations):
    meta = {"name": name, "namespace": namespace, **({"annotations": annotations} if annotations else {})}
    return {"kind": "InferenceService", "metadata": meta, "spec": {"image": image}}


def made(parent, kind, spec):
    meta = {"name": parent["metadata"]["name"], "namespace": parent["metadata"]["namespace"]}
    return {"kind": kind, "metadata": {**meta, "labels": {INSTANCE: meta["name"]}}, "spec": spec}


def reconcile(snapshot, now):
    parent = snapshot.parent
    if parent["spec"]["image"] == "explode":
        raise RuntimeError("cannot happen")
    name, old = parent["metadata"]["name"], parent.get("status") or {}
    live = snapshot.child("Deployment", name)
    phase = "Stable" if live and live["spec"]["image"] == parent["spec"]["image"] else "Pending"
    status = {"observedGeneration": parent["metadata"]["generation"], "phase": phase, "reason": None}
    return Plan(
        desired=(made(parent, "Service", {"port": 1}), made(parent, "Deployment", {"image": parent["spec"]["image"]})),
        delete=tuple(job for job in snapshot.of("Job") if phase == "Stable"),
        status=status,
        events=(Event("Normal", phase, f"now {phase}"),) if old.get("phase") != phase else (),
        clear_annotations=("radix-islands.dev/retry",),
    )


def covers(live, want):
    if isinstance(want, dict):
        return isinstance(live, dict) and all(k in live and covers(live[k], v) for k, v in want.items())
    return live == want


def cleaned(live, want):
    spec = live.get("spec") or {}
    return {**live, "spec": {k: v for k, v in spec.items() if k != "coupled"}} if "coupled" in spec else None


def can_wait(old, new):
    return {**old, "note": ""} == {**new, "note": ""}


def core(reconcile=reconcile):
    """A child with a field `coupled` is never covered, and applying cannot remove that field; a `note` can wait."""
    return Core(
        reconcile, lambda live, want: covers(live, want) and cleaned(live, want) is None, cleaned, can_wait=can_wait
    )
