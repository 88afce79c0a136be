"""The rollout machine, rule by rule, in a small world. Row numbers: the complaints that design/anchors collected."""

import copy
import json

import pytest
from support.world import RETRY, REVISION, World, told

STOCK, LEAN = ("off", "0.4", "9984"), ("on", "0.15", "19968")


def phases(world):
    """Each phase as the status told it, once."""
    seen = [name for kind, _, name in world.writes if kind == "status"]
    return [p for i, p in enumerate(seen) if i == 0 or seen[i - 1] != p]


def reasons(world):
    return [e.reason for e in world.events]


def pods(world):
    return {p["metadata"]["uid"]: told(p) for p in world.pods()}


def active(world):
    return world.status["revisions"]["active"]


@pytest.fixture
def stock():
    return World().settle()


@pytest.fixture
def islands(stock):
    stock.edit(islands__enabled=True)
    stock.settle()
    stock.events.clear()
    stock.writes.clear()
    return stock


# --- a new object ---


def test_a_new_object_on_the_stock_half_is_not_gated(stock):
    assert phases(stock) == ["Promoting", "Stable"]
    assert stock.jobs_made == []
    assert set(pods(stock).values()) == {STOCK}


def test_row_33_one_apply_with_islands_is_gated_and_reaches_all_pods():
    world = World(islands__enabled=True).settle()
    assert phases(world) == ["Gating", "Promoting", "Stable"]
    assert len(world.jobs_made) == 1
    assert set(pods(world).values()) == {LEAN}


def test_a_new_object_that_fails_its_gate_serves_nothing_and_says_what_to_do():
    world = World(islands__enabled=True, engine__image="wrong:1").settle()
    assert world.pods() == []
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "GateFailed")
    assert "nothing serves" in ready["message"]
    world.edit(islands__enabled=False)
    world.settle()
    assert world.condition("Ready")["status"] == "True"


def test_gate_disabled_means_a_canary_alone(stock):
    stock.edit(islands__enabled=True, gate__enabled=False)
    stock.settle()
    assert stock.jobs_made == []
    assert phases(stock)[-3:] == ["Canary", "Promoting", "Stable"]
    assert stock.condition("GatePassed")["reason"] == "NotRequired"


def test_where_only_a_gate_ran_no_event_says_that_something_moved(stock):
    stock.events.clear()
    stock.edit(islands__enabled=True, engine__image="wrong:1")
    stock.settle()
    assert reasons(stock) == ["RolloutStarted", "GateStarted", "GateFailed"]
    assert stock.events[-1].note.endswith(f"; revision {active(stock)} serves")
    stock.events.clear()
    stock.edit(engine__image="hangs:1")
    stock.until("Gating")
    stock.edit(islands__enabled=False, engine__image="good:1")
    stock.settle()
    assert reasons(stock) == ["RolloutStarted", "GateStarted", "RolloutEnded"]
    assert stock.events[-1].note.endswith("ended in Gating: the spec asks for what serves")


def test_equal_halves_are_told_to_gain_nothing(stock):
    same = {"swaFullTokensRatio": "0.4", "maxTotalTokens": 9984}
    stock.edit(islands__enabled=True)
    stock.settle()
    assert "NothingGained" not in reasons(stock)
    stock.edit(partition={"mode": "unified"})
    stock.settle()
    assert "NothingGained" not in reasons(stock)
    stock.edit(partition={"islands": same, "stock": same})
    stock.settle()
    (event,) = [e for e in stock.events if e.reason == "NothingGained"]
    assert event.type == "Warning"
    told = "spec.partition: both halves are 0.4 of 9984 tokens, so the full pool gains nothing from islands: give "
    assert event.note.startswith(told)


def test_a_rollback_names_what_it_leaves(stock):
    stock.edit(engine__image="crash:1")
    stock.settle()
    bad, good = stock.status["revisions"]["desired"], active(stock)
    assert reasons(stock)[-2:] == ["RollbackStarted", "RolledBack"]
    assert stock.events[-2].note == f"revision {good}, from {bad}"


# --- islands on ---


