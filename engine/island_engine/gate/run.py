"""One gate from start to end: boots the arms in turn, serves the plan, and always leaves a verdict."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any

from island_engine.gate import arguments, artifacts, fingerprint, model, prompts
from island_engine.gate.arms import SERVE, Arm, Engine
from island_engine.gate.client import POOLS
from island_engine.gate.compare import ARMS, OFF_B, ON, Comparison, Recording, Rules, Serve, pair
from island_engine.gate.judge import Conclusion, judge
from island_engine.gate.outcome import Conclude, error, inconclusive
from island_engine.gate.plan import plan
from island_engine.gate.probes import CLASSES, PROFILES, TIMED, Geometry, Probe
from island_engine.gate.progress import Progress
from island_engine.gate.report import Summary, Verdict
from island_engine.gate.selftest import HARMLESS, Row, SelfTest
from island_engine.gate.serve import Server

if TYPE_CHECKING:
    from pathlib import Path

    from island_engine.gate.client import Answer, Metrics


SELF_TESTED = "SelfTestPassed"


@dataclass(frozen=True)
class Settings:
    """What one gate is asked to do."""

    engine_args: tuple[str, ...]
    report: Path
    profile: str = "quick"
    seed: int = 0
    deadline: float = 1_800.0  # seconds from the start
    decode_interval: int | None = None  # tokens, for the on arm; None: the engine's default
    self_test: bool = False
    mutations: tuple[str, ...] = ()  # of the self-test; none: all
    strict: bool = False
    prompts: Path | None = None  # the user's own, one a line
    termination_log: Path | None = None
    serve: tuple[str, ...] = SERVE

    @property
    def rules(self) -> Rules:
        """What equality these arguments promise."""
        exact = arguments.exact(self.engine_args)
        return Rules(self.strict, exact or arguments.batch_invariant(self.engine_args), exact)

    def arm(self, name: str) -> Arm:
        """The boot of that arm."""
        return Arm(name, arguments.with_metrics(self.engine_args), self.decode_interval)


@dataclass
class Ledger:
    """What was seen so far; a Recording at any moment."""

    serves: dict[str, list[Serve]] = field(default_factory=dict)
    counters: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    geometry: dict[str, Geometry] = field(default_factory=dict)
    enabled: dict[str, bool] = field(default_factory=dict)
    times: dict[str, dict[str, float]] = field(default_factory=dict)
    references: dict[str, list[Serve]] = field(default_factory=dict)
    plan: tuple[Probe, ...] = ()
    prompts: tuple[str, ...] = ()
    mutations: list[Row] = field(default_factory=list)
    pools: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # arm -> what they held after each class

    def recording(self) -> Recording:
        """What is known so far."""
        return Recording(self.serves, self.counters, self.geometry, self.enabled, self.references)


def execute(settings: Settings) -> Summary:
    """Run the gate and write its report and termination message. OSError when --report is not usable."""
    started = time.monotonic()
    began = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    with artifacts.prepare(settings.report) as lines:
        ledger = Ledger()
        concluded = asyncio.run(_bounded(settings, ledger, lines))
    seen = ledger.recording()
    classes = judge(ledger.plan, seen, settings.rules).classes
    conclusion = replace(concluded, classes=classes)
    known = fingerprint.facts(settings.engine_args, settings.decode_interval, os.environ)
    summary = Summary(
        verdict=conclusion.verdict,
        reason=conclusion.reason,
        message=conclusion.message,
        fingerprint=fingerprint.digest(known),
        probes=sum(c.compared for c in classes if c.name not in TIMED),
        tokens=sum(c.tokens for c in classes if c.name not in TIMED),
        seconds=round(time.monotonic() - started, 1),
        divergence=conclusion.divergence,
    )
    extra: dict[str, Any] = {
        "profile": settings.profile,
        "seed": settings.seed,
        "self_test": settings.self_test,
        "strict": settings.strict,
        "batch_invariant": settings.rules.invariant,
        "mutations": [asdict(row) for row in ledger.mutations],
        "facts": known,
    }
    times = {"started": began, "seconds": summary.seconds, "arms": ledger.times, "pools": ledger.pools}
    try:
        body = artifacts.report_body(summary, conclusion, seen, extra, times)
        artifacts.write_page(settings.report, body)
        artifacts.write_report(settings.report, body)  # last: who finds it finds all of it
    except OSError as fault:
        summary = replace(summary, verdict=Verdict.ERROR, reason="ReportUnwritable", message=f"--report: {fault}")
    if settings.termination_log is not None:
        artifacts.write_termination(settings.termination_log, summary)
    return summary


def _self_tested(rows: list[Row]) -> Conclusion:
    """Never a PASS: this proves the gate, not the engine. A fault that nobody saw is the gate's error."""
    bad = [row for row in rows if not row.good]
    if bad:
        said = ", ".join(f"{row.mutation} ({row.outcome})" for row in bad)
        return Conclusion(
            Verdict.ERROR, "MutationMissed", f"do not trust this gate here: of {len(rows)} planted faults, {said}"
        )
    harmless = sum(row.outcome == HARMLESS for row in rows)
    return Conclusion(
        Verdict.INCONCLUSIVE,
        SELF_TESTED,
        f"{len(rows) - harmless} planted faults were caught and {harmless} harmless ones changed nothing: "
        "this gate sees what it must, and says nothing of the engine as it is",
    )


