"""The pure parts of the simulated benches: clients, recorder, settings, prediction, the search for the best ratio."""

from __future__ import annotations

import argparse
import io
import json
import statistics
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from island_engine.bench import arms, best, report
from island_engine.bench.predict import hold, predict
from island_engine.bench.sim import forks, setting
from island_engine.bench.sim.clients import Clients, Independent, Sessions, clients
from island_engine.bench.sim.recorder import Recorder, Sample
from island_engine.bench.sim.setting import Setting, pool_tokens
from island_engine.paced.profiles import PROFILES

if TYPE_CHECKING:
    from pathlib import Path

BURST = Independent(requests=400, concurrency=400, longest_input=1_000, longest_output=600)
AGENTS = Sessions(sessions=6, concurrency=2, turns=3, system=128, new=(20, 60), output=(5, 20))
ONE = Setting("stock", BURST, 1, 0.17, 980_000, 48)


def serve(one: Clients) -> list[tuple[str, list[int], int]]:
    """Answer everything, one request at a time, oldest first."""
    asked, waiting, now = [], [], 0.0
    while not one.finished:
        waiting += one.poll(now)
        assert waiting, "nobody asks and not all is done"
        assert len(one.sent) - len(one.done) == len(waiting)
        ask = waiting.pop(0)
        asked.append((ask.name, list(ask.ids), ask.new))
        now += 1.0
        one.end(ask.name, now)
    assert one.poll(now) == []
    return asked


