"""Reads what the core wants to know of, off the reconcile path: /metrics of engines, and answers of a Prometheus. It is
bounded in time, in bytes and in number, so that nobody, however hostile, delays another. What it means is the core's.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import aiohttp

from island_operator.core import exposition, prometheus
from island_operator.core.checks import Reading, faulty
from island_operator.core.exposition import UnreadableError
from island_operator.core.model import Question, Target
from island_operator.core.prometheus import Answer
from island_operator.runtime.logs import about

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from island_operator.cluster.cache import Key
    from island_operator.core.model import Plan

log = logging.getLogger("island_operator.scrape")

OFTEN, SELDOM = 10.0, 60.0  # seconds between two readings of an engine: in a rollout, and of islands that serve
TIMEOUT = 5.0  # seconds for all of one reading
AT_ONCE = 32  # engines read at a time
KEPT_OFTEN, KEPT_SELDOM = 30, 2  # samples: five minutes of a rollout, two minutes at rest
HEADERS = {"Accept": "text/plain, */*", "Accept-Encoding": "identity"}  # nothing is unpacked: a bomb is small
# HTTP status codes whose body is worth reading, and most bytes of it
EXPOSED, ANSWERED = ({200}, exposition.MOST_BYTES), (prometheus.STATUSES, prometheus.MOST_BYTES)

Source = Target | Question


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
        self._targets: dict[Key, tuple[Source, ...]] = {}
        self._read: dict[Key, dict[str, Reading | Answer]] = {}
        self._due: dict[Key, float] = {}
        self._busy: set[Key] = set()
        self._slots = asyncio.Semaphore(AT_ONCE)

    def want(self, key: Key, plan: Plan) -> None:
        """The plan's engines and questions from now on; what is known of others is forgotten."""
        targets: tuple[Source, ...] = (*plan.watch, *plan.ask)
        if targets == self._targets.get(key, ()):
            return
        if not targets:
            self.forget(key)
            return
        now, known = asyncio.get_running_loop().time(), self._read.get(key, {})
        self._targets[key] = targets
        self._read[key] = {t.uid: known[t.uid] for t in targets if t.uid in known}
        self._due[key] = min(self._due.get(key, now), now + _every(targets))

    def forget(self, key: Key) -> None:
        """The InferenceService is gone, or wants none."""
        for table in (self._targets, self._read, self._due):
            table.pop(key, None)

    def known(self, key: Key) -> Mapping[str, Any]:
        """What was read, as a Snapshot has it."""
        read = self._read.get(key, {})
        return {
            "readings": {uid: one for uid, one in read.items() if isinstance(one, Reading)},
            "answers": {uid: one for uid, one in read.items() if isinstance(one, Answer)},
        }

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
        targets, known = self._targets.get(key, ()), self._read.get(key, {})
        before = [known.get(target.uid, _nothing(target)) for target in targets]
        try:
            with about(key):
                read = await asyncio.gather(*(self._one(session, *pair) for pair in zip(targets, before, strict=True)))
        finally:
            self._busy.discard(key)
        if self._targets.get(key) != targets:
            return  # others are wanted by now
        self._read[key] = {target.uid: one for target, one in zip(targets, read, strict=True)}
        news = (one.fault != old.fault for one, old in zip(read, before, strict=True))
        if any(t.often for t in targets) or any(map(_alarms, targets, read)) or any(news):
            self._wake(key)

    async def _one(self, session: aiohttp.ClientSession, target: Source, before: Reading | Answer) -> Reading | Answer:
        try:
            async with self._slots:
                text = await self._text(session, target)
            read = await asyncio.to_thread(_parsed, target, before, text, asyncio.get_running_loop().time())
        except TimeoutError:
            why = f"no answer within {self._timeout.total:.0f} s"
        except UnreadableError as error:
            why = str(error)
        except Exception as error:  # noqa: BLE001 - whatever somebody answers must not end the reading of others
            why = type(error).__name__
        else:
            self._scraped("success")
            return read
        self._scraped("error")
        missed = before.missed(why)
        if missed.fault != before.fault:
            what = f"query {target.name}" if isinstance(target, Question) else f"metrics of {target.address}"
            log.warning("%s cannot be read: %s", what, why)
        return missed

    async def _text(self, session: aiohttp.ClientSession, target: Source) -> str:
        statuses, limit = ANSWERED if isinstance(target, Question) else EXPOSED
        async with session.get(target.url, headers=HEADERS, allow_redirects=False) as reply:
            if reply.status not in statuses:
                raise UnreadableError(f"HTTP {reply.status}")
            body = bytearray()
            async for chunk in reply.content.iter_chunked(65_536):
                body += chunk
                if len(body) > limit:
                    raise UnreadableError(f"longer than {limit} bytes")
        return body.decode("utf-8", errors="replace")


def _nothing(target: Source) -> Reading | Answer:
    return Answer() if isinstance(target, Question) else Reading()


def _parsed(target: Source, before: Reading | Answer, text: str, at: float) -> Reading | Answer:
    if isinstance(before, Answer):
        return prometheus.parse(text)
    return before.heard(exposition.parse(text, at), KEPT_OFTEN if target.often else KEPT_SELDOM)


def _alarms(target: Source, read: Reading | Answer) -> bool:
    return isinstance(target, Target) and isinstance(read, Reading) and faulty({"": read}, target.planned) is not None


def _every(targets: tuple[Source, ...]) -> float:
    return OFTEN if any(t.often for t in targets) else SELDOM
