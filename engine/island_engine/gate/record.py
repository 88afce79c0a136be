"""Asks every arm of one gate, in turn, and records what it answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

from island_engine.gate import artifacts, model
from island_engine.gate.client import POOLS
from island_engine.gate.compare import OFF_A, OFF_B, ON, ON_B, Comparison, Recording, Rules, Serve, pair
from island_engine.gate.judge import judge
from island_engine.gate.outcome import Conclude, error, inconclusive
from island_engine.gate.plan import plan
from island_engine.gate.probes import CLASSES, TIMED, Geometry, Probe
from island_engine.gate.progress import weight
from island_engine.gate.serve import TRIES, Server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from island_engine.gate.arms import Engine
    from island_engine.gate.client import Answer, Metrics
    from island_engine.gate.progress import Progress
    from island_engine.gate.selftest import Row
    from island_engine.gate.settings import Settings

AGAIN = 5  # further answers to a probe that divides the arms, of each later boot
SAMPLE_SECONDS = 1.0  # between two looks at the pools


@dataclass
class Ledger:
    """What was seen so far; a Recording at any moment."""

    serves: dict[str, list[Serve]] = field(default_factory=dict)
    counters: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    geometry: dict[str, Geometry] = field(default_factory=dict)
    enabled: dict[str, bool] = field(default_factory=dict)
    times: dict[str, dict[str, float]] = field(default_factory=dict)
    references: dict[str, list[Serve]] = field(default_factory=dict)
    again: dict[str, list[Serve]] = field(default_factory=dict)
    plan: tuple[Probe, ...] = ()
    cls: str = CLASSES[0]  # that is being asked
    prompts: tuple[str, ...] = ()
    mutations: list[Row] = field(default_factory=list)
    pools: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # arm -> what they held, and when

    def recording(self) -> Recording:
        """What is known so far."""
        return Recording(self.serves, self.counters, self.geometry, self.enabled, self.references, self.again)

    def first(self, until: str | None) -> tuple[Probe, ...]:
        """The plan up to that probe, or all of it."""
        names = [probe.name for probe in self.plan]
        return self.plan[: names.index(until) + 1] if until in names else self.plan


class Witness:
    """Keeps every serve on disk for a person, as it comes."""

    def __init__(self, lines: IO[str], progress: Progress) -> None:
        self.lines, self.progress = lines, progress

    def served(self, serve: Serve, answer: Answer, seconds: float) -> None:
        """One answer came."""
        artifacts.write_serve(self.lines, serve, answer, seconds)
        self.progress.did(weight(serve.probe))


async def ask(
    settings: Settings, engine: Engine, ledger: Ledger, witness: Witness, arms: int, until: str | None
) -> str | None:
    """Put the plan to one booted arm, up to the first difference from off-A, or to `until`; returns that probe. `arms`:
    how many are still to be asked, this one included.
    """
    name = engine.arm.name
    times = ledger.times.setdefault(name, {})
    times["boot"] = round(engine.boot_seconds, 2)
    started = time.monotonic()
    try:
        await _introduce(settings, engine, ledger)
        if not ledger.plan:
            ledger.plan = plan(ledger.geometry[name], settings.profile, settings.seed, ledger.prompts)
        witness.progress.left(arms, ledger.first(until))
        async with _sampled(engine, ledger, started):
            return await _probe(engine, ledger, witness, settings.rules, until)
    finally:
        times["probing"] = round(time.monotonic() - started, 2)


async def _introduce(settings: Settings, engine: Engine, ledger: Ledger) -> None:
    """Ask the engine what it is, and refuse to compare boots that differ in more than the switch."""
    name = engine.arm.name
    geometry = read_geometry(await engine.alive(engine.client.server_info()), settings)
    ledger.enabled[name] = (await engine.alive(engine.client.look())).islands.get("island_enabled", 0.0) == 1.0
    ledger.geometry[name] = geometry  # last: a report tells of every boot whose geometry is known
    early = judge((), ledger.recording())
    if early.reason == "ArmsDiffer":
        raise Conclude(early.verdict, early.reason, early.message)


async def _probe(engine: Engine, ledger: Ledger, witness: Witness, rules: Rules, until: str | None) -> str | None:
    name = engine.arm.name
    first = {s.probe.name: s for s in ledger.serves.get(OFF_A, ())} if name != OFF_A else {}
    serves = ledger.serves.setdefault(name, [])
    compare, server = Comparison(rules), Server(engine, witness)
    ended: list[str] = []

    def stop(serve: Serve) -> bool:
        """Whether nothing is to be learnt after this: a difference, or a control that was served differently."""
        serves.append(serve)
        found = compare(first[serve.probe.name], serve) if serve.probe.name in first else None
        different = found is not None and (
            found.index is not None or (name == OFF_B and not found.comparable and serve.probe.cls not in TIMED)
        )
        if different or serve.probe.name == until:
            ended.append(serve.probe.name)
        return bool(ended)

    for cls in CLASSES:
        probes = [p for p in ledger.plan if p.cls == cls]
        if not probes:
            continue
        ledger.cls = cls
        witness.progress.at(f"arm {name}: class {cls}, {len(probes)} probes")
        known = len(serves)
        for _ in range(TRIES):
            del serves[known:]
            before = await server.begin()
            if await server.serve(probes, stop):
                if ended[0] == until and name in (OFF_B, ON_B):
                    ledger.again[name] = await _again(engine, server, probes, until, witness.progress)
                return ended[0]
            if not server.late:
                break
        after = await engine.alive(engine.client.look())
        ledger.counters.setdefault(name, {})[cls] = grown(before, after)
        if name == OFF_B and rules.invariant:
            await _refer(server, ledger, probes, rules)
    return None


async def _again(engine: Engine, server: Server, probes: list[Probe], until: str, progress: Progress) -> list[Serve]:
    """The same boot's further answers to a probe that divides the arms, each as the first: after all that its class
    asks before it, from an empty cache.
    """
    found: list[Serve] = []

    def stop(serve: Serve) -> bool:
        if serve.probe.name == until:
            found.append(serve)
        return serve.probe.name == until

    for time_over in range(AGAIN):
        progress.at(f"arm {engine.arm.name}: {until} again, {time_over + 1} of {AGAIN}")
        for _ in range(TRIES):
            del found[time_over:]
            await server.begin()
            await server.serve(probes, stop)
            if not server.late:
                break
    return found


@contextlib.asynccontextmanager
async def _sampled(engine: Engine, ledger: Ledger, started: float) -> AsyncIterator[None]:
    """Look at the pools now and then, for the report's picture."""
    points = ledger.pools.setdefault(engine.arm.name, [])

    async def look() -> None:
        seen = (await engine.client.look()).pools
        point = {"at": round(time.monotonic() - started, 2), "class": ledger.cls}
        points.append({**point, **{pool: seen.get(pool, 0) for pool in POOLS.values()}})

    async def watch() -> None:
        while True:
            with contextlib.suppress(Conclude):  # whoever asks the engine something says why it does not answer
                await look()
            await asyncio.sleep(SAMPLE_SECONDS)

    watching = asyncio.create_task(watch())
    try:
        yield
        await engine.alive(look())
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching


