"""What the pod security standards want of spec.podTemplate. Pods are not built so from the start: that would roll every
fleet at an upgrade, and stop images that run as root.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from island_operator.core.model import Object

RESTRICTED = (  # beyond what pod.py sets; docs/security.md shows the same
    '{"spec": {"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}, '
    '"containers": [{"name": "engine", "securityContext": {"capabilities": {"drop": ["ALL"]}}}]}}'
)


def advice(told: str) -> str:
    """What makes pods fit, to follow the API server's refusal `told`; empty where no standard refused them."""
    if "violates PodSecurity" not in told:
        return ""
    remedy = _remedy(context="securityContext" in told, volumes="volume" in told)
    return f"; {remedy}" if remedy else ""


def lacking(pod: Object) -> str:
    """What makes a pod of this spec fit the restricted standard, where nobody tells who refuses it; empty: nothing."""
    containers = [*(pod.get("initContainers") or ()), *pod["containers"]]
    fits = all(_restricted(pod.get("securityContext") or {}, c.get("securityContext") or {}) for c in containers)
    return _remedy(context=not fits, volumes=any("hostPath" in volume for volume in pod.get("volumes") or ()))


def _remedy(*, context: bool, volumes: bool) -> str:
    add = [f"add to spec.podTemplate: {RESTRICTED}"] if context else []
    instead = ["use spec.model.source.pvc or huggingFace, not hostPath"] if volumes else []
    return "; ".join([*add, *instead])


def _restricted(pod: Object, own: Object) -> bool:
    """Of what RESTRICTED says, a container lacks nothing."""
    seccomp = own.get("seccompProfile") or pod.get("seccompProfile") or {}
    return (
        own.get("runAsNonRoot", pod.get("runAsNonRoot")) is True
        and seccomp.get("type") in {"RuntimeDefault", "Localhost"}
        and "ALL" in ((own.get("capabilities") or {}).get("drop") or ())
    )
