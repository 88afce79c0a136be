"""The work queue: a key is queued once, run by one worker at a time, and run again if it got dirty meanwhile.

Urgent keys (a user's edit: the kill switch) pass the backlog of a mass convergence, and have workers of their own.
Failures come back with exponential backoff and jitter. A key whose passes keep writing (another controller undoes what
we apply) is slowed down.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from island_operator.runtime.logs import about

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from island_operator.cluster.cache import Key

log = logging.getLogger("island_operator.queue")

COURIERS = 4  # workers for urgent keys alone


@dataclass(frozen=True)
class Done:
    """How a pass ended well: run again after so many seconds (None: when something changes), whether it wrote, and what
    of it the API server refused, which is tried again with growing pauses.
    """

    again: float | None = None
    wrote: bool = False
    refused: str = ""


class Observer(Protocol):
    """Told what happens, for the metrics."""

    def waited(self, seconds: float) -> None:
        """A key was picked up, so long after it was added."""

    def finished(self, result: str, seconds: float) -> None:
        """A pass ended: success or error."""


class Queue:
    """`work(key)` does one pass; what it raises is logged and tried again."""

    def __init__(
        self,
        work: Callable[[Key], Awaitable[Done]],
        observer: Observer,
        *,
        workers: int = 8,
        base: float = 0.5,
        cap: float = 60.0,
        burst: int = 30,
        hurries: Callable[[Key], bool] = lambda _key: False,
        hurry: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        """`hurries(key)`: whether what a pass of it leaves to do is urgent. Urgent passes run inside of a `hurry()`."""
        self._work, self._observer, self._workers = work, observer, workers
        self._base, self._cap, self._burst, self._hurries = base, cap, burst, hurries
        self._hurry = hurry
        self._ready: asyncio.PriorityQueue[tuple[bool, int, Key]] = asyncio.PriorityQueue()
        self._express: asyncio.Queue[Key] = asyncio.Queue()  # urgent keys once more, for their own workers
        self._order = itertools.count()
        self._dirty: dict[Key, float] = {}  # when it was added
        self._urgent: set[Key] = set()
        self._running: dict[Key, float] = {}
        self._failures: dict[Key, int] = {}
        self._writes: dict[Key, tuple[float, float]] = {}  # tokens left of the burst, and when they were counted
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._progress = 0.0

    @property
    def depth(self) -> int:
        """Keys that wait for a worker."""
        return len(self._dirty)

    def stalled(self) -> float:
        """For how many seconds there has been work and no pass has ended. 0 when idle."""
        since = [*self._dirty.values(), *self._running.values()]
        return max(0.0, _now() - max(self._progress, min(since))) if since else 0.0

    def add(self, key: Key, *, urgent: bool = False) -> None:
        """Run this key soon; an urgent one before all that are not, and whatever it wrote before."""
        if urgent or self._allowance(key) >= 1.0:
            self._enter(key, urgent=urgent)
        else:
            self.later(key, 1.0)

    def _enter(self, key: Key, *, urgent: bool = False) -> None:
        fresh = key not in self._dirty
        if fresh:
            self._dirty[key] = _now()
        if fresh or (urgent and key not in self._urgent):
            if urgent:
                self._urgent.add(key)
            if key not in self._running:
                self._push(key)

    def later(self, key: Key, seconds: float) -> None:
        """Run this key in so many seconds. One timer per key: the earliest wins."""
        loop, old = asyncio.get_running_loop(), self._timers.get(key)
        if old is not None:
            if old.when() <= loop.time() + seconds:
                return
            old.cancel()
        self._timers[key] = loop.call_later(seconds, self._due, key)

    def forget(self, key: Key) -> None:
        """The InferenceService is gone: its timer, failures and allowance too."""
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
        self._failures.pop(key, None)
        self._writes.pop(key, None)

    async def run(self) -> None:
        """Work until cancelled."""
        self._progress = _now()
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._worker(), name=f"worker-{number}")
            for number in range(COURIERS):
                group.create_task(self._courier(), name=f"courier-{number}")

    def _due(self, key: Key) -> None:
        del self._timers[key]
        self._enter(key)

    def _push(self, key: Key) -> None:
        self._ready.put_nowait((key not in self._urgent, next(self._order), key))
        if key in self._urgent:
            self._express.put_nowait(key)

    async def _worker(self) -> None:
        while True:
            _, _, key = await self._ready.get()
            if key in self._dirty and key not in self._running:  # else: a second entry overtook this one
                await self._pass(key)

    async def _courier(self) -> None:
        """Urgent keys alone: they never wait for workers whose requests hang."""
        while True:
            key = await self._express.get()
            if key in self._urgent and key not in self._running:
                await self._pass(key)

    async def _pass(self, key: Key) -> None:
        started = self._running[key] = _now()
        self._observer.waited(started - self._dirty.pop(key))
        if (timer := self._timers.pop(key, None)) is not None:  # this pass is what it was for
            timer.cancel()
        result, hurry = "error", self._hurry if key in self._urgent else contextlib.nullcontext
        self._urgent.discard(key)
        try:
            with about(key), hurry():
                done = await self._work(key)
            if done.refused:
                self._retry(key, f"refused: {done.refused}")
            else:
                result = "success"
                self._failures.pop(key, None)
            if done.again:
                self.later(key, done.again)
            if done.wrote:  # look once more at what the writes made of the world; their echoes wake nobody
                self._writes[key] = (self._allowance(key) - 1.0, _now())
            if done.wrote or done.again == 0:
                # the pass that throws the kill switch only decides it: the next one must not wait behind the backlog
                self.add(key, urgent=self._hurries(key) and self._allowance(key) >= 1.0)
        except Exception as error:  # noqa: BLE001 - one resource's failure must never end the others' worker
            self._retry(key, f"{type(error).__name__}: {error}")
        finally:
            self._progress = _now()
            self._observer.finished(result, self._progress - started)
            del self._running[key]
            if key in self._dirty:
                self._push(key)

    def _retry(self, key: Key, why: str) -> None:
        self.later(key, delay := self._backoff(key))
        with about(key):
            log.warning("%s; again in %.1f s", why[:300], delay)

    def _backoff(self, key: Key) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        ceiling = min(self._cap, self._base * 2.0 ** min(failures - 1, 30))
        return ceiling * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret

    def _allowance(self, key: Key) -> float:
        """Writing passes this key may still do at once: a bucket of `burst` that refills by one a second."""
        tokens, counted = self._writes.get(key, (float(self._burst), 0.0))
        return min(float(self._burst), tokens + _now() - counted)


def _now() -> float:
    return asyncio.get_running_loop().time()
