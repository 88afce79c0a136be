r"""The rollout machine: what is decided next, from what was decided and what is seen. It changes nothing itself.

    Pending -> Gating -> Canary -> Promoting -> Stable          a new revision
                  \________\_________\-> RollingBack -> Stable  and the way back to the one that serves
    Promoting -> Stable                                         kill switch, return to the revision that serves

A gate without a verdict (inconclusive, or itself broken) rejects its revision like a FAIL, under a reason of its own:
not promoted is the safe side, a rollout held for ever is not. A spec change or the verb `retry` tries again.

One call is one transition. The plan records a transition in the status before it acts on it, so whoever reads the
status after a crash knows at least as much as the cluster shows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from island_engine.gate.report import Verdict
from island_operator.core import gate as gates
from island_operator.core import scale
from island_operator.core.clock import elapsed
from island_operator.core.model import Event
from island_operator.core.observe import Trouble
from island_operator.core.revision import remembered
from island_operator.core.scale import Room
from island_operator.core.state import CANARY, GATING, PENDING, PROMOTING, ROLLING_BACK, Gate, Known, Run, State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from island_operator.core.intent import Intent
    from island_operator.core.model import Object, Snapshot
    from island_operator.core.observe import Fleet
    from island_operator.core.revision import Revision

ADVICE = "Change the spec, or annotate the object with radix-islands.dev/retry to try the same again"


@dataclass
class Pass:
    """One pass: what it knows, and the events it found worth telling."""

    intent: Intent
    snapshot: Snapshot
    seen: Mapping[str, Fleet]
    now: str
    events: list[Event] = field(default_factory=list)

    def tell(self, reason: str, note: str, *, warn: bool = False) -> None:
        """Note an event."""
        self.events.append(Event("Warning" if warn else "Normal", reason, note[:1000]))

    def fleet(self, revision: str | None) -> Fleet | None:
        """The pods of a revision."""
        return self.seen.get(revision) if revision else None

    def revision(self, name: str | None) -> Revision | None:
        """A revision's parts: from the spec, from its Deployment, or from the stable Service."""
        asked = self.intent.revision
        if name is None or (asked and asked.hash == name):
            return asked if name else None
        deployment = self.snapshot.child("Deployment", f"{self.intent.name}-{name}")
        return remembered(deployment, name) or remembered(self.stable_service, name)

    @property
    def stable_service(self) -> Object | None:
        """The Service that selects the active revision, and keeps its parts."""
        return self.snapshot.child("Service", f"{self.intent.name}-stable")

    def others_idle(self, revision: str) -> bool:
        """No other revision has a pod or asks for one."""
        return all(f.idle for f in self.seen.values() if f.revision != revision)


def advance(state: State, here: Pass) -> State:
    """The next state; the same when nothing is to be decided."""
    intent = here.intent
    state = replace(state, desired=intent.desired)
    if intent.retry and (rejected := state.rejection(intent.desired)):
        here.tell("Retried", f"revision {rejected.revision}: tried again, it was rejected for {rejected.reason}")
        state = state.pardon(rejected.revision)
    if state.run:
        state = _proceed(state, state.run, here)
    goal = _goal(state, here)
    if goal == (state.run.revision if state.run else state.active):
        return state
    return _start(state, goal, here)


def killing(state: State, here: Pass) -> bool:
    """Islands are asked off while they serve: from the active revision, or from a canary."""
    active, known = here.fleet(state.active), state.known(state.active)
    serving = (active and active.half == "islands") or (known and known.islands)
    return not here.intent.islands and bool(serving or any(f.half == "islands" and f.ready for f in here.seen.values()))


def _goal(state: State, here: Pass) -> str | None:
    """The revision to be at: the desired one, unless it is rejected; nothing stops the kill switch."""
    desired = here.intent.desired
    if desired is None and state.run and state.run.phase != GATING:
        return state.run.revision  # what a broken spec asks for is unknown: go on with what is under way
    if desired is None or (state.rejection(desired) and not killing(state, here)):
        return state.active
    return desired


