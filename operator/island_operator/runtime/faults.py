"""What goes wrong with one resource is named in its own status: bounded, idempotent, and in nobody else's way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from island_operator.core.text import cut

if TYPE_CHECKING:
    from island_operator.core.model import Object

LONGEST_MESSAGE = 500  # characters


def explain(error: Exception) -> tuple[str, str]:
    """(reason, message) of an exception out of the pure core. A ValidationError names its first three fields."""
    if isinstance(error, ValidationError):
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        named = [f"{'.'.join(str(part) for part in fault['loc']) or 'object'}: {fault['msg']}" for fault in faults[:3]]
        rest = [f"and {len(faults) - 3} more"] if len(faults) > 3 else []
        return "InvalidSpec", "; ".join(named + rest)
    return "ReconcileFailed", f"{type(error).__name__}: {error}"


def blamed(parent: Object, reason: str, message: str, now: str) -> Object:
    """The status as it was, with Degraded=True saying why; and so do Ready and Progressing, where they tell of a wait
    that this ends, or of nothing yet. What serves still serves.
    """
    generation, status = parent["metadata"]["generation"], parent.get("status") or {}
    message = cut(message, LONGEST_MESSAGE)
    before = {condition["type"]: condition for condition in status.get("conditions") or ()}
    after = dict(before)
    for kind, state in (("Ready", "False"), ("Progressing", "True"), ("Degraded", "True")):
        old = before.get(kind)
        if kind != "Degraded" and (old.get("status") != state if old else kind == "Progressing"):
            continue
        after[kind] = {
            "type": kind,
            "status": state,
            "reason": reason,
            "message": message,
            "observedGeneration": generation,
            "lastTransitionTime": old.get("lastTransitionTime", now) if old and old.get("status") == state else now,
        }
    return {**status, "conditions": list(after.values())}
