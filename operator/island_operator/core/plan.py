"""reconcile(snapshot, now) -> Plan. Pure: no I/O, no clock, no memory.

Decide, record, act: a pass that decides something new writes only the status and asks for another pass; a pass that
decides nothing makes the children what the recorded decisions say. So a crash between any two writes loses nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from island_operator.core import (
    conditions,
    intent,
    manifests,
    observe,
    prometheus,
    record,
    recovery,
    regate,
    scale,
    traffic,
)
from island_operator.core import gate as gates
from island_operator.core.advance import advance
from island_operator.core.clock import elapsed
from island_operator.core.model import Plan, Target
from island_operator.core.observe import BINDING, GATE, ROLE, label, leaving
from island_operator.core.scale import Room
from island_operator.core.transitions import CANARY, GATING, PENDING, PROMOTING
from island_operator.core.view import Pass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from island_operator.core.model import Object, Snapshot
    from island_operator.core.state import Gate, State

LOOK_AGAIN = 20.0  # seconds: a pod that is being created tells nobody that its volumes do not come


def reconcile(snapshot: Snapshot, now: str) -> Plan:
    """What to write, for one InferenceService and its children as they are. `now` is RFC 3339 UTC."""
    snapshot, told = recovery.read(snapshot)
    seen = observe.fleets(snapshot, now)
    here = Pass(intent.read(snapshot.parent), snapshot, seen, now)
    before = told.state
    after = record.noted(advance(recovery.recovered(told, here), here), here)
    plan = Plan(
        status=conditions.report(after, here),
        events=tuple(here.events),
        requeue_after=0.0,
        watch=_watch(after, here),
        ask=prometheus.questions(after.run, here) if after.run and after.run.phase in {CANARY, PROMOTING} else (),
        records=record.wanted(after, here),
        clear_annotations=tuple(f"{intent.PREFIX}{name}" for name, _ in here.intent.verbs),
    )
    if replace(after, verbs=before.verbs) != before:
        return plan
    todo = _Act(after, here).plan()  # a verb that decided nothing stands in no child's way
    return replace(plan, desired=todo.desired, delete=todo.delete, requeue_after=todo.requeue_after)


def _watch(state: State, here: Pass) -> tuple[Target, ...]:
    """Engines worth reading: those of a rollout and what it is compared with; else islands that serve."""
    run, serving = state.run, here.revision(state.active)
    rolls = run is not None and not run.fast and run.phase in {CANARY, PROMOTING}
    revisions = {run.revision, state.active} if run and rolls else {state.active}
    if not rolls and not (serving and serving.half.islands):
        return ()
    return tuple(
        Target(uid, address, int(revision.parts["engine"]["port"]), here.planned(revision), often=rolls)
        for name in sorted(r for r in revisions if r)
        if (fleet := here.fleet(name)) and (revision := here.revision(name))
        for _, uid, address in fleet.engines
        if address
    )


@dataclass(frozen=True)
class _Act:
    """The children that the recorded decisions ask for."""

    state: State
    here: Pass

    def plan(self) -> Plan:
        parent, asked = self.here.snapshot.parent, self.here.intent
        wanted = self._replicas()
        active = self.here.revision(self.state.active) or self.here.revision(traffic.rolling(self.state))
        split = traffic.split(self.state, self.here, wanted)
        kept, run = active, self.state.run
        if run and run.phase == PROMOTING and split and split.stable == run.revision:
            kept = self.here.revision(run.revision)  # it serves by now and is active next: one write says both
        desired, delete = self._deployments(wanted)  # first: a Gateway's webhook that hangs holds no kill switch up
        desired += [*manifests.services(parent, asked.port, kept, split), manifests.disruption_budget(parent)]
        desired += self._gate()
        if asked.gateway and split:
            desired.append(manifests.http_route(parent, asked.gateway, asked.port, split.share))
        return Plan(tuple(desired), (*delete, *self._stale_jobs(), *self._stale_routes()), requeue_after=self._wake())

    def _stale_routes(self) -> list[Object]:
        """Ours, where spec.gatewayRef is gone."""
        asked = self.here.intent
        return [] if asked.gateway else [r for r in self.here.snapshot.of("HTTPRoute") if gates.owned(r, asked.uid)]

    def _deployments(self, wanted: Mapping[str, int]) -> tuple[list[Object], list[Object]]:
        desired: list[Object] = []
        delete: list[Object] = []
        # Written at 0 replicas too: a revision's Deployment is where its parts are kept.
        needed = {self.state.active, traffic.rolling(self.state)}
        for name in sorted(wanted, key=lambda r: (-wanted[r], r)):
            fleet, replicas = self.here.seen.get(name), wanted[name]
            if replicas == 0 and not (fleet and fleet.target) and name not in needed:
                continue
            if revision := self.here.revision(name):
                desired.append(manifests.deployment(self.here.snapshot.parent, revision, replicas))
            elif fleet and fleet.deployment and replicas == 0:
                delete.append(fleet.deployment)  # its snapshot is gone or forged: it cannot be written, only removed
        return desired, [*delete, *self._old()]

    def _replicas(self) -> dict[str, int]:
        """Replicas per revision, by phase."""
        now, seen, run = self.state, self.here.seen, self.state.run
        if run is None:
            return scale.hold(self.here.intent.replicas, now.active, seen)
        room = Room.of(self.here.intent.replicas, run.mode)
        if run.fast:
            return scale.rush(room, run.revision, now.active, seen, give=self._patience() <= 0)
        if run.phase in {PENDING, GATING}:
            return scale.step(room, 1, run.revision, now.active, seen, gate=1) | {run.revision: 0}
        most = room.cap(run.weight) if run.phase == CANARY else room.limit
        if run.paused_at:
            most = fleet.target if (fleet := seen.get(run.revision)) else 0
        return scale.step(room, most, run.revision, now.active, seen)

    def _patience(self) -> float:
        """Seconds until a starved revision is given another's GPU; infinite while it is not starved."""
        since = self.state.run.starved_since if self.state.run else None
        return BINDING - elapsed(since, self.here.now) if since else math.inf

    def _old(self) -> list[Object]:
        """Deployments of revisions that are history, beyond what spec.rollout.historyLimit keeps."""
        run = self.state.run
        needed = {self.state.active, self.state.desired, run.revision if run else None}
        idle = [f for f in self.here.seen.values() if f.idle and f.deployment and f.revision not in needed]
        newest = sorted(idle, key=lambda f: (f.created, f.revision), reverse=True)
        return [f.deployment for f in newest[self.here.intent.history_limit :] if f.deployment]

    def _gate(self) -> list[Object]:
        """The Job of the running attempt: a rollout's once there is a GPU's worth of room, a scheduled one at once."""
        run, gate, asked = self.state.run, self._attempt(), self.here.intent
        revision = self.here.revision(gate.revision) if gate else None
        if gate is None or revision is None or gate.job_uid or self.here.snapshot.child("Job", gate.job):
            return []
        held = sum(f.holding for f in self.here.seen.values())
        gates_of_others = (p for p in self.here.snapshot.of("Pod") if label(p, ROLE) == GATE and not observe.ended(p))
        held += sum(not observe.lost(p, self.here.now) for p in gates_of_others)
        if run and held > Room.of(asked.replicas, run.mode).limit - 1:
            return []
        parent = self.here.snapshot.parent
        return [manifests.gate_job(parent, revision, gate.job, asked.gate_profile, asked.gate_deadline)]

    def _attempt(self) -> Gate | None:
        """The gate that is to run now."""
        run = self.state.run
        return (self.state.gate if run.phase == GATING else None) if run else regate.running(self.state)

    def _stale_jobs(self) -> list[Object]:
        """Gates that nobody waits for: at once while they hold a GPU, finished ones beyond the history limit."""
        gate, asked = self._attempt(), self.here.intent
        current = gate.job if gate else None
        mine = [
            j
            for j in self.here.snapshot.of("Job")
            if label(j, ROLE) == GATE
            and gates.owned(j, asked.uid)
            and not leaving(j)
            and j["metadata"]["name"] != current
        ]
        ended = [j for j in mine if gates.finished(j)]
        newest = sorted(ended, key=lambda j: str(j["metadata"].get("creationTimestamp", "")), reverse=True)
        return [*(j for j in mine if not gates.finished(j)), *newest[asked.history_limit :]]

    def _wake(self) -> float | None:
        """Seconds until time alone decides something."""
        run, gate, now, waits = self.state.run, self._attempt(), self.here.now, []
        if due := regate.wait(self.state, self.here):
            waits.append(due)
        if gate:
            job = self.here.snapshot.child("Job", gate.job)
            soon = job and (gates.finished(job) or gates.fresh(job, self.here.snapshot, now))
            waits.append(BINDING if soon else LOOK_AGAIN)
        elif run and run.held_since:
            waits.append(run.pause - elapsed(run.held_since, now))
        elif run and run.paused_at:
            pass
        elif run:
            waits += [self._patience(), run.deadline - elapsed(run.progress_at, now) + 1]
        if any(f.creating for f in self.here.seen.values()):
            waits.append(LOOK_AGAIN)
        if run or any(f.unscheduled for f in self.here.seen.values()):
            waits += [f.ending + 1 for f in self.here.seen.values() if f.ending]
        if any(f.fresh for f in self.here.seen.values()) and not (run and run.fast):
            waits.append(BINDING)
        ahead = [w for w in waits if 0 < w < math.inf]
        return max(0.5, min(ahead)) if ahead else None
