"""The engines' /metrics over real sockets: what is read, and that no engine, however hostile, delays another."""

import asyncio
import contextlib

import pytest
from aiohttp import web

from island_operator.cluster.cache import Key
from island_operator.core import prometheus
from island_operator.core.checks import MISSES
from island_operator.core.exposition import MOST_BYTES
from island_operator.core.model import Plan, Question, Target
from island_operator.core.prometheus import Answer
from island_operator.runtime import scrape
from island_operator.runtime.scrape import Scraper

KEY, OTHER = Key("default", "x"), Key("default", "y")
GOOD = "sglang:num_queue_reqs 1\nsglang:num_requests_total 5\n"


class Engine:
    """Serves /metrics; `how(request, send)` writes the answer, `asked` counts."""

    def __init__(self, how):
        self.how, self.asked, self.sent = how, 0, 0

    async def __aenter__(self):
        app = web.Application()
        app.add_routes([web.get("/metrics", self._answer), web.get("/api/v1/query", self._answer)])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_):
        await self._runner.cleanup()

    async def _answer(self, request):
        self.asked += 1
        return await self.how(self, request)

    def question(self, name="q"):
        return Question(name, f"http://127.0.0.1:{self.port}/api/v1/query?query=up%2B1+%7B%7D")

    def target(self, uid="u", *, often=True):
        return Target(uid, "127.0.0.1", self.port, 8, often)


async def good(_engine, _request):
    return web.Response(text=GOOD)


async def endless(engine, request):
    """Never stops sending: a gigabyte and more."""
    reply = web.StreamResponse()
    await reply.prepare(request)
    with contextlib.suppress(ConnectionError):
        while True:
            await reply.write(b"# " + b"x" * 65_534)
            engine.sent += 65_536
    return reply


async def silent(_engine, _request):
    await asyncio.sleep(3600)


async def dripping(_engine, request):
    """One byte now and then, for ever."""
    reply = web.StreamResponse()
    await reply.prepare(request)
    with contextlib.suppress(ConnectionError):
        while True:
            await reply.write(b"#")
            await asyncio.sleep(0.02)
    return reply


async def redirecting(_engine, _request):
    raise web.HTTPFound("http://169.254.169.254/latest/meta-data")


async def bomb(_engine, _request):
    """Says that it is packed; nothing is unpacked."""
    return web.Response(body=b"\x1f\x8b" + b"\0" * 1000, headers={"Content-Encoding": "gzip"})


@contextlib.asynccontextmanager
async def running(monkeypatch, limit=5.0):
    monkeypatch.setattr(scrape, "OFTEN", 0.01)
    woken = []
    scraper = Scraper(woken.append, timeout=limit, pace=0.01)
    task = asyncio.create_task(scraper.run())
    try:
        yield scraper, woken
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def readings(scraper, key):
    return scraper.known(key)["readings"]


async def until(found):
    while not (got := found()):  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0.01)
    return got


async def test_a_rollout_hears_of_every_round(monkeypatch):
    async with Engine(good) as engine, running(monkeypatch) as (scraper, woken):
        scraper.want(KEY, Plan(watch=(engine.target(),)))
        await until(lambda: len(woken) >= 3)
        reading = readings(scraper, KEY)["u"]
        assert len(reading.samples) >= 3
        assert {s.queued for s in reading.samples} == {1.0}
        assert set(woken) == {KEY}
        scraper.want(KEY, Plan(watch=()))
        assert readings(scraper, KEY) == {}


async def test_at_rest_only_what_alarms_wakes(monkeypatch):
    text = [GOOD]

    async def changing(_engine, _request):
        return web.Response(text=text[0])

    monkeypatch.setattr(scrape, "SELDOM", 0.01)
    async with Engine(changing) as engine, running(monkeypatch) as (scraper, woken):
        scraper.want(KEY, Plan(watch=(engine.target(often=False),)))
        await until(lambda: engine.asked >= 4)
        assert woken == []
        assert len(readings(scraper, KEY)["u"].samples) <= scrape.KEPT_SELDOM
        text[0] += "island_frontier_violations_total 1\n"
        await until(lambda: woken)


