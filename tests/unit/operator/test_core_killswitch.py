"""The kill switch, whatever else the spec says: first the stock half of what serves, then the rest of the spec."""

import pytest
from support.world import HALF, REVISION, World, is_ready, told

GOOD, BAD = "good:1", "nopull:1"
ROOM = {"Surge": (2, 3), "Replace": (2, 2), "Downtime": (1, 1)}  # replicas, GPUs


def reasons(world):
    return [e.reason for e in world.events]


def image_of(pod):
    return told(pod)[0], pod["spec"]["containers"][0]["image"]


def images(world):
    return {image_of(p) for p in world.pods()}


def asks(world):
    """What each half is asked for, as (half, image): replicas."""
    return {
        (d["metadata"]["labels"][HALF], d["spec"]["template"]["spec"]["containers"][0]["image"]): d["spec"]["replicas"]
        for d in world.of("Deployment")
    }


def conditions(world, *kinds):
    return [(world.condition(kind)["status"], world.condition(kind)["reason"]) for kind in kinds]


def serving_islands(mode="Surge", **changes):
    replicas, gpus = ROOM[mode]
    world = World(gpus, replicas=replicas, rollout__mode=mode, islands__enabled=True, **changes).settle()
    assert {switch for switch, _ in images(world)} == {"on"}
    world.events.clear()
    return world


def no_stock(world, *tags):
    """No stock pod of these images boots from now on, as for want of memory."""
    world.cannot_boot = lambda pod: image_of(pod) in {("off", tag) for tag in tags}


# --- the rest of the spec is bad ---


@pytest.mark.parametrize(
    ("mode", "partition", "bad", "reason"),
    [
        ("Surge", "halves", BAD, "ImagePullFailed"),
        ("Surge", "unified", "crash:1", "EngineDied"),
        ("Replace", "halves", BAD, "ImagePullFailed"),
        ("Downtime", "halves", "crash:1", "EngineDied"),
        ("Downtime", "unified", BAD, "ImagePullFailed"),
    ],
)
def test_in_one_patch_with_an_image_that_cannot_start_islands_end_and_the_image_is_rejected(
    mode, partition, bad, reason
):
    pools = {"partition": {"mode": "unified"}} if partition == "unified" else {}
    world = serving_islands(mode, **pools)
    fewest = []
    world.check = lambda w: fewest.append(w.ready())
    world.edit(islands__enabled=False, engine__image=bad)
    world.settle()
    assert images(world) == {("off", GOOD)}
    assert world.ready() == ROOM[mode][0]
    assert min(fewest) == {"Surge": 2, "Replace": 1, "Downtime": 0}[mode]
    assert reasons(world)[:4] == ["KillSwitchStarted", "Promoted", "RolloutStarted", "RolloutFailed"]
    assert conditions(world, "Degraded", "RolledBack") == [("True", reason)] * 2
    assert conditions(world, "Ready", "Available") == [("False", "RolledBack"), ("True", "EnoughPodsReady")]
    assert world.status["islands"]["enabled"] is False


def _gating(world):
    world.until("Gating").go(5)


def _refused_by_its_gate(world):
    world.settle()
    assert world.condition("RolledBack")["status"] == "True"


def _canary(world):
    world.edit(gate__enabled=False)
    world.until("Canary").go(1)


def _promoting(world):
    """Held there, because nothing rolls back by itself."""
    world.edit(gate__enabled=False, rollout__autoRollback=False)
    world.until("Canary").go(3)
    world.annotate("radix-islands.dev/promote", "1")
    world.until("Promoting").go(2)


def _paused(world):
    world.edit(gate__enabled=False, rollout__autoRollback=False)
    world.until("Canary").go(3)
    world.annotate("radix-islands.dev/pause", "1")
    world.operate()


