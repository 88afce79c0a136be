"""One pass over one InferenceService: snapshot -> plan -> only the writes that change something.

Order: what is desired, deletions, status, annotations of verbs carried out. A crash between any two of them is repaired
by the next pass, because each is computed from what is there and not from what was done. A status that only words
anew what it said waits a moment for the next change, which mostly comes: that is a third of a rollout's status writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from island_operator.cluster.cache import key_of
from island_operator.cluster.kinds import MADE_ONCE, PARENT
from island_operator.cluster.protocol import ApiError, NameTaken
from island_operator.core.model import Refusal
from island_operator.runtime.faults import blamed, explain
from island_operator.runtime.queue import Done

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from island_operator.cluster.cache import Cache, Key
    from island_operator.cluster.protocol import Cluster
    from island_operator.core.model import Object, Plan, Snapshot
    from island_operator.runtime.events import Events

log = logging.getLogger("island_operator.reconciler")

Slot = tuple[str, str]  # kind and name of a child

STATUS: Slot = (PARENT, "status")
HOLD = 1.0  # seconds that a status which can wait is out of date at most


@dataclass(frozen=True)
class Core:
    """The pure decisions that a pass asks for; see core.plan, core.drift and core.news."""

    reconcile: Callable[[Snapshot, str], Plan]
    covers: Callable[[Object, Object], bool]  # (live, want): applying would change nothing
    cleaned: Callable[[Object, Object], Object | None]  # (live, want): what to PUT where applying cannot remove
    can_wait: Callable[[Object, Object], bool]  # (old, new): statuses that differ in nothing that anybody acts on


class Beside(Protocol):
    """Work off the reconcile path, such as reading engines: a pass tells it what it wants, the next sees what came."""

    def known(self, key: Key) -> Mapping[str, Any]:
        """Fields of the Snapshot."""

    def want(self, key: Key, plan: Plan) -> None:
        """What this plan wants from now on, and nothing else."""

    def forget(self, key: Key) -> None:
        """The InferenceService is gone."""


class NotLeading(Exception):  # noqa: N818 - a state, not a fault
    """The lease may be another's by now: nothing is written."""


