"""A user's own watch of the cluster: what became true, and how long after the edit that asked for it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from support.watching import eventually, watch

from bench_operator.plane import home
from island_operator.cluster.kinds import INSTANCE, PARENT

if TYPE_CHECKING:
    from collections.abc import Callable

    from island_operator.cluster.client import KubernetesCluster

HALF = "radix-islands.dev/half"


@dataclass
class Latencies:
    """Milliseconds until the watch shows an edit's effect: from sending it, and from its event, which is when the API
    server has answered it.
    """

    status: list[float] = field(default_factory=list)  # observedGeneration says that the operator has decided on it
    event: list[float] = field(default_factory=list)  # the same, from the event
    ready: list[float] = field(default_factory=list)  # Ready again, at that generation
    sent: int = 0


@dataclass
class _Edit:
    """One that the watch has not shown all effects of."""

    generation: int
    sent: float
    answered: float
    into: Latencies
    waits: set[str] = field(default_factory=lambda: {"status", "ready"})

    def shows(self, what: str, now: float) -> None:
        if what not in self.waits:
            return
        self.waits.discard(what)
        getattr(self.into, what).append(1000.0 * (now - self.sent))
        if what == "status":
            self.into.event.append(1000.0 * (now - self.answered))


def quantile(values: list[float], q: float) -> float:
    """Nearest rank; infinite for an empty list, which meets no target."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * q))] if ranked else float("inf")


class Eye:
    """`ready` holds the names that are Ready at their own generation. Times are of time.monotonic()."""

    def __init__(self, api: KubernetesCluster, watcher: KubernetesCluster) -> None:
        """Two clients, because a watch occupies one of the few connections that a client opens."""
        self._api, self._watcher = api, watcher
        self.ready: dict[str, float] = {}
        self.phases: dict[str, str] = {}
        self._open: dict[str, list[_Edit]] = {}
        self._stock: dict[str, float] = {}  # when a Deployment of the stock half with pods was first seen

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as both:
            both.create_task(watch(self._watcher, PARENT, self._parent))
            both.create_task(watch(self._watcher, "Deployment", self._deployment))

    async def edit(self, name: str, body: dict[str, Any], into: Latencies) -> None:
        """Send a merge patch and time what it causes."""
        began = time.monotonic()
        into.sent += 1
        obj = await self._api.patch(PARENT, home(name), name, body)
        self._open.setdefault(name, []).append(_Edit(obj["metadata"]["generation"], began, time.monotonic(), into))
        self._parent(obj, False)

    async def edits(
        self, names: list[str], body: Callable[[int], dict[str, Any]], rate: float, seconds: float
    ) -> Latencies:
        """`rate` edits a second, each of the next name; `body(n)` is the n-th patch. The last gets a minute."""
        into, began, sent = Latencies(), time.monotonic(), []
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            sent.append(asyncio.create_task(self.edit(names[number % len(names)], body(number), into)))
        await asyncio.gather(*sent)
        with contextlib.suppress(AssertionError):  # the caller counts what is missing
            await eventually("all Ready", lambda: len(into.ready) >= into.sent, every=0.1)
        return into

    async def kill_switch(self, name: str) -> float:
        """Seconds from throwing it until a Deployment of the stock half asks for pods."""
        self._stock.pop(name, None)
        began = time.monotonic()
        await self._api.patch(PARENT, home(name), name, {"spec": {"islands": {"enabled": False}}})
        return await eventually("the stock half", lambda: self._stock.get(name), every=0.005) - began

    def _parent(self, obj: dict[str, Any], deleted: bool) -> None:
        now, meta, status = time.monotonic(), obj["metadata"], obj.get("status") or {}
        name, observed = meta["name"], status.get("observedGeneration") or 0
        ready = observed == meta["generation"] and any(
            c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ()
        )
        self.phases[name] = str(status.get("phase"))
        if ready and not deleted:
            self.ready.setdefault(name, now)
        else:
            self.ready.pop(name, None)
        for edit in self._open.get(name, ()):
            if observed >= edit.generation:
                edit.shows("status", now)
                if ready:
                    edit.shows("ready", now)
        if name in self._open:
            self._open[name] = [edit for edit in self._open[name] if edit.waits]

    def _deployment(self, obj: dict[str, Any], deleted: bool) -> None:
        labels = obj["metadata"]["labels"]
        if labels.get(HALF) == "stock" and obj["spec"]["replicas"] and not deleted:
            self._stock.setdefault(labels[INSTANCE], time.monotonic())
