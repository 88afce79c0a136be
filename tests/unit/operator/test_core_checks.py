"""What the engines' numbers say about a canary, and about what serves."""

import math
from dataclasses import replace

import pytest
from support.world import HALF, World, told

from island_operator.core.checks import MISSES, Reading, failed, quantile, rebound, violated
from island_operator.core.exposition import Sample

STOCK, LEAN = ("off", "0.4", "9984"), ("on", "0.15", "19968")
ZERO = Sample(0.0)
FULL = Sample(0.0, requests=100, responses=100, running=5, queued=4, full_usage=0.2, swa_usage=0.99)


def reading(**counted):
    return Reading((ZERO, Sample(60.0, **{"requests": 100, "responses": 100, **counted})))


def ttft(*seconds):
    """A histogram with bounds 0.1, 1, 10 and no limit."""
    bounds = (0.1, 1.0, 10.0, math.inf)
    return tuple((bound, float(sum(s <= bound for s in seconds))) for bound in bounds)


@pytest.mark.parametrize(
    ("limits", "counted", "says"),
    [
        ({"maxErrorRate": "0.05"}, {"errors": 6}, "error rate 0.0600 of 100 requests, above"),
        ({"maxErrorRate": "0"}, {"errors": 1}, "spec.rollout.checks.maxErrorRate 0"),
        ({"maxRetractionRate": "0.1"}, {"retracted": 11}, "retraction rate 0.1100"),
        ({"maxSwaUsage": "0.95"}, {"swa_usage": 0.96}, "SWA usage 0.96, above spec.rollout.checks.maxSwaUsage 0.95"),
        ({"maxQueued": 0}, {"queued": 1}, "queue 1, above"),
        ({"maxTtftRatio": "1.5"}, {"ttft": ttft(*[5.0] * 100)}, "p99 TTFT 9.91 s, stable 0.099 s"),
    ],
)
def test_a_limit_that_is_passed(limits, counted, says):
    stable = reading(ttft=ttft(*[0.05] * 100))
    found = failed({"minRequests": 50, **limits}, [reading(**counted)], [stable])
    assert (found.reason, found.fatal) == ("CheckFailed", True)
    assert says in found.message
    few = failed({"minRequests": 101, **limits}, [reading(**counted)], [stable])
    assert few is None


@pytest.mark.parametrize(
    "counted",
    [{}, {"errors": 5}, {"retracted": 10}, {"swa_usage": 0.95}, {"queued": 3}, {"ttft": ttft(*[0.05] * 100)}],
    ids=str,
)
def test_a_limit_that_is_just_met(counted):
    limits = {"minRequests": 50, "maxErrorRate": "0.05", "maxRetractionRate": "0.1", "maxSwaUsage": "0.95"}
    limits |= {"maxQueued": 3, "maxTtftRatio": "1"}
    assert failed(limits, [reading(**counted)], [reading(ttft=ttft(*[0.05] * 100))]) is None


def test_what_is_not_limited_is_not_checked():
    bad = reading(errors=100, retracted=100, swa_usage=1.0, queued=999, ttft=ttft(*[99.0] * 100))
    assert failed({"minRequests": 1}, [bad], []) is None


def test_engines_without_traffic_or_without_samples_are_not_judged():
    assert failed({"minRequests": 1, "maxErrorRate": "0", "maxQueued": 0}, [Reading(), Reading((ZERO,))], []) is None


def test_errors_of_before_the_window_do_not_count():
    old = Sample(0.0, requests=100, responses=100, errors=100)
    now = replace(old, at=60.0, requests=300, responses=300)
    assert failed({"minRequests": 50, "maxErrorRate": "0"}, [Reading((old, now))], []) is None


def test_an_engine_that_was_restarted_begins_anew():
    seen = reading(errors=50).heard(Sample(70.0, requests=3, responses=3), keep=30)
    assert seen.samples == (Sample(70.0, requests=3, responses=3),)