@pytest.mark.parametrize("moment", [_gating, _refused_by_its_gate, _canary, _promoting, _paused])
def test_while_a_bad_image_rolls_out_or_was_refused(moment):
    world = serving_islands()
    world.edit(engine__image=BAD)
    moment(world)
    world.edit(islands__enabled=False)
    world.operate()
    assert world.status["run"]["kind"] == "KillSwitch"
    world.operate()
    assert asks(world)["stock", GOOD] == 2
    assert not [fleet for fleet in asks(world) if fleet[0] == "stock" and fleet[1] != GOOD]
    world.settle()
    assert {image for image in images(world) if image[1] == GOOD} == {("off", GOOD)}
    assert world.ready() == 2
    assert world.condition("Degraded")["status"] == "True"


def test_past_the_deadline_of_a_rollout_that_holds():
    """spec.rollout.autoRollback false holds what failed; the switch is not held."""
    world = serving_islands(rollout__autoRollback=False, gate__enabled=False, rollout__deadline="1m")
    world.edit(engine__image=BAD)
    world.until("Canary").go(90)
    assert conditions(world, "Degraded") == [("True", "ImagePullFailed")]
    world.edit(islands__enabled=False)
    world.settle()
    assert ("off", GOOD) in images(world)
    assert "on" not in {switch for switch, _ in images(world)}
    assert world.ready() == 2
    assert (world.phase, world.condition("Degraded")["reason"]) == ("Canary", "ImagePullFailed")


def test_a_good_rest_of_the_spec_follows_as_a_rollout_with_its_canary():
    world = serving_islands()
    world.edit(islands__enabled=False, engine__image="good:2")
    world.settle()
    assert images(world) == {("off", "good:2")}
    assert reasons(world) == ["KillSwitchStarted", "Promoted", "RolloutStarted", "CanaryPassed", "Promoted"]
    assert world.condition("Ready")["status"] == "True"
    assert not world.status["revisions"].get("rejected")


def test_an_edit_while_the_switch_is_on_its_way_waits_until_it_has_landed():
    world = serving_islands()
    world.edit(islands__enabled=False)
    world.operate()
    world.edit(engine__image=BAD)
    world.operate()
    assert world.status["run"]["kind"] == "KillSwitch"
    world.go(2)
    assert "before the rest of the spec" in world.condition("Progressing")["message"]
    world.settle()
    assert images(world) == {("off", GOOD)}
    assert reasons(world)[:3] == ["KillSwitchStarted", "Promoted", "RolloutStarted"]


def test_a_canary_of_islands_gives_way_to_what_serves_not_to_another_image():
    world = World(islands__enabled=False, rollout__steps=[{"weight": 33, "pause": "1h"}]).settle()
    world.edit(islands__enabled=True)
    world.until("Canary").go(5)
    assert ("on", GOOD) in {image_of(p) for p in world.pods() if is_ready(p)}
    world.events.clear()
    world.edit(islands__enabled=False, engine__image=BAD)
    fewest = []
    world.check = lambda w: fewest.append(w.ready())
    world.settle()
    assert images(world) == {("off", GOOD)}
    assert min(fewest) >= 2
    assert reasons(world)[:4] == ["RolloutEnded", "RevertStarted", "Reverted", "RolloutStarted"]
    assert world.events[0].note.endswith("ended in Canary: the spec asks for islands off")


def test_the_first_revision_of_all_gives_way_to_its_own_stock_half():
    world = World(islands__enabled=True).until("Promoting")
    while not world.ready():
        world.operate()
        world.tick()
    world.edit(islands__enabled=False, engine__image=BAD)
    world.settle()
    assert images(world) == {("off", GOOD)}
    assert world.ready() == 2


def test_a_broken_spec_goes_on_with_no_rollout_to_islands_that_were_switched_off():
    broken = {"spec": {"containers": [{"name": "engine", "args": ["x"]}]}}
    world = World().settle()
    world.edit(islands__enabled=True)
    world.until("Canary").operate()
    world.edit(islands__enabled=False, podTemplate=broken)
    world.settle()
    assert images(world) == {("off", GOOD)}
    assert world.phase == "Stable"
    assert conditions(world, "Ready", "Degraded") == [("False", "PodTemplateInvalid"), ("True", "PodTemplateInvalid")]


