"""What lasts: rollouts by the thousand through the pure core, hundreds on the API server, and watches gone silent."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import time
from typing import TYPE_CHECKING

from support.control_plane import OperatorProcess
from support.proxy import Proxy
from support.watching import eventually
from support.world import World

from bench_operator.eye import Latencies
from bench_operator.fleet import Bench, serving
from bench_operator.plane import memory
from bench_operator.report import Row
from island_operator.core.model import Snapshot

if TYPE_CHECKING:
    from bench_operator.report import Report

CORE = 10_000  # rollouts through the pure core
SERVICES, ROUNDS = 10, 20  # rollouts on the API server: each of so many InferenceServices, so often
SETTLED = 20.0  # seconds at rest after which only what is in use is connected
SAMPLE = 200  # rollouts of the core between two looks at memory


class Track(World):
    """The small cluster of the unit tests, whose snapshots are not copied: the core writes into none of them."""

    def snapshot(self, late: bool = False) -> Snapshot:
        """See World."""
        return Snapshot(self.parent, tuple(self.store.values()), dict(self.readings))

    def roll(self, number: int) -> None:
        """One rollout to its end: most pass their gate, every fifth fails it, every fifth is the kill switch."""
        for log in (self.events, self.writes, self.jobs_made):
            log.clear()
        image = f"{'wrong' if number % 5 == 4 else 'good'}:{number}"
        self.edit(engine__image=image, islands__enabled=number % 5 != 3)
        for _ in range(400):
            if self.operate().requeue_after != 0:
                if (
                    self.phase == "Stable"
                    and self.status["observedGeneration"] == self.parent["metadata"]["generation"]
                ):
                    return
                self.tick()
        raise AssertionError(f"rollout {number} does not end: {self.status}")


def core(report: Report) -> None:
    """10,000 rollouts of one InferenceService, in this process and in simulated time."""
    world, sizes = Track(2, replicas=1, rollout__steps=[]), []
    world.settle()
    began = time.process_time()
    for number in range(CORE):
        world.roll(number)
        if number % SAMPLE == SAMPLE - 1:
            sizes.append((number + 1, memory(os.getpid())["VmRSS"]))
    report.add(
        Row("core_rollouts", "rollouts through the pure core", CORE, ""),
        Row(
            "core_cpu",
            "  CPU per rollout, simulated cluster included",
            (time.process_time() - began) * 1e3 / CORE,
            "ms",
        ),
        Row("core_slope", "  growth of memory per 1,000 rollouts", 1000 * _slope(sizes), "MiB", 0.5),
        Row("core_status", "  size of the status at the end", len(json.dumps(world.status)) / 1024, "KiB", 16),
        Row("core_objects", "  objects at the end", len(world.store), "", 40),
    )


async def rollouts(bench: Bench) -> None:
    """200 gated rollouts on the API server; what they leave behind is bounded."""
    names = [f"soak{number}" for number in range(SERVICES)]
    with bench.operator() as operator:
        await serving(operator)
        await bench.create(names, islands=True)
        await bench.all_ready(names)
        half, sizes, children = ROUNDS // 2, [], []
        for number in range(ROUNDS):
            into = Latencies()
            body = {"spec": {"engine": {"image": f"soak:{number}"}}}
            await asyncio.gather(*(bench.eye.edit(name, body, into) for name in names))
            await eventually(f"round {number}", lambda into=into: len(into.ready) == SERVICES, 240.0)
            sizes.append(((number + 1) * SERVICES, memory(operator.process.pid)["VmRSS"]))
            if number + 1 in {half, ROUNDS}:
                await bench.quiet()  # what goes has gone
                children.append(await _children(bench, names))
        report = bench.report
        report.curves["memory"] = sizes
        report.add(
            Row("soak_rollouts", "gated rollouts on the API server", ROUNDS * SERVICES, ""),
            Row("soak_slope", "  growth of memory per rollout, second half", 1024 * _slope(sizes[half:]), "KiB", 10),
            Row("soak_children", "  children that the second half added", children[1] - children[0], "", 0),
            Row("soak_rss", "  memory at the end", sizes[-1][1], "MiB", 150),
        )
        assert operator.stop() == 0


async def silence(bench: Bench) -> None:
    """Every connection of the operator falls silent without being closed; then somebody edits. Where the operator ends
    over it, because it cannot renew its Lease, it is started again, as a kubelet would.
    """
    name, into, lives = "silent", Latencies(), 0
    async with Proxy(bench.plane) as proxy:

        async def live() -> None:
            nonlocal lives
            while True:
                lives += 1
                with OperatorProcess(proxy.kubeconfig) as operator:
                    try:
                        await eventually("it ends", lambda: operator.process.poll() is not None, float("inf"))
                    finally:
                        operator.process.kill()  # a proxy in this loop could not help it to say goodbye

        living = asyncio.create_task(live())
        await bench.create([name])
        await bench.all_ready([name])
        await asyncio.sleep(SETTLED)
        proxy.silence()
        await bench.eye.edit(name, {"spec": {"engine": {"image": "heard:1"}}}, into)
        await eventually("it is noticed", lambda: into.status, 300.0)
        living.cancel()
        await asyncio.wait({living})
    bench.report.add(
        Row("silence", "silent watches: an edit is noticed after", into.status[0] / 1000, "s", 90),
        Row("silence_restarts", "  restarts of the operator over it", lives - 1, "", 0),
    )


async def _children(bench: Bench, names: list[str]) -> int:
    found = 0
    for kind in ("Deployment", "Job", "Service", "PodDisruptionBudget"):
        listing = await bench.api.list(kind)
        found += sum(o["metadata"]["labels"]["radix-islands.dev/instance"] in names for o in listing.items)
    return found


def _slope(points: list[tuple[int, float]]) -> float:
    """Of the line through the points, by least squares."""
    xs, ys = zip(*points, strict=True)
    return float(statistics.linear_regression(xs, ys).slope)
