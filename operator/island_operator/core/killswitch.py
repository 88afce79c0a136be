"""The kill switch: `spec.islands.enabled` is false while islands serve.

It leads to the stock half of what serves, whatever else the spec says: the same image and the same parts, nothing new
but the switch and its pools. The rest of the spec is a rollout of its own once that half serves alone (docs/adr/0009).
Nothing is remembered for it: what serves and the run in progress, both in the status, decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from island_operator.core import health
from island_operator.core.back import stock_of
from island_operator.core.observe import Trouble

if TYPE_CHECKING:
    from island_operator.core.state import Run, State
    from island_operator.core.view import Pass

KIND = "KillSwitch"  # of its run


def pulled(state: State, here: Pass) -> bool:
    """Islands are asked off while they serve (from the active revision, or from a canary) or are on their way out."""
    if here.intent.islands:
        return False
    active, known, run = here.fleet(state.active), state.known(state.active), state.run
    if (active and active.half == "islands") or (known and known.islands) or (run and run.kind == KIND):
        return True
    left = [fleet for fleet in here.seen.values() if fleet.half == "islands" and not fleet.idle]
    return any(fleet.ready for fleet in left) or bool(left and run and run.fast)


def unwanted(run: Run, here: Pass) -> bool:
    """It leads to islands, and they have been switched off since."""
    revision = here.revision(run.revision)
    return not here.intent.islands and revision is not None and revision.half.islands


def target(state: State, here: Pass) -> str | None:
    """The revision to be at before any other; None: the switch is not pulled, or nobody knows what serves."""
    if not pulled(state, here):
        return None
    run, stock, desired = state.run, stock_of(state, here), here.intent.desired
    if run and run.kind == KIND:
        if run.revision in {stock, desired}:
            return run.revision
        if state.rejection(stock) and desired and not state.rejection(desired):
            return desired  # the spec was mended, and this switch has found that what serves cannot
    return stock


def instead(state: State, run: Run, here: Pass) -> str | None:
    """Where the switch leads when no pod of its run can start: from the stock half of what serves to the spec's own,
    and from there back, where it stays. None: there is no other.
    """
    if not run.fast or not pulled(state, here):
        return None
    stock, desired = stock_of(state, here), here.intent.desired
    if run.revision != stock:
        return stock
    return None if desired == stock or state.rejection(desired) else desired


def failing(state: State, run: Run, here: Pass) -> Trouble | None:
    """Why no pod of its run can start. What this switch has found out once is not waited for again: the spec was mended
    meanwhile.
    """
    before = state.rejection(run.revision)
    return health.failing(run, here) or (Trouble(before.reason, before.message) if before else None)
