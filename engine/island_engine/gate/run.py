"""One gate from start to end: boots the arms in turn, serves the plan, and always leaves a verdict."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any

from island_engine.gate import arguments, artifacts, compare, fingerprint, model
from island_engine.gate.arms import SERVE, Arm, Engine
from island_engine.gate.compare import ARMS, OFF_B, ON, Conclusion, Recording, Serve
from island_engine.gate.outcome import Conclude, error, inconclusive
from island_engine.gate.probes import CLASSES, PROFILES, Geometry, Probe, plan
from island_engine.gate.progress import Progress
from island_engine.gate.report import Summary, Verdict

if TYPE_CHECKING:
    from pathlib import Path

MUTATION = {"ISLAND_MUTATE": "frontier", "ISLAND_ALLOW_MUTATION": "1"}


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
    termination_log: Path | None = None
    serve: tuple[str, ...] = SERVE

    def arm(self, name: str) -> Arm:
        """The boot of that arm."""
        env = MUTATION if self.self_test and name == ON else {}
        return Arm(name, arguments.with_metrics(self.engine_args), self.decode_interval, dict(env))


@dataclass
class _Ledger:
    """What was seen so far; a Recording at any moment."""

    serves: dict[str, list[Serve]] = field(default_factory=dict)
    counters: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    geometry: dict[str, Geometry] = field(default_factory=dict)
    enabled: dict[str, bool] = field(default_factory=dict)
    times: dict[str, dict[str, float]] = field(default_factory=dict)
    plan: tuple[Probe, ...] = ()

    def recording(self) -> Recording:
        return Recording(self.serves, self.counters, self.geometry, self.enabled)


def execute(settings: Settings) -> Summary:
    """Run the gate and write its report and termination message. OSError when --report is not usable."""
    started = time.monotonic()
    began = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    with artifacts.prepare(settings.report) as lines:
        ledger = _Ledger()
        concluded = asyncio.run(_bounded(settings, ledger, lines))
    seen = ledger.recording()
    classes = compare.judge(ledger.plan, seen).classes
    conclusion = replace(_self_tested(settings, concluded), classes=classes)
    known = fingerprint.facts(settings.engine_args, settings.decode_interval, _environment(settings))
    summary = Summary(
        verdict=conclusion.verdict,
        reason=conclusion.reason,
        message=conclusion.message,
        fingerprint=fingerprint.digest(known),
        probes=sum(c.compared for c in classes),
        tokens=sum(c.tokens for c in classes),
        seconds=round(time.monotonic() - started, 1),
        divergence=conclusion.divergence,
    )
    extra: dict[str, Any] = {
        "profile": settings.profile,
        "seed": settings.seed,
        "self_test": settings.self_test,
        "facts": known,
    }
    times = {"started": began, "seconds": summary.seconds, "arms": ledger.times}
    try:
        artifacts.write_report(settings.report, artifacts.report_body(summary, conclusion, seen, extra, times))
    except OSError as fault:
        summary = replace(summary, verdict=Verdict.ERROR, reason="ReportUnwritable", message=f"--report: {fault}")
    if settings.termination_log is not None:
        artifacts.write_termination(settings.termination_log, summary)
    return summary


def _environment(settings: Settings) -> dict[str, str]:
    return {**os.environ, **settings.arm(ON).env}


def _self_tested(settings: Settings, conclusion: Conclusion) -> Conclusion:
    """A planted fault that nobody saw is the gate's error, and must never be read as a PASS."""
    if settings.self_test and conclusion.verdict is Verdict.PASS:
        return Conclusion(
            Verdict.ERROR,
            "MutationMissed",
            "a wrong frontier was planted in the on arm and every answer was still equal: do not trust this gate here",
        )
    return conclusion


async def _bounded(settings: Settings, ledger: _Ledger, lines: IO[str]) -> Conclusion:
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


async def _gate(settings: Settings, ledger: _Ledger, lines: IO[str], progress: Progress) -> Conclusion:
    if arguments.paced(settings.engine_args):
        raise error("PacedEngine", "--pace serves dummy tokens, so equal bytes would prove nothing: drop --pace")
    if model.is_local(settings.engine_args):
        model.read(model.directory(settings.engine_args, os.environ))  # a missing one is said before anything boots
    until: str | None = None
    for name in ARMS:
        until = await _run_arm(settings, settings.arm(name), ledger, lines, progress, until)
        if until is not None and name == ON:
            progress.say(f"arm on diverges at {until}; the control decides whether islands are to blame")
    return compare.judge(ledger.plan, ledger.recording())


