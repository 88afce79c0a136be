"""Stores gates' reports, off the reconcile path: a node that does not answer for a log delays no switch.

What a report is, and how long it is to be tried for, the core says with every pass; a restart begins anew.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from island_operator.cluster.protocol import ApiError, Unreachable
from island_operator.core.gate import CONTAINER
from island_operator.core.record import with_log
from island_operator.runtime.logs import about

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from island_operator.cluster.cache import Key
    from island_operator.cluster.protocol import Cluster
    from island_operator.core.model import Plan, Record

log = logging.getLogger("island_operator.records")

ATTEMPTS, PAUSE = 6, 5.0  # to write one, and seconds before the second; doubled each time


class Recorder:
    """`wake(key)` when a report is stored."""

    def __init__(
        self,
        cluster: Cluster,
        wake: Callable[[Key], None],
        *,
        leading: Callable[[], bool] = lambda: True,
        pause: float = PAUSE,
    ) -> None:
        self._cluster, self._wake, self._leading, self._pause = cluster, wake, leading, pause
        self._wanted: dict[Key, dict[str, Record]] = {}
        self._kept: dict[Key, set[str]] = {}
        self._inbox: asyncio.Queue[tuple[Key, Record]] = asyncio.Queue()

    def want(self, key: Key, plan: Plan) -> None:
        """The plan's records, each once; what is no longer wanted is forgotten."""
        before, now = self._wanted.get(key, {}), {record.name: record for record in plan.records}
        for name in now.keys() - before.keys():
            self._inbox.put_nowait((key, now[name]))
        if now:
            self._wanted[key] = now
            self._kept[key] = self._kept.get(key, set()) & now.keys()
        else:
            self.forget(key)

    def forget(self, key: Key) -> None:
        """The InferenceService is gone, or wants none."""
        self._wanted.pop(key, None)
        self._kept.pop(key, None)

    def known(self, key: Key) -> Mapping[str, Any]:
        """Which are stored, as a Snapshot has it."""
        return {"kept": frozenset(self._kept.get(key, ()))}

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tries:
            while True:
                tries.create_task(self._keep(*await self._inbox.get()))

    async def _keep(self, key: Key, record: Record) -> None:
        with about(key):
            for attempt in range(ATTEMPTS):
                if record.name not in self._wanted.get(key, {}) or not self._leading():
                    return
                try:
                    await self._store(record)
                except (ApiError, Unreachable) as error:
                    log.warning("report %s was not stored: %s", record.name, error)
                    await asyncio.sleep(self._pause * 2**attempt)
                else:
                    self._kept.setdefault(key, set()).add(record.name)
                    self._wake(key)
                    return

    async def _store(self, record: Record) -> None:
        manifest = record.manifest
        if record.pod:
            try:
                said = await self._cluster.log(manifest["metadata"]["namespace"], record.pod, CONTAINER)
            except (ApiError, Unreachable) as error:
                log.info("no log of %s: %s", record.pod, error)  # its node is gone, say: the verdict is kept alone
            else:
                manifest = await asyncio.to_thread(with_log, manifest, said)
        try:
            await self._cluster.create(manifest)
        except ApiError as error:
            if error.status != 409:  # there already, and it never changes
                raise
