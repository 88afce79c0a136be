"""The gate's verdict, read from its Job and the Job's pod. Only Complete, exit 0 and a PASS report promote."""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from island_engine.gate.report import Summary, Verdict, parse_termination
from island_operator.core import security
from island_operator.core.clock import elapsed
from island_operator.core.observe import (
    BINDING,
    GATE,
    ROLE,
    Trouble,
    condition,
    container_statuses,
    ended,
    label,
    leaving,
    placed,
    refusal,
    trouble,
)
from island_operator.core.text import escaped, last_line

if TYPE_CHECKING:
    from island_operator.core.model import Object, Snapshot
    from island_operator.core.state import Gate

GRACE = 30  # seconds beyond gate.deadline for the gate to write down its own INCONCLUSIVE
REPORT_WAIT = 60  # seconds that a finished Job's pod may take to reach us: the watches of Job and Pod are not ordered
NO_POD = 20  # seconds that a Job without a pod is normal: only its Events say who refuses one
CONTAINER = "engine"
FINE = {None, "GateStarting", "GateRunning"}  # reasons that name no trouble


@dataclass(frozen=True)
class Finding:
    """What the gate says now. `verdict` None: it still runs, and reason and message say what it waits for."""

    verdict: Verdict | None
    reason: str
    message: str
    summary: Summary | None = None


def job_name(name: str, uid: str, revision: str, attempt: int) -> str:
    """One name per object, revision and attempt; the object's own name is cut so that Kubernetes' 63 suffice."""
    digest = hashlib.sha256(f"{uid}/{revision}/{attempt}".encode()).hexdigest()[:10]
    return f"{name[:40]}-gate-{digest}"


def owned(job: Object, uid: str) -> bool:
    """The Job is a child of that very object, not of another of the same name."""
    return any(o.get("uid") == uid for o in job["metadata"].get("ownerReferences") or ())


def finished(job: Object) -> bool:
    """Complete or Failed: its pods hold no GPU any more."""
    return any(condition(job, kind).get("status") == "True" for kind in ("Complete", "Failed"))


def pod_of(job: Object, snapshot: Snapshot) -> Object | None:
    """The Job's newest pod; there is one, because backoffLimit is 0, but a drained node may have cost it the first."""
    pods = [p for p in snapshot.of("Pod") if owned(p, job["metadata"]["uid"])]
    return max(pods, key=lambda p: str(p["metadata"].get("creationTimestamp", "")), default=None)


def fresh(job: Object, snapshot: Snapshot, now: str) -> bool:
    """Its pod has no node, and not for long enough to say why."""
    pod = pod_of(job, snapshot)
    return pod is not None and not placed(pod) and trouble(pod, now, snapshot) is None


def judge(gate: Gate, deadline: int, snapshot: Snapshot, now: str) -> Finding:
    """The verdict on a started attempt."""
    job = snapshot.child("Job", gate.job)
    if job is None or (leaving(job) and not finished(job)):
        if gate.job_uid:
            return Finding(Verdict.INCONCLUSIVE, "GateJobDeleted", f"Job {gate.job} was deleted before it ended")
        taken = snapshot.refused.get(("Job", gate.job))
        if taken and taken.status == 409:  # by a Job that is not labelled as ours
            return _foreign(gate)
        waited = elapsed(gate.started_at, now)
        late, ill = waited > deadline + GRACE, refusal(snapshot, "Job", gate.job)
        if ill is None and waited >= BINDING:  # where there is room, its Job is made in the next pass
            ill = _in_the_way(snapshot)
        if ill:
            return Finding(Verdict.INCONCLUSIVE if late else None, ill.reason, ill.message)
        if late:
            told = f"no room for the gate's pod within {deadline} s (spec.gate.deadline)"
            return Finding(Verdict.INCONCLUSIVE, "GateDeadline", told)
        return Finding(None, "GateStarting", f"Job {gate.job} is about to start")
    if not owned(job, str(snapshot.parent["metadata"]["uid"])):
        return _foreign(gate)
    pod = pod_of(job, snapshot)
    if finished(job):
        return _ended(gate, job, pod, deadline, now)
    limit = int(job["spec"].get("activeDeadlineSeconds", deadline + GRACE)) + REPORT_WAIT
    begun = str(job["metadata"].get("creationTimestamp", now))
    if elapsed(begun, now) > limit:  # its own deadline does not run while it is suspended
        return _late(gate, deadline)
    return _running(gate, job, pod, snapshot, now)


def _in_the_way(snapshot: Snapshot) -> Trouble | None:
    """A Job that orphaning has left: nobody ends it and it holds a GPU. One that any InferenceService owns goes by
    itself: we end ours, the garbage collector those of a predecessor.
    """
    for job in snapshot.of("Job"):
        owners = {o.get("kind") for o in job["metadata"].get("ownerReferences") or ()}
        stays = label(job, ROLE) == GATE and snapshot.parent["kind"] not in owners and not leaving(job)
        pod = pod_of(job, snapshot) if stays else None
        if pod and not ended(pod):
            name = job["metadata"]["name"]
            told = f"Job {name}, which no InferenceService owns, holds the GPU that the gate waits for"
            return Trouble("GateJobInTheWay", f"{told}: kubectl delete job {name}")
    return None


def _foreign(gate: Gate) -> Finding:
    told = f"Job {gate.job} belongs to somebody else: delete it, then retry"
    return Finding(Verdict.INCONCLUSIVE, "ForeignGateJob", told)


