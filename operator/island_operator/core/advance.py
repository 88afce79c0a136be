"""One decision: the user's verbs, the run in progress or the watch over what serves, then where the spec leads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from island_operator.core import back, health, regate, rollout, verbs

if TYPE_CHECKING:
    from island_operator.core.state import State
    from island_operator.core.view import Pass


def advance(state: State, here: Pass) -> State:
    """The next state; the same when nothing is to be decided."""
    state = verbs.carry_out(replace(state, desired=here.intent.desired), here)
    target = None
    if here.intent.auto_rollback and (fault := health.fault(state, here)):
        target = back.stock_half(state, here) if fault.islands else back.last_good(state, here)
        state = rollout.fall_back(state, target, fault.why, here) if target else state
    if state.run and target is None:
        state = rollout.proceed(state, state.run, here)
    state = regate.proceed(rollout.first_seen(state, here), here)
    goal = rollout.goal(state, here)
    if goal != (state.run.revision if state.run else state.active):
        state = rollout.start(state, goal, here)
    return rollout.onward(state, here)
