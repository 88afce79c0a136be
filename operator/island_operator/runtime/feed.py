"""From what the API server tells to keys in the queue: watch events, the first full lists, a sweep now and then."""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from typing import TYPE_CHECKING

from island_operator.cluster.cache import Key, key_of
from island_operator.cluster.kinds import GROUP, OPTIONAL, PARENT, WATCHED
from island_operator.cluster.protocol import ApiError, Listing, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from island_operator.cluster.cache import Cache
    from island_operator.cluster.protocol import Cluster
    from island_operator.core.model import Object
    from island_operator.runtime.queue import Queue

log = logging.getLogger("island_operator.feed")

PAUSE = 2.0  # seconds between attempts to list
FIRST = 20.0  # seconds until the first sweep: no watch tells of what vanished between prime and its own first list
FOLLOW = 5.0  # seconds between two lists of a kind that is not watched


def needs_optional(parent: Object) -> bool:
    """It may have a child of a kind that the cluster need not have."""
    return bool(parent["spec"].get("gatewayRef"))


def is_urgent(parent: Object) -> bool:
    """A user waits for this: an edit of something that we already serve (the kill switch), a verb, or a run that leads
    away from a fault.
    """
    meta, status = parent["metadata"], parent.get("status") or {}
    verbs = any(name.startswith(f"{GROUP}/") for name in meta.get("annotations") or {})
    edited = status.get("observedGeneration", meta.get("generation")) != meta.get("generation")
    return verbs or edited or (status.get("run") or {}).get("kind", "Rollout") != "Rollout"


def hurries(cache: Cache, key: Key) -> bool:
    """What is to be done for this key is urgent."""
    parent = cache.parent(key)
    return parent is not None and is_urgent(parent)


class Feed:
    """Keeps the cache true and the queue fed."""

    def __init__(self, cluster: Cluster, cache: Cache, queue: Queue, namespace: str | None = None) -> None:
        self._cluster, self._cache, self._queue, self._namespace = cluster, cache, queue, namespace
        self._unheard: set[Key] | None = None  # InferenceServices that no watch has told of; None: passes have begun
        self.primed = False

    def event(self, kind: str, obj: Object, *, deleted: bool) -> None:
        """One watch event. What we already know, such as the echo of our own write, wakes nobody."""
        if (key := self._cache.drop(kind, obj) if deleted else self._cache.put(kind, obj)) is not None:
            self._wake(key)
            if deleted and kind == PARENT:
                self._queue.forget(key)
        if kind == PARENT and self._unheard and (key := key_of(kind, obj)) in self._unheard:
            self._unheard.discard(key)
            if not self._unheard:
                self._begin()

    async def prime(self, listen: float = 0.0) -> None:
        """Fill the cache before the first reconcile, so that none sees half a world. Waits for CRD and rights.

        Then all are woken, once the watches have told of each, but at most `listen` seconds later: an edit is heard
        only after that, and of a big fleet it takes seconds where a thousand passes compete with it.
        """
        said = ""
        while not self.primed:
            try:
                await self._lists()
                self.primed = True
            except (ApiError, Unreachable) as error:
                if str(error) != said:
                    log.warning("waiting to list: %s", said := str(error))
                await asyncio.sleep(PAUSE)
        self._unheard = set(self._keys())
        if self._unheard and listen:
            asyncio.get_running_loop().call_later(listen, self._begin)
        else:
            self._begin()

    def _begin(self) -> None:
        if self._unheard is None:
            return
        self._unheard = None
        for key in (keys := self._keys()):
            self._wake(key)
        log.info("serving %d InferenceServices", len(keys))

    def _keys(self) -> list[Key]:
        return [key for parent in self._cache.parents() if (key := key_of(PARENT, parent)) is not None]

    async def resync(self, every: float) -> None:
        """Sweep until cancelled. kopf tells nothing of what vanished between two watches."""
        wait = min(FIRST, every)
        while True:
            await asyncio.sleep(wait * random.uniform(0.9, 1.1))  # noqa: S311 - jitter, not a secret
            wait = every
            try:
                await self._lists(told=self._wake)
            except (ApiError, Unreachable) as error:
                log.warning("resync: %s", error)

    async def follow(self, every: float = FOLLOW) -> None:
        """List the kinds that no watch follows, while anybody has need of them. Until cancelled."""
        while True:
            await asyncio.sleep(every)
            if any(needs_optional(parent) for parent in self._cache.parents()):
                try:
                    await self._lists(OPTIONAL, self._wake)
                except (ApiError, Unreachable) as error:
                    log.warning("%s: %s", ", ".join(OPTIONAL), error)

    async def _lists(
        self, kinds: Iterable[str] = (*WATCHED, *OPTIONAL), told: Callable[[Key], None] = lambda _key: None
    ) -> None:
        """One kind after another; `told(key)` at once, for a later list that fails must not swallow what changed."""
        for kind in kinds:
            try:
                listing = await self._cluster.list(kind, self._namespace)
            except ApiError as error:
                if kind not in OPTIONAL or error.status not in {403, 404}:
                    hint = (
                        "; is the CRD installed? (island-operator crd | kubectl apply --server-side -f -)"
                        if error.status == 404
                        else ""
                    )
                    raise ApiError(error.status, f"{kind}: {error}{hint}") from error
                listing = Listing((), sys.maxsize)  # not served, or not ours to see: there is none
            for key in self._cache.sweep(kind, listing):
                told(key)

    def _wake(self, key: Key) -> None:
        self._queue.add(key, urgent=hurries(self._cache, key))