def _running(gate: Gate, job: Object, pod: Object | None, snapshot: Snapshot, now: str) -> Finding:
    if _terminated(pod):  # the pod tells it before its Job does
        return Finding(None, "GateRunning", "the gate has ended, its verdict is being read")
    ill = trouble(pod, now, snapshot) if pod else None
    if ill:
        return Finding(None, ill.reason, ill.message)
    if job["spec"].get("suspend"):
        told = f"Job {gate.job} is suspended: whoever queues Jobs has to admit it, or set its spec.suspend to false"
        return Finding(None, "GateSuspended", told)
    if pod is None and condition(job, "FailureTarget").get("status") == "True":  # its deadline took the pod
        return _as_before(gate)
    begun = str(job["metadata"].get("creationTimestamp", now))
    if pod is None and not _had_pod(job) and elapsed(begun, now) >= NO_POD:
        return Finding(None, "PodsRefused", _refused(gate, job))
    if pod is None and gate.reason not in FINE:  # its deadline took the pod: the watches of Job and Pod are not ordered
        return _as_before(gate)
    return Finding(None, "GateRunning", f"Job {gate.job} compares islands off, on and off again")


def _as_before(gate: Gate) -> Finding:
    return Finding(None, gate.reason or "GateRunning", gate.message or f"Job {gate.job} ends")


def _refused(gate: Gate, job: Object) -> str:
    """Only an Event says who refuses a Job's pod; the pod itself says whether pod security may be it."""
    lacks = security.lacking(job["spec"]["template"]["spec"])
    who = "pod security, a quota or a LimitRange" if lacks else "a quota or a LimitRange"
    told = f"Job {gate.job} gets no pod: {who} refuses it, kubectl describe job {gate.job} says which"
    return f"{told}; if pod security does, {lacks}" if lacks else told


def _had_pod(job: Object) -> bool:
    """By the Job's own account: the watches of Job and Pod are not ordered."""
    status = job.get("status") or {}
    return any(status.get(count) for count in ("active", "succeeded", "failed", "terminating"))


def _ended(gate: Gate, job: Object, pod: Object | None, deadline: int, now: str) -> Finding:
    failed = condition(job, "Failed")
    if failed.get("status") == "True" and failed.get("reason") == "DeadlineExceeded":
        return _late(gate, deadline)
    ended = _terminated(pod)
    if ended is None:
        since = str((failed or condition(job, "Complete")).get("lastTransitionTime", now))
        if elapsed(since, now) < REPORT_WAIT:
            return Finding(None, "GateRunning", f"Job {gate.job} has ended; its report is not here yet")
        return Finding(Verdict.INCONCLUSIVE, "NoReport", f"Job {gate.job} ended and its pod is gone: no report")
    code, told = ended.get("exitCode"), str(ended.get("message") or "")
    try:
        summary = parse_termination(told)
    except ValueError:
        return _no_report(gate, code, str(ended.get("reason", "")), told)
    if summary.verdict.exit_code != code:
        return Finding(Verdict.INCONCLUSIVE, "ReportMismatch", f"the gate exited {code} but reported {summary.verdict}")
    if summary.verdict is Verdict.PASS and condition(job, "Complete").get("status") != "True":
        return Finding(Verdict.INCONCLUSIVE, "ReportMismatch", f"the gate reported PASS but Job {gate.job} failed")
    return Finding(summary.verdict, _word(summary.reason), _sentence(summary, gate), summary)


def _late(gate: Gate, deadline: int) -> Finding:
    why = gate.reason if gate.reason not in FINE else "GateDeadline"
    told = f"no verdict within {deadline} s (spec.gate.deadline); last seen: {gate.message}"
    return Finding(Verdict.INCONCLUSIVE, str(why), told)


def _no_report(gate: Gate, code: object, reason: str, told: str) -> Finding:
    """The gate itself died. A verdict needs a report: not even exit 10 rejects as FAIL without one."""
    if code == 0:
        return Finding(Verdict.INCONCLUSIVE, "NoReport", "the gate exited 0 without a report of ours")
    line = last_line(told)
    why = "OOMKilled" if reason == "OOMKilled" else "GateDied"
    told = f"the gate exited {code} without a report{': ' + line if line else ''}; see kubectl logs job/{gate.job}"
    return Finding(Verdict.ERROR, why, told)


def _terminated(pod: Object | None) -> Object | None:
    statuses = container_statuses(pod) if pod else []
    mine: Object = next((s for s in statuses if s.get("name") == CONTAINER), {})
    found: Object | None = (mine.get("state") or {}).get("terminated")
    return found


def _sentence(summary: Summary, gate: Gate) -> str:
    first = summary.divergence
    told = escaped(summary.message)
    if summary.reason == "Deadline":  # in the words of whoever set it
        told = told.replace("--deadline", "spec.gate.deadline").replace("--profile", "spec.gate.profile")
    if summary.verdict is Verdict.ERROR:
        return f"{told}; see kubectl logs job/{gate.job}"
    if first is None:
        return told
    differs = f"{first.got} instead of {first.expected}"
    where = f"first divergence in {escaped(first.probe, 128)} at token {first.index}: {differs}"
    return f"{where}; {told}" if told else where


def divergence_of(summary: Summary) -> Object | None:
    """The first divergence as the status keeps it, in camel case; numbers that JSON cannot hold are left out."""
    if summary.divergence is None:
        return None
    names = {"cached_tokens": "cachedTokens", "frontier_distance": "frontierDistance"}
    return {
        names.get(k, k): v for k, v in asdict(summary.divergence).items() if isinstance(v, str) or number(v) is not None
    }


def number(value: float | None) -> float | None:
    """A number that every JSON reader takes, else None: the report is foreign and may hold NaN or 1e999."""
    return value if value is not None and abs(value) <= 2**53 else None


def _word(reason: str) -> str:
    """A reason that a condition accepts: the report's own, where it is a CamelCase word."""
    return reason if re.fullmatch("[A-Za-z][A-Za-z0-9_]{0,63}", reason) else "Unnamed"
