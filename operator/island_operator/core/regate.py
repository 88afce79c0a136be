"""The gate once more, for islands that serve: a new driver or a new node may answer otherwise than what was proved.

It runs beside what serves, on a spare GPU, and gives way to everything: a rollout, or a serving pod that is missing.
What it finds is told; it acts only where spec.gate.onDrift says so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from island_engine.gate.report import Verdict
from island_operator.core import attempt, back, rollout
from island_operator.core.clock import elapsed
from island_operator.core.observe import Trouble

if TYPE_CHECKING:
    from island_operator.core.state import Gate, State
    from island_operator.core.view import Pass


def running(state: State) -> Gate | None:
    """The attempt that has no verdict yet."""
    return state.regate if state.regate and state.regate.verdict is None else None


def drifted(state: State) -> Gate | None:
    """The last attempt, where it found that what serves answers otherwise by now."""
    gate = state.regate
    return gate if gate and gate.revision == state.active and gate.verdict == Verdict.FAIL else None


def wait(state: State, here: Pass) -> float | None:
    """Seconds until the next attempt is due; None: there is none to be."""
    known, every = state.known(state.active), here.intent.gate_schedule
    if state.run or not (every and known and known.islands and known.promoted_at and here.intent.gated):
        return None
    last = state.regate if state.regate and state.regate.revision == state.active else None
    return every - elapsed(str((last and last.finished_at) or known.promoted_at), here.now)


def proceed(state: State, here: Pass) -> State:
    """Start, judge or give up an attempt."""
    gate, due, fleet = running(state), wait(state, here), here.fleet(state.active)
    whole = fleet is not None and 0 < here.intent.replicas <= fleet.ready  # scaled to zero it costs no GPU
    if gate is None:
        return _started(state, here) if due is not None and due <= 0 and whole else state
    if due is None or not whole or gate.revision != state.active:
        why = "a rollout, a change of spec.gate or a missing pod needs its GPU"
        return replace(state, regate=attempt.given_up(gate, why, here))
    gate, finding = attempt.judged(gate, here)
    state = replace(state, regate=gate)
    if finding.verdict is None:
        return state
    told = f"revision {gate.revision}, gated again: {finding.message}"
    if finding.verdict is Verdict.PASS:
        here.tell("RegatePassed", told)
        known = state.known(gate.revision)
        proved = known and replace(known, verdict=gate.verdict, fingerprint=gate.fingerprint)
        return state.learn(proved, here.intent.history_limit) if proved else state
    if finding.verdict is not Verdict.FAIL:
        here.tell(f"Regate{attempt.TOLD[finding.verdict]}", told, warn=True)
        return state
    here.tell("DriftFound", told, warn=True)
    target = back.stock_half(state, here) if here.intent.act_on_drift else None
    if target:
        return rollout.fall_back(state, target, Trouble("DriftFound", finding.message), here)
    return state.doubt(gate.revision)


def _started(state: State, here: Pass) -> State:
    gate = attempt.begun(state, str(state.active), here)
    here.tell("RegateStarted", f"Job {gate.job} compares revision {gate.revision}, which serves, once more")
    return replace(state, regate=gate)
