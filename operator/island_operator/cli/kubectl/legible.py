"""An InferenceService as this release can read it: another release, or a hand, may have written it. Pure.

What does not fit the schema of this release is left out, with the record that it belongs to, so that whoever reads the
status finds no field of another kind and no record without what it must have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from island_operator.api.status import Status
from island_operator.core import intent
from island_operator.core.text import escaped

if TYPE_CHECKING:
    from island_operator.core.intent import Intent
    from island_operator.core.model import Object

UNLIKE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)  # of foreign objects
LONGEST = 4096  # characters of a string, as the status schema has it
DEEPEST = 16  # objects within objects; the schema has six
NAMED = 6  # paths in one sentence


def legible(parent: Object) -> tuple[Object, tuple[str, ...]]:
    """The object with a status that fits the schema of this release, and the paths of what could not be read. Fields
    that only a newer release knows are no fault.
    """
    status, unread = _status(parent.get("status") or {})
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
    more = f" and {len(unread) - NAMED} more" if len(unread) > NAMED else ""
    told = f"of {name} this release cannot read {', '.join(unread[:NAMED])}{more}, and leaves it out"
    return f"{told}: kubectl island doctor says whether another release is installed"


def _status(raw: Any) -> tuple[Object, tuple[str, ...]]:
    if not isinstance(raw, dict):
        return {}, ("status",)
    status, unread = _clean(raw), dict[str, None]()
    while True:
        try:
            Status.model_validate(status, strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            where = first["loc"][:-1] if first["type"] == "missing" else first["loc"]  # a record without it is none
            if first["type"] != "extra_forbidden":
                unread[_path(where)] = None
            _drop(status, where)
        else:
            return status, tuple(unread)


def _clean(value: Any, depth: int = 0) -> Any:
    """Without nulls, which say nothing; printable, so that no terminal takes orders from it."""
    if isinstance(value, str):
        return escaped(value, LONGEST)
    if depth >= DEEPEST:
        return "..."
    if isinstance(value, dict):
        return {escaped(str(k)): _clean(v, depth + 1) for k, v in value.items() if v is not None}
    return [_clean(v, depth + 1) for v in value if v is not None] if isinstance(value, list) else value


def _drop(value: Any, where: tuple[int | str, ...]) -> None:
    for step in where[:-1]:
        value = value[step]
    del value[where[-1]]


def _path(where: tuple[int | str, ...]) -> str:
    return "status" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in where)
