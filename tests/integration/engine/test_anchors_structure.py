"""What went wrong elsewhere with tombstones, locks and stashes (docs/anchors.md), on our cache at the same ratios."""

from __future__ import annotations

import pytest
import torch
from sglang.srt.mem_cache import common
from sglang.srt.mem_cache.base_prefix_cache import EvictParams
from support.anchors import clean, prompt, serve, steps

from island_engine.bench.rig import Rig, Sizes
from island_engine.islands.cache import IslandRadixCache
from island_engine.islands.frontier import frontier

PAGE, WINDOW, CHUNK = 16, 64, 256


@pytest.mark.parametrize("length", [k * 32 + off for k in (3, 9) for off in (-1, 0, 1)])
def test_a_page_larger_than_the_window(length: int) -> None:
    """sglang 22470, 29860: page 256, window 128, lengths around whole pages."""
    rig, ids = Rig(IslandRadixCache, Sizes(page=32, window=16)), prompt(length)
    rig.add(ids, new=40)
    for now in steps(rig):
        assert min(now.cache.swa_evictable_size(), now.cache.swa_protected_size()) >= 0
    again = serve(rig, ids, new=2)
    assert again.num_matched_prefix_tokens >= (length - 1) // 32 * 32 - 32
    clean(rig)


@pytest.mark.parametrize("overlap", [False, True])
def test_eagle_keys_keep_a_window(overlap: bool) -> None:
    """sglang 34823, 34870: gpt-oss with EAGLE3, window two pages, L 16 pages, a chunk 256 pages."""
    sizes = Sizes(page=32, window=64, chunk=8192)
    rig, ids = Rig(IslandRadixCache, sizes, draft=4, bigram=True, overlap=overlap), prompt(512)
    first = rig.add(ids, new=100)
    for _ in steps(rig):
        pass
    again = serve(rig, rig.ids(first)[:-1] + prompt(40, 3), new=20)  # what it reads is checked against what was written
    assert again.num_matched_prefix_tokens >= 512 + 100 - 3 * 32
    clean(rig)


def test_books_balance_at_every_step_of_a_busy_engine() -> None:
    """sglang 27789: EAGLE, ratio 0.3, 100 requests, strict checks while busy (its HiCache is refused)."""
    rig = Rig(IslandRadixCache, Sizes(full=8192, swa=2448, rows=16), draft=3, bigram=True, overlap=True)
    for seed in range(100):
        rig.add(prompt(16 + seed % 7 * 40, seed % 30), new=4 + seed % 5, seed=seed)
    for now in steps(rig):
        assert now.used_swa() + now.alloc.swa_available_size() == 2448
    clean(rig)


def test_a_leaf_outside_of_the_window_is_inserted() -> None:
    """sglang 29351: its full KV is a prefix, though none of its SWA KV is alive."""
    rig = Rig(IslandRadixCache)
    rig.cache.interval = 10**6
    path = prompt(100)
    req = serve(rig, path, new=500)
    path = rig.ids(req)
    (gone,) = [cut for cut in rig.tombstones(path) if cut[1] > 400]
    assert gone[1] - gone[0] > 2 * WINDOW
    assert rig.hit([*path, 1]) >= len(path) - 2 * PAGE
    clean(rig)


def test_locked_full_slots_are_not_replaced() -> None:
    """sglang 29352, 27586: somebody recomputes a prefix whose windows are gone, while a request runs on it."""
    rig, ids = Rig(IslandRadixCache), prompt(2 * CHUNK)
    runs = rig.add(ids, new=200)
    while len(runs.output_ids) < 100:
        rig.step()
    mine = rig.rows.req_to_token[runs.kv.req_pool_idx, : runs.kv.cache_protected_len].clone()
    rig.cache.evict(EvictParams(num_tokens=0, swa_num_tokens=rig.sizes.swa))
    other = rig.add([*ids[: 2 * CHUNK - PAGE], *prompt(PAGE, 5)], new=60, seed=2)
    while not other.output_ids:
        rig.step()
    assert other.num_matched_prefix_tokens == 0
    assert not runs.finished()
    assert torch.equal(rig.rows.req_to_token[runs.kv.req_pool_idx, : len(mine)], mine)
    rig.run()
    clean(rig)


def test_an_unfinished_prompt_leaves_tombstones() -> None:
    """sglang 36909, 30845: an insert with a frontier, while later chunks are to come."""
    rig, ids = Rig(IslandRadixCache), prompt(4 * CHUNK)
    rig.add(ids, new=2)
    rig.step()
    rig.step()
    assert rig.chunked is not None
    first = frontier(CHUNK, WINDOW, PAGE)
    assert rig.tombstones(ids[:CHUNK])[-1][1] == first
    assert rig.hit([*ids[:CHUNK], 1]) == CHUNK
    rig.run()
    clean(rig)


def test_a_second_stash_does_nothing() -> None:
    """sglang 25091: a request of a mixed chunk is stashed twice."""
    rig = Rig(IslandRadixCache)
    req = rig.add(prompt(CHUNK + 100), new=50)
    while not req.output_ids:
        rig.step()
    seen = rig.free(), dict(rig.tally.islands), rig.tally.swa_freed, req.kv.cache_protected_len
    common.checkpoint_kv_cache(req, rig.cache)
    assert (rig.free(), rig.tally.islands, rig.tally.swa_freed, req.kv.cache_protected_len) == seen
    rig.run()
    clean(rig)


def test_a_live_run_shorter_than_a_window_is_no_hit() -> None:
    """sglang 17061: live, tombstone, a short live run."""
    rig, ids = Rig(IslandRadixCache), prompt(3 * CHUNK)
    serve(rig, ids, new=2)
    cut = rig.tombstones(ids)[-1]
    assert rig.hit([*ids[: cut[1] + WINDOW // 2], 1]) <= cut[0]
    assert rig.hit([*ids, 1]) >= 3 * CHUNK - PAGE
    clean(rig)


def test_a_huge_chunk_locks_one_window() -> None:
    """sglang 26777: a chunk 512 windows long was locked whole."""
    sizes = Sizes(page=16, window=16, chunk=8192, full=16384, swa=10240, context=16384)
    rig = Rig(IslandRadixCache, sizes)
    req = rig.add(prompt(8192), new=40)
    while not req.finished():
        rig.step()
        if req.output_ids:
            assert rig.cache.swa_protected_size() <= 16
    clean(rig)


def test_one_output_token_retains_little() -> None:
    """sglang 40283, 39159: 8192 tokens in, one out: 1/16 is retained."""
    rig = Rig(IslandRadixCache, Sizes(chunk=2048))
    serve(rig, prompt(2048), new=1)
    assert 0 < rig.used_swa() <= 2048 // 16
    clean(rig)


def test_a_flush_then_whole_pages() -> None:
    """sglang 27291: N tokens, N a multiple of the page, after a flush."""
    rig, ids = Rig(IslandRadixCache), prompt(2 * CHUNK)
    serve(rig, ids, new=20)
    rig.cache.reset()
    rig.alloc.clear()
    serve(rig, ids, new=20)
    assert serve(rig, ids, new=2).num_matched_prefix_tokens >= 2 * CHUNK - PAGE
    clean(rig)
