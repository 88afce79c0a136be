"""Who gets the requests: which revision the Services NAME-stable and NAME-canary select, and what an HTTPRoute weighs.

Nothing is sent where no pod is Ready, or none is to stay, while one is Ready elsewhere: during a fallback what is left
still serves, and at the end of a promotion what is new serves already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from island_operator.core.scale import Room
from island_operator.core.transitions import CANARY, GATING, PENDING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from island_operator.core.state import Run, State
    from island_operator.core.view import Pass


@dataclass(frozen=True)
class Traffic:
    """Revisions by name; they are the same where there is but one."""

    stable: str
    canary: str
    share: int  # per cent of the requests that are the canary's


def rolling(state: State) -> str | None:
    """The revision that is getting pods."""
    run = state.run
    return run.revision if run and run.phase not in {PENDING, GATING} else None


def split(state: State, here: Pass, wanted: Mapping[str, int]) -> Traffic | None:
    """None: there is no revision yet. `wanted`: replicas per revision that this pass asks for."""
    stay = {name: min(fleet.ready, wanted.get(name, 0)) for name, fleet in here.seen.items()}
    ready = {name: count for name, count in stay.items() if count}
    new, run = rolling(state), state.run
    usual = state.active or new
    if usual is None:
        return None
    most = max(ready, key=lambda name: (ready[name], name == new), default=usual)
    stable = usual if usual in ready else most
    others = (new if new and here.seen.get(new) else None, run.previous if run and run.previous in ready else None)
    canary = next((name for name in others if name and name != stable), stable)
    share = 0 if canary == stable else _share(run, ready.get(canary, 0), ready.get(stable, 0), here.intent.replicas)
    return Traffic(stable, canary, share)


def _share(run: Run | None, canary: int, stable: int, replicas: int) -> int:
    """The weight of a canary's step once all its pods are Ready, until then that of the step before; in every other
    phase as many requests for a pod of the one as for a pod of the other. A pod of a step that lacks some, since it was
    scaled up or lost them, gets no more than one of the others.
    """
    if not canary or not stable:
        return 100 if canary else 0
    by_pods = round(100 * canary / (canary + stable))
    if run is None or run.phase != CANARY:
        return by_pods
    step, room = run.step if run.held_since else run.step - 1, Room.of(replicas, run.mode)
    weight = run.steps[step][0] if step >= 0 else 0
    return weight if canary >= min(room.cap(weight), room.n) else min(weight, by_pods)
