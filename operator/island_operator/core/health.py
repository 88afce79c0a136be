"""Is a revision fit to go on, or to stay? Judged from its pods; what to do about it is the machine's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from island_operator.core.clock import elapsed
from island_operator.core.observe import Trouble

if TYPE_CHECKING:
    from island_operator.core.state import Run, State
    from island_operator.core.view import Pass


@dataclass(frozen=True)
class Fault:
    """Why what serves must not go on serving. `islands`: it is the islands' fault, so the stock half is the remedy."""

    why: Trouble
    islands: bool = False


def failing(run: Run, here: Pass) -> Trouble | None:
    """Why the new revision must not go on: a crash, an image that cannot be had, or no progress until the deadline."""
    fleet = here.fleet(run.revision)
    crashes = fleet.crashes if fleet and not run.fast else ()  # pods that are returned to may have restarted long ago
    if fleet and (bad := next((t for t in (*crashes, *fleet.troubles) if t.fatal), None)):
        return bad
    waits = run.held_since is None and run.paused_at is None and (fleet.ready if fleet else 0) < here.intent.replicas
    if not waits or elapsed(run.progress_at, here.now) <= run.deadline:
        return None
    told = f"no progress for {run.deadline} s (spec.rollout.deadline)"
    if fleet and fleet.troubles:
        return Trouble(fleet.troubles[0].reason, f"{told}: {fleet.troubles[0].message}")
    return Trouble("DeadlineExceeded", told)


def fault(state: State, here: Pass) -> Fault | None:
    """What is wrong with the revision that serves, while nothing rolls."""
    fleet, known = here.fleet(state.active), state.known(state.active)
    if fleet is None or known is None or known.promoted_at is None:
        return None
    fresh = elapsed(known.promoted_at, here.now) <= here.intent.watch
    # Once per spec: a node that kills every engine must not walk back through the whole history.
    if fresh and fleet.looping and state.active == here.intent.desired:
        return Fault(Trouble("CrashLoop", fleet.looping[0].message))
    return None
