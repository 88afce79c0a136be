"""What the status tells a person, and what `kubectl wait` may conclude from it."""

import pytest
from support.world import GATES, World, termination

from island_operator.cli.kubectl import view
from island_operator.core.conditions import moved
from island_operator.core.model import Snapshot
from island_operator.core.observe import trouble
from island_operator.core.text import escaped, last_line

NOW, ALONE = "2026-01-01T00:10:00Z", Snapshot({})
NO_GPU = "Insufficient nvidia.com/gpu"


def test_all_conditions_stand_from_the_first_write():
    world = World()
    world.operate()
    assert [c["type"] for c in world.status["conditions"]] == [
        "Ready",
        "Available",
        "Progressing",
        "Degraded",
        "GatePassed",
        "RolledBack",
    ]
    assert world.condition("Ready")["status"] == "False"
    assert world.status["observedGeneration"] == 1


def test_row_19_wait_right_after_an_edit_is_not_told_of_the_past():
    world = World().settle()
    world.edit(engine__image="good:2")
    assert world.condition("Ready")["observedGeneration"] < world.parent["metadata"]["generation"]
    world.operate()
    assert world.condition("Ready")["observedGeneration"] == world.parent["metadata"]["generation"]
    assert world.condition("Ready")["status"] == "False"


def test_row_20_no_early_success():
    """Ready never before all pods of the desired revision are, also when it is scaled up."""
    world = World(gpus=6)
    seen = []

    def look(world):
        ready = world.condition("Ready") if world.status else {}
        if ready.get("status") == "True" and ready["observedGeneration"] == world.parent["metadata"]["generation"]:
            seen.append((world.ready(), world.status["replicas"]))

    world.check = look
    world.settle()
    assert set(seen) == {(2, 2)}
    world.edit(replicas=4)
    seen.clear()
    world.operate()
    assert seen == []
    world.settle()
    assert (4, 4) in seen


def test_row_21_available_stays_true_while_updating():
    world = World().settle()
    seen = []
    world.check = lambda w: seen.append(w.condition("Available")["status"])
    world.edit(islands__enabled=True)
    world.settle()
    assert set(seen) == {"True"}


def test_row_22_a_crash_and_the_recovery_propagate():
    world = World().settle()
    pod = world.pods()[0]
    world.crash(pod)
    world.operate()
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "EngineDied")
    assert "RuntimeError" in ready["message"]
    assert f"the whole log is in kubectl logs --previous {pod['metadata']['name']}" in ready["message"]
    assert world.condition("Degraded")["status"] == "True"
    assert world.condition("Available")["status"] == "True"
    pod["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    world.operate()
    assert world.condition("Ready")["status"] == "True"
    assert world.condition("Degraded")["status"] == "False"  # a restart of long ago is no degradation


def test_transition_time_moves_only_on_flips():
    old = [{"type": "Ready", "status": "False", "lastTransitionTime": "then"}]
    assert moved(old, "Ready", "False", "R", "m", 2, "now")["lastTransitionTime"] == "then"
    assert moved(old, "Ready", "True", "R", "m", 2, "now")["lastTransitionTime"] == "now"
    assert moved([], "Ready", "True", "R", "m", 2, "now")["lastTransitionTime"] == "now"


@pytest.mark.parametrize(
    ("changes", "gpus", "reason", "says"),
    [
        ({"engine__image": "crash:1"}, 3, "EngineDied", r"RuntimeError: no \x1b[31mluck"),
        ({"engine__image": "nopull:1"}, 3, "ImagePullFailed", "nopull:1"),
        ({}, 1, "InsufficientGPU", "lower spec.replicas"),
    ],
)
def test_a_first_rollout_that_cannot_is_named_and_goes_on_trying(changes, gpus, reason, says):
    world = World(gpus, **changes).settle()
    assert (world.condition("Ready")["reason"], world.condition("Progressing")["reason"]) == (reason, reason)
    assert says in world.condition("Ready")["message"]
    assert world.condition("Degraded")["status"] == "True"
    world.gpus = 3
    world.edit(engine__image="good:2")
    world.settle()
    assert world.condition("Ready")["status"] == "True"


def pod(**status):
    limits = {"nvidia.com/gpu": "16"}
    volumes = [
        {"name": "model", "hostPath": {"path": "/models/not-there", "type": "Directory"}},
        {"name": "shm", "emptyDir": {}},
    ]
    spec = {"nodeName": "n1", "containers": [{"name": "engine", "resources": {"limits": limits}}], "volumes": volumes}
    return {"kind": "Pod", "metadata": {"name": "p"}, "spec": spec, "status": status}


def waiting(reason, message=""):
    state = {"waiting": {"reason": reason, "message": message}}
    return {"containerStatuses": [{"name": "engine", "image": "i:1", "restartCount": 0, "state": state}]}


def died(message, code=1, reason="Error"):
    ended = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    return {"containerStatuses": [{"name": "engine", "restartCount": 1, "state": {"running": {}}, "lastState": ended}]}


def unschedulable(message):
    told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"conditions": [told]}


