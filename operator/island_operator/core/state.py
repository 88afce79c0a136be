"""What survives a restart of the operator: the decisions, as they stand in the status. Everything else is observed."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from island_operator.core.text import camel
from island_operator.core.transitions import CANARY, PENDING, PROMOTING, STABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from island_operator.core.model import Object

REJECTED_KEPT = 20


@dataclass(frozen=True)
class Gate:
    """The newest gate attempt. `attempt` counts the gate Jobs of this object, whatever the revision."""

    revision: str
    attempt: int
    job: str
    started_at: str
    job_uid: str | None = None  # once seen: a Job that vanishes must not be made a second time
    verdict: str | None = None  # None while it runs
    reason: str | None = None
    message: str | None = None
    fingerprint: str | None = None
    divergence: Object | None = None
    probes: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    finished_at: str | None = None
    report: str | None = None  # the ConfigMap that keeps it, once it is there


@dataclass(frozen=True)
class Run:
    """A rollout, pinned at its start: later edits of `spec.rollout` are for the next one."""

    revision: str
    kind: str  # Rollout, KillSwitch, Rollback or Revert
    phase: str
    mode: str  # Surge, Replace or Downtime
    started_at: str
    deadline: int  # seconds without progress
    progress_at: str
    previous: str | None = None  # what serves; of a run back to that: what it leaves, None where that had no pods
    steps: tuple[tuple[int, int], ...] = ()  # weight in percent, pause in seconds
    checks: Object | None = None  # spec.rollout.checks; None: none
    step: int = 0
    ready: int = 0  # pods of the revision that were Ready at its last progress
    held_since: str | None = None  # the step's pods were all Ready then, and none was lost since
    paused_at: str | None = None  # by the verb; nothing goes forward since
    starved_since: str | None = None  # its pods find no GPU since, and nobody is about to give one up

    @property
    def fast(self) -> bool:
        """No canary, no step by step: the kill switch, and back to a revision that has proved itself."""
        return self.kind != "Rollout"

    @property
    def weight(self) -> int:
        """Of the canary step that it is in, in per cent."""
        return self.steps[self.step][0]

    @property
    def pause(self) -> int:
        """Of the canary step that it is in, in seconds."""
        return self.steps[self.step][1]


@dataclass(frozen=True)
class Rejected:
    """A revision that nothing but a spec change or the verb `retry` brings back."""

    revision: str
    reason: str
    message: str
    at: str


@dataclass(frozen=True)
class Known:
    """A revision that passed its gate or was promoted."""

    revision: str
    islands: bool
    ratio: str | None = None  # None: unified
    max_total_tokens: int | None = None
    verdict: str | None = None
    fingerprint: str | None = None
    promoted_at: str | None = None


@dataclass(frozen=True)
class Verb:
    """A verb that was carried out, or refused. `open`: its annotation was still on the object when last seen."""

    name: str
    value: str
    at: str
    outcome: str  # one sentence
    open: bool | None = None


@dataclass(frozen=True)
class State:
    """All decisions of one InferenceService."""

    desired: str | None = None
    active: str | None = None
    run: Run | None = None
    gate: Gate | None = None
    regate: Gate | None = None  # of what serves, by spec.gate.schedule
    rejected: tuple[Rejected, ...] = ()
    history: tuple[Known, ...] = field(default=())
    verbs: tuple[Verb, ...] = ()

    @property
    def phase(self) -> str:
        """The column Phase."""
        if self.run:
            return self.run.phase
        return STABLE if self.active else PENDING

    def rejection(self, revision: str | None) -> Rejected | None:
        """Why a revision is rejected, if it is."""
        return next((r for r in self.rejected if r.revision == revision), None)

    def known(self, revision: str | None) -> Known | None:
        """What is remembered of a revision."""
        return next((k for k in self.history if k.revision == revision), None)

    def reject(self, revision: str, reason: str, message: str, now: str) -> State:
        """Without the run, and with the revision among the rejected."""
        others = [r for r in self.rejected if r.revision != revision]
        rejected = (*others, Rejected(revision, reason, message, now))[-REJECTED_KEPT:]
        return replace(self, rejected=rejected, run=None)

    def pardon(self, revision: str) -> State:
        """Without the rejection of a revision."""
        return replace(self, rejected=tuple(r for r in self.rejected if r.revision != revision))

    def doubt(self, revision: str) -> State:
        """Without the proof of a revision: it has to pass its gate again before it gets pods again."""
        kept = (replace(k, verdict=None, fingerprint=None) if k.revision == revision else k for k in self.history)
        return replace(self, history=tuple(kept))

    def learn(self, known: Known, limit: int) -> State:
        """With a revision remembered as the newest; the active and the desired one are never forgotten."""
        before = self.known(known.revision)
        if before:
            known = replace(
                known,
                verdict=known.verdict or before.verdict,
                fingerprint=known.fingerprint or before.fingerprint,
                promoted_at=known.promoted_at or before.promoted_at,
            )
        others = [k for k in self.history if k.revision != known.revision]
        spare = [k.revision for k in others if k.revision not in {self.active, self.desired}]
        dropped = set(spare[: max(0, len(others) + 1 - limit)])
        return replace(self, history=(*(k for k in others if k.revision not in dropped), known))


def read(status: Object) -> State:
    """The decisions in a status; an empty status has none."""
    revisions = status.get("revisions") or {}
    run = status.get("run")
    steps = tuple((int(s["weight"]), int(s["pauseSeconds"])) for s in (run or {}).get("steps") or ())
    return State(
        desired=revisions.get("desired"),
        active=revisions.get("active"),
        run=_load(Run, {**run, "steps": steps}) if run else None,
        gate=_load(Gate, status["gate"]) if status.get("gate") else None,
        regate=_load(Gate, status["regate"]) if status.get("regate") else None,
        rejected=tuple(_load(Rejected, r) for r in revisions.get("rejected") or ()),
        history=tuple(_load(Known, k) for k in revisions.get("history") or ()),
        verbs=tuple(_load(Verb, v) for v in status.get("verbs") or ()),
    )


def written(state: State) -> Object:
    """The decisions as they stand in a status: keys `phase`, `revisions`, `run`, `gate`, `regate` and `verbs`;
    None is left out.
    """
    revisions: Object = {"desired": state.desired, "active": state.active}
    if state.run and state.run.phase in {CANARY, PROMOTING} and state.run.revision != state.active:
        revisions["canary"] = state.run.revision
    revisions["rejected"] = [dumped(r) for r in state.rejected]
    revisions["history"] = [dumped(k) for k in state.history]
    status: Object = {"phase": state.phase, "revisions": {k: v for k, v in revisions.items() if v}}
    if state.run:
        steps = [{"weight": weight, "pauseSeconds": pause} for weight, pause in state.run.steps]
        status["run"] = dumped(state.run) | {"steps": steps}
    if state.gate:
        status["gate"] = dumped(state.gate)
    if state.regate:
        status["regate"] = dumped(state.regate)
    if state.verbs:
        status["verbs"] = [dumped(v) for v in state.verbs]
    return status


def dumped(record: Any) -> Object:
    """A record as the status spells it: camelCase, without what is None."""
    values = ((camel(f.name), getattr(record, f.name)) for f in fields(record))
    return {name: value for name, value in values if value is not None}


def _load(kind: Any, raw: Mapping[str, Any]) -> Any:
    return kind(**{f.name: raw[camel(f.name)] for f in fields(kind) if camel(f.name) in raw})