def test_islands_on_is_gated_and_switch_and_pools_move_together(stock):
    before = pods(stock)
    stock.edit(islands__enabled=True)
    stock.until("Canary")
    assert pods(stock) == before  # the gate has its own pod, stable keeps all of its own
    stock.settle()
    assert phases(stock) == ["Promoting", "Stable", "Gating", "Canary", "Promoting", "Stable"]
    assert set(pods(stock).values()) == {LEAN}
    pair = {"enabled": True, "ratio": "0.15", "maxTotalTokens": 19968, "maxRunningRequests": 8}
    assert stock.status["islands"] == pair
    assert reasons(stock)[2:] == ["RolloutStarted", "GateStarted", "GatePassed", "CanaryPassed", "Promoted"]
    (known,) = [k for k in stock.status["revisions"]["history"] if k["revision"] == active(stock)]
    assert (known["verdict"], known["fingerprint"]) == ("PASS", "sha256:f")


def test_a_gate_that_fails_touches_nothing_and_names_the_first_divergence(islands):
    before, good = pods(islands), active(islands)
    islands.edit(engine__image="wrong:1")
    islands.settle()
    assert pods(islands) == before
    assert phases(islands) == ["Gating", "RollingBack", "Stable"]
    status = islands.status
    assert active(islands) == good
    assert status["gate"]["verdict"] == "FAIL"
    assert status["gate"]["divergence"]["probe"] == "hit/w+1"
    (rejected,) = status["revisions"]["rejected"]
    assert (rejected["revision"], rejected["reason"]) == (status["revisions"]["desired"], "GateFailed")
    for kind, value, reason in (
        ("RolledBack", "True", "GateFailed"),
        ("Degraded", "True", "GateFailed"),
        ("GatePassed", "False", "GateFailed"),
        ("Ready", "False", "RolledBack"),
        ("Available", "True", "EnoughPodsReady"),
    ):
        assert (islands.condition(kind)["status"], islands.condition(kind)["reason"]) == (value, reason)
    assert "hit/w+1 at token 3: 17 instead of 12" in islands.condition("RolledBack")["message"]
    assert not any(d["metadata"]["labels"][REVISION] == rejected["revision"] for d in islands.of("Deployment"))


def test_row_8_no_gate_verdict_but_pass_promotes(islands):
    for image, verdict, reason in (
        ("noise:1", "INCONCLUSIVE", "Nondeterminism"),
        ("gatedies:1", "ERROR", "EngineDied"),
        ("silent:1", "INCONCLUSIVE", "NoReport"),
        ("liar:1", "INCONCLUSIVE", "ReportMismatch"),
        ("nopull:1", "INCONCLUSIVE", "ImagePullFailed"),
        ("hangs:1", "INCONCLUSIVE", "GateDeadline"),
    ):
        before = pods(islands)
        islands.edit(engine__image=image)
        islands.settle()
        assert islands.status["gate"]["verdict"] == verdict
        assert islands.status["revisions"]["rejected"][-1]["reason"] == reason
        assert islands.condition("GatePassed")["reason"] == reason
        assert f"Gate{'Error' if verdict == 'ERROR' else 'Inconclusive'}" in reasons(islands)
        islands.events.clear()
        assert pods(islands) == before


def test_row_7_a_gate_that_finds_no_gpu_says_so_and_meets_its_deadline(islands):
    islands.gpus = 2
    islands.edit(engine__image="good:2")
    islands.until("Gating")
    islands.go(8)
    islands.operate()
    assert islands.condition("Progressing")["reason"] == "InsufficientGPU"
    assert "Insufficient nvidia.com/gpu" in islands.condition("Progressing")["message"]
    islands.settle()
    assert islands.status["revisions"]["rejected"][-1]["reason"] == "InsufficientGPU"
    job = islands.store["Job", islands.status["gate"]["job"]]
    assert job["status"]["conditions"][0]["reason"] == "DeadlineExceeded"
    assert islands.ready() == 2


def test_a_revision_whose_gate_has_passed_is_not_gated_again_and_its_event_says_so(islands):
    jobs, told = list(islands.jobs_made), lambda: [e.note for e in islands.events if e.reason == "RolloutStarted"]
    assert jobs
    assert not any("gate" in note for note in told())
    islands.edit(islands__enabled=False)
    islands.settle()
    islands.edit(islands__enabled=True)
    islands.settle()
    assert islands.jobs_made == jobs
    assert told()[-1].endswith(", without a gate: it has passed its own before")