async def _bounded(settings: Settings, ledger: Ledger, lines: IO[str]) -> Conclusion:
    """The gate within its deadline and until a signal: every way out ends the engines first."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    signals: list[signal.Signals] = []
    progress = Progress(len(ARMS))

    def interrupt(number: signal.Signals) -> None:
        if not signals and task is not None:  # a second one must not break the clean-up of the first
            task.cancel()
        signals.append(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, interrupt, number)
    heart = asyncio.create_task(progress.heartbeat())
    try:
        async with asyncio.timeout(settings.deadline):
            return await _gate(settings, ledger, lines, progress)
    except Conclude as early:
        return Conclusion(early.verdict, early.reason, early.message)
    except TimeoutError:
        return Conclusion(
            Verdict.INCONCLUSIVE,
            "Deadline",
            f"--deadline {settings.deadline:g} passed at {progress.where}: give it more time or a smaller --profile",
        )
    except asyncio.CancelledError:
        if not signals:
            raise
        return Conclusion(Verdict.INCONCLUSIVE, "Interrupted", f"{signals[0].name} came at {progress.where}")
    finally:
        heart.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await heart


async def _gate(settings: Settings, ledger: Ledger, lines: IO[str], progress: Progress) -> Conclusion:
    if arguments.paced(settings.engine_args):
        raise error("PacedEngine", "--pace serves dummy tokens, so equal bytes would prove nothing: drop --pace")
    if model.is_local(settings.engine_args):
        model.read(model.directory(settings.engine_args, os.environ))  # a missing one is said before anything boots
    ledger.prompts = prompts.read(settings.prompts) if settings.prompts else ()
    until: str | None = None
    if settings.self_test:
        await _run_arm(settings, settings.arm(ARMS[0]), ledger, lines, progress, None)
        progress.at("self-test: booting with islands on")
        test = SelfTest(
            settings.arm(ON),
            settings.report,
            settings.serve,
            ledger.plan,
            ledger.serves[ARMS[0]],
            settings.rules,
            progress.at,
            _Witness(lines, progress),
        )
        ledger.mutations = await test.run(settings.mutations)
        return _self_tested(ledger.mutations)
    for name in ARMS:
        until = await _run_arm(settings, settings.arm(name), ledger, lines, progress, until)
        if until is not None and name == ON:
            progress.say(f"arm on diverges at {until}; the control decides whether islands are to blame")
    return judge(ledger.plan, ledger.recording(), settings.rules)


async def _run_arm(
    settings: Settings, arm: Arm, ledger: Ledger, lines: IO[str], progress: Progress, until: str | None
) -> str | None:
    """Boot, serve and stop one arm. Serves up to the first difference from off-A, or to `until`; returns that probe."""
    progress.at(f"arm {arm.name}: booting")
    log = settings.report / f"engine-{arm.name}.log"
    times = ledger.times.setdefault(arm.name, {})
    async with Engine(arm, log, settings.serve) as engine:
        times["boot"] = round(engine.boot_seconds, 2)
        progress.booted(engine.boot_seconds)
        started = time.monotonic()
        try:
            await introduce(settings, engine, ledger)
            if not ledger.plan:
                ledger.plan = plan(ledger.geometry[arm.name], PROFILES[settings.profile], settings.seed, ledger.prompts)
                progress.planned(ledger.plan)
            return await _probe(engine, ledger, _Witness(lines, progress), settings.rules, until)
        finally:
            times["probing"] = round(time.monotonic() - started, 2)


async def introduce(settings: Settings, engine: Engine, ledger: Ledger) -> None:
    """Ask the engine what it is, and refuse to compare boots that differ in more than the switch."""
    name = engine.arm.name
    ledger.geometry[name] = read_geometry(await engine.alive(engine.client.server_info()), settings)
    ledger.enabled[name] = (await engine.alive(engine.client.look())).islands.get("island_enabled", 0.0) == 1.0
    early = judge((), ledger.recording())
    if early.reason == "ArmsDiffer":
        raise Conclude(early.verdict, early.reason, early.message)


class _Witness:
    """Keeps every serve: in memory for the verdict, on disk for a person."""

    def __init__(self, lines: IO[str], progress: Progress) -> None:
        self.lines, self.progress = lines, progress

    def served(self, serve: Serve, answer: Answer, seconds: float) -> None:
        artifacts.write_serve(self.lines, serve, answer, seconds)
        self.progress.served(serve.probe, seconds)


async def _probe(engine: Engine, ledger: Ledger, witness: _Witness, rules: Rules, until: str | None) -> str | None:
    name = engine.arm.name
    first = {s.probe.name: s for s in ledger.serves.get(ARMS[0], ())} if name != ARMS[0] else {}
    serves = ledger.serves.setdefault(name, [])
    compare, server, started = Comparison(rules), Server(engine, witness), time.monotonic()
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
        witness.progress.at(f"arm {name}: class {cls}, {len(probes)} probes")
        await engine.alive(engine.client.flush())
        before = await engine.alive(engine.client.look())
        if await server.serve(probes, stop):
            return ended[0]
        after = await engine.alive(engine.client.look())
        ledger.counters.setdefault(name, {})[cls] = grown(before, after)
        pools = {pool: after.pools.get(pool, 0) for pool in POOLS.values()}
        point = {"at": round(time.monotonic() - started, 2), "class": cls, **pools}
        ledger.pools.setdefault(name, []).append(point)
        if name == OFF_B and rules.invariant:
            await _refer(server, ledger, probes, rules)
    return None


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
                    found += [again for again in [await server.reference(writer, probe, depth)] if again]


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
