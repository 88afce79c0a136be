"""The life of the process: what ends it, with which code, and that the Lease is handed back."""

import asyncio
import os
import signal
from datetime import UTC, datetime

import pytest
from support import toy_core
from support.watching import eventually
from support.world import inference_service

from island_operator.cluster.fake import FakeCluster
from island_operator.runtime import main, triggers
from island_operator.runtime.main import Operator, Options
from island_operator.runtime.metrics import Metrics

LEASE = ("Lease", "default", "radix-islands")


@pytest.fixture
def cluster():
    return FakeCluster()


def run(cluster, monkeypatch, watch):
    """Live with a kopf that does `watch()` once everything else runs. Returns the exit code."""

    async def played(_handlers, _namespace, started):
        started()
        await watch()

    cluster.credentials = None  # nobody opens a connection
    monkeypatch.setattr(triggers, "watch", played)
    monkeypatch.setattr(main, "GRACE", 0.1)
    return asyncio.run(Operator(Options(port=0), cluster, cluster, Metrics()).run())


def holder(cluster):
    return cluster.objects[LEASE]["spec"]["holderIdentity"]


def test_sigterm_ends_it_with_0_and_the_lease_is_handed_back(cluster, monkeypatch):
    held = []

    async def watch():
        held.append(holder(cluster))
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Future()

    assert run(cluster, monkeypatch, watch) == 0
    assert held != [""]
    assert holder(cluster) == ""


def test_row_32_a_watch_that_ends_ends_the_process_with_1_and_the_lease_is_handed_back(cluster, monkeypatch, caplog):
    async def watch():
        return

    assert run(cluster, monkeypatch, watch) == 1
    assert "kopf ended" in caplog.text
    assert holder(cluster) == ""


def test_row_32_a_watch_that_dies_ends_the_process_with_1_and_says_of_what(cluster, monkeypatch, caplog):
    async def watch():
        raise ConnectionResetError("the watch is dead")

    assert run(cluster, monkeypatch, watch) == 1
    assert "ConnectionResetError: the watch is dead" in caplog.text


def test_a_lease_that_is_taken_away_ends_it_with_1_and_stays_the_thiefs(cluster, monkeypatch):
    async def watch():
        stolen = cluster.objects[LEASE]
        cluster.put({**stolen, "spec": {**stolen["spec"], "holderIdentity": "thief", "leaseDurationSeconds": 60}})
        await asyncio.Future()

    assert run(cluster, monkeypatch, watch) == 1
    assert holder(cluster) == "thief"


def test_what_is_recorded_bears_the_api_servers_time(cluster, monkeypatch):
    cluster.now = lambda: datetime(2032, 1, 1, tzinfo=UTC)
    cluster.put(inference_service())

    async def watch():
        await eventually("a status", lambda: "status" in cluster.objects["InferenceService", "default", "x"])
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Future()

    monkeypatch.setattr(main, "LISTEN", 0.0)
    assert run(cluster, monkeypatch, watch) == 0
    assert cluster.objects["InferenceService", "default", "x"]["status"]["run"]["startedAt"] == "2032-01-01T00:00:00Z"


def test_nothing_is_written_before_the_lease_is_held(cluster, monkeypatch):
    cluster.put(toy_core.resource())
    spec = {"holderIdentity": "other", "leaseDurationSeconds": 60, "renewTime": "2026-01-01T00:00:00.000000Z"}
    cluster.put({"kind": "Lease", "metadata": {"namespace": "default", "name": "radix-islands"}, "spec": spec})

    async def ended():
        asyncio.get_running_loop().call_later(0.3, os.kill, os.getpid(), signal.SIGTERM)
        return await Operator(Options(port=0), cluster, cluster, Metrics()).run()

    assert asyncio.run(ended()) == 0
    assert cluster.writes == []
    assert holder(cluster) == "other"