@pytest.mark.parametrize(
    ("status", "reason", "says", "fatal"),
    [
        (unschedulable("0/1 nodes: 1 Insufficient nvidia.com/gpu."), "InsufficientGPU", "1 Insufficient", False),
        (unschedulable("0/1 nodes: 1 had untolerated taint"), "Unschedulable", "untolerated taint", False),
        (waiting("ImagePullBackOff", "Back-off i:1"), "ImagePullFailed", "image i:1: Back-off", True),
        (waiting("InvalidImageName"), "ImagePullFailed", "InvalidImageName", True),
        (waiting("ErrImagePull", "hiccup"), "ImagePullFailed", "hiccup", False),
        (waiting("CreateContainerConfigError", 'secret "s" not found'), "StartFailed", 'secret "s" not found', False),
        (died("Traceback\n  x\nValueError: bad\n"), "EngineDied", "engine exited 1: ValueError: bad", True),
        (died("error: unrecognized arguments: --no-such-flag", 2), "EngineDied", "--no-such-flag", True),
        (died(""), "EngineDied", "kubectl logs --previous p", True),
        (died("", 137, "OOMKilled"), "OOMKilled", "raise its memory limit", True),
        (
            {**waiting("ContainerCreating"), "startTime": "2026-01-01T00:09:00Z"},
            "VolumesNotReady",
            "spec.model.source.hostPath /models/not-there must exist",
            False,
        ),
    ],
)
def test_what_keeps_a_pod_from_serving(status, reason, says, fatal):
    found = trouble(pod(**status), NOW, ALONE)
    assert (found.reason, found.fatal) == (reason, fatal)
    assert says in found.message


@pytest.mark.parametrize(
    "status",
    [
        {},
        {**waiting("ContainerCreating"), "startTime": "2026-01-01T00:09:50Z"},
        waiting("PodInitializing"),
        {"containerStatuses": [{"name": "engine", "restartCount": 0, "state": {"running": {}}}]},
        {"initContainerStatuses": [{"name": "i", "restartCount": 0, "state": {"terminated": {"exitCode": 0}}}]},
    ],
)
def test_what_is_no_trouble(status):
    assert trouble(pod(**status), NOW, ALONE) is None


def creating(*volumes, **status):
    made = pod(**waiting("ContainerCreating"), startTime="2026-01-01T00:09:00Z", **status)
    made["spec"]["volumes"] += volumes
    return made


def test_only_volumes_that_can_be_missing_are_named():
    good = ({"name": "a", "hostPath": {"path": "/a", "type": ""}}, {"name": "b", "secret": {"optional": True}})
    waits = "pod p waits for its volumes on n1: spec.model.source.hostPath /models/not-there must exist"
    assert trouble(creating(*good), NOW, ALONE).message == waits
    told = trouble(creating({"name": "c", "configMap": {"name": "d"}}), NOW, ALONE).message
    assert told == f"{waits}, or of spec.podTemplate c (configMap d)"


def test_an_image_that_takes_long_is_no_missing_volume():
    mounted = {"type": "PodReadyToStartContainers", "status": "True"}
    assert trouble(creating(conditions=[mounted]), NOW, ALONE) is None


