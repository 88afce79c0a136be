"""The process: lease -> prime the cache -> queue and kopf. Whichever ends first ends the process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from island_operator.cluster.cache import Cache
from island_operator.cluster.client import KubernetesCluster
from island_operator.core.drift import cleaned, covers
from island_operator.core.news import can_wait
from island_operator.core.plan import reconcile
from island_operator.runtime import health, triggers
from island_operator.runtime.events import Events
from island_operator.runtime.feed import Feed, hurries
from island_operator.runtime.lease import Lease
from island_operator.runtime.metrics import Metrics
from island_operator.runtime.queue import Queue
from island_operator.runtime.reconciler import Core, Reconciler
from island_operator.runtime.records import Recorder
from island_operator.runtime.scrape import Scraper
from island_operator.runtime.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from island_operator.cluster.cache import Key
    from island_operator.cluster.protocol import Cluster

log = logging.getLogger("island_operator")

LISTEN = 10.0  # seconds that the first passes wait for the watches to be there
GRACE = 3.0  # seconds that tasks get to end when we stop
OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True)
class Options:
    """The flags of `island-operator run`."""

    kubeconfig: str | None = None
    namespace: str | None = None  # None: all of them
    lease_namespace: str | None = None  # None: the pod's own, else default
    port: int = 8080
    workers: int = 8
    resync: float = 300.0  # seconds


class Operator:
    """Wires the parts; `run` is the life of the process."""

    def __init__(self, options: Options, cluster: KubernetesCluster, apart: Cluster, metrics: Metrics) -> None:
        """`apart`: for the Lease alone. Connections that fell silent while idle look like any other, and one that is
        tried costs half of the deadline: of a pool that all requests share the next attempt might get another of them.
        """
        identity = f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"
        self._options, self._cluster, self.metrics = options, cluster, metrics
        self._cache, self._events = Cache(), Events(cluster, identity)
        self.lease = Lease(apart, identity, options.lease_namespace or _own_namespace())
        self._scraper = Scraper(self._look_again, scraped=metrics.scraped)
        turns = Turns()
        self._recorder = Recorder(cluster, self._look_again, leading=self.lease.held)
        self._reconciler = Reconciler(
            cluster,
            self._cache,
            self._events,
            Core(reconcile, covers, cleaned, can_wait),
            besides=(self._scraper, self._recorder),
            turn=turns.write,
            leading=self.lease.held,
            recorded=metrics.recorded,
            clock=cluster.now,
        )
        self._queue = Queue(
            self._reconciler,
            metrics,
            workers=options.workers,
            hurries=lambda key: hurries(self._cache, key),
            hurry=turns.urgent,
        )
        self._feed = Feed(cluster, self._cache, self._queue, options.namespace)
        self._stop = asyncio.Event()
        metrics.bind(self._cache.parents, lambda: self._queue.depth, self.lease.held, lambda: self._events.dropped)

    def _look_again(self, key: Key) -> None:
        self._queue.add(key)

    async def run(self) -> int:
        """Until SIGTERM or SIGINT (0), or until lease, queue or kopf end (1). ValueError: the port is taken."""
        self._handle_signals()
        async with health.serving(self._options.port, self._queue.stalled, self._missing, self.metrics.render) as port:
            log.info("probes and metrics on port %d", port)
            stop = asyncio.create_task(self._stop.wait(), name="signal")
            life = asyncio.create_task(self._lead(), name="operator")
            await asyncio.wait({stop, life}, return_when=asyncio.FIRST_COMPLETED)
            code = 0 if stop.done() else 1
            if code and (error := life.exception()) is not None:
                log.error("stopping: %s: %s", type(error).__name__, error, exc_info=error)
            await _end({stop, life})
            await self.lease.release()  # after the last write
        log.info("stopped")
        return code

    async def _lead(self) -> None:
        await self.lease.take()
        lost = asyncio.create_task(self.lease.lost(), name="lease")
        work = asyncio.create_task(self._work(), name="work")
        try:
            await asyncio.wait({lost, work}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            await _end({lost, work})

    async def _work(self) -> None:
        await self._feed.prime(listen=LISTEN)
        handlers = triggers.registry(self._feed, self._cluster.credentials, self.metrics.seen)
        tasks = {
            asyncio.create_task(self._events.run(), name="events"),
            asyncio.create_task(self._feed.resync(self._options.resync), name="resync"),
            asyncio.create_task(self._feed.follow(), name="follow"),
            asyncio.create_task(self._scraper.run(), name="scraper"),
            asyncio.create_task(self._recorder.run(), name="recorder"),
            asyncio.create_task(self._queue.run(), name="queue"),
        }
        await asyncio.sleep(0)  # their own tasks are born before kopf starts
        tasks.add(
            asyncio.create_task(triggers.watch(handlers, self._options.namespace, self._handle_signals), name="kopf")
        )
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
                raise RuntimeError(f"{task.get_name()} ended")
        finally:
            await _end(tasks)

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)

    def _missing(self) -> str:
        """What keeps us from being ready. A standby is ready when the API server answers it."""
        if not self.lease.answered:
            return "the API server does not answer"
        return "the cache is not filled yet" if self.lease.held() and not self._feed.primed else ""


async def run(options: Options) -> int:
    """Connect and serve. ValueError (one sentence): a flag names what cannot be used."""
    metrics = Metrics()
    cluster = await KubernetesCluster.connect(options.kubeconfig, metrics.requested)
    apart = cluster.apart()
    try:
        return await Operator(options, cluster, apart, metrics).run()
    finally:
        await apart.close()
        await cluster.close()


async def _end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel and wait, not for ever: the process exits anyway."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=GRACE)


def _own_namespace() -> str:
    with contextlib.suppress(OSError):
        return OWN_NAMESPACE.read_text(encoding="utf-8").strip()
    return "default"
