"""The planner's formulas give the seed's figures, the predictions that the design quotes, and what was measured."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from island_engine import sizing
from island_engine.planner import PlanError, capacity, workload
from island_engine.planner.request import occupancy
from island_engine.planner.verdict import SIMULATED, judge

from .conftest import BUDGET, COST, LONG, SESSION, make

BENCH = Path(__file__).parents[3] / "docs" / "bench"
NOSPEC = replace(COST, draft_bytes=0)
SHORTER = workload.of_means(16_384, 4_096)


# --- the seed ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "kilobytes", "tokens"), [(0.32, 50.1, 740e3), (0.17, 35.9, 1.03e6), (0.1, 29.2, 1.27e6)]
)
def test_seed_bytes_per_token_and_capacity(ratio, kilobytes, tokens):
    assert COST.bytes_per_token(ratio) / 1000 == pytest.approx(kilobytes, abs=0.05)
    assert COST.capacity(ratio, BUDGET) == pytest.approx(tokens, rel=0.005)


def test_seed_admission_bind_of_the_lazy_hold():
    # N = r T / H with H 15,500: 10.7 at r .17 and 980k; 15 to 18 at r .32 and 740k; the hold is 14 times the window
    lean, rich = (ratio * tokens / 15_500 for ratio, tokens in ((0.17, 980_000), (0.32, 740_000)))
    assert lean == pytest.approx(10.7, abs=0.05)
    assert 15 <= rich <= 18
    assert 15_500 / sizing.hold(1024, make().serving, islands=True) == pytest.approx(14.2, abs=0.05)


def test_seed_floor_and_what_was_provisioned():
    side = make().at(0.32, islands=True)
    assert side.floor == 68_608
    assert side.half.swa_tokens == pytest.approx(237_000, rel=0.005)


@pytest.mark.parametrize(("ratio", "tokens"), [("0.32", 740_000), ("0.17", 980_000), ("0.1", 1_265_000)])
def test_seed_all_three_partitions_hold_the_floor_at_48_requests(ratio, tokens):
    side = make().side(sizing.Half(ratio, tokens), islands=True)
    assert side.half.swa_tokens > side.floor == 68_608
    assert side.cap == 48
    assert side.running == 48


def test_seed_what_the_lean_partition_gains_and_the_old_one_lost():
    rich = COST.capacity(0.32, BUDGET)
    assert 980_000 / rich - 1 == pytest.approx(0.32, abs=0.01)
    assert 1 - rich / 980_000 == pytest.approx(0.24, abs=0.01)


# --- the predicted column of the design (prototypes/best/plan.out) ----------------------------------------------------

ARMS = {"stock": (2176, 17_472), "reserve": (1152, 17_472), "elastic": (1152, 5_184)}  # h, C
PREDICTED = {  # workload, arm: L, r*, N*
    ("a", "stock"): (25_941, 0.098, 49.2),
    ("a", "reserve"): (25_941, 0.056, 56.9),
    ("a", "elastic"): (25_941, 0.048, 58.7),
    ("c", "stock"): (21_845, 0.109, 85.3),
    ("c", "reserve"): (21_845, 0.060, 111.5),
    ("c", "elastic"): (21_845, 0.055, 115.2),
}


@pytest.mark.parametrize(("name", "arm"), PREDICTED)
def test_predicted_optimum_where_both_pools_bind(name, arm):
    length, ratio, running = PREDICTED[name, arm]
    work, cost = (SHORTER, NOSPEC) if name == "c" else (LONG, COST)
    assert round(work.length) == length
    found = capacity.crossing(capacity.Demand(*ARMS[arm], work.length), cost, BUDGET)
    assert (round(found[0], 3), round(found[1], 1)) == (ratio, running)


@pytest.mark.parametrize(("arm", "low"), [("stock", 0.092), ("reserve", 0.047), ("elastic", 0.037)])
def test_predicted_plateau_where_48_requests_are_the_limit(arm, low):
    found = capacity.plateau(capacity.Demand(*ARMS[arm], LONG.length), COST, BUDGET, 48)
    assert found is not None
    assert [round(edge, 3) for edge in found] == [low, 0.105]


@pytest.mark.parametrize(
    ("sessions", "hold", "ratio", "tokens"),
    [
        (64, 1840, 0.108, 1_232_409),
        (64, 1152, 0.062, 1_441_005),
        (80, 1840, 0.149, 1_090_727),
        (80, 1152, 0.080, 1_352_300),
        (96, 1840, 0.203, 949_046),
        (96, 1152, 0.100, 1_263_595),
    ],
)
def test_predicted_leanest_ratio_for_sessions(sessions, hold, ratio, tokens):
    found = sizing.leanest(COST, (sessions - 1) * hold + 17_472, BUDGET)
    assert round(found, 3) == ratio
    assert COST.capacity(found, BUDGET) == pytest.approx(tokens, abs=1)


def test_the_command_asks_what_the_predictions_asked():
    for cost, work in ((COST, LONG), (NOSPEC, SHORTER)):
        for islands, arm in ((True, "reserve"), (False, "stock")):
            asked = make(work, cost=cost).asked(islands=islands)
            assert asked == capacity.Demand(*ARMS[arm], work.length)


# --- against SGLang's scheduler in virtual time (docs/bench) ----------------------------------------------------------

BEST = json.loads((BENCH / "best.json").read_text())["arms"]
PLANNED = json.loads((BENCH / "planned.json").read_text())["arms"]
CASES = {
    "random-48": make(replace(LONG, concurrency=96), 48),
    "random-128": make(LONG, 128),
    "nospec": make(SHORTER, 256, NOSPEC),
    "agentic-64": make(replace(SESSION, concurrency=64), 128),
    "agentic-80": make(replace(SESSION, concurrency=80), 128),
    "agentic-96": make(replace(SESSION, concurrency=96), 128),
}


@pytest.mark.parametrize("name", ["random-128", "nospec"])
def test_requests_that_run_are_those_that_ran(name):
    assert CASES[name].on.running == pytest.approx(BEST["islands"][name]["running"], rel=0.05)
    assert CASES[name].off.running == pytest.approx(BEST["stock"][name]["running"], rel=0.05)


@pytest.mark.parametrize("name", ["random-48", "random-128", "nospec"])
def test_the_ratio_is_the_best_one_or_its_neighbour_on_the_measured_curve(name):
    for arm, side in (("islands", CASES[name].on), ("stock", CASES[name].off)):
        curve = dict(BEST[arm][name]["curve"])
        nearest = min(curve, key=lambda ratio: abs(ratio - side.ratio))
        assert nearest == pytest.approx(side.ratio, abs=0.02)
        assert curve[nearest] > 0.96 * BEST[arm][name]["tok_s"]


@pytest.mark.parametrize("name", ["agentic-64", "agentic-80", "agentic-96"])
@pytest.mark.parametrize("arm", ["islands", "stock"])
def test_planned_halves_were_run_and_come_near_the_best_of_the_curve(name, arm):
    ran = PLANNED[arm][name]
    side = CASES[name].on if arm == "islands" else CASES[name].off
    assert (ran["ratio"], ran["max_total_tokens"], ran["max_running_requests"]) == (
        side.ratio,
        side.half.max_total_tokens,
        side.cap,
    )
    assert ran["tok_s"] > 0.95 * BEST[arm][name]["tok_s"]


def test_what_is_said_of_the_gain_was_simulated():
    gains: dict[str, list[float]] = {}
    for name, case in CASES.items():
        gain = BEST["islands"][name]["tok_s"] / BEST["stock"][name]["tok_s"] - 1
        gains.setdefault(judge(case).kind, []).append(100 * gain)
    said = {kind: (round(min(found)), round(max(found))) for kind, found in gains.items()}
    assert said == SIMULATED, "verdict.SIMULATED quotes docs/bench/best.json"


@pytest.mark.parametrize("arm", ["lazy", "stock", "islands"])
def test_a_drawn_request_holds_what_was_measured(arm):
    found = json.loads((BENCH / "hold.json").read_text())
    shape, held = found["geometry"], found["arms"][arm]
    points = occupancy(
        arm, shape["prompt"], shape["output"], window=shape["window"], page=shape["page"], chunk=shape["chunk"]
    )
    late = [pinned for tokens, pinned in points if tokens >= shape["prompt"] + shape["output"] / 2]
    assert sum(late) / len(late) == pytest.approx(held["hold_mean"], rel=0.04)
    assert max(late) <= held["hold_max"]
    assert points[0][0] == 0
    assert points[-1][0] == shape["prompt"] + shape["output"]


# --- the plan ---------------------------------------------------------------------------------------------------------


def test_without_a_workload_it_is_what_the_operator_derives_for_an_absent_partition():
    for running in (8, 48, 128):
        found = make(running=running)
        assert found.halves == sizing.derive_halves(COST, sizing.Serving(64, 16_384, running), BUDGET)


def test_switched_off_alone_the_lean_half_runs_far_fewer():
    found = make(LONG, 128)
    left_behind = found.side(found.on.half, islands=False)
    assert left_behind.binds == "swa"
    assert left_behind.running < 0.7 * found.off.running < found.off.running < found.on.running < found.bound


@pytest.mark.parametrize(("ratio", "binds"), [(0.03, "swa"), (0.17, "full")])
def test_which_pool_binds(ratio, binds):
    assert make(LONG, 128).at(ratio, islands=True).binds == binds


def test_a_cap_that_binds_first():
    assert make(LONG, 16).on.binds == "cap"
    assert make(replace(LONG, concurrency=16), 128).on.binds == "cap"


COSTS = st.builds(
    sizing.Geometry,
    window=st.integers(16, 8192),
    full_bytes=st.integers(64, 50_000),
    swa_bytes=st.integers(64, 300_000),
    draft_bytes=st.integers(0, 50_000),
)
WORK = st.builds(
    lambda isl, osl, reuse, concurrency: workload.of_means(isl, osl, reuse=reuse, concurrency=concurrency),
    isl=st.integers(1, 200_000),
    osl=st.integers(1, 50_000),
    reuse=st.sampled_from([0.0, 0.8]),
    concurrency=st.none() | st.integers(1, 512),
)


@given(
    COSTS,
    st.sampled_from([1, 16, 64, 256]),
    st.integers(1, 64),
    st.integers(1, 512),
    st.integers(10**8, 10**12),
    st.none() | WORK,
)
def test_every_plan_is_one_that_the_api_server_lets_in(cost, page, pages, running, budget, work):
    found = replace(make(work, running, cost, budget), serving=sizing.Serving(page, page * pages, running))
    try:
        halves = found.halves
    except PlanError:
        assume(False)
    assert float(halves.islands.ratio) <= float(halves.stock.ratio)
    for side in (found.on, found.off):
        assert side.cap >= 1
        assert side.half.swa_tokens >= side.floor
        assert side.half.max_total_tokens * cost.bytes_per_token(side.ratio) <= budget * (1 + 1e-12)
        assert 0 < side.running <= min(side.cap, found.most) + 1e-9
    if work:
        assert found.on.running <= found.bound + 1 + 1e-9


@given(COSTS, WORK, st.integers(10**9, 10**12), st.integers(1, 10**12))
def test_more_bytes_never_run_fewer(cost, work, budget, more):
    small, large = (make(work, 128, cost, bytes_) for bytes_ in (budget, budget + more))
    try:
        before, after = small.on.running, large.on.running
    except PlanError:
        assume(False)
    assert after >= before * 0.93 - 1  # ratios are rounded, and 5 % are kept to the right of the peak
