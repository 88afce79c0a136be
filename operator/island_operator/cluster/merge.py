"""JSON merge patches (RFC 7386)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from island_operator.core.model import Object


def difference(old: Object, new: Object) -> Object:
    """The smallest patch that makes `old` equal `new`: null removes, what is equal stays out."""
    patch: Object = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            if inner := difference(before, value):
                patch[key] = inner
        elif key not in old or before != value:
            patch[key] = value
    return patch


def merged(old: Object, patch: Object) -> Object:
    """`old` after `patch`."""
    new = {key: value for key, value in old.items() if key not in patch or patch[key] is not None}
    for key, value in patch.items():
        if isinstance(value, dict):
            before = old.get(key)
            new[key] = merged(before if isinstance(before, dict) else {}, value)
        elif value is not None:
            new[key] = value
    return new