@pytest.mark.parametrize(
    ("how", "limit", "why"),
    [
        (endless, 60.0, f"longer than {MOST_BYTES} bytes"),
        (silent, 0.05, "no answer within 0 s"),
        (dripping, 0.2, "no answer within 0 s"),
        (redirecting, 5.0, "HTTP 302"),
        (bomb, 5.0, "not Prometheus text"),
    ],
)
async def test_a_hostile_engine_is_named_and_the_others_are_read(monkeypatch, how, limit, why):
    async with Engine(how) as bad, Engine(good) as fine, running(monkeypatch, limit) as (scraper, _):
        scraper.want(OTHER, Plan(watch=(bad.target(),)))
        scraper.want(KEY, Plan(watch=(fine.target(),)))
        before = fine.asked
        await until(lambda: readings(scraper, OTHER).get("u") and readings(scraper, OTHER)["u"].misses)
        await until(lambda: fine.asked > before)
        reading = await until(lambda: (r := readings(scraper, OTHER)["u"]).misses >= MISSES and r)
        assert reading.fault == why
        assert reading.samples == ()
        assert readings(scraper, KEY)["u"].fault is None
        assert bad.sent < (MISSES + 2) * (MOST_BYTES + 16_000_000)  # what socket buffers hold comes on top


async def test_an_engine_that_is_not_there_is_named(monkeypatch):
    async with Engine(good) as engine:
        gone = engine.target()
    async with running(monkeypatch) as (scraper, woken):
        scraper.want(KEY, Plan(watch=(gone,)))
        reading = await until(lambda: (r := readings(scraper, KEY).get("u")) and r.misses >= MISSES and r)
        assert reading.fault == "ClientConnectorError"
        assert woken


async def test_what_is_known_of_a_pod_survives_a_change_of_the_others(monkeypatch):
    async with Engine(good) as engine, running(monkeypatch) as (scraper, _):
        scraper.want(KEY, Plan(watch=(engine.target("a"),)))
        await until(lambda: readings(scraper, KEY).get("a"))
        scraper.want(KEY, Plan(watch=(engine.target("a"), engine.target("b"))))
        assert set(readings(scraper, KEY)) == {"a"}
        scraper.want(KEY, Plan(watch=(engine.target("b"),)))
        assert readings(scraper, KEY) == {}
        scraper.forget(KEY)
        await asyncio.sleep(0.05)
        assert readings(scraper, KEY) == {}


async def answering(_engine, request):
    """Plays Prometheus: the answer is 3, to that very query."""
    value = "3" if request.query == {"query": "up+1 {}"} else "4"
    result = [{"metric": {}, "value": [1, value]}]
    return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})


async def refusing(_engine, _request):
    body = {"status": "error", "errorType": "bad_data", "error": "1:3: parse error"}
    return web.json_response(body, status=400)


def answers(scraper, key):
    return scraper.known(key)["answers"]


async def test_prometheus_is_asked_beside_the_engines(monkeypatch):
    async with Engine(answering) as server, Engine(good) as engine, running(monkeypatch) as (scraper, woken):
        question = server.question()
        scraper.want(KEY, Plan(watch=(engine.target(),), ask=(question,)))
        assert await until(lambda: answers(scraper, KEY)) == {question.uid: Answer(3.0)}
        assert set(readings(scraper, KEY)) == {"u"}
        await until(lambda: woken)


@pytest.mark.parametrize(
    ("how", "limit", "why"),
    [
        (refusing, 5.0, "bad_data: 1:3: parse error"),
        (good, 5.0, "not an answer of Prometheus"),
        (endless, 60.0, f"longer than {prometheus.MOST_BYTES} bytes"),
        (silent, 0.05, "no answer within 0 s"),
        (redirecting, 5.0, "HTTP 302"),
        (bomb, 5.0, "not an answer of Prometheus"),
    ],
)
async def test_a_hostile_prometheus_is_named_and_the_others_are_read(monkeypatch, how, limit, why):
    async with Engine(how) as bad, Engine(good) as fine, running(monkeypatch, limit) as (scraper, woken):
        scraper.want(OTHER, Plan(ask=(bad.question(),)))
        scraper.want(KEY, Plan(watch=(fine.target(),)))
        assert await until(lambda: answers(scraper, OTHER)) == {bad.question().uid: Answer(fault=why)}
        await until(lambda: fine.asked > 1)
        assert OTHER in woken
