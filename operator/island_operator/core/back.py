"""Revisions to go back to: the one that was good before, and the stock half of what serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from island_operator.core.state import State
    from island_operator.core.view import Pass


def last_good(state: State, here: Pass) -> str | None:
    """The revision to go back to: the one promoted last before this and never rejected, else the stock half of what
    serves. Never one with islands while the spec has them off: that would undo the kill switch.
    """
    good = [
        known
        for known in state.history
        if known.promoted_at
        and known.revision != state.active
        and not state.rejection(known.revision)
        and (here.intent.islands or not known.islands)
        and here.revision(known.revision)
    ]
    if good:
        return max(good, key=lambda k: str(k.promoted_at)).revision
    twin = stock_half(state, here)
    return None if state.rejection(twin) else twin


def stock_of(state: State, here: Pass) -> str | None:
    """What serves, or comes up where nothing does, with islands off: itself where they are; None: nobody knows it."""
    serving = here.revision(state.active) or here.revision(state.run.revision if state.run else None)
    return serving.stock_twin.hash if serving else None


def stock_half(state: State, here: Pass) -> str | None:
    """The revision that serves, with islands off; None where they are off already."""
    twin = stock_of(state, here) if here.revision(state.active) else None
    return None if twin == state.active else twin
