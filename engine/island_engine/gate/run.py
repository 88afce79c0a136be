"""One gate from start to end: boots the arms in turn, serves the plan, and always leaves a verdict."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any

from island_engine.gate import arguments, artifacts, boots, fingerprint, model, prompts
from island_engine.gate.boots import Boots
from island_engine.gate.case import Conclusion
from island_engine.gate.compare import ARMS, OFF_A, ON, ON_B
from island_engine.gate.judge import confirmable, judge
from island_engine.gate.outcome import Conclude, error
from island_engine.gate.probes import TIMED
from island_engine.gate.progress import Progress
from island_engine.gate.record import Ledger, Witness, ask
from island_engine.gate.report import Summary, Verdict
from island_engine.gate.selftest import HARMLESS, Row, SelfTest

if TYPE_CHECKING:
    from island_engine.gate.settings import Settings


SELF_TESTED = "SelfTestPassed"


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
        "profile": settings.profile.name,
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
    progress = Progress(2 if settings.self_test else len(ARMS), settings.say)

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
        if early.verdict is Verdict.ERROR:
            for line in artifacts.last_lines(settings.report):
                settings.say(f"engine: {line}")  # in a pod the log's file goes, what is said here stays
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
        raise error("PacedEngine", "--pace serves dummy tokens, so equal bytes prove nothing: drop --pace")
    if model.is_local(settings.engine_args):
        model.read(model.directory(settings.engine_args, os.environ))  # a missing one is said before anything boots
    ledger.prompts = prompts.read(settings.prompts) if settings.prompts else ()
    arms = ARMS[:1] if settings.self_test else ARMS
    names = fingerprint.accelerators(settings.engine_args)
    places = boots.slots(settings.engine_args, os.environ, names, len(arms))
    witness, until = Witness(lines, progress), None
    async with Boots(settings.report, settings.serve, places, progress, len(arms) + settings.self_test) as booted:
        booted.ahead(*map(settings.arm, arms))
        for left, name in zip(range(len(arms), 0, -1), arms, strict=True):
            async with booted.arm(name) as engine:
                until = await ask(settings, engine, ledger, witness, left, until)
            if until is not None and name == ON:
                progress.say(f"arm on diverges at {until}; the control decides whether islands are to blame")
        if settings.self_test:
            return await _self_test(settings, ledger, witness, progress)
        concluded = judge(ledger.plan, ledger.recording(), settings.rules)
        probe = confirmable(concluded, ledger.recording())
        if probe is None:
            return concluded
        booted.ahead(settings.arm(ON_B))
        async with booted.arm(ON_B) as engine:
            await ask(settings, engine, ledger, witness, 1, probe)
    return judge(ledger.plan, ledger.recording(), settings.rules)


async def _self_test(settings: Settings, ledger: Ledger, witness: Witness, progress: Progress) -> Conclusion:
    test = SelfTest(settings, ledger.plan, ledger.serves[OFF_A], progress, witness.lines)
    ledger.mutations = await test.run(settings.mutations)
    return _self_tested(ledger.mutations)
