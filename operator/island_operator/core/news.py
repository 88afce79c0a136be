"""What is news: which changes of our status may be told a moment later, so that several of them cost the API server one
write, and which changes of a child no decision looks at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from island_operator.core.observe import condition

if TYPE_CHECKING:
    from island_operator.core.model import Object

_COUNTS = {"replicas", "readyReplicas"}
_BUSY = {"Deployment", "PodDisruptionBudget", "Service"}  # kinds whose controllers write a status that we do not read


def can_wait(old: Object, new: Object) -> bool:
    """Whether two statuses differ in nothing but the wording of conditions and the counts of pods.

    Everything else is told at once: what the next pass decides from, and what a client waits for (phase,
    observedGeneration, a condition's status and reason).
    """
    return _essence(old) == _essence(new)


def _essence(status: Object) -> Object:
    kept = {name: value for name, value in status.items() if name not in _COUNTS}
    conditions = [{k: v for k, v in c.items() if k != "message"} for c in status.get("conditions") or ()]
    return {**kept, "conditions": conditions}


def wakes(old: Object, new: Object) -> bool:
    """Whether anything is to be decided anew, now that a child is `new`."""
    return new["kind"] not in _BUSY or _read(old) != _read(new)


def _read(child: Object) -> Object:
    """All but the status, of which only a refusal of pods counts; see core.observe."""
    kept = {name: value for name, value in child.items() if name not in {"metadata", "status"}}
    meta = {name: value for name, value in child["metadata"].items() if name != "resourceVersion"}
    return {**kept, "metadata": meta, "status": condition(child, "ReplicaFailure")}
