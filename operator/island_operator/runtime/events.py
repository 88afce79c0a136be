"""Kubernetes Events, best effort and off the reconcile path: they never delay a status or a switch.

One object per (InferenceService, type, reason, note); what happens again is counted up in its series. The note is
in the name because the API lets nobody change it: a second rejection would show the revision of the first.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from island_operator.cluster.kinds import GROUP, KINDS, PARENT
from island_operator.cluster.protocol import ApiError, Unreachable
from island_operator.runtime.logs import about

if TYPE_CHECKING:
    from island_operator.cluster.protocol import Cluster
    from island_operator.core.model import Event, Object

log = logging.getLogger("island_operator.events")

LONGEST_NOTE = 1000  # characters; the API allows 1,024
MOST_COUNTED = 5000  # Event names that we remember


class Events:
    """A bounded lane with one writer. `dropped` counts what did not fit or was not accepted."""

    def __init__(self, cluster: Cluster, identity: str, room: int = 2000) -> None:
        self._cluster, self._identity = cluster, identity
        self._lane: asyncio.Queue[tuple[Object, Event]] = asyncio.Queue(room)
        self._counts: dict[str, int] = {}
        self.dropped = 0

    def emit(self, parent: Object, event: Event) -> None:
        """Post this some time soon."""
        try:
            self._lane.put_nowait((parent, event))
        except asyncio.QueueFull:
            self.dropped += 1

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            parent, event = await self._lane.get()
            meta = parent["metadata"]
            with about(f"{meta['namespace']}/{meta['name']}"):
                await self._post(meta, event)

    async def _post(self, meta: Object, event: Event) -> None:
        log.log(logging.WARNING if event.type == "Warning" else logging.INFO, "%s: %s", event.reason, event.note)
        try:
            await self._write(meta, event)
        except (ApiError, Unreachable) as error:
            self.dropped += 1
            log.warning("an Event was not posted: %s", error)

    async def _write(self, meta: Object, event: Event) -> None:
        digest = hashlib.sha256(f"{meta['uid']}/{event.type}/{event.reason}/{event.note}".encode()).hexdigest()[:16]
        name, namespace = f"{meta['name'][:200]}.{digest}", meta["namespace"]
        if len(self._counts) > MOST_COUNTED:
            self._counts.clear()  # costs one refused POST each when they come again
        if name not in self._counts:
            try:
                await self._cluster.create(self._body(name, meta, event))
            except ApiError as error:
                if error.status != 409:
                    raise
                old = await self._cluster.get("Event", namespace, name)  # a former leader's
                self._counts[name] = ((old or {}).get("series") or {}).get("count", 1)
            else:
                self._counts[name] = 1
                return
        series = {"count": self._counts[name] + 1, "lastObservedTime": _stamp()}
        try:
            await self._cluster.patch("Event", namespace, name, {"series": series})
        except ApiError:
            del self._counts[name]  # expired after an hour: posted anew next time
            raise
        self._counts[name] += 1

    def _body(self, name: str, meta: Object, event: Event) -> Object:
        return {
            "apiVersion": KINDS["Event"].api_version,
            "kind": "Event",
            "metadata": {"name": name, "namespace": meta["namespace"]},
            "eventTime": _stamp(),
            "type": event.type,
            "reason": event.reason,
            "note": event.note[:LONGEST_NOTE],
            "action": "Reconcile",
            "reportingController": f"{GROUP}/operator",
            "reportingInstance": self._identity[:128],
            "regarding": {
                "apiVersion": KINDS[PARENT].api_version,
                "kind": PARENT,
                "name": meta["name"],
                "namespace": meta["namespace"],
                "uid": meta["uid"],
            },
        }


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
