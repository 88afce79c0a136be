"""Reports are stored off the reconcile path: once, without a log where there is none, tried again where refused."""

import asyncio
import contextlib

from island_operator.cluster.cache import Key
from island_operator.cluster.fake import FakeCluster
from island_operator.cluster.protocol import ApiError, Unreachable
from island_operator.core.model import Plan, Record
from island_operator.runtime.records import ATTEMPTS, Recorder

KEY = Key("default", "x")


def record(name="x-gate-1", pod="pod"):
    meta = {"name": name, "namespace": "default", "labels": {"radix-islands.dev/instance": "x"}}
    return Record({"kind": "ConfigMap", "metadata": meta, "data": {"verdict.json": "{}\n"}}, pod)


class Bench:
    """A recorder on a fake cluster."""

    def __init__(self):
        self.cluster, self.woken = FakeCluster(), asyncio.Queue()
        self.recorder = Recorder(self.cluster, self.woken.put_nowait, pause=0.0)

    async def __aenter__(self):
        self._task = asyncio.create_task(self.recorder.run())
        return self

    async def __aexit__(self, *_):
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    def data(self, name="x-gate-1"):
        return self.cluster.objects["ConfigMap", "default", name]["data"]


async def test_a_report_is_stored_once_with_its_log():
    async with Bench() as bench:
        bench.cluster.logs["pod"] = "gate 1 s\n"
        bench.recorder.want(KEY, Plan(records=(record(),)))
        bench.recorder.want(KEY, Plan(records=(record(),)))
        assert await bench.woken.get() == KEY
        assert bench.data() == {"verdict.json": "{}\n", "log.txt": "gate 1 s\n"}
        assert bench.recorder.known(KEY) == {"kept": {"x-gate-1"}}
        assert [verb for verb, _, _ in bench.cluster.writes] == ["create"]
        bench.recorder.want(KEY, Plan())
        assert bench.recorder.known(KEY) == {"kept": frozenset()}


async def test_without_a_log_the_verdict_is_stored_alone():
    async with Bench() as bench:
        bench.recorder.want(KEY, Plan(records=(record(pod="gone"), record("x-gate-2", None))))
        await bench.woken.get()
        await bench.woken.get()
        assert bench.data() == bench.data("x-gate-2") == {"verdict.json": "{}\n"}


async def test_one_that_is_there_already_is_left_as_it_is():
    async with Bench() as bench:
        bench.cluster.put({**record().manifest, "data": {"verdict.json": "first"}})
        bench.recorder.want(KEY, Plan(records=(record(),)))
        await bench.woken.get()
        assert bench.data() == {"verdict.json": "first"}


async def test_a_refusal_is_tried_again_and_not_for_ever():
    async with Bench() as bench:
        tries = []

        def refuse(verb, kind):
            if kind == "ConfigMap":
                tries.append(verb)
                raise ApiError(403, "exceeded quota") if len(tries) % 2 else Unreachable("no answer")

        bench.cluster.fault = refuse
        bench.recorder.want(KEY, Plan(records=(record(),)))
        while len(tries) < ATTEMPTS:  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(tries) == ATTEMPTS
        assert bench.recorder.known(KEY) == {"kept": frozenset()}


async def test_what_is_no_longer_wanted_is_given_up():
    async with Bench() as bench:
        bench.recorder.want(KEY, Plan(records=(record(),)))
        bench.recorder.forget(KEY)
        for _ in range(50):
            await asyncio.sleep(0)
        assert bench.cluster.writes == []
