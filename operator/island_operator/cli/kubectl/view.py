"""What a person is shown of one InferenceService: a Snapshot and a clock in, plain values out. Pure.

The operator's own functions read the objects, so that the plugin never says something else than the operator would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from island_operator.cli.kubectl.hints import hints
from island_operator.cli.kubectl.legible import wish
from island_operator.cli.kubectl.model import Gate, Hint, Pair, Pod, Revision, Step, View
from island_operator.core import observe, state
from island_operator.core.clock import elapsed
from island_operator.core.observe import GATE, ROLE, condition, label
from island_operator.core.revision import remembered
from island_operator.core.text import escaped
from island_operator.core.transitions import CANARY, PHASES, ROLLING_BACK
from island_operator.core.view import Pass

if TYPE_CHECKING:
    from island_operator.core.coupling import Half
    from island_operator.core.intent import Intent
    from island_operator.core.model import Object, Snapshot
    from island_operator.core.revision import Revision as Kept
    from island_operator.core.state import State

UNSEEN = "Unseen"  # the phase of an object that no operator has looked at
UNOBSERVED = "NotObserved"  # the reason where the status is about an older spec


def of(snapshot: Snapshot, now: str, progress: str | None = None) -> View:
    """The view of an InferenceService and its children. `now` is RFC 3339; `progress`: the gate's last line."""
    return _Look(snapshot, now, progress).view()


class _Look:
    """One look at one snapshot."""

    def __init__(self, snapshot: Snapshot, now: str, progress: str | None) -> None:
        self.snapshot, self.now, self.progress = snapshot, now, progress
        self.parent = snapshot.parent
        self.status: Object = self.parent.get("status") or {}
        self.known = state.read(self.status)
        self.seen = observe.fleets(snapshot, now)
        self.wish = wish(self.parent)

    def view(self) -> View:
        meta, run = self.parent["metadata"], self.known.run
        reason, messages = self._told()
        health = self._health(reason)
        return View(
            name=meta["name"],
            namespace=meta["namespace"],
            created=str(meta.get("creationTimestamp", "")),
            phase=self.known.phase if self.status else UNSEEN,
            health=health,
            reason=reason,
            messages=messages,
            kind=run.kind if run else None,
            mode=run.mode if run else None,
            pair=self._serving(),
            replicas=self.wish.replicas if self.wish else 0,
            ready=int(self.status.get("readyReplicas") or 0),
            step=self._step(),
            revisions=tuple(self._revision(name) for name in self._order()),
            unreadable=tuple(f"{u['pod']}: {escaped(u['reason'])}" for u in self.status.get("unreadable") or ()),
            hints=self._hints(health, reason),
        )

    def _hints(self, health: str, reason: str) -> tuple[Hint, ...]:
        if reason == UNOBSERVED:
            return (Hint("kubectl island doctor", "says whether an operator is there"),)
        if self.wish is None:
            return (Hint("kubectl island doctor", "says whether another release is installed"),)
        told = (condition(self.parent, kind) for kind in ("Degraded", "Progressing"))
        causes = frozenset(str(one["reason"]) for one in told if one.get("status") == "True")
        here = Pass(self.wish, self.snapshot, self.seen, self.now)
        return hints(self.known, here, causes, ill=health in {"Degraded", "Down"})

    def _serving(self) -> Pair | None:
        told = self.status.get("islands")
        if not told:
            return None
        return Pair(told["enabled"], told.get("ratio"), told.get("maxTotalTokens"), told.get("maxRunningRequests"))

    def _told(self) -> tuple[str, tuple[str, ...]]:
        """Reason and messages of what says most: nothing serves, needs a person, goes on, is."""
        generation, seen = self.parent["metadata"].get("generation", 0), self.status.get("observedGeneration")
        if seen != generation:
            told = f"the operator has not seen generation {generation}" if seen else "no operator has looked at it yet"
            return UNOBSERVED, (f"{told}: if that lasts, kubectl island doctor says why",)
        wanted = (("Degraded", "True"), ("Progressing", "True"), ("Ready", "False"), ("Ready", "True"))
        found = (c for kind, value in wanted if (c := condition(self.parent, kind)).get("status") == value)
        most = next(found, {"reason": "Unknown", "message": "its status has no conditions"})
        down = condition(self.parent, "Available")
        if down.get("status") == "False" and self.known.active:
            return str(down["reason"]), (str(down["message"]), str(most["message"]))
        return str(most["reason"]), (str(most["message"]),)

    def _health(self, reason: str) -> str:
        told = {kind: condition(self.parent, kind).get("status") for kind in ("Available", "Degraded", "Progressing")}
        if reason == UNOBSERVED:
            return "Waiting"
        if told["Available"] == "False" and self.known.active:
            return "Down"
        if told["Degraded"] == "True":
            return "Degraded"
        if self.known.run and self.known.run.paused_at:
            return "Paused"
        if told["Progressing"] == "True":
            return "Progressing" if reason in PHASES else "Waiting"
        return "Healthy" if condition(self.parent, "Ready").get("status") == "True" else "Waiting"

    def _step(self) -> Step | None:
        run = self.known.run
        if run is None or run.phase != CANARY or run.step >= len(run.steps):
            return None
        weight, pause = run.steps[run.step]
        holds = run.held_since and not run.paused_at
        left = max(0, round(pause - elapsed(str(run.held_since), self.now))) if holds else None
        return Step(run.step + 1, len(run.steps), weight, pause, left)

    def _order(self) -> list[str]:
        """What comes, what serves, what is asked for; then what else has a Deployment, newest first. What was only ever
        gated, and is not asked for any more, is history.
        """
        known = self.known
        first = [known.run.revision if known.run else None, known.active, known.desired]
        fleets = sorted(self.seen.values(), key=lambda f: f.created, reverse=True)
        return [name for name in dict.fromkeys([*first, *(f.revision for f in fleets)]) if name]

    def _revision(self, name: str) -> Revision:
        fleet, remembrance, rejection = self.seen.get(name), self.known.known(name), self.known.rejection(name)
        kept = parts_of(name, self.snapshot, self.wish)
        pods = (p for p in self.snapshot.of("Pod") if label(p, observe.REVISION) == name and not observe.ended(p))
        return Revision(
            name=name,
            roles=roles(name, self.known),
            image=kept.parts["engine"]["image"] if kept else None,
            pair=pair_of(kept.half) if kept else remembered_pair(name, self.known),
            replicas=fleet.target if fleet else 0,
            ready=fleet.ready if fleet else 0,
            created=fleet.created if fleet else None,
            verdict=remembrance.verdict if remembrance else None,
            rejected=rejection.reason if rejection else None,
            promoted_at=remembrance.promoted_at if remembrance else None,
            gate=self._gate(name),
            pods=tuple(self._pod(p) for p in pods if label(p, ROLE) == observe.ENGINE),
        )

    def _gate(self, name: str) -> Gate | None:
        """The newest gate about a revision, scheduled ones included; None once it has ended and its Job is gone."""
        if (gate := gate_of(name, self.known)) is None:
            return None
        job = self.snapshot.child("Job", gate.job)
        if gate.verdict and job is None:
            return None
        uid = job["metadata"]["uid"] if job else None
        pods = (p for p in self.snapshot.of("Pod") if label(p, ROLE) == GATE)
        mine = (p for p in pods if any(o.get("uid") == uid for o in p["metadata"].get("ownerReferences") or ()))
        return Gate(
            job=gate.job,
            attempt=gate.attempt,
            verdict=gate.verdict,
            reason=gate.reason,
            message=gate.message,
            started_at=gate.started_at,
            finished_at=gate.finished_at,
            probes=gate.probes,
            tokens=gate.tokens,
            seconds=gate.seconds,
            progress=escaped(" ".join(self.progress.split())) if self.progress and not gate.verdict else None,
            pods=tuple(self._pod(p) for p in mine),
        )

    def _pod(self, pod: Object) -> Pod:
        ready = observe.is_ready(pod)
        ill = None if ready or observe.ended(pod) else observe.trouble(pod, self.now, self.snapshot)
        return Pod(
            name=pod["metadata"]["name"],
            status=pod_status(pod),
            ready=ready,
            restarts=sum(int(s.get("restartCount") or 0) for s in observe.container_statuses(pod)),
            node=pod["spec"].get("nodeName"),
            created=str(pod["metadata"].get("creationTimestamp", "")),
            trouble=ill.reason if ill else None,
        )


