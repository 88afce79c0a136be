"""What the status tells a person: conditions, counts, and what is being waited for with what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from island_engine.gate.report import SETTLED, Verdict
from island_operator.core import killswitch
from island_operator.core import state as states
from island_operator.core.health import failing, fault
from island_operator.core.observe import ENGINE, INSTANCE, ROLE, Trouble, condition, refusal, route_trouble
from island_operator.core.prometheus import unanswered
from island_operator.core.regate import drifted
from island_operator.core.transitions import GATING, PENDING
from island_operator.core.waits import blocker, of_run, told_with, turn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from island_operator.core.coupling import Half
    from island_operator.core.model import Object
    from island_operator.core.state import Rejected, State
    from island_operator.core.view import Pass

UNREADABLE = 8  # engines named
_ZERO = "scaled to zero: nothing serves"
_RETRY = "Change the spec, or annotate the object with radix-islands.dev/retry to try the same again"
_NO_RETRY = "Change the spec: every attempt at the same revision ends so"


def moved(
    old: Iterable[Object], kind: str, status: str, reason: str, message: str, generation: int, now: str
) -> Object:
    """A condition whose lastTransitionTime moves only when its status flips."""
    before = next((c for c in old if c["type"] == kind), None)
    since = before["lastTransitionTime"] if before and before["status"] == status else now
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
        "lastTransitionTime": since,
    }


def report(state: State, here: Pass) -> Object:
    """The whole status."""
    meta, old = here.snapshot.parent["metadata"], here.snapshot.parent.get("status") or {}
    ready = sum(f.ready for f in here.seen.values())
    status: Object = {
        "observedGeneration": meta["generation"],
        **states.written(state),
        "replicas": sum(f.pods for f in here.seen.values()),
        "readyReplicas": ready,
        "selector": f"{INSTANCE}={meta['name']},{ROLE}={ENGINE}",
    }
    if verdict := _verdict(state):
        status["gateVerdict"] = verdict
    if serving := here.revision(state.active):
        status["islands"] = _pair(serving.half)
    if unread := _unread(state, here):
        status["unreadable"] = unread
    if open_ := unanswered(state.run, here):
        status["unanswered"] = [{"query": name, "reason": why} for name, why in open_.items()]
    told = {
        "Ready": _ready(state, here, ready),
        "Available": _available(state, here, ready),
        "Progressing": _progressing(state, here),
        "Degraded": _degraded(state, here),
        "GatePassed": _gate_passed(state, here),
        "RolledBack": _rolled_back(state, here),
    }
    conditions = old.get("conditions") or ()
    status["conditions"] = [moved(conditions, kind, *told[kind], meta["generation"], here.now) for kind in told]
    return status


def _verdict(state: State) -> str | None:
    """The column Gate: of what is desired. status.gate keeps the last attempt, whatever it was about; a PASS counts
    only as long as nothing has cast doubt on it.
    """
    desired, gate, known = state.desired, state.gate, state.known(state.desired)
    if desired is None:
        return None
    if (drift := drifted(state)) and drift.revision == desired:
        return drift.verdict
    if known and known.verdict:
        return known.verdict
    return gate.verdict if gate and gate.revision == desired and gate.verdict != Verdict.PASS else None


def _unread(state: State, here: Pass) -> list[Object]:
    """Engines whose /metrics cannot be read, and why: what is watched there is not."""
    revisions = {state.active, state.run.revision if state.run else None} - {None}
    faults = {pod: r.fault for name in revisions for pod, r in here.readings(name).items() if r.fault}
    return [{"pod": pod, "reason": faults[pod]} for pod in sorted(faults)[:UNREADABLE]]


def _pair(half: Half) -> Object:
    """The coupled unit that serves; a unified pool has neither ratio nor tokens of its own."""
    pair: Object = {"enabled": half.islands, "maxRunningRequests": half.max_running_requests}
    return pair if half.ratio is None else pair | {"ratio": half.ratio, "maxTotalTokens": half.max_total_tokens}


Told = tuple[str, str, str]  # status, reason, message


def _ready(state: State, here: Pass, ready: int) -> Told:
    """Available, and the desired revision is the one that serves, with all its pods."""
    n, blocked = here.intent.replicas, blocker(state, here)
    if here.intent.fault:
        return "False", here.intent.fault.reason, here.intent.fault.message
    rejected = state.rejection(state.desired)
    if rejected and not (state.run and state.run.kind == killswitch.KIND):
        told = _rejection(rejected, state)
        return "False", "RolledBack" if state.active else rejected.reason, told
    if state.run:
        reason, message = of_run(state, state.run, here, blocked)
        return "False", reason, message
    if ready < n:
        told = f"{ready} of {n} pods are Ready{turn(state, here, blocked)}"
        return "False", blocked.reason if blocked else "PodsNotReady", told_with(told, blocked, here, state)
    if n == 0:
        known = state.known(state.active)
        unseen = "" if known and known.promoted_at else f", and no pod of revision {state.active} has been Ready yet"
        return "True", "ScaledToZero", f"{_ZERO}{unseen}"
    return "True", "Serving", f"revision {state.active} serves with {ready} of {n} pods Ready"


def _available(state: State, here: Pass, ready: int) -> Told:
    """Requests are served: at most one pod is missing."""
    n = here.intent.replicas
    if n == 0:
        return "True", "ScaledToZero", _ZERO
    told = f"{ready} of {n} pods are Ready"
    if ready >= max(1, n - 1):
        return "True", "EnoughPodsReady", told
    if state.run and state.run.mode == "Downtime" and n == 1:
        return "False", "Downtime", f"{told}: the only one gave its GPU up, as spec.rollout.mode Downtime says"
    return "False", "TooFewPodsReady", told


def _progressing(state: State, here: Pass) -> Told:
    if state.run:
        return "True", *of_run(state, state.run, here, blocker(state, here))
    return "False", state.phase, f"nothing rolls out; revision {state.active or 'none'} is active"


def _degraded(state: State, here: Pass) -> Told:
    """Something needs a person."""
    run = state.run
    if wrong := here.intent.fault:
        return "True", wrong.reason, wrong.message
    failure, rejected = _failure(state, here), state.rejection(state.desired)
    if rejected and not (failure and run and run.kind == killswitch.KIND):
        return "True", rejected.reason, _rejection(rejected, state)
    if run and failure:
        what = "the kill switch waits for " if run.kind == killswitch.KIND else ""
        return "True", failure.reason, told_with(f"{what}revision {run.revision}", failure, here, state)
    if bad := fault(state, here):
        return "True", bad.why.reason, told_with(f"revision {state.active}", bad.why, here, state)
    if drift := drifted(state):
        told = f"revision {state.active} answers otherwise than when it was proved: {drift.message}"
        return "True", "DriftFound", f"{told}. Set spec.islands.enabled to false, or make node and image what they were"
    if refused := _refused(here) or route_trouble(here.snapshot.child("HTTPRoute", here.intent.name)):
        return "True", refused.reason, refused.message
    if not state.run and (blocked := blocker(state, here)):
        return "True", blocked.reason, told_with(f"revision {state.active}", blocked, here, state)
    return "False", "AsExpected", "nothing needs attention"


def _failure(state: State, here: Pass) -> Trouble | None:
    """What fails a rollout that has pods; also what did so a moment ago and keeps them from serving still, as an image
    does between two pulls.
    """
    run = state.run
    if run is None or run.phase in {GATING, PENDING}:
        return None
    blocked, was = blocker(state, here), condition(here.snapshot.parent, "Degraded")
    still = blocked and (was.get("status"), was.get("reason")) == ("True", blocked.reason)
    return failing(run, here) or (blocked if still else None)


def _refused(here: Pass) -> Trouble | None:
    """The first child that the API server does not take."""
    return next((t for kind, name in sorted(here.snapshot.refused) if (t := refusal(here.snapshot, kind, name))), None)


def _gate_passed(state: State, here: Pass) -> Told:
    known, gate = state.known(state.desired), state.gate
    if known and known.verdict == Verdict.PASS:
        return "True", "Passed", f"islands answered byte for byte as without, revision {known.revision}"
    if not here.intent.islands or not here.intent.gated:
        return "Unknown", "NotRequired", "islands are off" if not here.intent.islands else "spec.gate.enabled is false"
    if (drift := drifted(state)) and drift.revision == state.desired:
        return "False", "DriftFound", str(drift.message)
    if gate and gate.revision == state.desired and gate.verdict == Verdict.PASS:
        return "Unknown", "Doubted", "it passed once; what happened since asks for another proof"
    if gate is None or gate.revision != state.desired or gate.verdict is None:
        return "Unknown", "NotYet", gate.message if gate and gate.message and not gate.verdict else "not gated yet"
    return "False", "GateFailed" if gate.verdict == Verdict.FAIL else str(gate.reason), str(gate.message)


def _rolled_back(state: State, here: Pass) -> Told:
    rejected = state.rejection(state.desired)
    if rejected and state.active and here.intent.fault is None and state.active != state.desired:
        return "True", rejected.reason, _rejection(rejected, state)
    return "False", "NotRolledBack", "the desired revision is not rejected"


def _rejection(rejected: Rejected, state: State) -> str:
    serves = f"revision {state.active} serves" if state.active else "nothing serves"
    advice = _NO_RETRY if rejected.reason in SETTLED else _RETRY
    return f"revision {rejected.revision} was rejected: {rejected.message}; {serves}. {advice}"