async def _refer(server: Server, ledger: Ledger, probes: list[Probe], rules: Rules) -> None:
    """The answer of every probe that extends a running one, at the depth where `on` found it. One that differs is asked
    again: an engine that does not repeat itself is not islands' fault.
    """
    on = {s.probe.name: s for s in ledger.serves.get(ON, ())}
    leads = {p.name: p for p in probes}
    for probe in probes:
        if probe.reads and probe.name in on:
            writer, depth = leads[probe.follows or ""], on[probe.name].cached_tokens
            if answer := await server.reference(writer, probe, depth):
                found = ledger.references[probe.name] = [answer]
                if pair(answer, on[probe.name], strict=rules.strict and rules.exact).index is not None:
                    found += [r for _ in range(AGAIN) if (r := await server.reference(writer, probe, depth))]


def grown(before: Metrics, after: Metrics) -> dict[str, float]:
    """How far each counter of the islands went."""
    return {
        counter: after.islands[counter] - before.islands.get(counter, 0.0)
        for counter in sorted(after.islands)
        if "_total" in counter
    }


def read_geometry(info: dict[str, Any], settings: Settings) -> Geometry:
    """The Geometry in a /server_info answer. Concludes ERROR BadAnswer or NotHybrid."""
    served = model.read(model.directory(settings.engine_args, os.environ))
    try:
        memory = info["internal_states"][0]["memory_usage"]
        page, chunk = int(info["page_size"]), int(info["chunked_prefill_size"] or 0)
        full, swa = int(memory["token_capacity"]), memory["token_capacity_swa"]
        context, running = int(info["max_req_input_len"]), int(info.get("max_running_requests") or 0)
    except (KeyError, IndexError, TypeError, ValueError) as fault:
        raise error("BadAnswer", f"/server_info lacks {type(fault).__name__} {fault}") from fault
    if swa is None:
        raise inconclusive(
            "NotHybrid", "the engine keeps no sliding-window pool for this model: islands change nothing"
        )
    interval = settings.decode_interval or max(page, chunk // 4)
    return Geometry(served.window, page, chunk, interval, full, int(swa), context, served.vocab, running or 8)
