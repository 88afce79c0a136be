"""The seed's numbers, and what must hold for every geometry."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from island_engine import sizing

GEMMA = sizing.Geometry(window=1024, full_bytes=9_500, swa_bytes=95_000, draft_bytes=10_240)  # 26B-A4B, fp8 KV
SEED = sizing.Serving(page=64, chunk=16_384, running=48)
BUDGET = 37_000_000_000


@pytest.mark.parametrize(("ratio", "kilobytes", "tokens"), [(0.32, 50.1, 740_000), (0.17, 35.9, 1_031_000)])
def test_cost_and_capacity_of_the_seed(ratio: float, kilobytes: float, tokens: int) -> None:
    assert GEMMA.bytes_per_token(ratio) / 1000 == pytest.approx(kilobytes, abs=0.06)
    assert GEMMA.capacity(ratio, BUDGET) == pytest.approx(tokens, rel=0.005)


def test_floor_of_the_seed() -> None:
    assert sizing.floor(1024, SEED, islands=True) == 68_608
    assert sizing.floor(1024, SEED, islands=False) == 120_832


def test_bound_of_the_deployed_halves() -> None:
    assert sizing.bound(sizing.Half("0.17", 980_000), 1024, SEED, islands=True) == 48
    lean_without_islands = sizing.Half("0.05", 980_000)
    assert sizing.bound(lean_without_islands, 1024, SEED, islands=True) == 29
    assert sizing.bound(lean_without_islands, 1024, SEED, islands=False) == 14


@pytest.mark.parametrize(
    ("value", "text"), [(0.17, "0.17"), (0.1, "0.1"), (1.0, "1"), (0.30001, "0.3001"), (0.00011, "0.0002")]
)
def test_one_spelling_per_ratio(value: float, text: str) -> None:
    assert sizing.spell(value) == text


def test_a_budget_that_is_too_small_names_the_one_to_use() -> None:
    with pytest.raises(ValueError, match=r"kvBudgetBytes 1000 is too small .* use at least \d+") as refused:
        sizing.derive_halves(GEMMA, SEED, 1000)
    enough = int(str(refused.value).split("at least ")[1].split(",")[0])
    with pytest.raises(ValueError, match="without islands"):
        sizing.derive_halves(GEMMA, SEED, enough)


GEOMETRIES = st.builds(
    sizing.Geometry,
    window=st.integers(16, 8192),
    full_bytes=st.integers(64, 50_000),
    swa_bytes=st.integers(64, 300_000),
    draft_bytes=st.integers(0, 50_000),
)
SERVINGS = st.builds(
    lambda page, pages, running: sizing.Serving(page, page * pages, running),
    page=st.sampled_from([1, 16, 64, 256]),
    pages=st.integers(1, 256),
    running=st.integers(1, 512),
)


@given(GEOMETRIES, SERVINGS, st.integers(10**6, 10**12))
def test_derived_halves_hold_their_requests_within_the_budget(
    geometry: sizing.Geometry, serving: sizing.Serving, budget: int
) -> None:
    try:
        halves = sizing.derive_halves(geometry, serving, budget)
    except ValueError:
        assume(False)
    for half, islands in ((halves.islands, True), (halves.stock, False)):
        assert half.swa_tokens >= sizing.floor(geometry.window, serving, islands=islands)
        assert sizing.bound(half, geometry.window, serving, islands=islands) == serving.running
        assert half.max_total_tokens * geometry.bytes_per_token(float(half.ratio)) <= budget
        assert half.max_total_tokens % serving.page == 0
    assert float(halves.islands.ratio) <= float(halves.stock.ratio)
    assert halves.islands.max_total_tokens >= halves.stock.max_total_tokens
