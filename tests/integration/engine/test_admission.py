"""Reserving admission on SGLang's real parts: nobody is retracted for SWA, and no fewer run than with stock."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from sglang.srt.managers.schedule_policy import PrefillAdder
from sglang.srt.mem_cache.prefill_budget import SWAPrefillBudget
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.model_executor.forward_batch_info import ForwardMode

from island_engine.bench import batches
from island_engine.bench.rig import Rig, Sizes
from island_engine.islands import ledger
from island_engine.islands.admission import ReservingSWABudget
from island_engine.islands.cache import IslandRadixCache

PAGE, WINDOW, CHUNK = 16, 128, 1024
LENGTH, OUTPUT = 2048, 1024
SWA = 6144
EVICTED_EVERY = 128  # tokens: SGLang's own evictor, while nobody is short
TIGHT = Sizes(page=PAGE, window=WINDOW, chunk=CHUNK, full=200_000, swa=SWA, rows=64, context=4096)
EITHER = pytest.mark.parametrize("overlap", [False, True], ids=["sync", "overlap"])


def prompt(length: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)  # noqa: S311 - a test's data
    return [rng.randrange(1 << 20) for _ in range(length)]


class Run:
    """A burst of requests; what happened in `steps` scheduler steps."""

    def __init__(
        self,
        cache_class: type,
        sizes: Sizes = TIGHT,
        *,
        overlap: bool = False,
        share: int = 1,
        steps: int = 600,
        **kwargs: Any,
    ) -> None:
        self.rig = Rig(cache_class, sizes, overlap=overlap, contents=False, **kwargs)
        rng = random.Random(3)  # noqa: S311 - a test's data
        for index in range(60):
            new = OUTPUT if share == 1 else rng.randint(60, 400)
            self.rig.add(prompt(LENGTH, index // share), new, seed=index)
        running, self.hold = [], 0
        while self.rig.clock < steps and self.rig.busy:
            job = self.rig.step()
            running.append(len(self.rig.running) + (self.rig.chunked is not None))
            if job and job.decode and cache_class is IslandRadixCache and self.rig.clock > steps // 2:
                self.hold = max(
                    self.hold, *(self.rig.cache.held(req) for req in self.rig.running if req.decode_batch_idx > 1)
                )
        self.sustained = sum(running[len(running) // 2 :]) / len(running[len(running) // 2 :])
        self.a_step = self.rig.decoded / len(running)


@EITHER
def test_a_burst_is_admitted_to_the_bound_and_nobody_is_retracted(overlap: bool) -> None:
    ours, stock = Run(IslandRadixCache, overlap=overlap), Run(UnifiedRadixCache, overlap=overlap)
    bound = ledger.bound(SWA, ledger.smallest_chunk(CHUNK), WINDOW, PAGE, int(overlap))
    assert bound > ledger.bound(SWA, CHUNK, WINDOW, PAGE, int(overlap)) >= 30
    assert ours.rig.retractions == ours.rig.recomputed == 0
    assert stock.rig.swa_retractions > 0
    assert ours.sustained >= bound
    assert ours.sustained >= 1.4 * stock.sustained
    assert ours.a_step >= 1.4 * stock.a_step
    assert ours.hold <= ledger.cap(WINDOW, PAGE, int(overlap)) + EVICTED_EVERY


def test_where_the_full_pool_binds_the_same_run() -> None:
    sizes = Sizes(page=PAGE, window=WINDOW, chunk=CHUNK, full=30_000, swa=SWA, rows=64, context=4096)
    ours, stock = Run(IslandRadixCache, sizes), Run(UnifiedRadixCache, sizes)
    assert ours.sustained >= stock.sustained
    assert ours.a_step >= stock.a_step
    assert ours.rig.retractions <= stock.rig.retractions


@EITHER
def test_shared_prompts_with_short_outputs_decode_no_less_than_stock(overlap: bool) -> None:
    sizes = Sizes(page=PAGE, window=WINDOW, chunk=CHUNK, full=200_000, swa=3072, rows=64, context=4096)
    ours = Run(IslandRadixCache, sizes, overlap=overlap, share=4, steps=4000)
    stock = Run(UnifiedRadixCache, sizes, overlap=overlap, share=4, steps=4000)
    assert len(ours.rig.finished) == len(stock.rig.finished) == 60
    assert ours.rig.retractions == 0
    assert stock.rig.swa_retractions > 0
    assert ours.a_step >= stock.a_step


def test_with_speculation_nobody_is_retracted() -> None:
    ours = Run(IslandRadixCache, overlap=True, draft=4)
    assert ours.rig.swa_retractions == 0
    assert ours.sustained > 20


@EITHER
def test_a_pool_of_a_few_windows_serves_one_after_the_other(overlap: bool) -> None:
    sizes = Sizes(page=PAGE, window=WINDOW, chunk=CHUNK, full=20_000, swa=5 * WINDOW, rows=8, context=4096)
    rig = Rig(IslandRadixCache, sizes, overlap=overlap)
    for index in range(4):
        rig.add(prompt(700, index // 2), 200, seed=index)
    rig.run()
    assert len(rig.finished) == 4
    assert rig.leaks() == []


# --- private windows ----------------------------------------------------------------------------------------------


def full(rig: Rig) -> list[Any]:
    """Until the SWA pool is as full as admission lets it be."""
    reqs = [rig.add(prompt(LENGTH, 100 + index), OUTPUT, seed=index) for index in range(40)]
    while rig.step() is None or not rig.running or rig.chunked or rig.clock < 100:
        pass
    return reqs


def test_while_the_pool_is_tight_a_request_owns_its_window_and_locks_nothing() -> None:
    rig = Rig(IslandRadixCache, TIGHT)
    reqs = full(rig)
    last = [req for req in reqs if req in rig.running][-1]
    assert last.lock.swa_released
    assert last.kv.cache_protected_len == ledger.down(LENGTH - WINDOW, PAGE)
    assert rig.hit(list(last.origin_input_ids)) <= ledger.down(LENGTH - WINDOW, PAGE)  # less where others took that
    assert rig.cache.held(last) <= ledger.cap(WINDOW, PAGE, 0) + EVICTED_EVERY


def test_the_second_of_two_equal_prompts_publishes_the_tail_for_those_who_follow() -> None:
    rig = Rig(IslandRadixCache, TIGHT)
    first = [req for req in full(rig) if req in rig.running][-1]
    rig.waiting = []
    again = [rig.add(list(first.origin_input_ids), 20, seed=50 + index) for index in range(2)]
    for req in rig.running[:4]:
        rig.abort(req)
    while again[0] not in rig.running:
        rig.step()
    assert again[0].num_matched_prefix_tokens <= LENGTH - WINDOW
    assert rig.hit(list(first.origin_input_ids)) == LENGTH
    third = rig.add(list(first.origin_input_ids), 20, seed=60)
    while not third.output_ids:
        rig.step()
    assert third.num_matched_prefix_tokens >= LENGTH - PAGE
    for req in rig.running:
        rig.abort(req)
    rig.run()
    assert rig.leaks() == []


# --- branch points (sglang 36131, 37584) --------------------------------------------------------------------------


@pytest.mark.parametrize("cache_class", [UnifiedRadixCache, IslandRadixCache])
@EITHER
def test_a_branch_off_the_chunks_is_hit_by_the_third_request(cache_class: type, overlap: bool) -> None:
    """Scaled from 32,000 shared + 2,000 own + 1,000 out, chunk 8,192, one at a time."""
    sizes = Sizes(page=PAGE, window=WINDOW, chunk=CHUNK, full=40_000, swa=8192, rows=8, context=8192)
    rig = Rig(cache_class, sizes, overlap=overlap)
    shared = prompt(4000)
    hits = []
    for index in range(3):
        req = rig.add(shared + prompt(250, index + 1), 125, seed=index)
        rig.run()
        hits.append(req.num_matched_prefix_tokens)
    assert hits[2] >= 4000 - PAGE
    assert rig.leaks() == []


def hit_rate(cache_class: type) -> float:
    """Scaled from system 24,576 + 16,384, 8 x 8, out 128, concurrency 8."""
    sizes = Sizes(page=PAGE, window=WINDOW, chunk=CHUNK, full=60_000, swa=8192, rows=16, context=8192)
    rig = Rig(cache_class, sizes, contents=False)
    rng, asked, hits = random.Random(1), 0, 0  # noqa: S311 - a test's data
    todo = [prompt(3072, group) + prompt(2048, 100 + 8 * group + index) for group in range(8) for index in range(8)]
    rng.shuffle(todo)
    live: list[Any] = []
    while todo or rig.busy:
        while todo and len(live) < 8:
            live.append(rig.add(todo.pop(), 16, seed=len(todo)))
        rig.step()
        for req in [req for req in live if req.finished()]:
            live.remove(req)
            asked += len(req.origin_input_ids)
            hits += req.num_matched_prefix_tokens
    return hits / asked


def test_shared_system_prompts_are_hit_as_often_as_with_stock() -> None:
    ours = hit_rate(IslandRadixCache)
    assert ours >= hit_rate(UnifiedRadixCache)
    assert ours > 0.4


# --- the exact type -----------------------------------------------------------------------------------------------


def test_every_hook_asks_for_the_exact_type(monkeypatch: pytest.MonkeyPatch) -> None:
    class Child(IslandRadixCache):
        """Not ours any more: neither its budget, nor its windows, nor its retractions are touched."""

    Rig(IslandRadixCache)  # hooks
    touched: list[str] = []
    for cache_class in (Child, UnifiedRadixCache):
        rig = Rig(cache_class)
        if cache_class is Child:
            monkeypatch.setattr(rig.cache.holds, "slide", lambda _: touched.append("slide"))
            monkeypatch.setattr(rig.cache, "keep_before_retraction", lambda _: touched.append("keep"))
        assert type(rig.alloc.create_prefill_budget(rig.cache)) is SWAPrefillBudget
        running = SimpleNamespace(reqs=[], batch_size=lambda: 0)
        PrefillAdder(PAGE, rig.cache, rig.alloc, running, 0.7, CHUNK, CHUNK)
        rig.alloc.evict_to_free_tokens(rig.cache, 10**6)
        req = rig.add(prompt(100), 50)
        while len(req.output_ids) < 5:
            rig.step()
        batches.bare(rig, rig.running, ForwardMode.DECODE).release_req(0, 0)
        assert touched == []
        if cache_class is Child:
            assert rig.cache.holds.adder is None
    rig = Rig(IslandRadixCache)
    assert type(rig.alloc.create_prefill_budget(rig.cache)) is ReservingSWABudget