def test_so_many_samples_are_kept():
    seen = Reading()
    for n in range(100):
        seen = seen.heard(Sample(float(n), requests=n), keep=30)
    assert [seen.samples[0].at, seen.samples[-1].at, len(seen.samples)] == [70.0, 99.0, 30]


@pytest.mark.parametrize(
    ("buckets", "p99"),
    [
        ((), None),
        (ttft(), None),
        (ttft(*[0.05] * 99, 5.0), 0.1),
        (ttft(*[50.0] * 10), 10.0),  # beyond the last bound nobody knows better
        (ttft(*[0.5] * 100), 0.1 + 0.9 * 0.99),
    ],
)
def test_quantiles(buckets, p99):
    found = quantile(buckets, 0.99)
    assert found == (p99 if p99 is None else pytest.approx(p99))


def test_a_rebind_is_a_queue_and_a_full_swa_pool_that_runs_fewer_than_planned_for_a_while():
    later = replace(FULL, at=30.0)
    assert rebound({"p": Reading((FULL, later))}, 8).reason == "AdmissionRebind"
    assert "runs 5 of 8 requests and queues 4 with its SWA pool 99% full and its full pool 20%" in (
        rebound({"p": Reading((FULL, later))}, 8).message
    )
    for harmless in (
        (FULL,),
        (FULL, replace(FULL, at=29.0)),
        (FULL, replace(later, queued=0)),
        (FULL, replace(later, running=7)),  # as many as were planned, nearly: that the SWA pool is full is in order
        (FULL, replace(later, full_usage=0.99)),
        (FULL, replace(later, swa_usage=0.79)),
        (FULL, replace(FULL, at=15.0, queued=0), later),
    ):
        assert rebound({"p": Reading(harmless)}, 8) is None


def test_one_violation_is_one_too_many():
    assert violated({"p": Reading((Sample(0.0, violations=1),))}).reason == "FrontierViolation"
    assert violated({"p": reading()}) is None


def test_one_miss_is_a_busy_engine_three_are_named():
    seen = reading()
    for _ in range(MISSES - 1):
        seen = seen.missed("HTTP 500")
    assert seen.fault is None
    assert seen.missed("HTTP 500").fault == "HTTP 500"
    assert seen.missed("HTTP 500").heard(Sample(70.0, requests=200, responses=200), 30).fault is None


# --- in the world ---


def canary(**changes):
    world = World(gpus=4, replicas=3, rollout__steps=[{"weight": 33, "pause": "1h"}], **changes).settle()
    world.edit(engine__image="good:2")
    world.until("Canary")
    while not world.status.get("run", {}).get("heldSince"):
        world.operate()
        world.tick()
    return world


def tell(world, reading, image="good:2"):
    for pod in world.pods():
        if pod["spec"]["containers"][0]["image"] == image:
            world.readings[pod["metadata"]["uid"]] = reading


def images(world):
    return {p["spec"]["containers"][0]["image"] for p in world.pods()}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (reading(errors=6), "CheckFailed"),
        (reading(violations=1), "FrontierViolation"),
        (Reading((FULL, replace(FULL, at=30.0))), "AdmissionRebind"),
    ],
)
def test_a_canary_whose_numbers_are_bad_is_rolled_back(bad, reason):
    world = canary()
    tell(world, reading(errors=100), image="good:1")  # that what serves is worse is no excuse, nor a reason to go back
    world.operate()
    assert world.phase == "Canary"
    tell(world, bad)
    world.settle()
    assert images(world) == {"good:1"}
    assert world.condition("RolledBack")["reason"] == reason


def test_checks_are_pinned_with_the_run_and_can_be_disabled():
    world = canary(rollout__checks={"enabled": False, "minRequests": 50, "maxErrorRate": "0.05"})
    assert "checks" not in world.status["run"]
    world.edit(rollout__checks={"enabled": True, "minRequests": 1, "maxErrorRate": "0"})
    tell(world, reading(errors=100))
    world.operate()
    assert world.phase == "Canary"
    tell(world, reading(violations=1))  # is no check, but a fault
    world.settle()
    assert images(world) == {"good:1"}


