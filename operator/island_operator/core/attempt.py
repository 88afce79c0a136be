"""One attempt at a gate: begun under a number of its own, judged by what its Job shows, given up when nobody wants it.

A rollout makes attempts, and so does the schedule (regate.py): they are the same thing with other consequences.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from island_engine.gate.report import Verdict
from island_operator.core import gate as gates
from island_operator.core.state import Gate

if TYPE_CHECKING:
    from island_operator.core.state import State
    from island_operator.core.view import Pass

TOLD = {Verdict.FAIL: "Failed", Verdict.INCONCLUSIVE: "Inconclusive", Verdict.ERROR: "Error"}  # in an Event's reason


def begun(state: State, revision: str, here: Pass) -> Gate:
    """A new one: the next number of this object, whoever asks for it. Where the status was lost, there are Jobs with
    numbers that nobody remembers.
    """
    number = 1 + max((gate.attempt for gate in (state.gate, state.regate) if gate), default=0)
    while _made(job := gates.job_name(here.intent.name, here.intent.uid, revision, number), here):
        number += 1
    gate = Gate(revision, number, job, here.now)
    told = gates.judge(gate, here.intent.gate_deadline, here.snapshot, here.now)  # else the next pass writes only that
    return gate if told.verdict else replace(gate, reason=told.reason, message=told.message)


def _made(name: str, here: Pass) -> bool:
    job = here.snapshot.child("Job", name)
    return job is not None and gates.owned(job, here.intent.uid)


def judged(gate: Gate, here: Pass) -> tuple[Gate, gates.Finding]:
    """The attempt with what is known of it by now."""
    finding = gates.judge(gate, here.intent.gate_deadline, here.snapshot, here.now)
    job = here.snapshot.child("Job", gate.job)
    if job and gates.owned(job, here.intent.uid):
        gate = replace(gate, job_uid=str(job["metadata"]["uid"]))
    gate = replace(gate, reason=finding.reason, message=finding.message)
    if finding.verdict is None:
        return gate, finding
    gate = replace(gate, verdict=str(finding.verdict), finished_at=here.now)
    if report := finding.summary:
        gate = replace(
            gate,
            fingerprint=report.fingerprint or None,
            divergence=gates.divergence_of(report),
            probes=report.probes,
            tokens=report.tokens,
            seconds=gates.number(report.seconds),
        )
    return gate, finding


def given_up(gate: Gate | None, why: str, here: Pass) -> Gate | None:
    """Without a verdict still to come: its Job goes, and the GPU with it. One that has its verdict stays as it is."""
    if gate is None or gate.verdict:
        return gate
    verdict = str(Verdict.INCONCLUSIVE)
    return replace(gate, verdict=verdict, reason="Aborted", message=why, finished_at=here.now)
