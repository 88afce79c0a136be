"""What the operator goes on from: the status as far as this release can read and follow it.

What cannot be read is as if it had never been written, and nothing that serves is given up for it: what serves is found
by the stable Service, or by the pods themselves. A run is one decision, so that one with a part that cannot be read
begins anew; paused, where the status still says that somebody has paused it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from island_engine.gate.report import Verdict
from island_operator.api.rollout import Checks
from island_operator.core import legible, rollout, state
from island_operator.core.clock import elapsed
from island_operator.core.observe import condition
from island_operator.core.revision import remembered
from island_operator.core.transitions import PHASES, STABLE

if TYPE_CHECKING:
    from island_operator.core.model import Object, Snapshot
    from island_operator.core.revision import Revision
    from island_operator.core.state import Gate, Known, Run, State
    from island_operator.core.view import Pass

_Record = TypeVar("_Record", "Run", "Gate")
_KINDS = {"Rollout", "KillSwitch", "Rollback", "Revert"}
_MODES = {"Surge", "Replace", "Downtime"}
_ACTIVE = {"status", "status.revisions", "status.revisions.active"}  # paths without which it is not known what serves
_STAMPS = ("started_at", "progress_at", "held_since", "starved_since", "paused_at")
_VERDICTS = {None, *map(str, Verdict)}


@dataclass(frozen=True)
class Told:
    """What a status tells. `unread`: paths of what was left out; `held`: a run that was paused is among it."""

    state: State
    unread: tuple[str, ...]
    held: bool


def read(snapshot: Snapshot) -> tuple[Snapshot, Told]:
    """The snapshot with a status that fits, and the decisions in it."""
    told, unread = legible.status(snapshot.parent.get("status"))
    known, gone = state.read(told), list(unread)
    run = known.run
    if run and (any(path.startswith("status.run") for path in unread) or not _followed(run, known)):
        run, gone = None, [*gone, "status.run"]
    gate, regate = _judgeable(known.gate, "status.gate", gone), _judgeable(known.regate, "status.regate", gone)
    history = tuple(_proved(one, gone) for one in known.history)
    if run and run.revision != known.active:
        run = replace(run, previous=run.previous or known.active)
    sound = replace(known, run=run, gate=gate, regate=regate, history=history)
    held = run is None and _paused(snapshot.parent.get("status"), told)
    return replace(snapshot, parent={**snapshot.parent, "status": told}), Told(sound, tuple(dict.fromkeys(gone)), held)


def _followed(run: Run, known: State) -> bool:
    """Each of its words is one of this release's, and they agree."""
    words = run.phase in PHASES and run.phase != STABLE and run.kind in _KINDS and run.mode in _MODES
    agree = not run.paused_at if run.fast else known.desired in {None, run.revision}
    return words and agree and run.step < len(run.steps) and _checked(run.checks)


def _paused(raw: Any, told: Object) -> bool:
    """By whatever is left of its run, or by what people were told of it."""
    run = raw.get("run") if isinstance(raw, dict) else None
    by_run = isinstance(run, dict) and run.get("pausedAt") is not None
    return by_run or condition({"status": told}, "Progressing").get("reason") == "Paused"


def _checked(limits: Object | None) -> bool:
    if limits is None:
        return True
    try:
        Checks.model_validate(limits)
    except ValidationError:
        return False
    return "minRequests" in limits


def _judgeable(gate: Gate | None, path: str, gone: list[str]) -> Gate | None:
    if gate is None or gate.verdict in _VERDICTS:
        return gate
    gone.append(path)
    return None


def _proved(known: Known, gone: list[str]) -> Known:
    if known.verdict in _VERDICTS:
        return known
    gone.append("status.revisions.history")
    return replace(known, verdict=None, fingerprint=None)


def recovered(told: Told, here: Pass) -> State:
    """With what serves, where the status has lost it: children adopted by a new object, or what could not be read."""
    before = told.state
    if told.unread:
        why = f"this release cannot read {legible.named(told.unread)}, and goes on as if it had never been written"
        here.tell("StatusUnreadable", why, warn=True)
    run, gate = before.run, before.gate
    before = replace(before, run=run and _dated(run, here.now), gate=gate and _dated(gate, here.now))
    name = before.active
    if not (here.revision(name) or here.fleet(name)) and (name or _lost(before, told.unread, here)):
        found = _serving(here)
        before = replace(before, active=found.hash) if found else before
    return _held(before, here) if told.held else before


def _dated(record: _Record, now: str) -> _Record:
    """None of its stamps lies ahead, where somebody's clock was: what is counted from there would stand still."""
    ahead: dict[str, Any] = {
        name: now for name in _STAMPS if (stamp := getattr(record, name, None)) and elapsed(stamp, now) < 0
    }
    return replace(record, **ahead)


def _held(before: State, here: Pass) -> State:
    """With the run begun anew that somebody has paused: it waits for a verb as it did, unless no verb holds it up."""
    goal = rollout.goal(before, here)
    if goal == before.active:
        return before
    begun = rollout.start(before, goal, here)
    if begun.run is None or begun.run.fast:
        return begun
    here.tell("Paused", f"the rollout of revision {goal} begins anew, paused as it was: resume, promote or abort it")
    return replace(begun, run=replace(begun.run, paused_at=here.now))


def _lost(before: State, unread: tuple[str, ...], here: Pass) -> bool:
    """The status itself shows that something served."""
    parts = bool(before.run and before.run.previous) or any(known.promoted_at for known in before.history)
    told = here.snapshot.parent["status"]
    rests = before.run is None and told.get("phase") in {None, STABLE}  # Pending is where nothing has served yet
    return before == state.State() or parts or rests or bool(told.get("islands")) or not _ACTIVE.isdisjoint(unread)


def _serving(here: Pass) -> Revision | None:
    """By the stable Service, which keeps the parts of the active revision; else what has most Ready pods."""
    if kept := remembered(here.stable_service):
        return kept
    fleets = sorted(here.seen.values(), key=lambda fleet: fleet.ready, reverse=True)
    return next((found for fleet in fleets if fleet.ready and (found := here.revision(fleet.revision))), None)