async def _run_arm(
    settings: Settings, arm: Arm, ledger: _Ledger, lines: IO[str], progress: Progress, until: str | None
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
            await _introduce(settings, engine, ledger)
            if not ledger.plan:
                ledger.plan = plan(ledger.geometry[arm.name], PROFILES[settings.profile], settings.seed)
                progress.planned(ledger.plan)
            return await _probe(engine, ledger, lines, progress, until)
        finally:
            times["probing"] = round(time.monotonic() - started, 2)


async def _introduce(settings: Settings, engine: Engine, ledger: _Ledger) -> None:
    """Ask the engine what it is, and refuse to compare boots that differ in more than the switch."""
    name = engine.arm.name
    ledger.geometry[name] = read_geometry(await engine.alive(engine.client.server_info()), settings)
    ledger.enabled[name] = (await engine.alive(engine.client.island_metrics())).get("island_enabled", 0.0) == 1.0
    early = compare.judge((), ledger.recording())
    if early.reason == "ArmsDiffer":
        raise Conclude(early.verdict, early.reason, early.message)


async def _probe(engine: Engine, ledger: _Ledger, lines: IO[str], progress: Progress, until: str | None) -> str | None:
    name = engine.arm.name
    reference = {s.probe.name: s for s in ledger.serves.get(ARMS[0], ())} if name != ARMS[0] else {}
    serves = ledger.serves.setdefault(name, [])
    transcripts: dict[str, tuple[int, ...]] = {}
    for cls in CLASSES:
        probes = [p for p in ledger.plan if p.cls == cls]
        progress.at(f"arm {name}: class {cls}, {len(probes)} probes")
        await engine.alive(engine.client.flush())
        before = await engine.alive(engine.client.island_metrics())
        for probe in probes:
            tokens = (*transcripts.get(probe.follows or "", ()), *probe.tokens)
            serve, transcripts[probe.name] = await _serve(engine, probe, tokens, lines, progress)
            serves.append(serve)
            if probe.name in reference and _stops(reference[probe.name], serve):
                return probe.name
            if probe.name == until:
                return until
        after = await engine.alive(engine.client.island_metrics())
        ledger.counters.setdefault(name, {})[cls] = {
            counter: after[counter] - before.get(counter, 0.0) for counter in sorted(after) if "_total" in counter
        }
    return None


async def _serve(
    engine: Engine, probe: Probe, tokens: tuple[int, ...], lines: IO[str], progress: Progress
) -> tuple[Serve, tuple[int, ...]]:
    started = time.monotonic()
    answer = await engine.alive(engine.client.generate(tokens, probe.new_tokens))
    seconds = time.monotonic() - started
    serve = Serve(
        engine.arm.name,
        probe,
        len(tokens),
        hashlib.sha256(",".join(map(str, tokens)).encode()).hexdigest(),
        answer.output,
        answer.cached_tokens,
        answer.margins,
    )
    artifacts.write_serve(lines, serve, answer, seconds)
    progress.served(probe, seconds)
    return serve, tokens + answer.output


def _stops(reference: Serve, serve: Serve) -> bool:
    """Whether nothing is to be learnt after this pair: a difference, or a control that was served differently."""
    result = compare.pair(reference, serve)
    return result.index is not None or (serve.arm == OFF_B and not result.comparable)


def read_geometry(info: dict[str, Any], settings: Settings) -> Geometry:
    """The Geometry in a /server_info answer. Concludes ERROR BadAnswer or NotHybrid."""
    served = model.read(model.directory(settings.engine_args, os.environ))
    try:
        memory = info["internal_states"][0]["memory_usage"]
        page, chunk = int(info["page_size"]), int(info["chunked_prefill_size"] or 0)
        full, swa = int(memory["token_capacity"]), memory["token_capacity_swa"]
        context = int(info["max_req_input_len"])
    except (KeyError, IndexError, TypeError, ValueError) as fault:
        raise error("BadAnswer", f"/server_info lacks {type(fault).__name__} {fault}") from fault
    if swa is None:
        raise inconclusive(
            "NotHybrid", "the engine keeps no sliding-window pool for this model: islands change nothing"
        )
    interval = settings.decode_interval or max(page, chunk // 4)
    return Geometry(served.window, page, chunk, interval, full, int(swa), context, served.vocab)
