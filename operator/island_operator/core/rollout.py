"""The rollout machine: what is decided next, from what was decided and what is seen. It changes nothing itself.

Its phases and the ways between them are the table in transitions.py. A gate without a verdict (inconclusive, or itself
broken) rejects its revision like a FAIL, under a reason of its own: not promoted is the safe side, a rollout held for
ever is not. A spec change or the verb `retry` tries again.

One call is one transition. The plan records a transition in the status before it acts on it, so whoever reads the
status after a crash knows at least as much as the cluster shows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from island_engine.gate.report import Verdict
from island_operator.core import attempt, health, killswitch, prometheus, scale, transitions
from island_operator.core.clock import elapsed
from island_operator.core.coupling import gains_nothing
from island_operator.core.observe import Trouble
from island_operator.core.scale import Room
from island_operator.core.state import Gate, Known, Run, State
from island_operator.core.transitions import CANARY, GATING, PENDING, Cause

if TYPE_CHECKING:
    from island_operator.core.view import Pass

_KINDS = {  # of a run, by what began it
    Cause.KILL_SWITCH: killswitch.KIND,
    Cause.REVERTED: "Revert",
    Cause.FAILED: "Rollback",
    Cause.FAULT: "Rollback",
}
SKEW = 5.0  # seconds: a pod's stamp is the API server's, a pause's ours, and both are of whole seconds


def goal(state: State, here: Pass) -> str | None:
    """The revision to be at: the kill switch's, else the desired one, unless it is rejected."""
    desired, run = here.intent.desired, state.run
    if first := killswitch.target(state, here):
        return first
    if desired is None and run and run.phase != GATING and not killswitch.unwanted(run, here):
        return run.revision  # what a broken spec asks for is unknown: go on with what is under way
    return state.active if desired is None or state.rejection(desired) else desired


def start(
    state: State,
    revision: str | None,
    here: Pass,
    *,
    source: str | None = None,
    cause: Cause | None = None,
    left: str | None = None,
) -> State:
    """A new run to `revision`, from the phase `source`; None: there is nothing to be at. `left`: what gives way to the
    active revision; where there is none nothing moves, and nobody is told that something did.
    """
    intent, before, source = here.intent, state.run, source or state.phase
    if before:
        state = _without_run(state, "the spec changed while it ran", here)
        left, wish = _moved(before), "what serves" if revision == state.active else "another"
        if killswitch.pulled(state, here) and not revision == state.active == intent.desired:
            wish = "islands off"
        told = f"the rollout of revision {before.revision} ended in {before.phase}: the spec asks for {wish}"
        here.tell("RolloutEnded", told)
    if revision is None:
        transitions.to(source, Cause.GIVEN_UP)
        return state
    if cause is None:
        cause = _cause(state, revision, here)
        if cause is Cause.KILL_SWITCH and not (before and before.kind == killswitch.KIND):
            state = state.pardon(revision)  # which it overrides; rejected meanwhile is what fails in this switch
    phase, kind = transitions.to(source, cause), _KINDS.get(cause, "Rollout")
    run = Run(
        revision=revision,
        kind=kind,
        phase=phase,
        mode=intent.mode,
        steps=intent.steps,
        checks=intent.checks,
        deadline=intent.deadline,
        previous=left if revision == state.active else state.active,
        started_at=here.now,
        progress_at=here.now,
    )
    if run.previous or revision != state.active:
        told = f"revision {revision}{f', from {run.previous}' if run.previous else ''}"
        known = state.known(revision)
        if cause is Cause.PROVED and known and known.verdict == Verdict.PASS:
            told += ", without a gate: it has passed its own before"
        here.tell(f"{kind}Started", told, warn=kind == "Rollback")
    if kind == "Rollout" and (new := here.revision(revision)) and (wrong := gains_nothing(new.parts)):
        here.tell("NothingGained", wrong, warn=True)
    return _enter(state, run, phase, here)


def _moved(run: Run) -> str | None:
    """Its revision, once it was given pods."""
    return None if run.phase in {PENDING, GATING} else run.revision


def _cause(state: State, revision: str, here: Pass) -> Cause:
    """Why a run begins, where it is not told."""
    if revision == state.active:
        return Cause.REVERTED
    if killswitch.pulled(state, here):
        return Cause.KILL_SWITCH
    if state.active is None:
        return Cause.CREATED
    return Cause.UNPROVED if _unproved(state, here) else Cause.PROVED


def _unproved(state: State, here: Pass) -> bool:
    """Islands are proved first, once per revision."""
    known = state.known(here.intent.desired)
    return here.intent.islands and here.intent.gated and not (known and known.verdict == Verdict.PASS)


def restart(state: State, run: Run, here: Pass) -> State:
    """The same revision once more from the beginning."""
    source = state.phase
    state = _without_run(state, "its rollout began anew", here)
    return start(state, run.revision, here, source=source)


