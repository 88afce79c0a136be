"""What is waited for: a person is asked where one is needed, and one trouble has one text."""

import pytest
from support.world import HALF, World, is_ready, leaving

PULL = 'failed to pull and unpack image "nopull:1": not found'


def told(world, *kinds):
    return [(c["status"], c["reason"], c["message"]) for c in map(world.condition, kinds)]


def passes(world, turns=60):
    """Each pass's conditions."""
    for _ in range(turns):
        if world.operate().requeue_after != 0:
            world.tick()
        yield told(world, "Ready", "Progressing", "Degraded")


@pytest.mark.parametrize(
    ("mode", "replicas", "gpus"),
    [
        ("Surge", 2, 3),
        ("Surge", 2, 2),
        ("Surge", 1, 1),
        ("Surge", 4, 5),
        ("Replace", 2, 2),
        ("Replace", 4, 4),
        ("Downtime", 1, 1),
        ("Downtime", 3, 3),
    ],
)
def test_a_healthy_kill_switch_never_asks_for_a_gpu(mode, replicas, gpus):
    world = World(gpus, replicas=replicas, rollout__mode=mode, islands__enabled=True).settle()
    world.edit(islands__enabled=False)
    seen = list(passes(world, 80))
    assert world.condition("Ready")["status"] == "True"
    assert {reason for ready, progress, _ in seen for _, reason, _ in (ready, progress)} <= {
        "Promoting",
        "Serving",
        "Stable",
    }
    assert {status for _, _, (status, _, _) in seen} == {"False"}
    calm = [message for _, (_, _, message), _ in seen if "waits for a GPU that another pod gives up" in message]
    assert bool(calm) == (gpus < 2 * replicas)


def test_a_kill_switch_that_nobody_frees_a_gpu_for_says_so():
    world = World(gpus=2, islands__enabled=True).settle()
    world.edit(islands__enabled=False)
    world.until("Promoting")
    while world.ready() == 2:
        world.go(1)
    (left,) = [p for p in world.pods() if is_ready(p) and not leaving(p)]
    assert left["metadata"]["labels"][HALF] == "islands"
    world.gpus = 1  # another tenant was quicker
    for pod in world.pods():
        if pod is not left:
            world.store.pop(("Pod", pod["metadata"]["name"]))
    world.go(12)
    assert world.condition("Progressing")["reason"] == "InsufficientGPU"
    assert "(free one, or lower spec.replicas)" in world.condition("Progressing")["message"]
    world.gpus = 2
    world.settle()
    assert world.condition("Ready")["status"] == "True"


def test_the_schedulers_first_word_is_not_its_last_and_somebody_looks_again():
    world = World(gpus=2).settle()
    world.edit(replicas=3)
    world.operate()
    world.tick(0)
    plan = world.operate()
    assert told(world, "Ready", "Degraded") == [
        ("False", "PodsNotReady", "2 of 3 pods are Ready"),
        ("False", "AsExpected", "nothing needs attention"),
    ]
    assert plan.requeue_after == 5
    world.tick(5)
    world.operate()
    assert [reason for _, reason, _ in told(world, "Ready", "Degraded")] == ["InsufficientGPU"] * 2


def test_a_pod_that_waits_for_one_that_ends_is_no_shortage():
    world = World(gpus=2).settle()
    world._kubelet = lambda: None  # it takes its grace
    world.pods()[0]["metadata"]["deletionTimestamp"] = world.now
    world.tick()
    for _ in range(10):
        world.operate()
        world.tick()
    text = "1 of 2 pods are Ready, the next waits for a GPU that another pod gives up"
    assert told(world, "Ready") == [("False", "PodsNotReady", text)]
    plan = world.operate()
    assert plan.requeue_after <= 31  # its node may be lost
    world.tick(31)
    world.operate()
    assert [reason for _, reason, _ in told(world, "Ready", "Degraded")] == ["InsufficientGPU"] * 2
    del world._kubelet
    world.settle()
    assert world.condition("Ready")["status"] == "True"


def never_gone(world, pod):
    """Its node is lost: it is being deleted from now on."""
    kubelet, slot = world._kubelet, ("Pod", pod["metadata"]["name"])
    pod["metadata"]["deletionTimestamp"] = world.now

    def lame():
        kubelet()
        world.store[slot] = pod

    world._kubelet = lame
    return pod


def test_the_pod_of_a_lost_node_will_free_no_gpu():
    """It never ends, and nothing tells so but the time."""
    world = World(gpus=2, islands__enabled=True).settle()
    lost = never_gone(world, world.pods()[0])
    world.edit(islands__enabled=False)
    world.go(20)
    assert world.condition("Progressing")["reason"] == "Promoting"
    world.tick(20)
    world.go(8)
    assert world.condition("Progressing")["reason"] == "InsufficientGPU"
    assert world.ready() == 1
    world.gpus = 3
    world.go(40)
    assert {p["metadata"]["labels"][HALF] for p in world.pods() if is_ready(p) and p is not lost} == {"stock"}
    assert world.phase == "Stable"


@pytest.mark.parametrize("edits", [{"islands__enabled": False}, {}])
def test_no_rollout_waits_for_the_pod_of_a_lost_node(edits):
    """Nor does the rest of the spec, after the kill switch."""
    world = World(gpus=4, islands__enabled=True, rollout__deadline="2m").settle()
    never_gone(world, world.pods()[0])
    world.edit(engine__image="good:2", **edits)
    world.settle()
    assert (world.phase, world.condition("Ready")["status"]) == ("Stable", "True")
    assert world.status["revisions"]["active"] == world.status["revisions"]["desired"]


def test_no_gate_waits_for_the_pod_of_a_lost_node():
    world = World(gpus=5).settle()
    world.edit(engine__image="hangs:1", islands__enabled=True)
    world.until("Gating").go(5)
    never_gone(world, world.pods("gate")[0])
    world.edit(engine__image="good:1")
    world.settle()
    assert (world.phase, world.status["gateVerdict"]) == ("Stable", "PASS")


@pytest.mark.parametrize("gpus", [2, 3, 5])
def test_kubelets_say_two_things_of_one_image_and_the_status_one(gpus):
    """The stock half's image is gone: in turns each pod is at a pull, or in its back-off."""
    world = World(gpus, islands__enabled=True).settle()
    real, pulls = world._run, {}

    def run(pod):
        if pod["metadata"]["labels"][HALF] == "islands":
            real(pod)
            return
        turn = pulls[pod["metadata"]["name"]] = pulls.get(pod["metadata"]["name"], len(pulls)) + 1
        backs_off = f'Back-off pulling image "nopull:1": ErrImagePull: {PULL}'
        reason, message = ("ErrImagePull", PULL) if turn % 2 else ("ImagePullBackOff", backs_off)
        waiting = {"waiting": {"reason": reason, "message": message}}
        pod["status"]["containerStatuses"] = [
            {"name": "engine", "image": "nopull:1", "restartCount": 0, "state": waiting}
        ]

    world._run = run
    world.edit(islands__enabled=False)
    seen = list(passes(world))
    after = next(i for i, (_, _, degraded) in enumerate(seen) if degraded[0] == "True")
    assert len(set(map(str, seen[after:]))) == 1
    assert seen[-1][2][1] == "ImagePullFailed"
    assert PULL in seen[-1][2][2]
    assert "Back-off" not in str(seen[-1])
