"""What is asked: properties of every plan, over geometries of any size."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from island_engine.gate.outcome import Conclude
from island_engine.gate.plan import plan
from island_engine.gate.probes import (
    CLASSES,
    PROFILES,
    Geometry,
    Profile,
    boundary_lengths,
    frontier,
    generation_length,
    longest,
)

TINY = Geometry(128, 64, 512, 128, 19_968, 2_944, 16_378, 512)  # the demo's engine


@st.composite
def geometries(draw: st.DrawFn) -> Geometry:
    page = draw(st.sampled_from([1, 4, 16]))
    window = draw(st.integers(2, 80))
    chunk = page * draw(st.integers(1, 12))
    interval = draw(st.integers(page, max(page, chunk)))
    return Geometry(window, page, chunk, interval, 100_000, 10_000, 90_000, draw(st.integers(64, 4_096)))


@given(geometries(), st.sampled_from(["quick"]), st.integers(0, 3))
def test_every_plan_is_well_formed(geometry: Geometry, profile: str, seed: int) -> None:
    probes = plan(geometry, PROFILES[profile], seed)
    assert len({p.name for p in probes}) == len(probes)
    assert tuple(dict.fromkeys(p.cls for p in probes)) == CLASSES[:-1]  # nobody gave texts
    order = [CLASSES.index(p.cls) for p in probes]
    assert order == sorted(order)  # contiguous: the cache is flushed between classes
    earlier: set[str] = set()
    for probe in probes:
        assert probe.tokens
        assert probe.new_tokens > 0
        assert all(0 <= t < geometry.vocab for t in probe.tokens)
        assert probe.follows is None or probe.follows in earlier
        assert len(probe.tokens) + probe.new_tokens <= geometry.context
        earlier.add(probe.name)


def common(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@given(geometries(), st.integers(0, 3))
def test_a_hit_is_only_expected_of_what_was_served_in_its_class(geometry: Geometry, seed: int) -> None:
    served: dict[str, list[tuple[int, ...]]] = {}
    for probe in plan(geometry, PROFILES["quick"], seed):
        known = served.setdefault(probe.cls, [])
        if probe.expect == "hit":
            assert (
                probe.follows is not None
                or any(common(probe.tokens, k) > geometry.chunk for k in known)
                or probe.tokens in known
            )
        known.append(probe.tokens)


@given(geometries(), st.integers(0, 3))
def test_freed_slots_are_given_out_again_before_every_hit(geometry: Geometry, seed: int) -> None:
    probes = plan(geometry, PROFILES["quick"], seed)
    for before, probe in pairwise(probes):
        if probe.expect == "hit":
            assert "churn" in before.name
            assert before.cls == probe.cls


@given(geometries())
def test_the_long_generation_ends_within_a_window_of_its_last_island(geometry: Geometry) -> None:
    length = generation_length(geometry, PROFILES["quick"])
    islands, past = divmod(length, geometry.decode_interval)
    assert islands >= PROFILES["quick"].decode_islands
    assert past <= geometry.window or geometry.decode_interval <= geometry.window


def test_the_standard_profile_reaches_9000_tokens_beyond_the_prompt() -> None:
    geometry = Geometry(1_024, 64, 16_384, 4_096, 980_000, 166_592, 262_144, 262_144)
    assert generation_length(geometry, PROFILES["standard"]) >= 9_000
    assert generation_length(geometry, PROFILES["quick"]) > 2 * 4_096


def test_boundary_lengths_of_the_demo_engine() -> None:
    assert boundary_lengths(TINY) == (127, 128, 129, 191, 192, 193, 319, 320, 321, 511, 512, 513, 639, 640, 641)


def test_cold_prompts_span_chunks_so_that_a_stash_frees_behind_a_window() -> None:
    """Over as many seeds as it takes to draw the shortest: two prompts of one seed were long by luck."""
    lengths = [
        len(probe.tokens)
        for seed in range(100)
        for probe in plan(replace(TINY, chunk=64, window=32, page=16), PROFILES["quick"], seed)
        if probe.cls == "cold"
    ]
    assert min(lengths) == 64 + 32 + 16 + 1


def test_the_seed_decides() -> None:
    quick = PROFILES["quick"]
    assert plan(TINY, quick, 1) == plan(TINY, quick, 1)
    assert plan(TINY, quick, 1) != plan(TINY, quick, 2)


QUEUED = replace(TINY, page=16, chunk=1_024, swa_tokens=2_992, running=32)


def test_the_long_one_of_the_queue_begins_at_the_end_of_a_pass() -> None:
    queue = [len(p.tokens) for p in plan(QUEUED, PROFILES["quick"], 0) if p.scene == "pressure/queue"]
    lead, *fill = queue[: max(i for i, length in enumerate(queue) if length > QUEUED.chunk)]
    taken = [-(-length // QUEUED.page) * QUEUED.page for length in (lead, *fill)]
    assert lead >= QUEUED.chunk  # the first pass is its own
    assert sum(taken) % QUEUED.chunk == QUEUED.chunk - 2 * QUEUED.page
    free = QUEUED.swa_tokens - sum(taken[1:]) - 2 * (QUEUED.window + QUEUED.page)
    assert QUEUED.window < free < QUEUED.chunk // 2
    assert all(length <= QUEUED.page for length in queue[len(fill) + 2 :])


@pytest.mark.parametrize(
    "changes",
    [{"running": 20}, {"swa_tokens": 12_000, "running": 200}, {"chunk": 256}, {"full_tokens": 6_000}, {"page": 4}],
)
def test_there_is_no_queue_where_the_pools_do_not_allow_it(changes: dict[str, int]) -> None:
    assert not [p for p in plan(replace(QUEUED, **changes), PROFILES["quick"], 0) if p.scene == "pressure/queue"]


def test_nothing_special_is_ever_asked() -> None:
    tokens = {t for p in plan(TINY, PROFILES["quick"], 0) for t in p.tokens}
    assert min(tokens) >= 64
    assert max(tokens) < 256


@pytest.mark.parametrize(
    ("changes", "reason", "says"),
    [
        ({"chunk": 0}, "NoChunks", "--chunked-prefill-size"),
        ({"chunk": -1}, "NoChunks", "--chunked-prefill-size"),
        ({"full_tokens": 2_000}, "PoolTooSmall", "--max-total-tokens"),
        ({"swa_tokens": 1_000}, "PoolTooSmall", "--swa-full-tokens-ratio"),
        ({"context": 1_000}, "PoolTooSmall", "--context-length"),
    ],
)
def test_a_geometry_that_proves_nothing_is_refused(changes: dict[str, int], reason: str, says: str) -> None:
    geometry = Geometry(**{**vars(TINY), **changes})
    with pytest.raises(Conclude, match=says) as concluded:
        plan(geometry, PROFILES["quick"], 0)
    assert concluded.value.reason == reason


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_longest_bounds_every_request(profile: Profile) -> None:
    roomy = Geometry(**{**vars(TINY), "full_tokens": 200_000, "context": 100_000})
    inputs: dict[str, int] = {}
    for probe in plan(roomy, profile, 0):
        inputs[probe.name] = inputs.get(probe.follows or "", 0) + len(probe.tokens) + probe.new_tokens
    assert max(inputs.values()) <= longest(roomy, profile)


@given(st.integers(0, 100_000), st.integers(1, 2_000), st.sampled_from([1, 16, 64, 128]))
def test_frontier_keeps_a_window_and_a_page_and_less_than_one_more(length: int, window: int, page: int) -> None:
    cut = frontier(length, window, page)
    assert cut % page == 0
    if cut:
        assert window + page <= length - cut < window + 2 * page
    else:
        assert length < window + 2 * page
