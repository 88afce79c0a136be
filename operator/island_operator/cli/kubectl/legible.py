"""An InferenceService as this release can read it, status and spec. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from island_operator.core import intent
from island_operator.core import legible as reading

if TYPE_CHECKING:
    from island_operator.core.intent import Intent
    from island_operator.core.model import Object

UNLIKE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)  # of foreign objects


def legible(parent: Object) -> tuple[Object, tuple[str, ...]]:
    """The object with a status that fits the schema of this release, and the paths of what could not be read. Fields
    that only a newer release knows are no fault.
    """
    status, unread = reading.status(parent.get("status"))
    if wish(parent) is None:
        unread = ("spec", *unread)
    return {**parent, "status": status}, unread


def wish(parent: Object) -> Intent | None:
    """What the user asks for; None where the spec lacks what this release needs."""
    try:
        return intent.read(parent)
    except UNLIKE:
        return None


def lacking(parent: Object) -> str:
    """Of a command that needs the spec, where `wish` is None."""
    return (
        f"the spec of {parent['metadata']['name']} lacks what this release reads: kubectl island doctor compares both"
    )


def sentence(name: str, unread: tuple[str, ...]) -> str:
    """What was left out of an InferenceService, and what may help."""
    told = f"of {name} this release cannot read {reading.named(unread)}, and leaves it out"
    return f"{told}: kubectl island doctor says whether another release is installed"