def test_what_was_rejected_stays_so_and_a_retry_tries_it_on_top_of_the_stock_half():
    world = serving_islands()
    world.edit(islands__enabled=False, engine__image=BAD)
    world.settle()
    (rejected,) = world.status["revisions"]["rejected"]
    world.events.clear()
    world.settle()
    assert (reasons(world), world.status["revisions"]["rejected"]) == ([], [rejected])
    world.annotate("radix-islands.dev/retry", "1")
    world.settle()
    assert reasons(world)[:3] == ["Retried", "RolloutStarted", "RolloutFailed"]
    assert images(world) == {("off", GOOD)}


def test_back_to_islands_in_the_middle_returns_to_the_living_pods():
    world = serving_islands()
    before = {p["metadata"]["uid"] for p in world.pods()}
    world.edit(islands__enabled=False, engine__image=BAD)
    world.operate()
    world.operate()
    world.edit(islands__enabled=True, engine__image=GOOD)
    world.settle()
    assert {p["metadata"]["uid"] for p in world.pods()} == before
    assert world.condition("Ready")["status"] == "True"


# --- the stock half of what serves is bad ---


def test_a_stock_half_that_cannot_start_gives_way_to_that_of_the_spec():
    world = serving_islands()
    no_stock(world, GOOD)
    fewest = []
    world.check = lambda w: fewest.append(w.ready())
    world.edit(islands__enabled=False, engine__image="good:2")
    world.settle()
    assert images(world) == {("off", "good:2")}
    assert min(fewest) == 2
    assert reasons(world) == ["KillSwitchStarted", "RolloutFailed", "KillSwitchStarted", "Promoted"]
    assert [r["reason"] for r in world.status["revisions"]["rejected"]] == ["EngineDied"]
    assert conditions(world, "Ready", "Degraded") == [("True", "Serving"), ("False", "AsExpected")]


def test_mending_the_spec_ends_a_switch_whose_stock_half_cannot_start():
    world = serving_islands()
    no_stock(world, GOOD)
    world.edit(islands__enabled=False)
    world.settle()
    assert conditions(world, "Degraded") == [("True", "EngineDied")]
    assert "the kill switch waits for revision" in world.condition("Degraded")["message"]
    assert world.ready() == 2
    world.edit(engine__image="good:2")
    world.settle()
    assert images(world) == {("off", "good:2")}


def test_a_stock_half_without_a_pod_until_the_deadline_gives_way_too():
    """Neither dead nor refused: a volume that is gone, a node pool that is no more."""
    world = serving_islands(rollout__deadline="2m")
    real = world._run
    world._run = lambda pod: None if image_of(pod) == ("off", GOOD) else real(pod)
    world.edit(islands__enabled=False, engine__image="good:2")
    world.settle()
    assert images(world) == {("off", "good:2")}


@pytest.mark.parametrize("failures", [1, 2])
def test_a_spec_that_is_mended_meanwhile_waits_for_no_deadline_a_second_time(failures):
    """While the spec's own half is on its way (1), or after that has failed too (2)."""
    world = serving_islands(rollout__deadline="1m")
    real = world._run
    world._run = lambda pod: None if image_of(pod) == ("off", GOOD) else real(pod)
    world.edit(islands__enabled=False, engine__image=BAD)
    while reasons(world).count("RolloutFailed") < failures:
        world.go(1)
    began = world.seconds
    world.edit(engine__image="good:2")
    world.go(30)
    assert (images(world), world.phase) == ({("off", "good:2")}, "Stable")
    assert world.seconds - began == 30
    assert conditions(world, "Ready", "Degraded") == [("True", "Serving"), ("False", "AsExpected")]


def test_where_neither_half_can_start_islands_serve_on_a_person_is_asked_for_and_what_served_is_waited_for():
    world = serving_islands()
    no_stock(world, GOOD, "good:2")
    world.edit(islands__enabled=False, engine__image="good:2")
    world.settle()
    assert {("on", GOOD), ("off", GOOD)} == images(world)
    assert conditions(world, "Ready", "Progressing", "Degraded") == [
        ("False", "EngineDied"),
        ("True", "EngineDied"),
        ("True", "EngineDied"),
    ]
    no_stock(world)
    for pod in world.pods():
        if told(pod)[0] == "off":
            world.store.pop(("Pod", pod["metadata"]["name"]))
    world.settle()
    assert images(world) == {("off", GOOD)}
    assert conditions(world, "Ready", "Degraded") == [("False", "RolledBack"), ("True", "EngineDied")]