def test_a_model_that_never_comes_is_degraded_once_the_deadline_has_passed():
    world = World(engine__image="good:1").until("Promoting")
    world.operate()
    for _ in range(3):
        world.tick(0)
        world.operate()
    stuck = world.pods()
    for one in stuck:
        one["status"]["startTime"] = world.now
    world.seconds += 601
    world.operate()
    degraded = world.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "VolumesNotReady")
    assert "spec.model.source.hostPath /models/tiny must exist" in degraded["message"]


def test_nothing_is_waited_for_that_is_not_there():
    world = World(replicas=0)
    messages = set()
    world.check = lambda w: messages.update(c["message"] for c in w.status.get("conditions", ()))
    world.settle()
    world.edit(engine__image="good:2")
    world.settle()
    assert not [m for m in messages if "other revisions" in m]
    assert world.condition("Ready")["status"] == "True"
    assert world.condition("Available")["message"] == "scaled to zero: nothing serves"


@pytest.mark.parametrize(
    ("scheduler", "free"),
    [
        (
            "0/3 nodes are available: 1 node(s) had untolerated taint {a: b}, 2 Insufficient nvidia.com/gpu. no new "
            "claims to deallocate, preemption: 0/3 nodes are available: 1 Preemption is not helpful for scheduling.",
            "0 of 3 nodes have free (1 node(s) had untolerated taint {a: b}, 2 Insufficient nvidia.com/gpu)",
        ),
        ("0/2 nodes are available: 2 Insufficient nvidia.com/gpu.", f"0 of 2 nodes have free (2 {NO_GPU})"),
        (f"{NO_GPU}, says another scheduler", f"no node has free ({NO_GPU}, says another scheduler)"),
    ],
)
def test_a_shortage_is_one_sentence_with_what_is_asked_what_the_nodes_have_and_what_the_siblings_hold(scheduler, free):
    short = pod(**unschedulable(scheduler))
    del short["spec"]["nodeName"]
    siblings = [{**pod(phase=phase), "metadata": {"name": phase}} for phase in ("Running", "Succeeded")]
    told = f"pod p asks for 16 nvidia.com/gpu, which {free}"
    all_of_us = Snapshot({}, (short, *siblings))
    assert trouble(short, NOW, all_of_us).message == f"{told}; this InferenceService holds 16 on node n1"
    assert trouble(short, NOW, ALONE).message == f"{told}; this InferenceService holds none"


@pytest.mark.parametrize(
    ("mode", "replicas", "gpus", "field"),
    [
        ("Surge", 1, 1, "set spec.rollout.mode to Downtime"),
        ("Replace", 1, 1, "set spec.rollout.mode to Downtime"),
        ("Surge", 2, 2, "set spec.rollout.mode to Replace"),
        ("Replace", 2, 1, "lower spec.replicas"),
        ("Downtime", 1, 0, "lower spec.replicas"),
    ],
)
def test_row_1_a_blocked_rollout_names_the_numbers_and_the_field_to_change(mode, replicas, gpus, field):
    world = World(replicas + 1, replicas=replicas, rollout__mode=mode).settle()
    world.gpus = gpus
    while len(world.holding()) > gpus:  # another tenant took them, with the pods that were there
        world.store.pop(("Pod", world.holding()[0]["metadata"]["name"]))
    world.edit(islands__enabled=True)
    world.go(12)
    blocked = world.condition("Progressing")
    assert blocked["reason"] == "InsufficientGPU"
    assert (
        "asks for 1 nvidia.com/gpu, which 0 of 1 nodes have free (1 Insufficient nvidia.com/gpu)" in blocked["message"]
    )
    assert f"this InferenceService holds {f'{gpus} on node node' if gpus else 'none'}" in blocked["message"]
    assert field in blocked["message"]


