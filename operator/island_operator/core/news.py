"""Which changes of a status may be told a moment later, so that several of them cost the API server one write."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from island_operator.core.model import Object

_COUNTS = {"replicas", "readyReplicas"}


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
