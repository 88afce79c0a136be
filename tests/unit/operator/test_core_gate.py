"""Only a Job that is Complete, a pod that exited 0 and a report that says PASS promote."""

import copy

import pytest
from support.world import DIVERGENCE, GATES, World, ended, termination

from island_operator.core import gate as gates
from island_operator.core.model import Refusal, Snapshot
from island_operator.core.state import Gate

NOW, BEGAN = "2026-01-01T00:10:00Z", "2026-01-01T00:09:00Z"
ATTEMPT = Gate("r", 1, "x-gate-1", BEGAN)
PARENT = {"kind": "InferenceService", "metadata": {"name": "x", "uid": "uid-x"}}


def job(kind=None, reason="", owner="uid-x", at=BEGAN, **meta):
    conditions = [{"type": kind, "status": "True", "reason": reason, "lastTransitionTime": at}] if kind else []
    meta = {"name": "x-gate-1", "uid": "uid-j", "ownerReferences": [{"uid": owner}], **meta}
    status = {"conditions": conditions}
    return {"kind": "Job", "metadata": meta, "spec": {"activeDeadlineSeconds": 330}, "status": status}


def pod(code=None, message=None, reason="Error", waiting=None, conditions=(), owner="uid-j"):
    state = {"terminated": {"exitCode": code, "message": message, "reason": reason}} if code is not None else {}
    state = {"waiting": waiting} if waiting else state
    return {
        "kind": "Pod",
        "metadata": {"name": "p", "ownerReferences": [{"uid": owner}]},
        "spec": {"nodeName": "n", "containers": [{"name": "engine", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
        "status": {
            "containerStatuses": [{"name": "engine", "image": "i:1", "state": state}],
            "conditions": [*conditions],
        },
    }


def judge(*children, gate=ATTEMPT, now=NOW, deadline=300):
    return gates.judge(gate, deadline, Snapshot(PARENT, children), now)


PASSED, FAILED = job("Complete"), job("Failed", "BackoffLimitExceeded")


@pytest.mark.parametrize(
    ("children", "verdict", "reason", "says"),
    [
        ((PASSED, pod(0, termination("PASS"))), "PASS", "Told", "as told"),
        (
            (FAILED, pod(10, termination("FAIL", divergence=DIVERGENCE))),
            "FAIL",
            "Told",
            "hit/w+1 at token 3: 17 instead of 12",
        ),
        (
            (FAILED, pod(11, termination("INCONCLUSIVE", reason="Nondeterminism"))),
            "INCONCLUSIVE",
            "Nondeterminism",
            "as told",
        ),
        ((FAILED, pod(12, termination("ERROR", reason="EngineDied", message="boom"))), "ERROR", "EngineDied", "boom"),
        # what says one thing and does another is no verdict
        ((PASSED, pod(0, termination("FAIL"))), "INCONCLUSIVE", "ReportMismatch", "exited 0 but reported FAIL"),
        ((FAILED, pod(10, termination("PASS"))), "INCONCLUSIVE", "ReportMismatch", "exited 10 but reported PASS"),
        ((FAILED, pod(0, termination("PASS"))), "INCONCLUSIVE", "ReportMismatch", "but Job x-gate-1 failed"),
        ((PASSED, pod(0, "done")), "INCONCLUSIVE", "NoReport", "exited 0 without"),
        ((PASSED, pod(0, termination("PASS", schema="else"))), "INCONCLUSIVE", "NoReport", "exited 0 without"),
        (
            (FAILED, pod(10, "oops\nlast \x07words\n")),
            "ERROR",
            "GateDied",
            r"exited 10 without a report: last \x07words",
        ),
        ((FAILED, pod(137, "", "OOMKilled")), "ERROR", "OOMKilled", "exited 137"),
        ((FAILED, pod(12, termination("ERROR", reason="not a reason"))), "ERROR", "Unnamed", "as told"),
        # nobody can tell
        ((job(owner="uid-other"),), "INCONCLUSIVE", "ForeignGateJob", "x-gate-1 belongs to somebody else"),
        (
            (job("Complete", at=NOW), pod(0, termination("PASS"), owner="uid-other")),
            None,
            "GateRunning",
            "report is not here yet",
        ),
        ((job("Failed", "DeadlineExceeded"),), "INCONCLUSIVE", "GateDeadline", "no verdict within 300 s"),
        # still running
        ((), None, "GateStarting", "about to start"),
        ((job(),), None, "GateRunning", "off, on and off again"),
        ((job(), pod()), None, "GateRunning", "off, on and off again"),
        ((job(), pod(waiting={"reason": "ErrImagePull", "message": "no i:1"})), None, "ImagePullFailed", "no i:1"),
        (
            (job(), pod(0, termination("PASS"))),
            None,
            "GateRunning",
            "the gate has ended, its verdict is being read",
        ),  # a PASS counts once its Job is Complete
    ],
)
def test_verdicts(children, verdict, reason, says):
    found = judge(*children)
    assert (found.verdict, found.reason) == (verdict, reason)
    assert says in found.message


def test_a_job_of_that_name_without_our_labels_is_named_too():
    refused = {("Job", "x-gate-1"): Refusal(409, 'Job x-gate-1: jobs.batch "x-gate-1" already exists')}
    found = gates.judge(ATTEMPT, 300, Snapshot(PARENT, refused=refused), NOW)
    assert (found.verdict, found.reason) == ("INCONCLUSIVE", "ForeignGateJob")
    assert found.message == judge(job(owner="uid-other")).message


@pytest.mark.parametrize("verdict", [0, 10, 11, 12])
def test_no_report_of_ours_is_shown_before_it_is_read(verdict):
    """The pod tells its end before its Job does."""
    found = judge(job(), pod(verdict, termination("FAIL", divergence=DIVERGENCE)))
    assert (found.verdict, found.reason) == (None, "GateRunning")
    assert "{" not in found.message
    assert "engine" not in found.message


def test_a_deadline_is_told_by_the_fields_that_set_it():
    told = "--deadline 30 passed at boot 1 of 3: give it more time or a smaller --profile"
    found = judge(FAILED, pod(11, termination("INCONCLUSIVE", reason="Deadline", message=told)))
    assert found.message == (
        "spec.gate.deadline 30 passed at boot 1 of 3: give it more time or a smaller spec.gate.profile"
    )
    assert "(spec.gate.deadline)" in judge(job("Failed", "DeadlineExceeded")).message
    assert "(spec.gate.deadline)" in judge(now="2026-01-01T00:14:31Z").message


def test_a_gate_that_dies_names_its_job_s_log():
    """Its pod never restarts: there is no previous one."""
    for told in (termination("ERROR", message="boom"), "oops"):
        found = judge(FAILED, pod(12, told))
        assert found.message.endswith("see kubectl logs job/x-gate-1")


def test_a_gate_whose_init_container_dies_names_its_job_s_log():
    died = pod()
    died["metadata"] |= {
        "labels": {"radix-islands.dev/role": "gate"},
        "ownerReferences": [{"uid": "uid-j", "kind": "Job", "name": "x-gate-1"}],
    }
    ended = {"terminated": {"exitCode": 1, "message": ""}}
    died["status"]["initContainerStatuses"] = [{"name": "fetch", "state": ended}]
    found = judge(job(), died)
    assert (found.verdict, found.reason) == (None, "GateDied")
    assert found.message == "pod p: fetch exited 1: no last line; see kubectl logs job/x-gate-1"


def test_no_gpu_is_named_while_it_waits_and_when_the_deadline_passes():
    told = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "1 Insufficient nvidia.com/gpu.",
    }
    waits = judge(job(), pod(conditions=[told]))
    assert (waits.verdict, waits.reason) == (None, "InsufficientGPU")
    seen = Gate("r", 1, "x-gate-1", BEGAN, "uid-j", reason=waits.reason, message=waits.message)
    late = judge(job("Failed", "DeadlineExceeded"), gate=seen)
    assert (late.verdict, late.reason) == ("INCONCLUSIVE", "InsufficientGPU")
    assert "Insufficient nvidia.com/gpu" in late.message


def test_a_report_may_come_later_than_the_job_but_not_for_ever():
    gone = job("Complete", at="2026-01-01T00:09:30Z")
    assert judge(gone).verdict is None
    assert judge(gone, now="2026-01-01T00:10:31Z").reason == "NoReport"


def test_a_job_that_vanished_is_not_made_again():
    seen = Gate("r", 1, "x-gate-1", BEGAN, job_uid="uid-j")
    assert judge(gate=seen).reason == "GateJobDeleted"
    assert judge(job(deletionTimestamp=NOW), gate=seen).reason == "GateJobDeleted"


def test_a_job_that_found_no_room_meets_the_deadline_too():
    assert judge(now="2026-01-01T00:14:00Z").verdict is None
    assert judge(now="2026-01-01T00:14:31Z").reason == "GateDeadline"


@pytest.mark.parametrize(
    "change", [{"islands__enabled": False}, {"engine__image": "good:2"}, {"podTemplate": {"spec": {"containers": 1}}}]
)
@pytest.mark.parametrize("image", ["good:1", "wrong:1", "noise:1"])
def test_a_verdict_that_comes_with_a_change_of_the_spec_stands_in_no_way(image, change):
    """Seen in one pass: the revision that passed has no Deployment yet, and the spec that made it is gone."""
    world = World(islands__enabled=False, engine__image=image).settle()
    world.edit(islands__enabled=True)
    world.until("Gating")
    while not (pods := world.pods("gate")) or pods[0]["status"].get("phase") not in {"Succeeded", "Failed"}:
        world.operate()
        world.tick()
    world.tick()  # its Job has ended, and nobody has looked yet
    world.edit(**change)
    world.settle()
    assert world.status["gate"]["verdict"]
    assert world.condition("Available")["status"] == "True"


def test_a_gate_waits_for_the_gpu_of_the_one_before_it():
    """The pod of a gate that was given up still sits on it for as long as it takes to end."""
    most = []
    world = World(islands__enabled=False).settle()
    world.check = lambda w: most.append(sum(not ended(p) for p in w.of("Pod")))
    for change in ({"islands__enabled": True}, {"engine__image": "good:2"}, {"engine__image": "good:3"}):
        world.edit(**change)
        for _ in range(2):
            while world.operate().requeue_after == 0:
                pass
            world.tick()
    world.settle()
    assert len(world.jobs_made) >= 2
    assert max(most) == 3, "two that serve, and one gate or canary"


def test_a_gate_s_job_that_was_orphaned_is_named_and_left_to_its_owner():
    """kubectl delete --cascade=orphan, and the object made again: that Job has the GPU that the next gate needs."""
    world = World(gpus=4).settle()
    world.edit(islands__enabled=True, engine__image="hangs:1")
    world.until("Gating").go(3)
    (left,) = world.of("Job")
    del left["metadata"]["ownerReferences"]
    world.parent["metadata"]["uid"] = "uid-again"
    del world.parent["status"]
    world.go(3)
    assert world.condition("Ready")["reason"] == "Gating"
    world.go(12)
    ready, name = world.condition("Ready"), left["metadata"]["name"]
    assert (ready["reason"], world.jobs_made) == ("GateJobInTheWay", [name])
    assert f"kubectl delete job {name}" in ready["message"]
    assert world.store["Job", name] == left
    gone = copy.deepcopy(world)
    gone.store.pop(("Job", name))
    gone.go(5)
    assert len(gone.jobs_made) == 2
    assert gone.condition("Ready")["reason"] == "Gating"
    left["spec"]["activeDeadlineSeconds"] = 10**6  # its own deadline would end it first
    world.settle()
    assert world.condition("RolledBack")["reason"] == "GateJobInTheWay", "it meets the gate's deadline"
    assert f"kubectl delete job {name}" in world.condition("RolledBack")["message"]


def test_a_suspended_job_is_named_and_meets_the_deadline_too():
    """Whoever queues Jobs suspends them, and Kubernetes then stops their own deadline: it would be gated for ever."""
    world = World(islands__enabled=True)
    world._jobs = lambda: [j["spec"].update(suspend=True) for j in world.of("Job")]
    world.until("Gating")
    for _ in range(3):
        if world.operate().requeue_after != 0:
            world.tick()
    ready = world.condition("Ready")
    assert ready["reason"] == "GateSuspended"
    assert "Job x-gate-" in ready["message"]
    assert "set its spec.suspend to false" in ready["message"]
    world.tick(400)
    world.settle()
    assert world.of("Job") == []
    assert world.status["gate"]["verdict"] == "INCONCLUSIVE"
    assert world.status["gate"]["reason"] == "GateSuspended"
    assert "(spec.gate.deadline); last seen: Job x-gate-" in world.status["gate"]["message"]


def test_a_hostile_report_stays_small_and_finite(monkeypatch):
    loud = termination("FAIL", message="x\n" * 4000, divergence={**DIVERGENCE, "margin": float("nan"), "got": 10**400})
    monkeypatch.setitem(GATES, "loud", (10, loud))
    world = World(islands__enabled=True, engine__image="loud:1").settle()
    assert world.status["gate"]["verdict"] == "FAIL"
    assert "margin" not in world.status["gate"]["divergence"]
    assert "got" not in world.status["gate"]["divergence"]
    assert all(len(c["message"]) < 1500 and "\n" not in c["message"] for c in world.status["conditions"])
