"""What the pod security standards want of spec.podTemplate. Pods are not built so from the start: that would roll every
fleet at an upgrade, and stop images that run as root.
"""

from __future__ import annotations

RESTRICTED = (  # beyond what pod.py sets; docs/security.md shows the same
    '{"spec": {"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}, '
    '"containers": [{"name": "engine", "securityContext": {"capabilities": {"drop": ["ALL"]}}}]}}'
)


def advice(told: str) -> str:
    """What makes pods fit, to follow the API server's refusal `told`; empty where no standard refused them."""
    if "violates PodSecurity" not in told:
        return ""
    add = f"; add to spec.podTemplate: {RESTRICTED}" if "securityContext" in told else ""
    return add + ("; use spec.model.source.pvc or huggingFace, not hostPath" if "volume" in told else "")