def test_row_10_a_rejected_revision_stays_rejected_and_row_9_retry_is_a_new_job(islands):
    islands.edit(engine__image="noise:1")
    islands.settle()
    jobs = list(islands.jobs_made)
    islands.edit(replicas=1)  # scaling is no reason to try again
    islands.settle()
    assert islands.jobs_made == jobs
    islands.annotate(RETRY, "again")
    islands.settle()
    assert len(islands.jobs_made) == len(jobs) + 1
    assert RETRY not in islands.parent["metadata"]["annotations"]
    assert islands.status["gate"]["attempt"] == 3
    assert "Retried" in reasons(islands)


def test_a_spec_change_leaves_the_rejection_behind_and_coming_back_finds_it(islands):
    good = active(islands)
    islands.edit(engine__image="wrong:1")
    islands.settle()
    islands.edit(engine__image="good:1")
    islands.settle()
    assert islands.condition("Ready")["status"] == "True"
    assert active(islands) == good
    jobs = list(islands.jobs_made)
    islands.edit(engine__image="wrong:1")
    islands.settle()
    assert islands.condition("Ready")["reason"] == "RolledBack"
    assert islands.jobs_made == jobs


def test_a_pass_is_used_again(islands):
    jobs = list(islands.jobs_made)
    islands.edit(islands__enabled=False)
    islands.settle()
    islands.edit(islands__enabled=True)
    islands.settle()
    assert islands.jobs_made == jobs
    assert set(pods(islands).values()) == {LEAN}
    assert islands.condition("GatePassed")["status"] == "True"


@pytest.mark.parametrize("change", [{"replicas": 3}, {"gate__profile": "standard"}, {"rollout__steps": []}], ids=str)
def test_row_11_what_is_no_revision_runs_no_gate(islands, change):
    jobs = list(islands.jobs_made)
    islands.edit(**change)
    islands.settle()
    assert islands.jobs_made == jobs
    assert islands.condition("Ready")["status"] == "True"


def test_a_gate_in_vain_gives_its_gpu_back(islands):
    islands.edit(engine__image="hangs:1")
    islands.until("Gating")
    islands.go(3)
    assert len(islands.holding()) == 3
    islands.edit(engine__image="good:1")
    islands.settle()
    assert len(islands.holding()) == 2
    assert islands.status["gate"]["reason"] == "Aborted"
    assert not [j for j in islands.of("Job") if not j["status"].get("conditions")]


def test_a_foreign_job_of_that_name_is_refused(islands):
    islands.edit(engine__image="good:2")
    islands.until("Gating")
    name = islands.status["gate"]["job"]
    foreign = {"kind": "Job", "metadata": {"name": name, "uid": "theirs", "labels": {"radix-islands.dev/role": "gate"}}}
    islands.store["Job", name] = {**foreign, "spec": {"activeDeadlineSeconds": 9, "template": {}}}
    islands.operate()
    islands.operate()
    assert islands.status["revisions"]["rejected"][-1]["reason"] == "ForeignGateJob"
    assert name in islands.condition("Degraded")["message"]
    assert islands.store["Job", name]["metadata"]["uid"] == "theirs"


# --- the kill switch ---


def test_the_kill_switch_is_ungated_and_at_once(islands):
    jobs = list(islands.jobs_made)
    islands.edit(islands__enabled=False)
    islands.operate()
    islands.operate()
    replicas = {
        d["metadata"]["labels"]["radix-islands.dev/half"]: d["spec"]["replicas"] for d in islands.of("Deployment")
    }
    assert replicas["stock"] == 2  # all of them, no canary
    islands.settle()
    assert islands.jobs_made == jobs
    assert phases(islands) == ["Promoting", "Stable"]
    assert set(pods(islands).values()) == {STOCK}
    assert reasons(islands) == ["KillSwitchStarted", "Promoted"]


def test_the_kill_switch_stops_a_gate_and_frees_its_gpu(islands):
    islands.edit(engine__image="hangs:1")
    islands.until("Gating")
    islands.operate()
    islands.tick()
    islands.edit(islands__enabled=False)
    islands.settle()
    assert len(islands.holding()) == 2
    assert set(pods(islands).values()) == {STOCK}