def _without_run(state: State, why: str, here: Pass) -> State:
    """The run is over, and so is the gate that it may have been waiting for."""
    return replace(state, run=None, gate=attempt.given_up(state.gate, why, here))


def move(state: State, run: Run, cause: Cause, here: Pass) -> State:
    """The run goes on in the phase that the table says."""
    return _enter(state, run, transitions.to(run.phase, cause), here)


def _enter(state: State, run: Run, phase: str, here: Pass) -> State:
    """A phase begins: a new gate attempt for Gating, a fresh clock for all."""
    run = replace(run, phase=phase, step=0, held_since=None, progress_at=here.now)
    if phase != GATING:
        return replace(state, run=run)
    gate = attempt.begun(state, run.revision, here)
    here.tell("GateStarted", f"Job {gate.job} compares revision {run.revision} with islands off, on and off again")
    return replace(state, run=run, gate=gate)


def onward(state: State, here: Pass) -> State:
    """The run past the phases that wait for nothing, in the decision that led to them: each of them that the status
    tells of costs a write and a pass.
    """
    if (run := state.run) and run.phase == PENDING and run.revision == here.intent.desired:
        state = move(state, run, Cause.UNPROVED if _unproved(state, here) else Cause.FIRST, here)
    if (run := state.run) and run.phase == CANARY and _whole(run, here):
        state = move(state, run, Cause.HELD, here)
    return state


def _whole(run: Run, here: Pass) -> bool:
    """Its only step has all pods at once and no pause, nobody has paused it, and no query is to be answered: it would
    be promoted as soon as they are Ready, and until then what serves is kept either way.
    """
    room, held = Room.of(here.intent.replicas, run.mode), len(run.steps) > 1 or run.steps[0][1] > 0 or run.paused_at
    return not held and room.cap(run.weight) >= room.n > 0 and not prometheus.questions(run, here)


def proceed(state: State, run: Run, here: Pass) -> State:
    """One step of the run in progress."""
    if run.phase == PENDING:
        return state
    if run.phase == GATING:
        gate = state.gate
        if gate is None or gate.revision != run.revision or gate.verdict is not None:
            return move(state, run, Cause.LOST, here)
        return _gating(state, run, gate, here)
    fleet = here.fleet(run.revision)
    ready = fleet.ready if fleet else 0
    if ready > run.ready:
        run = replace(run, ready=ready, progress_at=here.now)
        state = replace(state, run=run)
    if not run.fast and run.previous and _gives_up(run, here) and (failure := health.failing(run, here)):
        here.tell("RolloutFailed", f"revision {run.revision} in {run.phase}: {failure.message}", warn=True)
        return reject(state, run, failure, here)
    other = None if ready else killswitch.instead(state, run, here)
    if other and (failure := killswitch.failing(state, run, here)):
        return _turn(state, run, other, failure, here)
    if run.paused_at or fleet is None or fleet.deployment is None:  # made by the next pass that decides nothing
        return state
    if run.fast:
        since = (run.starved_since or here.now) if scale.starved(run.revision, here.seen) else None
        state = replace(state, run=replace(run, starved_since=since))
    if run.phase == CANARY:
        return _canary(state, run, ready, here)
    if ready >= here.intent.replicas and here.others_idle(run.revision):
        return _complete(state, run, here)
    return state


def _gives_up(run: Run, here: Pass) -> bool:
    """A failure rolls back by itself. spec.rollout.autoRollback false holds it instead, but never an outage: where a
    Downtime rollout has stopped the last pod and its own is not Ready, what served comes back.
    """
    served_by_none = Room.of(here.intent.replicas, run.mode).floor == 0 and not any(f.ready for f in here.seen.values())
    return here.intent.auto_rollback or served_by_none


def _gating(state: State, run: Run, gate: Gate, here: Pass) -> State:
    gate, finding = attempt.judged(gate, here)
    state = replace(state, gate=gate)
    if finding.verdict is None:
        return state
    if finding.verdict is Verdict.PASS:
        if (known := _known(here, gate.revision, gate)) is None:
            return state  # the spec has left it in that moment, and nothing else has its parts: another run begins
        here.tell("GatePassed", f"revision {gate.revision}: {finding.message}")
        state = state.learn(known, here.intent.history_limit)
        return move(state, run, Cause.PASSED if state.active else Cause.PASSED_FIRST, here)
    serves = f"revision {state.active}" if state.active else "nothing"
    told = f"revision {gate.revision}: {finding.message}; {serves} serves"
    here.tell(f"Gate{attempt.TOLD[finding.verdict]}", told, warn=True)
    reason = "GateFailed" if finding.verdict is Verdict.FAIL else finding.reason
    return reject(state, run, Trouble(reason, finding.message), here)