def parts_of(name: str, snapshot: Snapshot, asked: Intent | None) -> Kept | None:
    """A revision's parts, from its Deployment or from the spec that asks for it."""
    kept = remembered(snapshot.child("Deployment", f"{snapshot.parent['metadata']['name']}-{name}"), name)
    wanted = asked.revision if asked else None
    return kept or (wanted if wanted and wanted.hash == name else None)


def gate_of(name: str, known: State) -> state.Gate | None:
    """The newest gate about a revision, scheduled ones included."""
    gates = (g for g in (known.gate, known.regate) if g and g.revision == name)
    return max(gates, key=lambda g: g.attempt, default=None)


def pair_of(half: Half) -> Pair:
    """The pair of a revision whose parts are known."""
    return Pair(half.islands, half.ratio, half.max_total_tokens, half.max_running_requests)


def remembered_pair(name: str, known: State) -> Pair | None:
    """The pair as the status remembers it, without the cap."""
    found = known.known(name)
    return Pair(found.islands, found.ratio, found.max_total_tokens, None) if found else None


def roles(name: str, known: State) -> tuple[str, ...]:
    """What a revision is at the moment."""
    run, found = known.run, []
    if name == known.active:
        found.append("stable")
    if run and name == run.revision and name != known.active:
        found.append(run.phase.lower())
    if run and run.phase == ROLLING_BACK and name == run.previous:
        found.append("leaving")
    if known.rejection(name):
        found.append("rejected")
    if name == known.desired and (not found or found == ["rejected"]):
        found.append("desired")
    return tuple(found)


def pod_status(pod: Object) -> str:
    """Kubectl's column STATUS."""
    if observe.leaving(pod):
        return "Terminating"
    for status in observe.container_statuses(pod):
        now = status.get("state") or {}
        told = (now.get("waiting") or {}).get("reason") or (now.get("terminated") or {}).get("reason")
        if told and not (told == "Completed" and not observe.ended(pod)):  # an init container that is done
            return escaped(str(told), 40)
    return str((pod.get("status") or {}).get("phase", "Unknown"))