@pytest.mark.parametrize("workload", [BURST, AGENTS])
def test_a_seed_is_a_workload(workload: Independent | Sessions) -> None:
    first, again, other = (serve(clients(workload, seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert len(first) == workload.requests


def test_lengths_are_uniform_up_to_the_longest() -> None:
    asked = serve(clients(BURST, 1))
    prompts, outputs = [len(ids) for _, ids, _ in asked], [new for *_, new in asked]
    assert 1 <= min(prompts) < 50
    assert 950 < max(prompts) <= 1_000
    assert statistics.mean(prompts) == pytest.approx(500, rel=0.1)
    assert statistics.mean(outputs) == pytest.approx(300, rel=0.1)
    tokens = {token for _, ids, _ in asked for token in ids}
    assert min(tokens) == 8
    assert max(tokens) == 511


def test_a_floor_of_one_fixes_every_length() -> None:
    fixed = Independent(5, 5, 1_000, 600, floor=1.0)
    assert {(len(ids), new) for _, ids, new in serve(clients(fixed, 3))} == {(1_000, 600)}


@pytest.mark.parametrize(("workload", "most"), [(Independent(9, 4, 50, 50), 4), (AGENTS, 2)])
def test_no_more_are_outstanding_than_the_concurrency(workload: Independent | Sessions, most: int) -> None:
    one = clients(workload, 1)
    assert len(one.poll(0.0)) == most
    assert one.poll(1.0) == []
    one.end(next(iter(one.sent)), 2.0)
    assert len(one.poll(2.0)) == 1


def test_a_turn_re_sends_its_transcript_and_sessions_share_the_system_prompt() -> None:
    asked = {name: (ids, new) for name, ids, new in serve(clients(AGENTS, 1))}
    for session in range(6):
        turns = [asked[f"r{session + 6 * turn}"] for turn in range(3)]
        assert turns[0][0][:128] == asked["r0"][0][:128]
        for (before, new), (after, _) in pairwise(turns):
            assert after[: len(before)] == before
            added = len(after) - len(before) - new
            assert 20 <= added <= 60
    longest = max(len(ids) + new for ids, new in asked.values())
    assert longest <= AGENTS.longest


def test_inputs_are_what_a_perfect_cache_computes() -> None:
    one = clients(AGENTS, 1)
    asked = serve(one)
    news = sum(new for *_, new in asked)
    total = sum(len(ids) for _, ids, _ in asked)
    again = sum(len(ids) + new for name, ids, new in asked if int(name[1:]) < 12) + 128 * 5
    assert one.inputs == total - again
    assert one.outputs == news


def test_latency_is_from_asking_to_the_last_token() -> None:
    one = clients(Independent(2, 1, 10, 10), 1)
    one.poll(1.0)
    one.end("r0", 4.0)
    one.poll(4.0)
    one.end("r1", 9.0)
    assert one.latencies == [3.0, 5.0]


def test_the_recorder_weighs_states_by_how_long_they_last() -> None:
    recorder = Recorder(swa_size=1_000)
    recorder.add(Sample(now=1.0, running=2, queued=1, full=0.5, swa=0.2, decode=True))
    recorder.add(Sample(now=4.0, running=4, queued=0, full=0.9, swa=0.4, decode=True))
    recorder.add(Sample(now=5.0, running=0, queued=0, full=0.1, swa=0.1, decode=False))
    found = recorder.report(outputs=100, latencies=[1.0, 3.0])
    assert found["running_mean"] == pytest.approx((2 * 1 + 4 * 3) / 5)
    assert (found["running_while_queued"], found["full_while_queued"]) == (2.0, 0.5)
    assert (found["running_max"], found["full_peak"], found["swa_peak"]) == (4, 0.9, 0.4)
    assert (found["output_tokens_per_s"], found["latency_mean_s"]) == (20.0, 2.0)
    assert found["swa_hold_mean"] == 100


def test_nobody_ever_queued_is_not_zero_running() -> None:
    recorder = Recorder(swa_size=1_000)
    recorder.add(Sample(now=1.0, running=2, queued=0, full=0.5, swa=0.2, decode=True))
    assert recorder.report(1, [1.0])["running_while_queued"] is None


# --- settings -----------------------------------------------------------------------------------------------------


def test_a_key_is_the_setting_and_nothing_else() -> None:
    assert ONE.key == Setting("stock", BURST, 1, 0.17, 980_000, 48).key
    others = [Setting("release", BURST, 1, 0.17, 980_000, 48), Setting("stock", BURST, 2, 0.17, 980_000, 48)]
    assert len({ONE.key, *(other.key for other in others)}) == 3


def test_every_arm_of_the_report_can_be_simulated() -> None:
    assert set(setting.SWITCHES) == set(report.ARMS) == set(arms.ARMS) == set(best.ARMS)
    for arm in setting.SWITCHES:
        flags = Setting(arm, BURST, 1, 0.17, 980_000, 48).arguments("m")
        assert ("--radix-cache-backend" in flags) == (arm in ("lazy", "islands", "islands-unified"))
        assert ("--enable-unified-memory" in flags) == arm.endswith("unified")


def test_pools_of_every_ratio_hold_the_same_bytes() -> None:
    profile = PROFILES["gemma4-26b-h100"]
    geometry = profile.roofline.geometry
    for ratio in (0.05, 0.17, 0.32):
        tokens = pool_tokens(profile, best.BUDGET, ratio, unified=False)
        assert tokens % 64 == 0
        assert 0 <= best.BUDGET - tokens * geometry.bytes_per_token(ratio) < 64 * geometry.bytes_per_token(ratio)
    shared = pool_tokens(profile, best.BUDGET, 0.002, unified=True)
    assert shared == 1_855_808  # the prototype's


# --- files of finished runs ---------------------------------------------------------------------------------------


def test_finished_runs_are_kept_and_half_a_line_is_not(tmp_path: Path) -> None:
    kept = tmp_path / "deep" / "runs.jsonl"
    forks.Results(kept).add(ONE, {"output_tokens_per_s": 1.0})
    with kept.open("a") as file:
        file.write('{"key": "cut off')
    found: list[Setting] = []
    results = forks.run_all([ONE, ONE], forks.Results(kept), 1, found.append)  # nothing is left to run
    assert results == [{"output_tokens_per_s": 1.0}] * 2
    assert found == [ONE, ONE]


# --- prediction and search ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arm", "ratio", "running"),
    [  # what the prototype's planner said, and its simulator confirmed within 5 %
        ("random-128", "stock", 0.098, 49.2),
        ("random-128", "islands", 0.056, 56.9),
        ("nospec", "stock", 0.109, 85.3),
        ("nospec", "islands", 0.060, 111.4),
        ("random-48", "stock", 0.092, 48),
        ("random-48", "islands", 0.047, 48),
        ("agentic-64", "islands", 0.0656, 64),
        ("agentic-80", "islands", 0.084, 80),
        ("agentic-96", "islands", 0.105, 96),
    ],
)
def test_the_planner_agrees_with_the_prototype(name: str, arm: str, ratio: float, running: float) -> None:
    found = predict(best.setting(name, arm, 1.0, 1), best.BUDGET)
    assert found.ratio == pytest.approx(ratio, abs=0.0011)
    assert found.running == pytest.approx(running, abs=0.5)


def test_what_a_request_pins_at_its_worst() -> None:
    holds = {arm: hold(best.setting("random-128", arm, 1.0, 1)) for arm in best.ARMS}
    assert holds["islands"] == holds["islands-unified"] == 1_024 + 128
    assert holds["stock"] == 2_176
    assert holds["lazy"] > 16_384
    assert hold(best.setting("nospec", "islands", 1.0, 1)) == 1_024 + 128
    assert hold(best.setting("agentic-80", "stock", 1.0, 1)) == pytest.approx(1_840, abs=32)  # measured


def test_the_default_is_around_the_planned_ratio_and_full_is_the_grid() -> None:
    for name in best.CASES:
        at = best.planned(name, "islands")
        assert at in best.first(name, "islands", full=False)
        assert len(best.first(name, "islands", full=False)) == 3
        assert best.first(name, "stock", full=True) == set(best.GRID)
        assert len(best.first(name, "unified", full=True)) == 1


@given(st.sampled_from(best.GRID), st.sampled_from(best.GRID))
def test_the_search_climbs_to_the_peak_of_any_hill(top: float, start: float) -> None:
    curve: dict[float, float] = {}
    todo = best.around(start)
    while todo:
        curve |= {ratio: -abs(best.GRID.index(ratio) - best.GRID.index(top)) for ratio in todo}
        todo = best.wanted(curve)
    assert best.peak(curve) == top


def test_of_equal_ratios_the_leanest_is_the_best() -> None:
    assert best.peak({0.1: 5.0, 0.08: 5.0, 0.12: 4.0}) == 0.08


# --- the benches, over results that nobody simulated --------------------------------------------------------------


class NoProgress:
    """Stands in for rich's."""

    def add_task(self, *_: Any, **__: Any) -> int:
        return 0

    def advance(self, *_: Any) -> None:
        pass


def finished(one: Setting) -> dict[str, Any]:
    """A result in which islands gain a half and every ratio is worse than the planned one."""
    gain = 1.5 if one.arm.startswith("islands") else 1.0
    rate = 1_000 * gain * (1 - abs(one.ratio - 0.1)) * (1 + 0.01 * one.seed)
    return {
        **dict.fromkeys(arms.MEANS, 1.0),
        "output_tokens_per_s": rate,
        "latency_mean_s": 60 / gain,
        "running_while_queued": None if isinstance(one.workload, Sessions) else 10 * gain,
        "conserved": True,
    }


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> list[Setting]:
    asked: list[Setting] = []

    def run_all(settings: list[Setting], *_: Any) -> list[dict[str, Any]]:
        asked.extend(settings)
        return [finished(one) for one in settings]

    monkeypatch.setattr(forks, "run_all", run_all)
    return asked


def options(bench: Any, *flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--arm", nargs="+", default=list(bench.ARMS))
    bench.add_arguments(parser)
    return argparse.Namespace(**vars(parser.parse_args(flags)), bench=bench.NAME, json=None, plot=None)


def shown(table: Any) -> str:
    from rich.console import Console

    out = io.StringIO()
    Console(file=out, width=200).print(table)
    return out.getvalue()


def test_arms_is_the_interface_and_compares_with_the_seed(known: list[Setting], tmp_path: Path) -> None:
    found = arms.run(options(arms), NoProgress())  # type: ignore[arg-type]
    assert report.problems(json.loads(json.dumps(found))) == []
    assert all(values["simulated"] is True for values in found["arms"].values())
    assert {one.seed for one in known} == {1, 2, 3}
    first = found["comparisons"][0]
    assert (first["name"], first["seed_throughput_pct"], first["seed_latency_pct"]) == (
        "C over A, pool-bound",
        42.5,
        -37,
    )
    assert len(first["throughput_pct_by_seed"]) == 3
    assert first["latency_pct"] == pytest.approx(-33.3, abs=0.1)
    text = shown(arms.table(found))
    assert "SIMULATED" in text
    assert "the seed: +42.5 % throughput, -37.0 % latency" in text
    assert found["bind"]["running"] == 10
    assert "the seed: 10 to 11 at 50%" in text
    arms.plot(found, tmp_path / "arms.png")
    assert (tmp_path / "arms.png").stat().st_size > 10_000


def test_arms_without_the_baseline_compares_nothing(known: list[Setting]) -> None:
    found = arms.run(options(arms, "--arm", "stock", "--seed", "1"), NoProgress())  # type: ignore[arg-type]
    assert known
    assert found["comparisons"] == []
    assert set(found["arms"]) == {"stock"}


def test_best_is_the_interface_and_each_arm_is_at_its_own_best(known: list[Setting], tmp_path: Path) -> None:
    found = best.run(options(best), NoProgress())  # type: ignore[arg-type]
    assert report.problems(json.loads(json.dumps(found))) == []
    assert found["simulated"] is True
    assert "planner" in found["geometry"]["ratios"]
    for arm in ("stock", "islands"):
        for name in best.CASES:
            assert found["arms"][arm][name]["ratio"] == 0.1
    assert found["arms"]["unified"]["nospec"]["ratio"] is None
    assert best.gain(found, "islands", "nospec") == pytest.approx(50)
    assert {one.running for one in known} == {48, 128, 256}
    text = shown(best.table(found))
    assert "SIMULATED" in text
    assert "+50.0 %" in text
    best.plot(found, tmp_path / "best.png")
    assert (tmp_path / "best.png").stat().st_size > 10_000


def test_best_of_one_workload_on_two_seeds(known: list[Setting], tmp_path: Path) -> None:
    flags = ("--arm", "islands", "--workload", "agentic-80", "--seed", "1", "2")
    found = best.run(options(best, *flags), NoProgress())  # type: ignore[arg-type]
    one = found["arms"]["islands"]["agentic-80"]
    assert known
    assert len(one["tok_s_by_seed"]) == 2
    assert one["tok_s"] == pytest.approx(statistics.mean(one["tok_s_by_seed"]), abs=0.01)
    assert best.gain(found, "islands", "agentic-80") is None
    best.plot(found, tmp_path / "one.png")
