"""The fleet: converge it, throw kill switches into the backlog, let it rest, restart, edit, and take leaders away."""

from __future__ import annotations

import asyncio
import random
import signal
import time
import urllib.request
from datetime import datetime
from typing import TYPE_CHECKING

from support.control_plane import OperatorProcess
from support.watching import eventually

from bench_operator.eye import Eye, quantile
from bench_operator.plane import cpu_seconds, memory, resource
from bench_operator.report import Row

if TYPE_CHECKING:
    from bench_operator.plane import Fleet
    from bench_operator.report import Report
    from island_operator.cluster.client import KubernetesCluster

SWITCHES = 10  # kill switches thrown into the backlog
IDLE = 30.0  # seconds of rest
SCRAPES = 10  # of the operator's own /metrics
RATE, SPAN = 10.0, 30.0  # edits a second, seconds; a small fleet's are fewer, so that each is edited once


class Bench:
    """What every part needs."""

    def __init__(self, plane: Fleet, api: KubernetesCluster, eye: Eye, port: int, count: int, report: Report) -> None:
        self.plane, self.api, self.eye, self.port, self.count, self.report = plane, api, eye, port, count, report
        self.names = [f"m{number:04d}" for number in range(count)]

    def operator(self, *flags: str) -> OperatorProcess:
        """One more operator process."""
        return OperatorProcess(self.plane.kubeconfig, *flags)

    async def create(self, names: list[str], *, islands: bool = False) -> None:
        """Sixteen at a time."""
        slots = asyncio.Semaphore(16)

        async def one(name: str) -> None:
            async with slots:
                await self.api.create(resource(name, self.port, islands=islands))

        await asyncio.gather(*map(one, names))

    async def all_ready(self, names: list[str], within: float = 1800.0) -> float:
        """When the last of them became Ready, by time.monotonic()."""
        await eventually(
            f"{len(names)} are Ready", lambda: all(name in self.eye.ready for name in names), within, every=0.2
        )
        return max(self.eye.ready[name] for name in names)

    async def quiet(self, seconds: float = 3.0) -> None:
        """Until the operator has written nothing for so long."""
        mark, since = self.plane.mark(), time.monotonic()
        while time.monotonic() - since < seconds:
            await asyncio.sleep(0.2)
            if self.plane.mark() != mark and self.plane.writes(since=mark):
                since = time.monotonic()
            mark = self.plane.mark()


async def converge(bench: Bench) -> None:
    """`count` InferenceServices from nothing, and kill switches of others that already serve with islands."""
    report, plane, eye = bench.report, bench.plane, bench.eye
    switched = [f"s{number:02d}" for number in range(SWITCHES)]
    with bench.operator() as first:
        await serving(first)
        report.add(Row("rss_empty", "memory without any resource", memory(first.process.pid)["VmRSS"], "MiB"))
        await bench.create(switched, islands=True)
        await bench.all_ready(switched)
        await bench.quiet()
        assert first.stop() == 0
    await bench.create(bench.names)
    mark, before = plane.mark(), plane.cpu()
    with bench.operator() as operator:
        await serving(operator)
        began, pid = time.monotonic(), operator.process.pid
        curve = asyncio.create_task(_curve(bench, operator, began))
        thrown = []
        for name in switched:
            depth = await gauge(operator, "island_operator_queue_depth")
            thrown.append((await eye.kill_switch(name), depth))
            await asyncio.sleep(0.5)
        report.add(
            Row(
                "kill_switch",
                f"kill switch, slowest of {SWITCHES} into the backlog",
                max(t for t, _ in thrown),
                "s",
                1.0,
            ),
            Row("kill_switch_depth", "  shortest backlog that one of them met", min(d for _, d in thrown), "keys"),
        )
        ended = await bench.all_ready([*bench.names, *switched])
        curve.cancel()
        ours = cpu_seconds(pid)
        theirs = sum(now - before[name] for name, now in plane.cpu().items())
        await bench.quiet()
        writes = [w for w in plane.writes(since=mark) if w[1] != "events"]
        report.add(
            Row("converge", f"{bench.count:,} InferenceServices from nothing to Ready", ended - began, "s"),
            Row("converge_cpu", "CPU of the operator meanwhile", ours, "s"),
            Row("converge_share", "its share of all CPU time that was spent", 100 * ours / (ours + theirs), "%", 25),
            Row("converge_writes", "writes per InferenceService, Events not counted", len(writes) / bench.count, ""),
        )
        await _rest(bench, operator)
        await _edits(bench, operator)
        report.add(Row("rss_peak", "memory at most until here", memory(pid)["VmHWM"], "MiB", 200))
        assert operator.stop() == 0


async def _rest(bench: Bench, operator: OperatorProcess) -> None:
    pid = operator.process.pid
    await bench.quiet(5.0)
    mark, cpu = bench.plane.mark(), cpu_seconds(pid)
    await asyncio.sleep(IDLE)
    writes, rested = len(bench.plane.writes(since=mark)), cpu_seconds(pid) - cpu
    for _ in range(SCRAPES):
        await gauge(operator, "island_operator_queue_depth")
    scraped = (cpu_seconds(pid) - cpu - rested) / SCRAPES
    bench.report.add(
        Row("idle_writes", f"writes in {IDLE:.0f} s of rest, besides the Lease", writes, "", 0),
        Row("idle_cpu", "CPU at rest, of one core", 100 * rested / IDLE, "%"),
        Row("scrape_cpu", "CPU of one scrape of its /metrics", 1000 * scraped, "ms"),
        Row("rss_steady", "memory at rest", memory(pid)["VmRSS"], "MiB", 150),
    )


