"""SGLang's own scheduler in virtual time: a small run of every arm, the same to the digit, pools back at baseline."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from island_engine.bench.sim import forks
from island_engine.bench.sim.clients import Independent, Sessions
from island_engine.bench.sim.setting import SWITCHES, UNIFIED_RATIO, Setting

if TYPE_CHECKING:
    from collections.abc import Callable

BURST = Independent(requests=12, concurrency=12, longest_input=6_000, longest_output=3_000)
AGENTS = Sessions(sessions=4, concurrency=4, turns=2, system=2_048, new=(500, 900), output=(100, 200))
SMALL = Setting("stock", BURST, seed=1, ratio=0.25, tokens=40_000, running=8, chunk=2_048)


def small(arm: str) -> Setting:
    """The arm in pools of about the same bytes."""
    if SWITCHES[arm].unified:
        return replace(SMALL, arm=arm, ratio=UNIFIED_RATIO, tokens=80_000)
    return replace(SMALL, arm=arm)


@pytest.fixture(scope="module")
def ran() -> Callable[[Setting], dict[str, Any]]:
    """Runs a setting, once."""
    kept = forks.Results(None)
    return lambda one: forks.run_all([one], kept, 1, lambda _: None)[0]


@pytest.mark.parametrize("arm", list(SWITCHES))
def test_an_arm_serves_everything_and_gives_it_all_back(ran: Callable[[Setting], dict[str, Any]], arm: str) -> None:
    found = ran(small(arm))
    assert found["conserved"], "both pools are back where they began"
    assert found["simulated"] is True
    assert found["cache"] == {"lazy": "LazyRadixCache", "islands": "IslandRadixCache"}.get(
        SWITCHES[arm].cache, "UnifiedRadixCache"
    )
    assert found["prefilled"] >= 12 * 2_000
    assert 0 < found["running_mean"] <= found["running_max"] <= 8
    assert found["latency_mean_s"] < found["virtual_s"]
    assert found["steps"]["decode"] > 3_000 / 16


def test_lazy_holds_the_prompt_and_islands_a_window(ran: Callable[[Setting], dict[str, Any]]) -> None:
    held = {arm: ran(small(arm))["swa_hold_mean"] for arm in ("lazy", "stock", "islands")}
    assert held["islands"] < held["stock"] < held["lazy"]


def test_the_same_run_is_the_same_to_the_digit(ran: Callable[[Setting], dict[str, Any]]) -> None:
    again = forks.run_all([small("islands")], forks.Results(None), 1, lambda _: None)
    assert again == [ran(small("islands"))]
    other = ran(replace(small("islands"), seed=2))
    assert other != again[0]


def test_without_speculation_a_step_commits_one_token(ran: Callable[[Setting], dict[str, Any]]) -> None:
    few = Independent(requests=3, concurrency=3, longest_input=300, longest_output=200, floor=1.0)
    found = ran(replace(SMALL, workload=few, profile="gemma4-26b-h100-nospec"))
    assert found["steps"]["decode"] == pytest.approx(200, abs=5)
    assert found["conserved"]


def test_an_agent_finds_its_transcript_in_the_cache(ran: Callable[[Setting], dict[str, Any]]) -> None:
    found = ran(replace(small("islands"), workload=AGENTS))
    assert found["conserved"]
    assert found["recomputed_pct"] < 30, "the system prompt and each first turn are computed once, pages aside"


@pytest.mark.parametrize("profile", ["gemma4-26b-h100", "gemma4-26b-h100-nospec"])
def test_no_window_is_gone_before_it_is_published(ran: Callable[[Setting], dict[str, Any]], profile: str) -> None:
    """Under pressure a running request slides its window while slots are allocated. With speculation that is before the
    result of its prompt is processed: seen live, the island then had no window, and the operator rolled it back.
    """
    agents = replace(AGENTS, sessions=16, concurrency=8, turns=3)
    found = ran(replace(small("islands"), workload=agents, profile=profile, ratio=0.22))
    assert found["running_max"] > 4
    assert found["swa_peak"] > 0.8
    assert found["frontier_violations"] == 0


def test_a_run_that_fails_says_why() -> None:
    impossible = replace(SMALL, running=10**6)  # rows of that many requests do not fit
    with pytest.raises(RuntimeError, match=r"stock at ratio 0\.25 failed"):
        forks.run_all([replace(impossible, tokens=64)], forks.Results(None), 1, lambda _: None)