class Reconciler:
    """The queue's work. Every write is made inside of a `turn()`, and `leading()` is asked right before it;
    `recorded(old, new)` is told of every status written.
    """

    def __init__(
        self,
        cluster: Cluster,
        cache: Cache,
        events: Events,
        core: Core,
        *,
        besides: Sequence[Beside] = (),
        turn: Callable[[], contextlib.AbstractAsyncContextManager[None]] = contextlib.nullcontext,
        leading: Callable[[], bool] = lambda: True,
        recorded: Callable[[Object, Object], None] = lambda _old, _new: None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._cluster, self._cache, self._events, self._core = cluster, cache, events, core
        self._besides = tuple(besides)
        self._turn, self._leading, self._recorded, self._clock = turn, leading, recorded, clock
        # (key, kind, name) -> digest of what we said and the resourceVersion that stayed the same: another spelling of
        # the same, or a field that the schema prunes
        self._settled: dict[Key, dict[Slot, tuple[str, str]]] = {}
        self._refused: dict[Key, dict[Slot, Refusal]] = {}
        self._held: dict[Key, float] = {}  # when the status that waits to be written first differed

    def forget(self, key: Key) -> None:
        """The InferenceService is gone."""
        self._settled.pop(key, None)
        self._refused.pop(key, None)
        self._held.pop(key, None)
        for beside in self._besides:
            beside.forget(key)

    async def __call__(self, key: Key) -> Done:
        """One pass. Raises what the queue should try again."""
        snapshot = self._cache.snapshot(key)
        if snapshot is None:
            self.forget(key)
            return Done()
        if snapshot.parent["metadata"].get("deletionTimestamp"):
            return Done()  # ownerReferences: the garbage collector has the rest
        snapshot = replace(snapshot, refused=self._refused.get(key, {}))
        for beside in self._besides:
            snapshot = replace(snapshot, **beside.known(key))
        now = self._clock().strftime("%Y-%m-%dT%H:%M:%SZ")
        try:
            plan = self._core.reconcile(snapshot, now)
        except Exception as error:
            await self._blame(key, snapshot.parent, *explain(error), now)
            raise
        for beside in self._besides:
            beside.want(key, plan)
        try:
            done = await self._carry_out(key, snapshot, plan)
        except ApiError as error:
            if error.status in {404, 409}:  # deleted or edited meanwhile: no error, but we decided on old news
                await self._refresh(key, snapshot.parent)
                if error.status == 409 or self._cache.parent(key) is None:
                    return Done(wrote=True)
            if error.refused:
                await self._blame(key, snapshot.parent, "ApplyRefused", str(error), now)
            raise
        return done

    async def _carry_out(self, key: Key, snapshot: Snapshot, plan: Plan) -> Done:
        wrote, refused = False, dict[Slot, Refusal]()
        writes = [(want, self._ensure) for want in plan.desired] + [(child, self._delete) for child in plan.delete]
        for child, write in writes:  # one that is refused stands in no other's way
            slot = (child["kind"], child["metadata"]["name"])
            try:
                wrote |= await write(key, child, snapshot.child(*slot))
            except ApiError as error:
                if not error.refused:
                    raise
                refused[slot] = Refusal(error.status, str(error))
        if writes:  # a pass that only decides learns nothing of them
            self._refused[key] = refused
        status, again = _without_nulls(plan.status), plan.requeue_after
        if hold := self._hold(key, snapshot.parent, status):
            again = hold if again is None else min(again, hold)
        elif await self._status(key, snapshot.parent, status):
            self._held.pop(key, None)  # not before: one that fails is due, and its retries' pauses grow
            wrote = True
            for event in plan.events:
                self._events.emit(snapshot.parent, event)
        wrote |= await self._clear(key, snapshot.parent, plan.clear_annotations)
        if any(refusal.status == 404 for refusal in refused.values()):
            await self._refresh(key, snapshot.parent)  # gone meanwhile, or it lacks a kind that the cluster has not
            if self._cache.parent(key) is None:
                return Done(wrote=True)
        return Done(again, wrote, "; ".join(refusal.message for refusal in refused.values()))

    async def _ensure(self, key: Key, want: Object, live: Object | None) -> bool:
        """Apply unless the live object already says all of it."""
        slot = (want["kind"], want["metadata"]["name"])
        if live is None and slot[0] in MADE_ONCE:
            return await self._create(key, want)
        if live is not None:
            if live["metadata"].get("deletionTimestamp") or self._core.covers(live, want):
                return False
            if self._is_settled(key, slot, want, live):
                return False
        clean = self._core.cleaned(live, want) if live is not None else None
        try:
            async with self._writing():
                got = await (self._cluster.apply(want) if clean is None else self._cluster.replace(clean))
        except ApiError as error:
            raise ApiError(error.status, f"{slot[0]} {slot[1]}: {error}") from error
        self._cache.put(slot[0], got)
        return self._settle(key, slot, want, live, got)

    async def _create(self, key: Key, want: Object) -> bool:
        """Applied, it would be made of whatever has that name, and be believed. Of ours we may not have heard yet."""
        kind, meta = want["kind"], want["metadata"]
        got: Object | None
        try:
            async with self._writing():
                got = await self._cluster.create(want)
        except ApiError as error:
            if error.status != 409:
                raise ApiError(error.status, f"{kind} {meta['name']}: {error}") from error
            got = await self._cluster.get(kind, meta["namespace"], meta["name"])
            if got is not None and key_of(kind, got) != key:
                raise NameTaken(error.status, f"{kind} {meta['name']}: {error}") from error
        if got is not None:
            self._cache.put(kind, got)
        return True

    async def _delete(self, _key: Key, child: Object, live: Object | None) -> bool:
        if live is None or live["metadata"].get("deletionTimestamp"):
            return False
        try:
            async with self._writing():
                await self._cluster.delete(child)
        except ApiError as error:
            raise ApiError(error.status, f"{child['kind']} {child['metadata']['name']}: {error}") from error
        self._cache.drop(child["kind"], child)
        return True

    def _hold(self, key: Key, parent: Object, status: Object) -> float:
        """Seconds for which this status may still wait to be written; 0: it may not, or it is written."""
        if self._is_written(key, parent, status) or not self._core.can_wait(parent.get("status") or {}, status):
            self._held.pop(key, None)
            return 0.0
        now = asyncio.get_running_loop().time()
        return max(0.0, self._held.setdefault(key, now) + HOLD - now)

    async def _status(self, key: Key, parent: Object, status: Object) -> bool:
        """Write the status if it differs."""
        if self._is_written(key, parent, status):
            return False
        try:
            async with self._writing():
                got = await self._cluster.patch_status(parent, status)
        except ApiError as error:
            raise ApiError(error.status, f"status: {error}") from error
        self._cache.put(PARENT, got)
        if changed := self._settle(key, STATUS, status, parent, got):
            self._recorded(parent.get("status") or {}, got.get("status") or {})
        return changed

    async def _refresh(self, key: Key, parent: Object) -> None:
        fresh = await self._cluster.get(PARENT, key.namespace, key.name)
        if fresh is None:
            self._cache.drop(PARENT, parent)
        else:
            self._cache.put(PARENT, fresh)

    async def _clear(self, key: Key, parent: Object, names: tuple[str, ...]) -> bool:
        """What was asked again since has another value, or its resourceVersion makes this a conflict: it stays."""
        asked, meta = parent["metadata"].get("annotations") or {}, (self._cache.parent(key) or parent)["metadata"]
        there = meta.get("annotations") or {}
        done = {name: None for name in names if name in asked and there.get(name) == asked[name]}
        if not done:
            return False
        body = {"metadata": {"resourceVersion": meta["resourceVersion"], "annotations": done}}
        async with self._writing():
            got = await self._cluster.patch(PARENT, meta["namespace"], meta["name"], body)
        self._cache.put(PARENT, got)
        return True

    async def _blame(self, key: Key, parent: Object, reason: str, message: str, now: str) -> None:
        """Best effort: the failure itself is what the queue must hear of."""
        try:
            await self._status(key, self._cache.parent(key) or parent, blamed(parent, reason, message, now))
        except ApiError as error:
            log.warning("%s was not recorded: %s", reason, error)

    @contextlib.asynccontextmanager
    async def _writing(self) -> AsyncIterator[None]:
        async with self._turn():
            if not self._leading():
                raise NotLeading("the lease was not renewed in time")
            yield

    def _is_written(self, key: Key, parent: Object, status: Object) -> bool:
        return status == (parent.get("status") or {}) or self._is_settled(key, STATUS, status, parent)

    def _is_settled(self, key: Key, slot: Slot, want: Object, live: Object) -> bool:
        told = self._settled.get(key, {}).get(slot)
        return told is not None and told == (_digest(want), live["metadata"]["resourceVersion"])

    def _settle(self, key: Key, slot: Slot, want: Object, live: Object | None, got: Object) -> bool:
        """Did the write change anything? If not, remember not to say it again."""
        version = got["metadata"]["resourceVersion"]
        if live is None or live["metadata"]["resourceVersion"] != version:
            return True
        self._settled.setdefault(key, {})[slot] = (_digest(want), version)
        return False


def _digest(want: Object) -> str:
    return hashlib.sha256(json.dumps(want, sort_keys=True).encode()).hexdigest()


def _without_nulls(value: Any) -> Any:
    """The API server drops nulls from a merge patch: a status that holds them would never compare equal."""
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, (list, tuple)) else value
