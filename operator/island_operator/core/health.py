"""Is a revision fit to go on, or to stay? Judged from its pods; what to do about it is the machine's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from island_operator.core import checks, prometheus
from island_operator.core.clock import elapsed
from island_operator.core.observe import Trouble
from island_operator.core.transitions import CANARY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from island_operator.core.state import Run, State
    from island_operator.core.view import Pass


@dataclass(frozen=True)
class Fault:
    """Why what serves must not go on serving. `islands`: it is the islands' fault, so the stock half is the remedy."""

    why: Trouble
    islands: bool = False


def failing(run: Run, here: Pass) -> Trouble | None:
    """Why the new revision must not go on: a crash, an image that cannot be had, a check that fails, or no progress
    until the deadline.
    """
    fleet = here.fleet(run.revision)
    crashes = fleet.crashes if fleet and not run.fast else ()  # pods that are returned to may have restarted long ago
    found = (*crashes, *fleet.troubles) if fleet else ()
    if bad := next((t for t in found if t.fatal), None):
        return next(t for t in found if t.reason == bad.reason)  # the same pod, whichever is in back-off
    if not run.fast and (bad := _checked(run, here)):
        return bad
    told = f"no progress for {run.deadline} s (spec.rollout.deadline)"
    if (since := step_over(run, here)) is not None and (open_ := prometheus.unanswered(run, here)):
        late = run.paused_at is None and since > run.deadline
        return Trouble("QueryUnanswered", f"{told}: {waits_for(open_)}") if late else None
    waits = run.held_since is None and run.paused_at is None and (fleet.ready if fleet else 0) < here.intent.replicas
    if not waits or elapsed(run.progress_at, here.now) <= run.deadline:
        return None
    if fleet and fleet.troubles:
        return Trouble(fleet.troubles[0].reason, f"{told}: {fleet.troubles[0].message}")
    return Trouble("DeadlineExceeded", told)


def step_over(run: Run, here: Pass) -> float | None:
    """Seconds since the pause of a canary's step has passed; None: it has not. With no replicas nothing of it was seen,
    so that it never has.
    """
    if run.phase != CANARY or run.held_since is None or here.intent.replicas == 0:
        return None
    over = elapsed(run.held_since, here.now) - run.pause
    return over if over >= 0 else None


def waits_for(unanswered: Mapping[str, str]) -> str:
    """Which query keeps a canary from its next step, and why."""
    name, why = next(iter(unanswered.items()))
    return f"query {name} of {prometheus.FIELD} has no number: {why}"


def _checked(run: Run, here: Pass) -> Trouble | None:
    """What its engines say of themselves, and beside those that serve."""
    ours, found = here.readings(run.revision), _faulty(run.revision, here)
    if found or not run.checks or here.intent.replicas == 0:
        return found
    by_metrics = checks.failed(run.checks, ours.values(), here.readings(run.previous).values())
    return by_metrics or prometheus.failed(run, here)


def _faulty(name: str | None, here: Pass) -> Trouble | None:
    revision = here.revision(name)
    return checks.faulty(here.readings(name), here.planned(revision)) if revision else None


def fault(state: State, here: Pass) -> Fault | None:
    """What is wrong with the revision that serves; a crash loop only while nothing rolls, and a run's own pods fail."""
    fleet, known, run = here.fleet(state.active), state.known(state.active), state.run
    given_up = run is not None and run.fast and run.revision != state.active
    if fleet is None or known is None or (run and known.promoted_at is None) or given_up:
        return None
    if known.islands and (bad := _faulty(state.active, here)):
        return Fault(bad, islands=True)
    fresh = known.promoted_at is None or elapsed(known.promoted_at, here.now) <= here.intent.watch
    # Once per spec: a node that kills every engine must not walk back through the whole history.
    if run is None and fresh and fleet.looping and state.active == here.intent.desired:
        return Fault(Trouble("CrashLoop", fleet.looping[0].message))
    return None