def test_the_kill_switch_needs_no_spare_gpu():
    world = World(gpus=3, islands__enabled=True).settle()
    world.gpus = 2
    world.edit(islands__enabled=False)
    world.settle()
    assert set(pods(world).values()) == {STOCK}


def test_the_kill_switch_waits_for_no_islands_pod(islands):
    for pod in islands.pods():
        islands.crash(pod)
    islands.gpus = 2
    islands.edit(islands__enabled=False)
    islands.operate()
    islands.operate()
    replicas = {
        d["metadata"]["labels"]["radix-islands.dev/half"]: d["spec"]["replicas"] for d in islands.of("Deployment")
    }
    assert replicas == {"islands": 0, "stock": 2}
    islands.settle()
    assert set(pods(islands).values()) == {STOCK}


def test_the_kill_switch_overrides_a_rejection():
    """The stock revision that it needs was rejected once: autoRollback does not apply to the safety action."""
    world = World(rollout__deadline="5s").settle()
    world.edit(engine__image="good:2")
    world.until("Canary")
    world.gpus = 2
    world.settle()
    rejected = world.status["revisions"]["rejected"][-1]["revision"]
    world.gpus = 3
    world.edit(islands__enabled=True)
    world.settle()
    assert set(pods(world).values()) == {LEAN}
    world.edit(islands__enabled=False)
    world.settle()
    assert active(world) == rejected
    assert set(pods(world).values()) == {STOCK}


def test_the_kill_switch_with_a_new_image_that_dies_keeps_what_serves(islands):
    islands.edit(islands__enabled=False, engine__image="crash:1")
    islands.settle()
    assert islands.ready() >= 1
    assert islands.condition("Degraded")["reason"] == "EngineDied"


def test_a_canary_of_islands_that_never_served_is_just_given_up(stock):
    """Nothing wrong is being answered: the stock pods are changed with care, and none is given away."""
    stock.edit(islands__enabled=True, gate__enabled=False)
    stock.gpus = 2
    stock.until("Canary")
    stock.go(3)
    fewest = []
    stock.check = lambda world: fewest.append(world.ready())
    stock.edit(islands__enabled=False, engine__image="good:2")
    stock.until("Canary")
    stock.gpus = 3
    stock.settle()
    assert min(fewest) == 2
    assert "KillSwitchStarted" not in reasons(stock)


# --- canary and promotion ---


def test_stock_changes_are_canaried_not_gated(stock):
    stock.edit(engine__image="good:2")
    stock.settle()
    assert phases(stock)[-3:] == ["Canary", "Promoting", "Stable"]
    assert stock.jobs_made == []


def test_never_more_pods_than_one_spare_gpu_allows_and_never_fewer_ready(stock):
    most, fewest = [], []
    stock.check = lambda world: (most.append(len(world.of("Pod"))), fewest.append(world.ready()))
    stock.edit(engine__image="good:2", islands__enabled=True)
    stock.settle()
    unfinished = max(most) - len(stock.pods("gate"))  # a finished gate pod holds no GPU
    assert unfinished <= 3
    assert min(fewest) >= 2


def test_row_2_replace_needs_no_spare_gpu(stock):
    stock.gpus = 2
    stock.edit(rollout__mode="Replace", islands__enabled=True)
    fewest = []
    stock.check = lambda world: fewest.append(world.ready())
    stock.settle()
    assert set(pods(stock).values()) == {LEAN}
    assert min(fewest) == 1


def test_row_4_replace_gives_the_gpu_back_when_the_gate_fails(stock):
    stock.gpus = 2
    stock.edit(rollout__mode="Replace", islands__enabled=True, engine__image="wrong:1")
    stock.settle()
    assert stock.ready(active(stock)) == 2
    assert set(pods(stock).values()) == {STOCK}