def reject(state: State, run: Run, why: Trouble, here: Pass) -> State:
    """The run's revision is out; the way back begins in the same decision."""
    source = state.phase
    state = _without_run(state.reject(run.revision, why.reason, why.message, here.now), why.message, here)
    return start(state, state.active, here, source=source, cause=Cause.FAILED, left=_moved(run))


def _turn(state: State, run: Run, other: str, why: Trouble, here: Pass) -> State:
    """The kill switch goes another way, because this one leads nowhere."""
    here.tell("RolloutFailed", f"revision {run.revision}, by the kill switch: {why.message}", warn=True)
    state = _without_run(state.reject(run.revision, why.reason, why.message, here.now), why.message, here)
    return start(state, other, here, source=run.phase, cause=Cause.KILL_SWITCH, left=run.revision)


def fall_back(state: State, target: str, why: Trouble, here: Pass) -> State:
    """What serves is out, and what would have followed it too; `target` is what serves from now on, and what nothing
    but a new spec or `retry` leaves again.
    """
    source, bad, run = state.phase, str(state.active), state.run
    if run and run.revision != bad:
        told = f"revision {bad}, which served meanwhile: {why.message}"
        state = state.reject(run.revision, why.reason, told, here.now)
    state = _without_run(state, why.message, here)
    here.tell("FaultFound", f"revision {bad}: {why.message}; back to revision {target}", warn=True)
    state = replace(state.reject(bad, why.reason, why.message, here.now).pardon(target).doubt(bad), active=target)
    return start(state, target, here, source=source, cause=Cause.FAULT, left=bad)


def _known(here: Pass, name: str, gate: Gate | None = None, promoted_at: str | None = None) -> Known | None:
    if (revision := here.revision(name)) is None:
        return None
    half = revision.half
    passed = {"verdict": gate.verdict, "fingerprint": gate.fingerprint} if gate else {}
    return Known(revision.hash, half.islands, half.ratio, half.max_total_tokens, **passed, promoted_at=promoted_at)


def _canary(state: State, run: Run, ready: int, here: Pass) -> State:
    room = Room.of(here.intent.replicas, run.mode)
    if room.n == 0 and not any(known.promoted_at for known in state.history):
        return move(state, run, Cause.HELD, here)  # nothing has ever served that a canary could protect
    want = min(room.cap(run.weight), room.n)
    stays = _older(run, here, ready=True)  # who was there from the pause's first second
    if ready < want and not (stays and ready >= run.ready > 0):  # scaled up, and none was lost: it goes on
        since = here.now if run.held_since and not _older(run, here, ready=False) else run.progress_at
        return replace(state, run=replace(run, held_since=None, progress_at=since))
    held = run.held_since if stays or not want else None  # else others have come for all of them between two looks
    run = replace(run, held_since=held or here.now, ready=ready)
    if health.step_over(run, here) is None or prometheus.unanswered(run, here):
        return replace(state, run=run)
    if run.step + 1 < len(run.steps):
        return replace(state, run=replace(run, step=run.step + 1, held_since=None, progress_at=here.now))
    here.tell("CanaryPassed", f"revision {run.revision} held {len(run.steps)} step(s)")
    return move(state, run, Cause.HELD, here)


def _older(run: Run, here: Pass, *, ready: bool) -> bool:
    """Whether a pod is older than the pause that is being held, of those that are Ready, or of those that are no more:
    another one for what was evicted, or one more, is younger.
    """
    fleet, held = here.fleet(run.revision), run.held_since
    born = () if fleet is None else fleet.served if ready else fleet.unready
    return held is not None and any(elapsed(held, stamp) <= SKEW for stamp in born)


def _complete(state: State, run: Run, here: Pass) -> State:
    n = here.intent.replicas
    if run.previous or run.revision != state.active:
        told = f"revision {run.revision} serves with {n} of {n} pods Ready"
        ended = {"Rollback": "RolledBack", "Revert": "Reverted"}.get(run.kind, "Promoted" if n else "Taken")
        here.tell(ended, told if n else _unseen(run.revision), warn=run.kind == "Rollback")
    transitions.to(run.phase, Cause.SERVES)
    state = replace(state.pardon(run.revision), active=run.revision, run=None)  # of what failed at first
    known = _known(here, run.revision, promoted_at=here.now if n else None)
    return state.learn(known, here.intent.history_limit) if known else state


def _unseen(revision: str) -> str:
    return f"revision {revision} comes up next: with spec.replicas 0 no pod of it can be seen"


def first_seen(state: State, here: Pass) -> State:
    """What was taken at zero replicas is promoted once all its pods are Ready."""
    known, fleet, n = state.known(state.active), here.fleet(state.active), here.intent.replicas
    if state.run or known is None or known.promoted_at or fleet is None or not 0 < n <= fleet.ready:
        return state
    here.tell("Promoted", f"revision {known.revision} serves with {n} of {n} pods Ready, for the first time")
    return state.learn(replace(known, promoted_at=here.now), here.intent.history_limit)