async def _edits(bench: Bench, operator: OperatorProcess) -> None:
    names, pid, report = list(bench.names), operator.process.pid, bench.report
    random.Random(1).shuffle(names)  # noqa: S311 - an order, not a secret
    mark, cpu, span = bench.plane.mark(), cpu_seconds(pid), min(SPAN, len(names) / RATE)
    rolled = await bench.eye.edits(names, lambda n: {"spec": {"engine": {"image": f"good:{n + 2}"}}}, RATE, span)
    report.add(
        Row("rollouts", f"rollouts started at {RATE:.0f}/s", rolled.sent, ""),
        Row("rollout_p50", "  edit to status, median", quantile(rolled.status, 0.5), "ms"),
        Row("rollout_p99", "  edit to status, p99", quantile(rolled.status, 0.99), "ms"),
        Row("rollout_event_p50", "  from the edit's event to status, median", quantile(rolled.event, 0.5), "ms"),
        Row("rollout_event_p99", "  from the edit's event to status, p99", quantile(rolled.event, 0.99), "ms", 750),
        Row("rollout_ready", "  edit to Ready, median", quantile(rolled.ready, 0.5), "ms"),
        Row("rollout_lost", "  not Ready a minute after the last", rolled.sent - len(rolled.ready), "", 0),
        Row("rollout_cpu", "  CPU of the operator per rollout", 1000 * (cpu_seconds(pid) - cpu) / rolled.sent, "ms"),
    )
    await bench.quiet()
    writes = [w for w in bench.plane.writes(since=mark) if w[1] != "inferenceservices"]  # those are the edits
    report.add(Row("rollout_writes", "  writes per rollout, Events counted", len(writes) / rolled.sent, ""))
    told = await bench.eye.edits(
        names, lambda n: {"spec": {"rollout": {"historyLimit": 6 + n // len(names)}}}, RATE, SPAN
    )
    report.add(
        Row("status_p50", "edits that need only a status, median", quantile(told.status, 0.5), "ms"),
        Row("status_p99", "edits that need only a status, p99", quantile(told.status, 0.99), "ms", 100),
    )
    report.curves["latency"] = {"rollouts": rolled.event, "status only": told.event}


async def restart(bench: Bench) -> None:
    """A new operator on a converged fleet; then standbys take over from a leader that stops, and from one that dies."""
    mark = bench.plane.mark()
    with bench.operator() as leader:
        began, pid = time.monotonic(), leader.process.pid
        await serving(leader)
        report, served = bench.report, time.monotonic() - began
        await _settled(leader)
        await asyncio.sleep(5.0)  # kopf tells of every object once more
        report.add(
            Row("restart_serving", "restart: from exec to the first pass", served, "s"),
            Row("restart_cpu", "restart: CPU until all was looked at", cpu_seconds(pid), "s"),
            Row("restart_writes", "restart on a converged fleet: writes", len(bench.plane.writes(since=mark)), "", 0),
            Row("restart_rss", "restart: memory at most", memory(pid)["VmHWM"], "MiB", 200),
        )
        with bench.operator() as second, bench.operator() as third:
            for standby in (second, third):
                await eventually("a standby", lambda standby=standby: standby.said("probes"))
            await asyncio.sleep(5.0)  # it has seen the leader's record
            ended, next_ = await _take_over([second, third], leader, signal.SIGTERM)
            report.add(Row("failover_term", "failover after SIGTERM", ended, "s", 1.0))
            await serving(next_)
            last = third if next_ is second else second
            ended, last = await _take_over([last], next_, signal.SIGKILL)
            report.add(Row("failover_kill", "failover after SIGKILL", ended, "s", 17.0))
            await serving(last)
            await _settled(last)
            writes = bench.plane.writes(since=mark)
            report.add(Row("failover_writes", "writes of all leaders of a converged fleet", len(writes), "", 0))


async def _take_over(
    standbys: list[OperatorProcess], leader: OperatorProcess, number: signal.Signals
) -> tuple[float, OperatorProcess]:
    """Seconds from the signal to the log line of the new leader."""
    began = time.time()
    leader.process.send_signal(number)
    next_ = await eventually(
        "a standby leads", lambda: next((s for s in standbys if s.said("leading as ")), None), every=0.02
    )
    line = next(line for line in next_.lines() if line["message"].startswith("leading as "))
    return datetime.fromisoformat(line["time"]).timestamp() - began, next_


async def serving(operator: OperatorProcess) -> None:
    """It has filled its cache."""
    await eventually("the operator serves", lambda: operator.said("serving ") or operator._must_live(), every=0.02)


async def gauge(operator: OperatorProcess, name: str) -> float:
    """One value of its /metrics."""

    def read() -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{operator.port}/metrics", timeout=10) as reply:
            lines = reply.read().decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))

    return await asyncio.to_thread(read)


async def _settled(operator: OperatorProcess) -> None:
    while await gauge(operator, "island_operator_queue_depth"):  # noqa: ASYNC110 - another process's queue
        await asyncio.sleep(0.2)


async def _curve(bench: Bench, operator: OperatorProcess, began: float) -> None:
    """(seconds, Ready, queued), so seldom that the scrapes themselves cost little."""
    curve: list[tuple[float, int, float]] = []
    bench.report.curves["converge"] = curve
    while True:
        depth = await gauge(operator, "island_operator_queue_depth")
        curve.append((round(time.monotonic() - began, 1), len(bench.eye.ready), depth))
        await asyncio.sleep(15.0)
