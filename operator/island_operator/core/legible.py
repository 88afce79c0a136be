"""A status as this release can read it: another release, or a hand, may have written it.

What does not fit the schema of this release is left out, with the record that it belongs to, so that whoever reads the
status finds no field of another kind and no record without what it must have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from island_operator.api.status import Status
from island_operator.core.text import escaped

if TYPE_CHECKING:
    from island_operator.core.model import Object

LONGEST = 4096  # characters of a string, as the status schema has it
DEEPEST = 16  # objects within objects; the schema has six
NAMED = 6  # paths in one sentence


def status(raw: Any) -> tuple[Object, tuple[str, ...]]:
    """What of a status fits the schema of this release, and the paths of what could not be read. Fields that only a
    newer release knows are no fault.
    """
    if not isinstance(raw, dict):
        return {}, ("status",) if raw else ()
    left, unread = _clean(raw), dict[str, None]()
    while True:
        try:
            Status.model_validate(left, strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            where = first["loc"][:-1] if first["type"] == "missing" else first["loc"]  # a record without it is none
            if first["type"] != "extra_forbidden":
                unread[_path(where)] = None
            _drop(left, where)
        else:
            return left, tuple(unread)


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


def named(unread: tuple[str, ...]) -> str:
    """Paths, in a sentence."""
    more = f" and {len(unread) - NAMED} more" if len(unread) > NAMED else ""
    return f"{', '.join(unread[:NAMED])}{more}"
