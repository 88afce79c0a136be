"""Leadership by a coordination.k8s.io Lease, so that one operator writes at a time.

A Lease does not fence: writes are idempotent, and `held()` is asked before each of them. Expiry is judged by our own
clock since the record last changed, never by the timestamps in it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from island_operator.cluster.kinds import KINDS
from island_operator.cluster.protocol import ApiError, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from island_operator.cluster.protocol import Cluster
    from island_operator.core.model import Object

log = logging.getLogger("island_operator.lease")

RETRY = 0.5  # seconds
RELEASE = 3.0  # seconds that handing it back may take: an API server that hangs must not cost us our grace


@dataclass(frozen=True)
class Terms:
    """Seconds. A leader stops `deadline` after its last renewal; a standby, which looks every `look`, takes over
    `duration` after it saw the last: at most `look + duration` after a leader died.
    """

    duration: int = 15
    renew: float = 2.0
    look: float = 1.0
    deadline: float = 10.0


class Lease:
    """`await take()` returns when we lead, `await lost()` when we no longer may."""

    def __init__(
        self,
        cluster: Cluster,
        identity: str,
        namespace: str,
        name: str = "radix-islands",
        terms: Terms = Terms(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._identity, self._namespace, self._name = cluster, identity, namespace, name
        self._terms, self._clock = terms, clock
        self._seen: tuple[Object, float] | None = None  # another's record, and when we first saw it so
        self._renewed: float | None = None  # when we last wrote it; None: not ours
        self.answered = False  # the API server answered the last attempt

    def held(self) -> bool:
        """We lead, and no standby can have taken over yet."""
        return self._renewed is not None and self._clock() - self._renewed < self._terms.deadline

    async def take(self) -> None:
        """Wait until we lead."""
        while not await self._try():  # noqa: ASYNC110 - another process ends it, not an event of ours
            await asyncio.sleep(self._patience())
        log.info("leading as %s", self._identity)

    def _patience(self) -> float:
        """Seconds until a standby looks again; no later than what it saw expires."""
        if self._seen is None:
            return self._terms.look
        spec, since = self._seen
        left = since + spec.get("leaseDurationSeconds", self._terms.duration) - self._clock()
        return min(left, self._terms.look) if left > 0 else self._terms.look

    async def lost(self) -> None:
        """Renew until somebody else holds it (at once), or until `deadline` passes without an answer."""
        while self.held():
            # without an answer the connection may be dead and not say so: the next attempt opens another, in time,
            # for in a pool of our own there is no other to be tried first
            await asyncio.sleep(self._terms.renew if self.answered else RETRY)
            await self._try()
        log.error("lost the lease %s/%s: stopping", self._namespace, self._name)

    async def release(self) -> None:
        """Hand it back, so that the next leader need not wait. Best effort."""
        if self._renewed is None:
            return
        self._renewed = None
        try:
            async with asyncio.timeout(RELEASE):
                record = await self._cluster.get("Lease", self._namespace, self._name)
                if record is not None and record["spec"].get("holderIdentity") == self._identity:
                    spec = {**record["spec"], "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _stamp()}
                    await self._cluster.replace({**record, "kind": "Lease", "spec": spec})
        except (ApiError, Unreachable, TimeoutError) as error:
            log.warning("the lease was not released: %s", str(error) or "no answer in time")

    async def _try(self) -> bool:
        """One attempt to take or renew it. True: we hold it. Errors are logged, and count as no renewal."""
        began = self._clock()
        try:
            async with asyncio.timeout(self._terms.deadline / 2):
                held = await self._attempt(began)
            self.answered = True
        except ApiError as error:
            self.answered, held = True, False
            if error.status != 409:  # 409: another was faster; the next attempt sees who
                log.warning("lease %s/%s: %s", self._namespace, self._name, error)
        except (Unreachable, TimeoutError) as error:
            self.answered, held = False, False
            log.warning("lease %s/%s: %s", self._namespace, self._name, str(error) or "no answer in time")
        if held:
            self._renewed = began
        return held

    async def _attempt(self, now: float) -> bool:
        record = await self._cluster.get("Lease", self._namespace, self._name)
        spec = (record or {}).get("spec") or {}
        holder = spec.get("holderIdentity")
        if self._renewed is not None and holder != self._identity:
            self._renewed = None  # somebody led meanwhile, also if nobody does now: what we know may be of before
            return False
        if record is not None and holder and holder != self._identity:
            if self._seen is None or self._seen[0] != spec:
                self._seen = (spec, now)
            if now - self._seen[1] < spec.get("leaseDurationSeconds", self._terms.duration):
                return False
        ours = holder == self._identity
        stamp = _stamp()
        body: Object = {
            "apiVersion": KINDS["Lease"].api_version,
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": self._terms.duration,
                "renewTime": stamp,
                "acquireTime": spec.get("acquireTime", stamp) if ours else stamp,
                "leaseTransitions": (spec.get("leaseTransitions") or 0) + (0 if ours or record is None else 1),
            },
        }
        if record is None:
            await self._cluster.create(body)
        else:
            body["metadata"]["resourceVersion"] = record["metadata"]["resourceVersion"]
            await self._cluster.replace(body)
        return True


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
