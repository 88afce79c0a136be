"""What an object waits for, in one sentence, and what to do about it; nothing to do where it comes by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from island_operator.core import killswitch, scale
from island_operator.core.clock import elapsed
from island_operator.core.gate import FINE
from island_operator.core.health import step_over, waits_for
from island_operator.core.observe import BINDING, SCHEDULING, Trouble
from island_operator.core.prometheus import unanswered
from island_operator.core.scale import Room
from island_operator.core.transitions import CANARY, GATING

if TYPE_CHECKING:
    from island_operator.core.intent import Intent
    from island_operator.core.state import Run, State
    from island_operator.core.view import Pass

_UNCHECKED = (
    "with spec.replicas 0 nothing of it can be checked: set spec.replicas to 1 or more, or annotate the object with "
    "radix-islands.dev/promote to take it unchecked"
)
_SCARCE = {  # by mode and whether there are several replicas: the least that a rollout needs is the next mode's
    ("Surge", True): "free one, or set spec.rollout.mode to Replace, which uses the GPU of a serving pod",
    ("Surge", False): "free one, or set spec.rollout.mode to Downtime, which stops the serving pod meanwhile",
}


def blocker(state: State, here: Pass) -> Trouble | None:
    """What is being waited for against one's will: the gate's pod, the pods of the new revision, those that serve."""
    run, gate = state.run, state.gate
    if run and run.phase == GATING:
        waits = gate and not gate.verdict and gate.reason not in FINE
        return Trouble(str(gate.reason), str(gate.message)) if gate and waits else None
    fleet = here.fleet(run.revision if run else state.active)
    if fleet and fleet.troubles:
        return None if fleet.troubles[0].reason in SCHEDULING and _soon(state, here) else fleet.troubles[0]
    if not run and state.active and fleet is None:
        return Trouble("RevisionLost", f"the Deployment of revision {state.active} is gone")
    return None


def _soon(state: State, here: Pass) -> bool:
    """Whoever has no GPU gets one without anybody's help, as far as can be seen."""
    run, intent = state.run, here.intent
    starved = run.starved_since if run else None
    if starved and elapsed(starved, here.now) < BINDING:
        return True
    room, target = Room.of(intent.replicas, run.mode if run else intent.mode), run.revision if run else state.active
    return scale.frees_itself(room, str(target), state.active, here.seen, fast=bool(run and run.fast))


def turn(state: State, here: Pass, blocked: Trouble | None) -> str:
    """What is waited for that comes by itself, where nothing else is in the way."""
    fleet = here.fleet(state.run.revision if state.run else state.active)
    waits = blocked is None and fleet and fleet.unscheduled and _soon(state, here)
    return ", the next waits for a GPU that another pod gives up" if waits else ""


def of_run(state: State, run: Run, here: Pass, blocked: Trouble | None) -> tuple[str, str]:
    """Reason and message of a rollout in progress."""
    fleet, n = here.fleet(run.revision), here.intent.replicas
    ready = fleet.ready if fleet else 0
    if run.phase == GATING:
        told = f"gate of revision {run.revision}"
        said = state.gate.message if state.gate and state.gate.message else "starting"
        return (blocked.reason, told_with(told, blocked, here, state)) if blocked else (GATING, f"{told}: {said}")
    if run.paused_at:
        told = f"revision {run.revision} is paused in {run.phase} since {run.paused_at}: resume, promote or abort"
        return "Paused", f"{told}; {ready} of {n} pods are Ready"
    if run.phase == CANARY and n == 0:
        return "ScaledToZero", f"canary of revision {run.revision}: {_UNCHECKED}"
    if run.phase == CANARY and run.held_since:
        told = f"canary of revision {run.revision}: step {run.step + 1} of {len(run.steps)} holds {run.pause} s"
        if step_over(run, here) is not None and (missing := unanswered(run, here)):
            told = f"{told} and longer: {waits_for(missing)}"
    elif fleet is None or fleet.deployment is None:
        told = f"revision {run.revision}: its Deployment is not there yet"
    elif ready >= n and not here.others_idle(run.revision):
        told = f"revision {run.revision}: waits for the pods of other revisions to end"
    else:
        told = f"revision {run.revision}{_rest(state, run)}: {ready} of {n} pods are Ready{turn(state, here, blocked)}"
    return blocked.reason if blocked else run.phase, told_with(told, blocked, here, state)


def _rest(state: State, run: Run) -> str:
    ahead = run.kind == killswitch.KIND and state.desired not in {None, run.revision}
    return ", what serves with islands off, before the rest of the spec" if ahead else ""


def _scarce(intent: Intent, state: State) -> str:
    """Which field to change where there are too few GPUs; another mode helps where something gives its GPU up."""
    mode = intent.mode if intent.replicas > 1 or intent.mode == "Downtime" else "Surge"
    helps = state.run and not state.run.fast and state.active
    return (_SCARCE.get((mode, intent.replicas > 1)) if helps else None) or "free one, or lower spec.replicas"


def told_with(told: str, blocked: Trouble | None, here: Pass, state: State) -> str:
    """The sentence, what is in the way and what to do about that."""
    if blocked is None:
        return told
    advice = _scarce(here.intent, state) if blocked.reason == "InsufficientGPU" else blocked.advice
    return f"{told}: {blocked.message}{f' ({advice})' if advice else ''}"
