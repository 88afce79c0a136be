"""The island cache on SGLang's real allocator, tree (the Rust core) and admission; no model (bench/rig.py)."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from sglang.srt.mem_cache.base_prefix_cache import EvictParams
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.model_executor.forward_batch_info import ForwardMode

from island_engine.bench.rig import CorruptKvError, Rig, Sizes, token
from island_engine.islands import hooks, mutation
from island_engine.islands.cache import IslandRadixCache
from island_engine.islands.frontier import frontier
from island_engine.islands.lazy import LazyRadixCache

PAGE, WINDOW, CHUNK = 16, 64, 256
INTERVAL = CHUNK // 4
EITHER = pytest.mark.parametrize("overlap", [False, True], ids=["sync", "overlap"])


def prompt(length: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)  # noqa: S311 - a test's data
    return [rng.randrange(1 << 20) for _ in range(length)]


def generated(count: int, seed: int = 1) -> list[int]:
    return [token(seed, index) for index in range(count)]


def test_the_rust_tree_core_is_kept() -> None:
    assert type(Rig(IslandRadixCache).cache.tree_core).__name__ == type(Rig().cache.tree_core).__name__
    assert "Rust" in type(Rig(IslandRadixCache).cache.tree_core).__name__


# --- structure ----------------------------------------------------------------------------------------------------


@EITHER
def test_prefill_leaves_tombstones_before_the_frontier_and_a_live_island_behind_it(overlap: bool) -> None:
    rig, ids = Rig(IslandRadixCache, overlap=overlap), prompt(3 * CHUNK)
    rig.add(ids, new=2)
    rig.run()
    spacing = 2 * (WINDOW + PAGE)  # inside a chunk, where islands every quarter of it would leave nothing between them
    ends = sorted({*range(spacing, 3 * CHUNK, spacing), *range(CHUNK, 3 * CHUNK + 1, CHUNK)})
    ends = [end for end in ends if end % CHUNK == 0 or CHUNK - end % CHUNK >= WINDOW + PAGE]
    holes = [(start, frontier(end, WINDOW, PAGE)) for start, end in pairwise([0, *ends])]
    holes = [(start, end) for start, end in holes if start < end]
    assert rig.tombstones(ids) == holes
    assert rig.tally.islands == {"prefill": len(ends), "decode": 0}
    assert rig.tally.tombstoned == rig.tally.swa_freed == sum(end - start for start, end in holes)
    assert WINDOW + PAGE <= 3 * CHUNK - holes[-1][1] < WINDOW + 2 * PAGE


@EITHER
def test_decode_publishes_islands_in_what_was_generated(overlap: bool) -> None:
    rig, ids = Rig(IslandRadixCache, overlap=overlap), prompt(100)
    rig.add(ids, new=10 * INTERVAL)
    rig.run()
    path = ids + generated(10 * INTERVAL)
    assert rig.tally.islands["decode"] >= 8
    assert rig.tally.violations == 0
    hit = rig.add(path + prompt(40, 9), new=2)
    rig.run()
    assert hit.num_matched_prefix_tokens >= len(path) - 2 * PAGE


def test_stock_publishes_nothing_while_decoding() -> None:
    rig, ids = Rig(UnifiedRadixCache), prompt(100)
    rig.add(ids, new=10 * INTERVAL)
    while len(rig.running) == 0 or len(rig.running[0].output_ids) < 9 * INTERVAL:
        rig.step()
    hit = rig.add(ids + generated(8 * INTERVAL), new=2)
    rig.run()
    assert hit.num_matched_prefix_tokens <= len(ids)


@EITHER
def test_a_second_request_hits_the_islands_of_one_that_still_runs(overlap: bool) -> None:
    rig, ids = Rig(IslandRadixCache, overlap=overlap), prompt(100)
    writer = rig.add(ids, new=20 * INTERVAL)
    while not writer.output_ids or len(writer.output_ids) < 9 * INTERVAL:
        rig.step()
    reader = rig.add(ids + generated(8 * INTERVAL), new=INTERVAL, seed=2)
    while not reader.output_ids:
        rig.step()
    assert not writer.finished()
    assert reader.num_matched_prefix_tokens >= len(ids) + 7 * INTERVAL - WINDOW
    assert rig.tally.hits["running"] == reader.num_matched_prefix_tokens
    rig.run()  # both go on reading the right KV
    assert rig.tally.violations == 0
    assert rig.leaks() == []


def test_a_hit_across_tombstones_is_counted_once_however_often_it_was_matched() -> None:
    rig, ids = Rig(IslandRadixCache), prompt(2 * CHUNK)
    rig.add(ids, new=2)
    rig.run()
    again = rig.add(ids, new=2)
    for _ in range(5):
        again.init_next_round_input(rig.cache)  # what every scheduling round does to a waiting request
    rig.run()
    assert again.num_matched_prefix_tokens == 2 * CHUNK - PAGE
    assert rig.tally.hits == {"running": 0, "finished": 2 * CHUNK - PAGE}
    assert rig.tally.crossed == 1


# --- hold ---------------------------------------------------------------------------------------------------------


@EITHER
def test_a_running_request_holds_a_window_once_its_island_is_left(
    overlap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lag = 8
    monkeypatch.setenv("SGLANG_SWA_EVICTION_INTERVAL", str(lag))
    rig = Rig(IslandRadixCache, overlap=overlap)
    rig.cache.interval = 4 * INTERVAL  # so that the window leaves an island before the next one comes
    req = rig.add(prompt(2 * CHUNK + 5), new=20 * INTERVAL)
    while not req.output_ids:
        rig.step()
    left, moved = [], []
    while not req.finished():
        rig.step()
        if not req.finished():
            assert rig.cache.held(req) == rig.pinned_swa()
            (left if req.lock.swa_released else moved).append(rig.pinned_swa())
    assert max(left) <= WINDOW + 2 * PAGE + lag
    assert max(moved) <= 2 * WINDOW + 3 * PAGE + lag  # the island still locked, the next window already owned
    assert len(left) > len(moved)
    rig.run()
    assert rig.tally.holds == [], "nobody runs any more"


@EITHER
def test_the_gauge_counts_requests_that_published_nothing(overlap: bool) -> None:
    rig = Rig(IslandRadixCache, overlap=overlap)
    reqs = [rig.add(prompt(5, seed), new=9) for seed in range(3)]
    while any(len(req.output_ids) < 5 for req in reqs):
        rig.step()
    rig.cache.observe()
    assert rig.tally.holds == [PAGE] * 3


# --- safety -------------------------------------------------------------------------------------------------------


def test_freed_twice_is_a_noop() -> None:
    rig = Rig(IslandRadixCache)
    req = rig.add(prompt(100), new=20 * INTERVAL)
    while len(req.output_ids) < INTERVAL // 2 + WINDOW:
        rig.step()
    rig.cache.interval = 10**9
    while len(req.output_ids) < 4 * INTERVAL:
        rig.step()
    rig.cache.evict_sliding_windows(req, req.seqlen - 1)
    free = rig.free()
    for _ in range(3):
        rig.cache.evict_sliding_windows(req, req.seqlen - 1)
    assert rig.free() == free
    rig.cache.holds.published[id(req)].due = req.seqlen - 1  # an island whose prefix the evictor has already freed
    assert rig.cache.decode_island(req)
    assert rig.free() == free
    assert rig.tally.noops > 0
    rig.run()
    assert rig.leaks() == []


def test_what_is_barred_from_the_tree_publishes_no_decode_island() -> None:
    rig = Rig(IslandRadixCache)
    req = rig.add(prompt(100), new=4 * INTERVAL)
    while not req.output_ids:
        rig.step()
    req.skip_radix_cache_insert = True
    rig.run()
    assert rig.tally.islands["decode"] == 0
    assert rig.leaks() == []


def busy(rig: Rig, seed: int, count: int = 16) -> None:
    """A random run: shared documents, equal requests, branches, aborts, pressure on both pools."""
    rng = random.Random(seed)  # noqa: S311 - a test's data
    documents = [prompt(900, seed * 10 + index) for index in range(3)]
    todo = []
    for index in range(count):
        document, length = rng.randrange(3), rng.randint(PAGE, 900)
        shared = rng.randint(0, length)
        ids = documents[document][:shared] + prompt(length - shared, rng.randrange(10**6))
        todo.append((ids, rng.randint(1, 400), document if index % 2 else index))
        if index % 5 == 4:
            todo.append((list(ids), rng.randint(1, 400), todo[-1][2]))
    done: list[Any] = []
    while todo or rig.waiting or rig.running or rig.chunked or rig.pending:
        if todo and rng.random() < 0.05:
            ids, new, family = todo.pop(0)
            rig.add(ids, new, family)
        if done and rng.random() < 0.02:  # a session goes on from a finished request
            earlier = done.pop()
            rig.add(rig.ids(earlier) + prompt(rng.randint(1, 100), rng.randrange(10**6)), rng.randint(1, 100), 7)
        if rig.running and rng.random() < 0.005:
            rig.abort(rng.choice(rig.running))
        if rig.running and rng.random() < 0.01:
            rig.settle()
            if rig.running:
                rig.retract(rng.choice(rig.running))
        rig.step()
        done, rig.finished = done + rig.finished, []


PRESSED = Sizes(full=4096, swa=1024)


@EITHER
@pytest.mark.parametrize("seed", range(2))
def test_both_pools_are_at_their_baseline_after_a_random_run(overlap: bool, seed: int) -> None:
    rig = Rig(IslandRadixCache, PRESSED, overlap=overlap)
    busy(rig, seed)
    assert rig.retractions > 0
    assert rig.tally.violations == 0
    assert min(rig.tally.islands.values()) > 0
    assert rig.tally.crossed > 0
    assert rig.tally.holds == []
    assert rig.leaks() == []


@pytest.mark.parametrize("cache_class", [UnifiedRadixCache, LazyRadixCache])
def test_the_rig_passes_what_is_not_ours(cache_class: type) -> None:
    rig = Rig(cache_class, PRESSED)
    busy(rig, 1)
    assert rig.leaks() == []


# --- the checks above can fail ------------------------------------------------------------------------------------


@EITHER
def test_the_planted_frontier_goes_red(overlap: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(mutation.MUTATE, mutation.FRONTIER)
    monkeypatch.setenv(mutation.ALLOW, "1")
    rig = Rig(IslandRadixCache, overlap=overlap)
    rig.add(prompt(3 * CHUNK), new=10)
    with pytest.raises(CorruptKvError, match="was overwritten"):
        rig.run()
    assert rig.tally.violations > 0


def under_pressure(rig: Rig) -> None:
    """One long decode; whatever SWA is not locked is evicted at every step."""
    rig.add(prompt(2 * CHUNK), new=6 * INTERVAL)
    while rig.waiting or rig.chunked or rig.running or rig.pending:
        rig.step()
        rig.cache.evict(EvictParams(num_tokens=0, swa_num_tokens=rig.sizes.swa))


@EITHER
def test_an_island_stays_locked_until_the_window_has_left_it(overlap: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_OPT_RELEASE_PREFILL_SWA", "1")  # stock drops the lock by a count of steps
    rig = Rig(IslandRadixCache, overlap=overlap)
    under_pressure(rig)
    assert rig.tally.islands["decode"] >= 5
    monkeypatch.setattr("island_engine.islands.cache.left_behind", lambda *_: True)
    with pytest.raises(CorruptKvError):
        under_pressure(Rig(IslandRadixCache, overlap=overlap))


# --- on, off, lazy ------------------------------------------------------------------------------------------------


def test_the_decode_hook_asks_for_the_exact_type() -> None:
    class Child(IslandRadixCache):
        """Not ours any more."""

    published = []
    for cache_class in (IslandRadixCache, Child, UnifiedRadixCache):
        rig = Rig(cache_class)
        rig.cache.after_result = lambda req, step: published.append(req)
        batch: Any = type("Batch", (), {"forward_mode": ForwardMode.DECODE, "forward_iter": 1})
        processor = type("Processor", (), {"tree_cache": rig.cache})
        hooks.after_result(None, processor, cache_class.__name__, batch)
    assert published == ["IslandRadixCache"]