def test_with_auto_rollback_off_a_failed_check_holds_and_reports():
    world = canary(rollout__autoRollback=False)
    tell(world, reading(errors=100))
    world.operate()
    assert world.phase == "Canary"
    assert world.condition("Degraded")["reason"] == "CheckFailed"


@pytest.fixture
def islands():
    world = World().settle()
    for image in ("good:1", "good:2"):
        world.edit(islands__enabled=True, engine__image=image)
        world.settle()
    return world


@pytest.mark.parametrize(
    ("bad", "reason"),
    [(reading(violations=1), "FrontierViolation"), (Reading((FULL, replace(FULL, at=30.0))), "AdmissionRebind")],
)
def test_row_13_a_fault_of_islands_that_serve_leads_to_their_stock_half_at_any_time(islands, bad, reason):
    """Not to the revision before, which has islands too."""
    islands.tick(1_000_000)
    tell(islands, bad)
    islands.settle()
    assert {told(p) for p in islands.pods()} == {STOCK}
    assert images(islands) == {"good:2"}
    assert islands.condition("RolledBack")["reason"] == reason
    assert islands.status["revisions"]["rejected"][-1]["reason"] == reason
    islands.edit(replicas=1)
    islands.settle()
    assert {told(p) for p in islands.pods()} == {STOCK}  # sticky
    islands.readings.clear()
    jobs = len(islands.jobs_made)
    islands.annotate("radix-islands.dev/retry", "1")
    islands.settle()
    assert {told(p) for p in islands.pods()} == {LEAN}
    assert len(islands.jobs_made) == jobs + 1  # its PASS is of before the fault


def test_a_fault_of_what_serves_ends_the_rollout_that_is_under_way_too(islands):
    islands.edit(engine__image="good:3", rollout__steps=[{"weight": 33, "pause": "1h"}])
    islands.until("Canary")
    islands.go(4)
    tell(islands, reading(violations=1))  # the engines of good:2
    islands.settle()
    assert {told(p) for p in islands.pods()} == {STOCK}
    assert images(islands) == {"good:2"}
    assert len(islands.status["revisions"]["rejected"]) == 2
    assert "which served meanwhile" in islands.condition("RolledBack")["message"]
    islands.readings.clear()
    islands.annotate("radix-islands.dev/retry", "1")
    islands.edit(rollout__steps=[])
    islands.settle()
    assert images(islands) == {"good:3"}


def test_a_fault_of_islands_without_auto_rollback_is_reported(islands):
    islands.edit(rollout__autoRollback=False)
    tell(islands, reading(violations=2))
    islands.settle()
    assert {told(p) for p in islands.pods()} == {LEAN}
    assert islands.condition("Degraded")["reason"] == "FrontierViolation"
    assert "counted 2 frontier violations" in islands.condition("Degraded")["message"]


def test_who_is_read_and_how_often(islands):
    rest = islands.operate().watch
    assert {t.uid for t in rest} == {p["metadata"]["uid"] for p in islands.pods()}
    assert {(t.often, t.port, t.address) for t in rest} == {(False, 30000, "10.0.0.1")}
    islands.edit(islands__enabled=False)
    islands.settle()
    assert islands.operate().watch == ()  # nothing but islands is watched at rest
    islands.edit(engine__image="good:3", rollout__steps=[{"weight": 33, "pause": "1h"}])
    islands.until("Canary")
    islands.go(4)
    watched = islands.operate().watch
    assert len(watched) == len(islands.pods()) == 3
    assert all(t.often for t in watched)


def test_engines_that_cannot_be_read_are_named_and_judged_by_nobody(islands):
    tell(islands, Reading(fault="HTTP 500"))
    islands.settle()
    assert {p["reason"] for p in islands.status["unreadable"]} == {"HTTP 500"}
    assert len(islands.status["unreadable"]) == 2
    assert islands.condition("Ready")["status"] == "True"
    assert {p["metadata"]["labels"][HALF] for p in islands.pods()} == {"islands"}
    tell(islands, reading())
    islands.settle()
    assert "unreadable" not in islands.status