@pytest.mark.parametrize(
    ("image", "reason", "says"),
    [
        ("crash:1", "EngineDied", r"engine exited 1: RuntimeError: no \x1b[31mluck"),
        ("nopull:1", "ImagePullFailed", "nopull:1"),
        ("late:1", "EngineDied", "RuntimeError"),
    ],
)
@pytest.mark.parametrize("mode", ["Surge", "Replace"])
def test_a_canary_that_fails_is_rolled_back(stock, image, reason, says, mode):
    good = active(stock)
    stock.edit(engine__image=image, rollout__mode=mode, rollout__steps=[{"weight": 33, "pause": "30s"}])
    stock.settle()
    rejected = stock.status["revisions"]["rejected"][-1]
    assert rejected["reason"] == reason
    assert says in stock.condition("RolledBack")["message"]
    assert active(stock) == good
    assert {p["metadata"]["labels"][REVISION] for p in stock.pods()} == {good}
    assert stock.ready() == 2
    assert stock.parent["spec"]["engine"]["image"] == image  # row 34: the spec is the user's
    assert "RolloutFailed" in reasons(stock)


def test_row_3_a_canary_that_is_never_ready_meets_the_deadline(stock):
    stock.gpus = 2
    stock.edit(engine__image="good:2")
    stock.until("Canary")
    begun = stock.seconds
    stock.settle()
    assert stock.seconds - begun >= 600
    assert stock.status["revisions"]["rejected"][-1]["reason"] == "InsufficientGPU"
    assert stock.ready() == 2


def test_without_auto_rollback_a_failed_canary_holds_and_reports(stock):
    stock.edit(engine__image="crash:1", rollout__autoRollback=False)
    stock.settle()
    assert stock.phase == "Canary"
    assert stock.condition("Degraded")["reason"] == "EngineDied"
    assert stock.ready(active(stock)) == 2


def test_steps_hold_as_long_as_they_say():
    world = World(gpus=5, replicas=4, rollout__steps=[{"weight": 20, "pause": "1m"}, {"weight": 60, "pause": "30s"}])
    world.settle()
    world.edit(engine__image="good:2")
    held = {}
    world.check = lambda w: held.setdefault((w.phase, w.status.get("run", {}).get("step")), w.seconds)
    world.settle()
    assert held["Canary", 1] - held["Canary", 0] >= 60
    assert held["Promoting", 0] - held["Canary", 1] >= 30