def test_what_the_switch_overrode_is_rejected_no_more_once_it_serves():
    world = World(rollout__deadline="5s").settle()
    world.edit(engine__image="good:2")
    world.until("Canary")
    world.gpus = 2
    world.settle()
    (rejected,) = world.status["revisions"]["rejected"]
    world.gpus = 3
    world.edit(islands__enabled=True)
    world.settle()
    world.edit(islands__enabled=False)
    world.settle()
    assert world.status["revisions"]["active"] == rejected["revision"]
    assert not world.status["revisions"].get("rejected")
    assert world.condition("Ready")["status"] == "True"


# --- verbs ---


@pytest.mark.parametrize("verb", ["abort", "rollback", "pause"])
def test_a_verb_is_refused_with_what_to_do_instead(verb):
    world = serving_islands()
    no_stock(world, GOOD)
    world.edit(islands__enabled=False)
    world.settle()
    world.annotate(f"radix-islands.dev/{verb}", "1")
    world.settle()
    assert world.status["verbs"][-1]["outcome"] == (
        f"{verb} was refused: the kill switch is in progress, and no verb holds it up; set spec.islands.enabled to "
        "true to have islands, or mend the spec if its pods cannot start"
    )


def test_once_it_has_landed_abort_takes_the_rest_of_the_spec_back():
    world = serving_islands()
    world.edit(islands__enabled=False, engine__image="good:2", rollout__steps=[{"weight": 33, "pause": "1h"}])
    world.until("Canary").go(5)
    world.annotate("radix-islands.dev/abort", "1")
    world.settle()
    assert images(world) == {("off", GOOD)}
    world.annotate("radix-islands.dev/rollback", "1")
    world.settle()
    assert "no earlier revision is left" in world.status["verbs"][-1]["outcome"]
    assert "has islands off, as spec.islands.enabled says" in world.status["verbs"][-1]["outcome"]


# --- what it costs, and who may die meanwhile ---


@pytest.mark.parametrize(("mode", "passes", "writes"), [("Surge", 13, 14), ("Replace", 11, 13), ("Downtime", 6, 8)])
def test_an_ordinary_switch_takes_no_more_passes_and_writes_than_before_the_rest_of_the_spec_was_thought_of(
    mode, passes, writes
):
    world = serving_islands(mode)
    world.writes.clear()
    world.edit(islands__enabled=False)
    for _ in range(passes):
        plan = world.operate()
        if plan.requeue_after != 0:
            world.tick()
    assert (world.phase, plan.requeue_after) == ("Stable", None)
    assert len(world.writes) <= writes
    assert reasons(world) == ["KillSwitchStarted", "Promoted"]


def story(crash_at=None):
    world = World(islands__enabled=True).settle()
    world.writes.clear()
    world.crash_at = crash_at
    world.edit(islands__enabled=False, engine__image=BAD)
    return world.settle()


def test_row_13_killed_after_every_single_write_a_switch_with_a_bad_image_ends_the_same():
    whole = story()
    for n in range(1, len(whole.writes) + 1):
        world = story(crash_at=n)
        assert images(world) == {("off", GOOD)}, n
        for key in ("desired", "active"):
            assert world.status["revisions"][key] == whole.status["revisions"][key], n
        assert [r["reason"] for r in world.status["revisions"]["rejected"]] == ["ImagePullFailed"], n
        assert conditions(world, "Ready", "Degraded", "RolledBack") == conditions(
            whole, "Ready", "Degraded", "RolledBack"
        ), n


def test_only_pods_of_one_revision_are_left():
    world = serving_islands()
    world.edit(islands__enabled=False, engine__image=BAD)
    world.settle()
    assert {p["metadata"]["labels"][REVISION] for p in world.pods()} == {world.status["revisions"]["active"]}
