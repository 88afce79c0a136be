"""What the watches told us, by parent: never newer than the API server, maybe older. Reconcile is level-triggered."""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from island_operator.cluster.kinds import INSTANCE, PARENT
from island_operator.core.model import Snapshot
from island_operator.core.news import wakes

if TYPE_CHECKING:
    from island_operator.cluster.protocol import Listing
    from island_operator.core.model import Object


SHORT = 80  # characters; longer strings are rarely equal


class Key(NamedTuple):
    """Names one InferenceService."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def key_of(kind: str, obj: Object) -> Key | None:
    """The InferenceService an object is or belongs to by label; None: to none of ours."""
    meta = obj["metadata"]
    name = meta["name"] if kind == PARENT else (meta.get("labels") or {}).get(INSTANCE)
    return Key(meta["namespace"], name) if name else None


class Cache:
    """Per key, one shelf of objects by (kind, name), the InferenceService itself among them.

    managedFields are dropped (nobody reads them) and strings are shared: together that saves two thirds of the memory.
    """

    def __init__(self) -> None:
        self._shelves: defaultdict[Key, dict[tuple[str, str], Object]] = defaultdict(dict)

    def put(self, kind: str, obj: Object) -> Key | None:
        """Keep the newer of what we hold and what comes. Returns the key to reconcile; None when nothing is new that
        anybody decides by.

        The answers to our own writes come here too, so their echo on the watch wakes nobody.
        """
        if (key := key_of(kind, obj)) is None:
            return None
        meta = obj["metadata"]
        shelf = self._shelves[key]
        held = shelf.get((kind, meta["name"]))
        if held is not None and _version(held) >= _version(obj):  # what a predecessor of the same name was, also
            return None
        meta = {name: value for name, value in meta.items() if name != "managedFields"}
        new = shelf[kind, meta["name"]] = _shared({**obj, "kind": kind, "metadata": meta})
        return key if held is None or wakes(held, new) else None

    def drop(self, kind: str, obj: Object) -> Key | None:
        """It is gone. Returns the key to reconcile; None when we hold another of that name, or none."""
        if (key := key_of(kind, obj)) is None or (shelf := self._shelves.get(key)) is None:
            return None
        held = shelf.get((kind, obj["metadata"]["name"]))
        if held is None or held["metadata"]["uid"] != obj["metadata"]["uid"]:
            return None
        del shelf[kind, obj["metadata"]["name"]]
        if not shelf:
            del self._shelves[key]
        return key

    def sweep(self, kind: str, listing: Listing) -> set[Key]:
        """A full list of a kind corrects what we hold. Returns the keys it changed.

        kopf tells nothing of an object that vanished between two of its watches: only this does.
        """
        alive = {obj["metadata"]["uid"] for obj in listing.items}
        gone = [
            obj
            for shelf in self._shelves.values()
            for obj in shelf.values()
            # newer than the list: made after it was taken, so its absence there says nothing
            if obj["kind"] == kind and obj["metadata"]["uid"] not in alive and _version(obj) <= listing.version
        ]
        changed = [self.put(kind, obj) for obj in listing.items] + [self.drop(kind, obj) for obj in gone]
        return {key for key in changed if key is not None}

    def parent(self, key: Key) -> Object | None:
        """The InferenceService itself."""
        return self._shelves.get(key, {}).get((PARENT, key.name))

    def snapshot(self, key: Key) -> Snapshot | None:
        """What a reconcile sees; None when the InferenceService is gone."""
        if (parent := self.parent(key)) is None:
            return None
        return Snapshot(parent, tuple(obj for obj in self._shelves[key].values() if obj["kind"] != PARENT))

    def parents(self) -> list[Object]:
        """Every InferenceService we know of."""
        return [parent for key in self._shelves if (parent := self.parent(key)) is not None]


def _shared(value: Any) -> Any:
    """A copy in which equal keys and equal short strings are one object; a JSON parser makes each of them anew."""
    if isinstance(value, dict):
        return {sys.intern(name): _shared(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_shared(inner) for inner in value]
    return sys.intern(value) if isinstance(value, str) and len(value) <= SHORT else value


def _version(obj: Object) -> int:
    return int(obj["metadata"]["resourceVersion"])
