"""What a person is shown of one InferenceService: a Snapshot and a clock in, plain values out. Pure.

The operator's own functions read the objects, so that the plugin never says something else than the operator would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from island_engine.gate.report import Verdict
from island_operator.cli.kubectl.model import Gate, Hint, Pair, Pod, Revision, Step, View
from island_operator.core import observe, state
from island_operator.core.clock import elapsed
from island_operator.core.observe import GATE, ROLE, Trouble, condition, label
from island_operator.core.revision import remembered
from island_operator.core.text import escaped
from island_operator.core.transitions import CANARY, GATING, PHASES, ROLLING_BACK, STABLE

if TYPE_CHECKING:
    from island_operator.core.model import Object, Snapshot
    from island_operator.core.observe import Fleet
    from island_operator.core.state import State

UNSEEN = "Unseen"  # the phase of an object that no operator has looked at


def of(snapshot: Snapshot, now: str, progress: str | None = None) -> View:
    """The view of an InferenceService and its children. `now` is RFC 3339; `progress`: the gate's last line."""
    parent = snapshot.parent
    meta, status = parent["metadata"], parent.get("status") or {}
    known = state.read(status)
    seen = observe.fleets(snapshot, now)
    reason, message = _told(parent, status)
    phase = known.phase if status else UNSEEN
    health = _health(status, known, reason)
    serving = status.get("islands")
    return View(
        name=meta["name"],
        namespace=meta["namespace"],
        created=str(meta.get("creationTimestamp", "")),
        phase=phase,
        health=health,
        reason=reason,
        message=message,
        kind=known.run.kind if known.run else None,
        mode=known.run.mode if known.run else None,
        pair=Pair(
            serving["enabled"], serving.get("ratio"), serving.get("maxTotalTokens"), serving.get("maxRunningRequests")
        )
        if serving
        else None,
        replicas=int(parent["spec"].get("replicas", 1)),
        ready=sum(fleet.ready for fleet in seen.values()),
        step=_step(known, now),
        revisions=tuple(_revision(name, known, seen, snapshot, now, progress) for name in _order(known, seen)),
        unreadable=tuple(f"{u['pod']}: {escaped(u['reason'])}" for u in status.get("unreadable") or ()),
        hints=hints(meta["name"], known, health, reason),
    )


def _told(parent: Object, status: Object) -> tuple[str, str]:
    """Reason and message of the condition that says most: what needs a person, what goes on, what is."""
    generation, seen = parent["metadata"].get("generation", 0), status.get("observedGeneration")
    if seen != generation:
        asks = "nobody has looked at it yet" if seen is None else f"the operator has not seen generation {generation}"
        return "NotObserved", f"{asks}: if that lasts, kubectl island doctor says why"
    for kind, wanted in (("Degraded", "True"), ("Progressing", "True"), ("Ready", "False"), ("Ready", "True")):
        found = condition(parent, kind)
        if found.get("status") == wanted:
            return str(found["reason"]), str(found["message"])
    return "Unknown", "its status has no conditions"


def _health(status: Object, known: State, reason: str) -> str:
    conditions = {c["type"]: c["status"] for c in status.get("conditions") or ()}
    if conditions.get("Available") == "False" and reason != "NotObserved" and known.active:
        return "Down"
    if conditions.get("Degraded") == "True":
        return "Degraded"
    if known.run and known.run.paused_at:
        return "Paused"
    if conditions.get("Progressing") == "True":
        return "Progressing" if reason in PHASES else "Waiting"
    return "Healthy" if conditions.get("Ready") == "True" and reason != "NotObserved" else "Waiting"


def _step(known: State, now: str) -> Step | None:
    run = known.run
    if run is None or run.phase != CANARY or run.step >= len(run.steps):
        return None
    weight, pause = run.steps[run.step]
    holds = run.held_since and not run.paused_at
    left = max(0, round(pause - elapsed(str(run.held_since), now))) if holds else None
    return Step(run.step + 1, len(run.steps), weight, pause, left)


def _order(known: State, seen: dict[str, Fleet]) -> list[str]:
    """What comes, what serves, what else has pods or could have, newest first; then what was refused last."""
    first = [known.run.revision if known.run else None, known.active, known.desired]
    fleets = sorted(seen.values(), key=lambda f: f.created, reverse=True)
    gate = [known.gate.revision] if known.gate else []
    names = [*first, *(f.revision for f in fleets), *gate]
    return [name for name in dict.fromkeys(names) if name]


def roles(name: str, known: State) -> tuple[str, ...]:
    """What a revision is at the moment."""
    run, found = known.run, []
    if name == known.active:
        found.append("stable")
    if run and name == run.revision and name != known.active:
        found.append("canary" if run.phase == CANARY else run.phase.lower())
    if run and run.phase == ROLLING_BACK and name == run.previous:
        found.append("leaving")
    if known.rejection(name):
        found.append("rejected")
    if name == known.desired and (not found or found == ["rejected"]):
        found.append("desired")
    return tuple(found)