def _start(state: State, goal: str | None, here: Pass) -> State:
    intent, before = here.intent, state.run
    if before:
        state = _abort_gate(replace(state, run=None), here)
        here.tell(
            "RolloutEnded",
            f"the rollout of revision {before.revision} ended in {before.phase}: the spec asks for another",
        )
    if goal is None:
        return state
    kind, phase = "Rollout", _route(state, here) if state.active else PENDING
    if goal == state.active:
        undone = state.rejection(intent.desired)
        kind, phase = ("Rollback", ROLLING_BACK) if undone else ("Revert", PROMOTING)
    elif killing(state, here):
        kind, phase = "KillSwitch", PROMOTING
    run = Run(
        revision=goal,
        kind=kind,
        phase=phase,
        mode=intent.mode,
        steps=intent.steps,
        deadline=intent.deadline,
        previous=state.active,
        started_at=here.now,
        progress_at=here.now,
    )
    here.tell(
        f"{kind}Started", f"revision {goal}{f', from {state.active}' if state.active else ''}", warn=kind == "Rollback"
    )
    return _enter(state, run, phase, here)


def _route(state: State, here: Pass) -> str:
    """Where a new revision begins: islands are proved first, once per revision."""
    intent = here.intent
    known = state.known(intent.desired)
    if intent.islands and intent.gated and not (known and known.verdict == Verdict.PASS):
        return GATING
    return CANARY if state.active else PROMOTING


def _enter(state: State, run: Run, phase: str, here: Pass) -> State:
    """A phase begins: a new gate attempt for Gating, a fresh clock for all."""
    run = replace(run, phase=phase, step=0, held_since=None, progress_at=here.now)
    if phase != GATING:
        return replace(state, run=run)
    attempt = (state.gate.attempt if state.gate else 0) + 1
    job = gates.job_name(here.intent.name, here.intent.uid, run.revision, attempt)
    here.tell("GateStarted", f"Job {job} compares revision {run.revision} with islands off, on and off again")
    return replace(state, run=run, gate=Gate(run.revision, attempt, job, here.now))


def _abort_gate(state: State, here: Pass) -> State:
    """A gate whose revision is no longer wanted has no verdict any more; its Job goes, and the GPU with it."""
    if state.gate is None or state.gate.verdict:
        return state
    gate = replace(
        state.gate,
        verdict=str(Verdict.INCONCLUSIVE),
        reason="Aborted",
        message="the spec changed while it ran",
        finished_at=here.now,
    )
    return replace(state, gate=gate)


def _proceed(state: State, run: Run, here: Pass) -> State:
    if run.phase == PENDING:
        return _enter(state, run, _route(state, here), here) if run.revision == here.intent.desired else state
    if run.phase == GATING:
        gate = state.gate
        lost = gate is None or gate.revision != run.revision or gate.verdict is not None
        return _enter(state, run, GATING, here) if gate is None or lost else _gating(state, run, gate, here)
    fleet = here.fleet(run.revision)
    if fleet is None or fleet.deployment is None:
        return state  # made by the next pass that decides nothing
    ready = fleet.ready
    if ready > run.ready:
        run = replace(run, ready=ready, progress_at=here.now)
        state = replace(state, run=run)
    if not run.fast and run.previous and here.intent.auto_rollback and (failure := failing(run, here)):
        here.tell("RolloutFailed", f"revision {run.revision} in {run.phase}: {failure.message}", warn=True)
        return _reject(state, run, failure, here)
    if run.fast:
        since = (run.starved_since or here.now) if scale.starved(run.revision, here.seen) else None
        state = replace(state, run=replace(run, starved_since=since))
    if run.phase == CANARY:
        return _canary(state, run, ready, here)
    if ready >= here.intent.replicas and here.others_idle(run.revision):
        return _complete(state, run, here)
    return state


