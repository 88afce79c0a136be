"""Reads /metrics of the engines that the core wants to know of, off the reconcile path: bounded in time, in bytes and
in number, so that no engine, however hostile, delays another. What it reads are Readings; what they mean is the core's.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import aiohttp

from island_operator.core.checks import Reading, faulty
from island_operator.core.exposition import MOST_BYTES, UnreadableError, parse
from island_operator.runtime.logs import about

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from island_operator.cluster.cache import Key
    from island_operator.core.model import Plan, Target

log = logging.getLogger("island_operator.scrape")

OFTEN, SELDOM = 10.0, 60.0  # seconds between two readings of an engine: in a rollout, and of islands that serve
TIMEOUT = 5.0  # seconds for all of one reading
AT_ONCE = 32  # engines read at a time
KEPT_OFTEN, KEPT_SELDOM = 30, 2  # samples: five minutes of a rollout, two minutes at rest
HEADERS = {"Accept": "text/plain", "Accept-Encoding": "identity"}  # nothing is unpacked: a small bomb is a large text


class Scraper:
    """`wake(key)` when a reading is news: in a rollout each round, else what alarms or cannot be read."""

    def __init__(
        self,
        wake: Callable[[Key], None],
        *,
        scraped: Callable[[str], None] = lambda _result: None,
        timeout: float = TIMEOUT,
        pace: float = 1.0,
    ) -> None:
        """`scraped(result)` counts readings, success or error; `pace`: seconds between two looks at what is due."""
        self._scraped = scraped
        self._wake, self._timeout, self._pace = wake, aiohttp.ClientTimeout(total=timeout), pace
        self._targets: dict[Key, tuple[Target, ...]] = {}
        self._readings: dict[Key, dict[str, Reading]] = {}
        self._due: dict[Key, float] = {}
        self._busy: set[Key] = set()
        self._slots = asyncio.Semaphore(AT_ONCE)

    def want(self, key: Key, plan: Plan) -> None:
        """The plan's engines from now on; what is known of others is forgotten."""
        targets = plan.watch
        if targets == self._targets.get(key, ()):
            return
        if not targets:
            self.forget(key)
            return
        now, known = asyncio.get_running_loop().time(), self._readings.get(key, {})
        self._targets[key] = targets
        self._readings[key] = {t.uid: known[t.uid] for t in targets if t.uid in known}
        self._due[key] = min(self._due.get(key, now), now + _every(targets))

    def forget(self, key: Key) -> None:
        """The InferenceService is gone, or wants none."""
        for table in (self._targets, self._readings, self._due):
            table.pop(key, None)

    def known(self, key: Key) -> Mapping[str, Any]:
        """What was read, as a Snapshot has it."""
        return {"readings": dict(self._readings.get(key, {}))}

    async def run(self) -> None:
        """Until cancelled."""
        clock = asyncio.get_running_loop()
        connector = aiohttp.TCPConnector(limit=AT_ONCE, force_close=True)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=self._timeout, auto_decompress=False) as session,
            asyncio.TaskGroup() as rounds,
        ):
            while True:
                for key in [k for k, due in self._due.items() if due <= clock.time() and k not in self._busy]:
                    self._due[key] = clock.time() + _every(self._targets[key])
                    self._busy.add(key)
                    rounds.create_task(self._round(session, key))
                await asyncio.sleep(self._pace)

    async def _round(self, session: aiohttp.ClientSession, key: Key) -> None:
        targets, before = self._targets.get(key, ()), self._readings.get(key, {})
        try:
            with about(key):
                read = await asyncio.gather(*(self._read(session, t, before.get(t.uid, Reading())) for t in targets))
        finally:
            self._busy.discard(key)
        if self._targets.get(key) != targets:
            return  # others are wanted by now
        self._readings[key] = {target.uid: reading for target, reading in zip(targets, read, strict=True)}
        news = (reading.fault != before.get(t.uid, Reading()).fault for t, reading in zip(targets, read, strict=True))
        alarms = (faulty({"": reading}, t.planned) for t, reading in zip(targets, read, strict=True))
        if any(t.often for t in targets) or any(alarms) or any(news):
            self._wake(key)

    async def _read(self, session: aiohttp.ClientSession, target: Target, before: Reading) -> Reading:
        try:
            async with self._slots:
                text = await self._text(session, target)
            sample = await asyncio.to_thread(parse, text, asyncio.get_running_loop().time())
        except TimeoutError:
            why = f"no answer within {self._timeout.total:.0f} s"
        except UnreadableError as error:
            why = str(error)
        except Exception as error:  # noqa: BLE001 - whatever an engine does must not end the reading of others
            why = type(error).__name__
        else:
            self._scraped("success")
            return before.heard(sample, KEPT_OFTEN if target.often else KEPT_SELDOM)
        self._scraped("error")
        missed = before.missed(why)
        if missed.fault != before.fault:
            log.warning("metrics of %s cannot be read: %s", target.address, why)
        return missed

    async def _text(self, session: aiohttp.ClientSession, target: Target) -> str:
        host = f"[{target.address}]" if ":" in target.address else target.address
        url = f"http://{host}:{target.port}/metrics"
        async with session.get(url, headers=HEADERS, allow_redirects=False) as reply:
            if reply.status != 200:
                raise UnreadableError(f"HTTP {reply.status}")
            body = bytearray()
            async for chunk in reply.content.iter_chunked(65_536):
                body += chunk
                if len(body) > MOST_BYTES:
                    raise UnreadableError(f"longer than {MOST_BYTES} bytes")
        return body.decode("utf-8", errors="replace")


def _every(targets: tuple[Target, ...]) -> float:
    return OFTEN if any(t.often for t in targets) else SELDOM
