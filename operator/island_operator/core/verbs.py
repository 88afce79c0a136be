"""The user's verbs: an annotation radix-islands.dev/VERB, whatever its value unless that says no. Each is carried out
once, told as an Event, kept in status.verbs with what came of it, and taken off the object.

`open` is what makes it once: recorded and the annotation still there means that only taking it off is left to do, also
for an operator that was started in between.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from island_operator.core import back, killswitch, rollout
from island_operator.core.observe import Trouble
from island_operator.core.state import Rejected, Verb
from island_operator.core.transitions import CANARY, GATING, PENDING, PROMOTING, Cause

if TYPE_CHECKING:
    from collections.abc import Callable

    from island_operator.core.state import Run, State
    from island_operator.core.view import Pass

KEPT = 10  # verbs remembered
MOST_UNKNOWN = 4  # unknown ones told of in one pass
NO = {"false", "no", "0", "off"}  # values that whoever wrote them did not mean as "do it"
_REFUSED, _UNKNOWN = "was refused:", "unknown verb"  # how an outcome begins that is none


class Refused(Exception):  # noqa: N818 - an answer, not a fault
    """The verb makes no sense now; `str()` is one sentence with what to do instead."""


def carry_out(state: State, here: Pass) -> State:
    """Every verb on the object that was not carried out yet, in the order of VERBS: abort goes before all others."""
    asked = here.intent.verbs
    state = replace(
        state, verbs=tuple(replace(v, open=(v.open and (v.name, v.value) in asked) or None) for v in state.verbs)
    )
    done = {(v.name, v.value) for v in state.verbs if v.open}
    fresh = [verb for verb in asked if verb not in done]
    aborts = any(name == "abort" and not _declined(value) for name, value in fresh)
    order = sorted((verb for verb in fresh if verb[0] in VERBS), key=lambda verb: list(VERBS).index(verb[0]))
    for name, value in order:
        state = _do(state, name, value, here, aborted=aborts and name != "abort")
    for name, value in sorted(verb for verb in fresh if verb[0] not in VERBS)[:MOST_UNKNOWN]:
        told = f"{_UNKNOWN} {name}: use one of {', '.join(VERBS)}"
        here.tell("VerbUnknown", told, warn=True)
        state = _record(state, name, value, told, here)
    return state


def refused(verb: Verb) -> bool:
    """Its outcome in the status says that it was not carried out."""
    return verb.outcome.startswith((f"{verb.name} {_REFUSED} ", f"{_UNKNOWN} {verb.name}: "))


def refusal(name: str, state: State, here: Pass) -> str | None:
    """Why a verb makes no sense now, in one sentence with what to do instead; None: it would be carried out."""
    _, possible, _ = VERBS[name]
    try:
        possible(state, here)
    except Refused as no:
        return str(no)
    return None


def _do(state: State, name: str, value: str, here: Pass, *, aborted: bool) -> State:
    event, _, act = VERBS[name]
    try:
        if _declined(value):
            raise Refused(f'its value is "{value}": remove the annotation, or set any other value')
        if aborted:
            raise Refused("abort was asked for at the same time and beats it")
        state, told = act(state, here)
    except Refused as no:
        told = f"{name} {_REFUSED} {no}"
        here.tell("VerbRefused", told, warn=True)
    else:
        here.tell(event, told)
    return _record(state, name, value, told, here)


def _declined(value: str) -> bool:
    return value.strip().lower() in NO


def _record(state: State, name: str, value: str, told: str, here: Pass) -> State:
    return replace(state, verbs=(*state.verbs, Verb(name, value, here.now, told, open=True))[-KEPT:])


def _to_abort(state: State, _: Pass) -> Run:
    run = state.run
    if run is None:
        raise Refused("no rollout is in progress; use rollback to leave the revision that serves")
    if run.fast:
        raise Refused(_unstoppable(run))
    return run


def _abort(state: State, here: Pass) -> tuple[State, str]:
    run = _to_abort(state, here)
    told = f"the rollout of revision {run.revision} was aborted in {run.phase}"
    return rollout.reject(state, run, Trouble("Aborted", f"aborted in {run.phase} by annotation"), here), told


def _unstoppable(run: Run) -> str:
    """Why no verb holds up what leads away from a fault or from islands that are not wanted, and what does."""
    if run.kind == killswitch.KIND:
        leave = "set spec.islands.enabled to true to have islands, or mend the spec if its pods cannot start"
        return f"the kill switch is in progress, and no verb holds it up; {leave}"
    return f"a {run.kind} to revision {run.revision} is in progress, and no verb holds it up; change the spec instead"


def _to_go_back_to(state: State, here: Pass) -> str:
    if state.run:
        begun = "a rollout is in progress; use abort to leave it"
        raise Refused(_unstoppable(state.run) if state.run.fast else begun)
    target = back.last_good(state, here) if state.active else None
    if target is None:
        off = "" if here.intent.islands else " and has islands off, as spec.islands.enabled says"
        raise Refused(f"no earlier revision is left that was promoted and not rejected{off}; change the spec")
    return target


def _rollback(state: State, here: Pass) -> tuple[State, str]:
    target = _to_go_back_to(state, here)
    told = f"revision {state.active} gives way to revision {target}"
    why = Trouble("RolledBackByHand", "rolled back by annotation")
    return rollout.fall_back(state, target, why, here), told


def _to_retry(state: State, here: Pass) -> Rejected | Run:
    if rejected := state.rejection(here.intent.desired):
        return rejected
    run = state.run
    if run is None or run.fast or run.revision != here.intent.desired:
        raise Refused("the revision that the spec asks for is not rejected, and none is rolled out")
    return run


def _retry(state: State, here: Pass) -> tuple[State, str]:
    """A rejected revision is tried again; a rollout in progress begins anew, with spec.rollout as it is now."""
    found = _to_retry(state, here)
    if isinstance(found, Rejected):
        told = f"revision {found.revision}: tried again, it was rejected for {found.reason}"
        return state.pardon(found.revision), told
    return rollout.restart(state, found, here), f"revision {found.revision}: its rollout begins anew"


def _to_promote(state: State, _: Pass) -> Run:
    run = state.run
    if run is None or run.fast:
        raise Refused("no canary is in progress")
    if run.phase in {PENDING, GATING}:
        raise Refused("the gate has not passed; to go without it set spec.gate.enabled to false")
    if run.phase == PROMOTING and run.paused_at is None:
        raise Refused(f"revision {run.revision} is being promoted already")
    return run


def _promote(state: State, here: Pass) -> tuple[State, str]:
    run = _resumed(_to_promote(state, here), here.now)
    told = f"revision {run.revision} is promoted without the rest of its steps"
    return (rollout.move(state, run, Cause.HELD, here) if run.phase == CANARY else replace(state, run=run)), told


def _to_resume(state: State, _: Pass) -> Run:
    if state.run is None or state.run.paused_at is None:
        raise Refused("no rollout is paused")
    return state.run


def _resume(state: State, here: Pass) -> tuple[State, str]:
    run = _to_resume(state, here)
    return replace(state, run=_resumed(run, here.now)), f"the rollout of revision {run.revision} goes on"


def _to_pause(state: State, _: Pass) -> Run:
    run = state.run
    if run is None:
        raise Refused("no rollout is in progress that could be paused")
    if run.fast:
        raise Refused(_unstoppable(run))
    if run.paused_at:
        raise Refused(f"the rollout has been paused since {run.paused_at}")
    return run


def _pause(state: State, here: Pass) -> tuple[State, str]:
    """Nothing goes forward; what fails is still rolled back, and the deadline does not run."""
    run = _to_pause(state, here)
    told = f"the rollout of revision {run.revision} is paused in {run.phase}; resume, promote or abort it"
    return replace(state, run=replace(run, paused_at=here.now)), told


def _resumed(run: Run, now: str) -> Run:
    """Deadline and the hold of the step begin again."""
    return replace(run, paused_at=None, progress_at=now, held_since=None)


# name -> its Event's reason; what it would act on, or Refused; what it does
VERBS: dict[str, tuple[str, Callable[[State, Pass], object], Callable[[State, Pass], tuple[State, str]]]] = {
    "abort": ("Aborted", _to_abort, _abort),
    "rollback": ("RollbackAsked", _to_go_back_to, _rollback),
    "retry": ("Retried", _to_retry, _retry),
    "promote": ("PromotionAsked", _to_promote, _promote),
    "resume": ("Resumed", _to_resume, _resume),
    "pause": ("Paused", _to_pause, _pause),
}