def test_a_volume_that_does_not_come_is_looked_for_again():
    """A pod in ContainerCreating changes nothing while it waits: only time wakes us."""
    world = World()
    for _ in range(4):
        world.operate()
        world.tick(0)
    plan = world.operate()
    assert world.pods()[0]["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ContainerCreating"
    assert 0 < plan.requeue_after <= 20
    world.seconds += 21
    world.operate()
    assert world.condition("Ready")["reason"] == "VolumesNotReady"
    assert "/models/tiny" in world.condition("Ready")["message"]


def test_pods_that_the_cluster_refuses_are_named():
    world = World(gpus=0).until("Promoting")
    world.operate()
    refused = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: gpus"}
    world.of("Deployment")[0]["status"] = {"conditions": [refused]}
    world.operate()
    assert (world.condition("Ready")["reason"], world.condition("Progressing")["reason"]) == ("PodsRefused",) * 2
    assert "exceeded quota" in world.condition("Ready")["message"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\nb\n\n", "b"),
        ("", ""),
        ("\x00\x1b[0m", r"\x00\x1b[0m"),
        ("ünïcode", "ünïcode"),
        ("\u202eevil", r"\u202eevil"),
        ("x" * 1_000_000, "x" * 297 + "..."),
        ("image " * 100, "image " * 48 + "image..."),  # of whole words
        ("x" * 270 + " " + "y" * 100, "x" * 270 + "..."),
    ],
)
def test_foreign_text_is_one_short_harmless_line(text, line):
    assert last_line(text) == line
    assert len(escaped(text)) <= 300


def test_the_message_of_a_gate_is_in_progress_while_it_runs():
    world = World(islands__enabled=True).until("Gating")
    for _ in range(3):
        world.operate()
        world.tick(0)
    progressing = world.condition("Progressing")
    assert (progressing["status"], progressing["reason"]) == ("True", "Gating")
    assert "off, on and off again" in progressing["message"]
    assert world.condition("GatePassed")["status"] == "Unknown"


def test_the_column_gate_is_about_what_is_desired_now():
    """The last attempt's evidence stays in status.gate, but is not shown for what is not about it."""
    world = World().settle()
    assert "gateVerdict" not in world.status
    world.edit(islands__enabled=True)
    world.until("Gating")
    assert "gateVerdict" not in world.status
    world.settle()
    assert world.status["gateVerdict"] == "PASS"
    for image, verdict in (("wrong:1", "FAIL"), ("noise:1", "INCONCLUSIVE"), ("gatedies:1", "ERROR")):
        world.edit(engine__image=image)
        world.settle()
        assert world.status["gateVerdict"] == world.status["gate"]["verdict"] == verdict
        world.edit(engine__image="good:1")
        world.settle()
        assert (world.status["gateVerdict"], world.status["gate"]["verdict"]) == ("PASS", verdict)
    world.edit(islands__enabled=False)
    world.settle()
    assert "gateVerdict" not in world.status
    assert world.status["gate"]["verdict"] == "ERROR"


def test_events_have_one_type_per_reason():
    world = World(islands__enabled=True).settle()
    for image in ("wrong:1", "good:1", "crash:1", "good:2"):
        world.edit(engine__image=image)
        world.settle()
    world.edit(islands__enabled=False)
    world.settle()
    kinds = {}
    for event in world.events:
        assert kinds.setdefault(event.reason, event.type) == event.type
        assert len(event.note) <= 1000
    assert kinds["GateFailed"] == kinds["RolloutFailed"] == kinds["RolledBack"] == "Warning"


@pytest.mark.parametrize(
    ("image", "reason", "advice"),
    [
        (
            "noise:1",
            "Nondeterminism",
            "Change the spec, or annotate the object with radix-islands.dev/retry to try the",
        ),
        ("wrong:1", "GateFailed", "Change the spec, or annotate the object with radix-islands.dev/retry to try the"),
        ("paced:1", "PacedEngine", "Change the spec: every attempt at the same revision ends so"),
    ],
)
def test_a_retry_is_advised_only_where_it_can_end_otherwise(monkeypatch, image, reason, advice):
    paced = termination("ERROR", reason="PacedEngine", message="dummies prove nothing: drop --pace")
    monkeypatch.setitem(GATES, "paced", (12, paced))
    world = World().settle()
    world.edit(engine__image=image, islands__enabled=True)
    world.settle()
    for kind in ("Ready", "Degraded", "RolledBack"):
        assert advice in world.condition(kind)["message"]
    assert world.condition("Degraded")["reason"] == reason
    hinted = [hint.command for hint in view.of(world.snapshot(), world.now).hints]
    assert ("kubectl island retry x" in hinted) == ("retry" in advice)
    assert ("kubectl edit iisvc x" in hinted) == ("retry" not in advice)