def test_a_canary_that_flaps_starts_its_hold_again():
    world = World(rollout__steps=[{"weight": 33, "pause": "1m"}]).settle()
    world.edit(engine__image="good:2")
    world.until("Canary")
    while not world.status["run"].get("heldSince"):
        world.operate()
        world.tick()
    (canary,) = world.pods(revision=world.status["revisions"]["canary"])
    ready = copy.deepcopy(canary["status"]["conditions"])
    canary["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    world.operate()
    assert "heldSince" not in world.status["run"]
    canary["status"]["conditions"] = ready
    world.settle()
    assert world.condition("Ready")["status"] == "True"


def test_row_6_a_broken_stable_does_not_stop_a_good_canary(stock):
    for pod in stock.pods():
        stock.crash(pod)
    stock.edit(engine__image="good:2")
    stock.settle()
    assert stock.condition("Ready")["status"] == "True"


def test_row_14_a_failure_in_promotion_keeps_what_serves():
    world = World(gpus=5, replicas=4, rollout__steps=[])
    world.settle()
    good = active(world)
    world.edit(engine__image="good:2")
    while world.phase != "Promoting" or world.ready(good) > 2:
        if world.operate().requeue_after != 0:
            world.tick()
    new = world.status["run"]["revision"]
    world.crash(next(p for p in world.pods(revision=new)))
    fewest = []
    world.check = lambda w: fewest.append(w.ready())
    world.settle()
    assert active(world) == good
    assert world.ready(good) == 4
    assert min(fewest) >= 3  # the one that crashed is all that is missing, until the first returned pod is Ready


def test_row_15_back_to_the_living_pods():
    world = World(gpus=4, replicas=3, rollout__steps=[{"weight": 33, "pause": "1h"}]).settle()
    before = pods(world)
    world.edit(engine__image="good:2")
    world.until("Canary")
    world.go(4)
    assert len(world.pods()) == 4
    world.edit(engine__image="good:1")
    world.settle()
    assert pods(world) == before
    assert reasons(world)[-2:] == ["RevertStarted", "Reverted"]
    new, old = world.status["revisions"]["history"], active(world)
    assert [k["revision"] for k in new] == [old]
    (started,) = [e.note for e in world.events if e.reason == "RevertStarted"]
    assert started.startswith(f"revision {old}, from ")
    assert not started.endswith(old)


def test_an_edit_half_way_is_a_run_of_its_own(stock):
    stock.edit(engine__image="good:2", rollout__steps=[{"weight": 33, "pause": "1h"}])
    stock.until("Canary")
    stock.go(4)
    stock.edit(engine__image="good:3")
    stock.settle()
    assert {p["spec"]["containers"][0]["image"] for p in stock.pods()} == {"good:3"}
    assert "RolloutEnded" in reasons(stock)
    assert len(stock.holding()) == 2  # row 18


def test_a_run_is_pinned_at_its_start(stock):
    stock.edit(engine__image="good:2", rollout__steps=[{"weight": 33, "pause": "1m"}])
    stock.until("Canary")
    pinned = stock.status["run"]
    stock.edit(rollout__steps=[], rollout__deadline="1s", rollout__mode="Replace")
    stock.operate()
    for key in ("steps", "deadline", "mode", "startedAt"):
        assert stock.status["run"][key] == pinned[key]


def test_scaled_half_way(stock):
    stock.gpus = 6
    stock.edit(engine__image="good:2")
    stock.until("Canary")
    stock.edit(replicas=4)
    stock.settle()
    assert stock.ready() == len(stock.pods()) == 4


def test_scaled_up_again_and_again_a_canary_is_held_no_longer():
    """By an autoscaler in the morning: each time its pause began anew, so that it never ended."""
    world = World(gpus=40, rollout__steps=[{"weight": 50, "pause": "10m"}]).settle()
    world.edit(engine__image="good:2")
    world.until("Canary").go(6)
    for replicas in range(3, 14):
        world.edit(replicas=replicas)
        world.go(50)
        assert world.phase == "Canary"
    world.edit(replicas=14)
    world.go(60)
    assert world.phase != "Canary"
    world.settle()
    assert (world.phase, world.ready(active(world)), len(world.pods())) == ("Stable", 14, 14)
    assert "rejected" not in world.status["revisions"]


def test_scaled_to_zero_and_back(islands):
    islands.edit(replicas=0)
    islands.settle()
    assert islands.pods() == []
    assert islands.condition("Available")["reason"] == "ScaledToZero"
    islands.edit(engine__image="good:2")
    islands.settle()
    islands.edit(engine__image="good:3")
    islands.settle()
    islands.edit(replicas=2)
    islands.settle()
    assert set(pods(islands).values()) == {LEAN}
    assert islands.condition("Ready")["status"] == "True"


# --- history and loss ---


def test_old_revisions_are_kept_up_to_the_limit(stock):
    stock.edit(rollout__historyLimit=2)
    for n in range(2, 7):
        stock.edit(engine__image=f"good:{n}")
        stock.settle()
    idle = [d for d in stock.of("Deployment") if d["spec"]["replicas"] == 0]
    assert len(idle) == 2
    assert {d["spec"]["template"]["spec"]["containers"][0]["image"] for d in idle} == {"good:4", "good:5"}
    assert len(stock.status["revisions"]["history"]) == 2


def test_finished_gates_are_kept_as_evidence_up_to_the_limit(islands):
    islands.edit(rollout__historyLimit=2)
    for n in range(2, 6):
        islands.edit(engine__image=f"good:{n}")
        islands.settle()
    assert len(islands.of("Job")) == 2


def test_row_16_a_replaced_object_keeps_its_rollout(islands):
    """kubectl replace drops annotations and leaves the status: nothing of ours is in the annotations."""
    islands.edit(engine__image="good:2")
    islands.until("Canary")
    islands.parent["metadata"].pop("annotations", None)
    islands.settle()
    assert islands.condition("Ready")["status"] == "True"
    assert len(islands.pods()) == 2


def test_a_lost_status_is_found_again_in_the_children(islands):
    islands.edit(engine__image="wrong:1")
    islands.settle()
    before, good = pods(islands), active(islands)
    del islands.parent["status"]
    islands.settle()
    assert active(islands) == good
    assert pods(islands) == before


def test_a_rolled_back_revision_survives_the_loss_of_its_deployment(islands):
    """Its parts stand a second time on the stable Service: the spec asks for something else."""
    islands.edit(engine__image="wrong:1")
    islands.settle()
    good = active(islands)
    islands.store.pop(("Deployment", f"x-{good}"))
    islands.settle()
    assert islands.ready(good) == 2
    assert set(pods(islands).values()) == {LEAN}


def test_a_forged_snapshot_is_never_deployed(islands):
    islands.edit(engine__image="wrong:1")
    islands.settle()
    good = active(islands)
    for obj in (islands.store["Deployment", f"x-{good}"], islands.store["Service", "x-stable"]):
        parts = json.loads(obj["metadata"]["annotations"]["radix-islands.dev/spec"])
        parts["partition"]["islands"] = parts["partition"]["stock"]
        obj["metadata"]["annotations"]["radix-islands.dev/spec"] = json.dumps(parts)
    islands.settle()
    assert set(pods(islands).values()) == {LEAN}


def test_row_5_a_scale_after_an_abort_brings_no_canary_back(stock):
    stock.edit(engine__image="crash:1")
    stock.settle()
    good = active(stock)
    stock.edit(replicas=3)
    stock.gpus = 5
    stock.settle()
    assert {p["metadata"]["labels"][REVISION] for p in stock.pods()} == {good}


def story(crash_at=None):
    """Serve, switch islands on, a planted fault, take it back, kill switch."""
    world = World()
    world.crash_at = crash_at
    for change in ({}, {"islands__enabled": True}, {"engine__image": "wrong:1"}, {"engine__image": "good:1"}):
        world.edit(**change)
        world.settle()
    world.edit(islands__enabled=False)
    return world.settle()


def test_row_13_killed_after_every_single_write_the_story_ends_the_same():
    whole = story()
    for n in range(1, len(whole.writes) + 1):
        world = story(crash_at=n)
        assert world.jobs_made == whole.jobs_made, n
        assert [sorted(pods(w).values()) for w in (world, whole)] == [[STOCK, STOCK]] * 2, n
        for key in ("phase", "islands", "replicas", "readyReplicas"):
            assert world.status[key] == whole.status[key], n
        for key in ("desired", "active"):
            assert world.status["revisions"][key] == whole.status["revisions"][key], n
        assert [r["revision"] for r in world.status["revisions"]["rejected"]] == [
            r["revision"] for r in whole.status["revisions"]["rejected"]
        ], n
        assert {c["type"]: c["status"] for c in world.status["conditions"]} == {
            c["type"]: c["status"] for c in whole.status["conditions"]
        }, n


def test_row_29_at_rest_nothing_is_written(islands):
    islands.settle()
    islands.writes.clear()
    for _ in range(5):
        plan = islands.operate()
        islands.tick(60)
        assert plan.requeue_after is None
    assert islands.writes == []


# --- phases that wait for nothing ---


@pytest.mark.parametrize(
    ("spec", "canary"),
    [
        ({"replicas": 1, "rollout__steps": []}, False),
        ({"replicas": 3, "rollout__steps": [{"weight": 100, "pause": "0s"}]}, False),
        ({"replicas": 1, "rollout__steps": [], "rollout__mode": "Downtime"}, False),
        ({"replicas": 2, "rollout__steps": []}, True),  # one pod first
        ({"replicas": 1, "rollout__steps": [{"weight": 100, "pause": "1s"}]}, True),
        ({"replicas": 1, "rollout__steps": [{"weight": 50, "pause": "0s"}, {"weight": 100, "pause": "0s"}]}, True),
        ({"replicas": 1, "rollout__steps": [], "rollout__checks": {"enabled": True, "minRequests": 50, "prometheus": {
            "address": "http://p", "queries": [{"name": "q", "query": "up", "max": "1"}]}}}, True),
    ],
)  # fmt: skip
def test_a_canary_that_waits_for_nothing_is_no_phase_of_its_own(spec, canary):
    world = World(**spec).settle()
    world.edit(engine__image="good:2")
    world.operate()
    assert world.phase == ("Canary" if canary else "Promoting")


def test_without_a_canary_too_what_serves_stays_until_the_new_is_ready_and_a_fault_leads_back():
    world = World(replicas=1, rollout__steps=[]).settle()
    before = pods(world)
    world.events.clear()
    world.edit(engine__image="crash:2")
    world.until("RollingBack")
    assert before.items() <= pods(world).items()
    world.settle()
    assert pods(world) == before
    assert reasons(world) == ["RolloutStarted", "RolloutFailed", "RollbackStarted", "RolledBack"]
