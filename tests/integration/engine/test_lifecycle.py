"""Whatever ends, stops or empties an engine while its tree is full of islands: then both pools are at baseline."""

from __future__ import annotations

import random
from typing import Any

import pytest
from sglang.srt.managers.schedule_batch import FINISH_ABORT, retract_all
from sglang.srt.managers.schedule_policy import PrefillAdder
from sglang.srt.model_executor.forward_batch_info import ForwardMode

from island_engine.bench import batches
from island_engine.bench.rig import CorruptKvError, Launched, Rig, Sizes, token
from island_engine.islands.cache import IslandRadixCache
from island_engine.islands.holds import committed
from island_engine.islands.watch import TOGETHER

PAGE, WINDOW, CHUNK = 16, 64, 256
INTERVAL = CHUNK // 4
TIGHT = Sizes(full=8192, swa=1024)
EITHER = pytest.mark.parametrize("overlap", [False, True], ids=["sync", "overlap"])


def prompt(length: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)  # noqa: S311 - a test's data
    return [rng.randrange(1 << 20) for _ in range(length)]


def crowd(rig: Rig, count: int = 12, seed: int = 0) -> list[Any]:
    """More requests than the SWA pool takes at once; some share their prompt."""
    rng = random.Random(seed)  # noqa: S311 - a test's data
    return [
        rig.add(prompt(rng.randint(20, 700), index // 2), rng.randint(1, 300), seed=index) for index in range(count)
    ]


def until(rig: Rig, condition: Any) -> None:
    for _ in range(5000):
        if condition():
            return
        rig.step()
    raise AssertionError("it never came to that")


def mid_generation(rig: Rig) -> bool:
    return sum(len(req.output_ids) > 2 * INTERVAL for req in rig.running) >= 2


def check(rig: Rig) -> None:
    """Nothing runs: nothing is held, counted or leaked."""
    assert not rig.busy
    assert rig.cache.holds.published == {}
    rig.cache.observe()
    assert rig.tally.holds == []
    assert rig.tally.violations == 0
    assert rig.leaks() == []


def forget(rig: Rig) -> None:
    """SGLang's flush_cache, which also follows a release of memory and a weight update."""
    rig.settle()
    rig.cache.reset()
    rig.rows.clear()
    rig.alloc.clear()


# --- aborts -------------------------------------------------------------------------------------------------------


@EITHER
def test_abort_between_the_chunks_of_a_prompt(overlap: bool) -> None:
    rig = Rig(IslandRadixCache, TIGHT, overlap=overlap)
    crowd(rig)
    long = rig.add(prompt(1500, 99), 50)
    until(rig, lambda: rig.chunked is long and long.kv.cache_protected_len > 0)
    rig.abort(long)
    rig.run()
    check(rig)


@EITHER
def test_abort_in_the_middle_of_a_generation(overlap: bool) -> None:
    rig = Rig(IslandRadixCache, TIGHT, overlap=overlap)
    crowd(rig)
    until(rig, lambda: mid_generation(rig))
    gone = [req for req in rig.running if len(req.output_ids) > INTERVAL]
    for req in gone:
        rig.abort(req)
    rig.run()
    assert all(isinstance(req.finished_reason, FINISH_ABORT) for req in gone)
    check(rig)


# --- retraction and preemption ------------------------------------------------------------------------------------


@EITHER
def test_a_retracted_request_finds_what_it_had_generated(overlap: bool) -> None:
    rig = Rig(IslandRadixCache, overlap=overlap)
    req = rig.add(prompt(300), 6 * INTERVAL)
    until(rig, lambda: len(req.output_ids) >= 3 * INTERVAL + 5)
    rig.retract(req)
    known = len(rig.ids(req))
    until(rig, lambda: req in rig.running)
    assert known - req.num_matched_prefix_tokens <= PAGE
    rig.run()
    check(rig)


@EITHER
def test_preemption_by_priority_keeps_what_the_victim_had_generated(overlap: bool) -> None:
    rig = Rig(IslandRadixCache, overlap=overlap)
    low = [rig.add(prompt(200, seed), 10 * INTERVAL, seed=seed) for seed in range(3)]
    for req in low:
        req.priority, req.time_stats.wait_queue_entry_time = 0, 0.0
    until(rig, lambda: all(len(req.output_ids) > 2 * INTERVAL + 5 for req in low))
    rig.settle()
    batch = batches.bare(rig, rig.running, ForwardMode.DECODE)
    adder = PrefillAdder(PAGE, rig.cache, rig.alloc, batch, 0.7, CHUNK, CHUNK, waiting_queue_len=1)
    urgent = rig.add(prompt(200, 9), 10, seed=9)
    urgent.priority = 5
    urgent.init_next_round_input(rig.cache)
    assert adder.preempt_to_schedule(urgent)
    assert adder.preempt_list
    rig.running = [req for req in rig.running if req not in adder.preempt_list]
    for victim in adder.preempt_list:
        assert len(rig.ids(victim)) - rig.hit(rig.ids(victim)) <= PAGE
        rig.waiting.append(victim)
    rig.run()
    check(rig)


# --- other weights, other memory ----------------------------------------------------------------------------------


@EITHER
def test_before_other_weights_nothing_generated_stays_in_the_tree(overlap: bool) -> None:
    rig = Rig(IslandRadixCache, overlap=overlap)
    rig.cache.interval = 10**9  # no island, so that all that was generated is the request's own
    reqs = [rig.add(prompt(200, seed), 5 * INTERVAL, seed=seed) for seed in range(3)]
    until(rig, lambda: all(len(req.output_ids) > 2 * INTERVAL for req in reqs))
    rig.settle()
    retract_all(
        reqs=rig.running,
        req_to_token_pool=rig.rows,
        token_to_kv_pool_allocator=rig.alloc,
        tree_cache=rig.cache,
        hisparse_coordinator=None,
    )
    assert all(rig.hit(rig.ids(req)) <= 200 for req in reqs)
    rig.running, rig.waiting = [], [*rig.running, *rig.waiting]
    forget(rig)
    rig.run()
    assert all(len(req.output_ids) == 5 * INTERVAL for req in reqs)
    check(rig)


@EITHER
def test_after_a_flush_nothing_is_found_and_everything_works(overlap: bool) -> None:
    """Also what release and resume of memory occupation do to a tree: they flush, when the engine is idle."""
    rig = Rig(IslandRadixCache, TIGHT, overlap=overlap)
    for _ in range(2):
        crowd(rig)
        rig.run()
        ids = prompt(600, 5)
        rig.add(ids, 4 * INTERVAL)
        rig.run()
        path = [*ids, *(token(1, index) for index in range(4 * INTERVAL))]
        assert rig.hit(path) > 600
        forget(rig)
        assert rig.hit(path) == 0
        assert rig.free() == rig.baseline
    check(rig)


# --- mixed chunks -------------------------------------------------------------------------------------------------


class Mixed(Rig):
    """--enable-mixed-chunk: a step computes a chunk and a token of every running request."""

    mixed = 0

    def step(self) -> Launched | None:
        decoding = list(self.running)
        job = self._launch_prefill()
        if job is None:
            return super().step()
        self.clock += 1
        self.running, arrived = decoding, [req for req in job.reqs if req is not job.middle]
        decode = self._launch_decode()
        if decode is not None:
            decode.batch.forward_mode = ForwardMode.MIXED
            self.mixed += 1
        self.running += arrived
        for each in (job, decode):
            self._process(each)
        return job


def test_mixed_chunks() -> None:
    rig = Mixed(IslandRadixCache, TIGHT)
    crowd(rig, 16)
    rig.run()
    assert rig.mixed > 5
    assert rig.swa_retractions == 0
    check(rig)


# --- speculation --------------------------------------------------------------------------------------------------


@EITHER
@pytest.mark.parametrize("bigram", [False, True], ids=["ngram", "eagle"])
def test_speculation_commits_several_tokens_a_step(overlap: bool, bigram: bool) -> None:
    rig = Rig(IslandRadixCache, TIGHT, overlap=overlap, draft=4, bigram=bigram)
    assert (rig.cache.holds.lag, rig.cache.holds.block) == (8, 4)
    crowd(rig, 20)
    long = rig.add(prompt(100, 77), 12 * INTERVAL)
    until(rig, lambda: len(long.output_ids) > 8 * INTERVAL)
    assert rig.tally.islands["decode"] > 0
    if not bigram:  # a bigram ends a token later
        assert rig.hit(rig.ids(long)) > 100
    rig.run()
    check(rig)


def islands_of_a_long_generation(monkeypatch: pytest.MonkeyPatch, *, modulo: bool) -> int:
    """How many a request of 12 intervals publishes while it decodes, at 1 to 4 tokens a step."""
    rig = Rig(IslandRadixCache, draft=4)
    if modulo:  # the fault: due when the length is a multiple, not when enough was committed since the last island
        real = rig.cache.decode_island

        def due_at_multiples(req: Any) -> bool:
            rig.cache.holds.published[id(req)].due = 0 if committed(req) % INTERVAL == 0 else 1 << 30
            done: bool = real(req)
            rig.cache.holds.published[id(req)].due = 0  # asked again at the next step
            return done

        monkeypatch.setattr(rig.cache, "decode_island", due_at_multiples)
    rig.add(prompt(100), 12 * INTERVAL)
    rig.run()
    check(rig)
    return rig.tally.islands["decode"]


def test_speculation_steps_over_a_trigger_that_waits_for_a_multiple(monkeypatch: pytest.MonkeyPatch) -> None:
    assert islands_of_a_long_generation(monkeypatch, modulo=False) >= 11
    assert 0 < islands_of_a_long_generation(monkeypatch, modulo=True) < 9


# --- the violation counter can count ------------------------------------------------------------------------------


def test_a_hole_in_a_window_is_counted_once_it_is_observed() -> None:
    rig = Rig(IslandRadixCache)
    req = rig.add(prompt(300), 4 * INTERVAL)
    until(rig, lambda: len(req.output_ids) > 3)
    rig.settle()
    first = (req.seqlen - WINDOW) // PAGE * PAGE  # the page that holds the oldest position which is looked at
    slots = rig.rows.req_to_token[req.kv.req_pool_idx, first : first + PAGE].long()
    kept = rig.alloc.full_to_swa_index_mapping[slots].clone()
    rig.alloc.full_to_swa_index_mapping[slots] = 0
    rig.cache.watch.look(req, req.seqlen - WINDOW, req.seqlen - 1)
    assert rig.tally.violations == 0
    rig.cache.observe()
    rig.cache.observe()
    assert rig.tally.violations == 1
    with pytest.raises(CorruptKvError):
        rig.run()
    rig.alloc.full_to_swa_index_mapping[slots] = kept


def test_holes_are_counted_while_nobody_asks() -> None:
    rig = Rig(IslandRadixCache)
    req = rig.add(prompt(300), 4 * INTERVAL)
    until(rig, lambda: len(req.output_ids) > 3)
    for _ in range(3 * TOGETHER):
        rig.cache.watch.look(req, 0, PAGE)  # a tombstone
    assert len(rig.cache.watch._looks) < TOGETHER
    assert (rig.cache.watch.news(), rig.cache.watch.news()) == (3 * TOGETHER, 0)


class Late:
    """Host memory that a device writes into when it comes to it."""

    def __init__(self) -> None:
        self.value = 0

    def copy_(self, source: Any, non_blocking: bool = False) -> None:
        self.value = self.value if non_blocking else int(source)

    def __int__(self) -> int:
        return self.value


def test_holes_of_a_device_that_lags_are_told_before_the_engine_idles() -> None:
    rig = Rig(IslandRadixCache)
    rig.cache.watch._there, rig.cache.watch._arrived = False, Late()
    req = rig.add(prompt(300), 2 * INTERVAL)
    until(rig, lambda: len(req.output_ids) > 3)
    rig.cache.watch.look(req, 0, PAGE)  # a tombstone
    rig.cache.observe()
    assert rig.tally.violations == 0
    rig.run()
    assert rig.tally.violations == 1


def test_what_the_tree_has_already_is_not_given_back_by_a_stash() -> None:
    rig = Rig(IslandRadixCache)
    req = rig.add(prompt(300), 2 * INTERVAL)
    until(rig, lambda: len(req.output_ids) > 3)
    rig.settle()
    published = req.kv.cache_protected_len
    with pytest.raises(AssertionError, match=f"the tree has {published} of it"):
        rig.cache.checkpoint_into_tree(req, up_to=published - 1)
    assert req.kv.cache_protected_len == published
    rig.run()


def test_a_stash_names_the_session_of_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(IslandRadixCache)
    insert, named = rig.cache.insert, []
    monkeypatch.setattr(rig.cache, "insert", lambda given: (named.append(given.session_id), insert(given))[1])
    rig.add(prompt(300), 2 * INTERVAL).session_id = "chat"
    rig.run()
    assert len(named) >= 2
    assert set(named) == {"chat"}


def test_the_lag_is_what_sglang_allocates_ahead() -> None:
    for overlap, draft, expected in ((False, 0, (0, 1)), (True, 0, (1, 1)), (True, 4, (8, 4))):
        rig = Rig(IslandRadixCache, overlap=overlap, draft=draft)
        assert (rig.cache.holds.lag, rig.cache.holds.block) == expected