def _revision(
    name: str, known: State, seen: dict[str, Fleet], snapshot: Snapshot, now: str, progress: str | None
) -> Revision:
    fleet, remembrance, rejection = seen.get(name), known.known(name), known.rejection(name)
    kept = remembered(fleet.deployment if fleet else None, name)
    pods = tuple(
        _pod(p, now, snapshot)
        for p in snapshot.of("Pod")
        if label(p, observe.REVISION) == name and label(p, ROLE) == observe.ENGINE and not observe.ended(p)
    )
    return Revision(
        name=name,
        roles=roles(name, known),
        image=kept.parts["engine"]["image"] if kept else None,
        pair=pair_of(name, known, fleet.deployment if fleet else None),
        replicas=fleet.target if fleet else 0,
        ready=fleet.ready if fleet else 0,
        created=fleet.created if fleet else None,
        verdict=remembrance.verdict if remembrance else None,
        rejected=rejection.reason if rejection else None,
        promoted_at=remembrance.promoted_at if remembrance else None,
        gate=_gate(name, known, snapshot, now, progress),
        pods=pods,
    )


def pair_of(name: str, known: State, deployment: Object | None) -> Pair | None:
    """The pair of a revision: from its Deployment, else as the status remembers it."""
    if revision := remembered(deployment, name):
        half = revision.half
        return Pair(half.islands, half.ratio, half.max_total_tokens, half.max_running_requests)
    if remembrance := known.known(name):
        return Pair(remembrance.islands, remembrance.ratio, remembrance.max_total_tokens, None)
    return None


def _gate(name: str, known: State, snapshot: Snapshot, now: str, progress: str | None) -> Gate | None:
    """The newest gate about a revision, scheduled ones included."""
    found = max(
        (g for g in (known.gate, known.regate) if g and g.revision == name), key=lambda g: g.attempt, default=None
    )
    if found is None:
        return None
    job = snapshot.child("Job", found.job)
    uid = job["metadata"]["uid"] if job else None
    pods = (p for p in snapshot.of("Pod") if label(p, ROLE) == GATE)
    mine = (p for p in pods if any(o.get("uid") == uid for o in p["metadata"].get("ownerReferences") or ()))
    return Gate(
        job=found.job,
        attempt=found.attempt,
        verdict=found.verdict,
        reason=found.reason,
        message=found.message,
        started_at=found.started_at,
        finished_at=found.finished_at,
        probes=found.probes,
        tokens=found.tokens,
        seconds=found.seconds,
        progress=escaped(progress) if progress and not found.verdict else None,
        pods=tuple(_pod(p, now, snapshot) for p in mine),
    )


def _pod(pod: Object, now: str, snapshot: Snapshot) -> Pod:
    ready = observe.is_ready(pod)
    ill: Trouble | None = None if ready or observe.ended(pod) else observe.trouble(pod, now, snapshot)
    return Pod(
        name=pod["metadata"]["name"],
        status=pod_status(pod),
        ready=ready,
        restarts=sum(int(s.get("restartCount") or 0) for s in observe.container_statuses(pod)),
        node=pod["spec"].get("nodeName"),
        created=str(pod["metadata"].get("creationTimestamp", "")),
        trouble=ill.reason if ill else None,
    )


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


def hints(name: str, known: State, health: str, reason: str) -> tuple[Hint, ...]:
    """What one may say to it now."""
    run, rejected = known.run, known.rejection(known.desired)
    verb = f"kubectl island {{}} {name}".format
    if run and run.paused_at:
        goes = Hint(verb("promote"), "skips the rest of the steps")
        return Hint(verb("resume"), "goes on"), goes, Hint(verb("abort"), "rejects the revision and rolls back")
    if run and run.phase == GATING:
        return (
            Hint(f"{verb('gate')} --logs --follow", "shows what the gate does"),
            Hint(verb("abort"), "ends it and rejects the revision"),
        )
    if run and run.phase == CANARY:
        return (
            Hint(verb("promote"), "skips the rest of the steps"),
            Hint(verb("pause"), "holds it here"),
            Hint(verb("abort"), "rolls back"),
        )
    if rejected:
        gate = known.gate
        gated = gate and gate.revision == known.desired and gate.verdict not in {None, Verdict.PASS}
        read = (Hint(f"{verb('gate')} --report", "shows what the gate found"),) if gated else ()
        return *read, Hint(verb("retry"), "tries the same revision again; so does any change of the spec")
    if health in {"Degraded", "Down"} and known.phase == STABLE:
        return (Hint(verb("rollback"), "leaves what serves for the revision before it, or for its stock half"),)
    return (Hint("kubectl island doctor", "says whether an operator is there"),) if reason == "NotObserved" else ()