def _gating(state: State, run: Run, gate: Gate, here: Pass) -> State:
    finding = gates.judge(gate, here.intent.gate_deadline, here.snapshot, here.now)
    job = here.snapshot.child("Job", gate.job)
    if job and gates.owned(job, here.intent.uid):
        gate = replace(gate, job_uid=str(job["metadata"]["uid"]))
    gate = replace(gate, reason=finding.reason, message=finding.message)
    if finding.verdict is None:
        return replace(state, gate=gate)
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
    state = replace(state, gate=gate)
    if finding.verdict is Verdict.PASS and (known := _known(here, gate.revision, gate)):
        here.tell("GatePassed", f"revision {gate.revision}: {finding.message}")
        state = state.learn(known, here.intent.history_limit)
        return _enter(state, run, CANARY if state.active else PROMOTING, here)
    failed = finding.verdict is Verdict.FAIL
    reason = "GateFailed" if failed else finding.reason
    here.tell("GateFailed" if failed else "GateInconclusive", f"revision {gate.revision}: {finding.message}", warn=True)
    return _reject(state, run, Trouble(reason, finding.message), here)


def _reject(state: State, run: Run, why: Trouble, here: Pass) -> State:
    """The run's revision is out; the way back begins in the same decision."""
    state = state.reject(run.revision, why.reason, why.message, here.now)
    return _start(state, state.active, here) if state.active else state


def _known(here: Pass, name: str, gate: Gate | None = None, **more: str) -> Known | None:
    if (revision := here.revision(name)) is None:
        return None
    half = revision.half
    passed = {"verdict": gate.verdict, "fingerprint": gate.fingerprint} if gate else {}
    return Known(revision.hash, half.islands, half.ratio, half.max_total_tokens, **passed, **more)


def failing(run: Run, here: Pass) -> Trouble | None:
    """Why the new revision must not go on: a crash, an image that cannot be had, or no progress until the deadline."""
    fleet = here.fleet(run.revision)
    crashes = fleet.crashes if fleet and not run.fast else ()  # pods that are returned to may have restarted long ago
    if fleet and (bad := next((t for t in (*crashes, *fleet.troubles) if t.fatal), None)):
        return bad
    waits = run.held_since is None and (fleet.ready if fleet else 0) < here.intent.replicas
    if not waits or elapsed(run.progress_at, here.now) <= run.deadline:
        return None
    told = f"no progress for {run.deadline} s (spec.rollout.deadline)"
    if fleet and fleet.troubles:
        return Trouble(fleet.troubles[0].reason, f"{told}: {fleet.troubles[0].message}")
    return Trouble("DeadlineExceeded", told)


def cap(run: Run, room: Room) -> int:
    """Most pods of the new revision in the current canary step."""
    weight = run.steps[run.step][0]
    return max(1, round(weight * room.limit / 100))


def _canary(state: State, run: Run, ready: int, here: Pass) -> State:
    room = Room.of(here.intent.replicas, run.mode)
    if ready < min(cap(run, room), room.n):
        return replace(state, run=replace(run, held_since=None))
    run = replace(run, held_since=run.held_since or here.now)
    if elapsed(str(run.held_since), here.now) < run.steps[run.step][1]:
        return replace(state, run=run)
    if run.step + 1 < len(run.steps):
        return replace(state, run=replace(run, step=run.step + 1, held_since=None, progress_at=here.now))
    here.tell("CanaryPassed", f"revision {run.revision} held {len(run.steps)} step(s)")
    return _enter(state, run, PROMOTING, here)


def _complete(state: State, run: Run, here: Pass) -> State:
    told = f"revision {run.revision} serves with {here.intent.replicas} of {here.intent.replicas} pods Ready"
    here.tell("RolledBack" if run.kind == "Rollback" else "Promoted", told, warn=run.kind == "Rollback")
    state = replace(state, active=run.revision, run=None)
    known = _known(here, run.revision, promoted_at=here.now)
    return state.learn(known, here.intent.history_limit) if known else state
