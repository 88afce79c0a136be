"""Every island metric, counted by hand from pools, rows and requests after each step of a randomised load."""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest
from support.anchors import clean, prompt

from island_engine.bench.pools import SWA
from island_engine.bench.rig import Rig, Sizes
from island_engine.islands.cache import IslandRadixCache
from island_engine.islands.frontier import frontier


class ByHand:
    """Counts what happens to positions, not what the cache says about it."""

    def __init__(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rig, self.cache = rig, rig.cache
        self.islands = {"prefill": 0, "decode": 0}
        self.hits = {"running": 0, "finished": 0}
        self.tombstoned = self.noops = self.freed = 0
        self.phase = "prefill"
        for name in ("checkpoint_into_tree", "_publish_generation", "_count_hit"):
            monkeypatch.setattr(self.cache, name, self._around(getattr(self, name), getattr(self.cache, name)))
        monkeypatch.setattr(rig.alloc, "free_swa_segment", self._around(self.free_segment, rig.alloc.free_swa_segment))

    @staticmethod
    def _around(mine: Any, original: Any) -> Any:
        return lambda *args, **kwargs: mine(original, *args, **kwargs)

    def mapped(self, req: Any, start: int, end: int) -> int:
        """Positions of [start, end) that have an SWA slot."""
        row = self.rig.rows.req_to_token[req.kv.req_pool_idx, start : max(start, end)].long()
        return int((self.rig.alloc.full_to_swa_index_mapping[row] > 0).sum())

    def checkpoint_into_tree(self, original: Any, req: Any, *, up_to: int, **kwargs: Any) -> None:
        start, page, window = req.kv.cache_protected_len, self.rig.sizes.page, self.rig.sizes.window
        cut = max(start, frontier(up_to, window, page))
        holes = cut - start - self.mapped(req, start, cut)
        original(req, up_to=up_to, **kwargs)
        end = req.kv.cache_protected_len
        if req.finished() or end == start:
            return
        self.islands[self.phase] += 1
        self.tombstoned += end - start - self.mapped(req, start, end)
        self.noops += holes

    def free_segment(self, original: Any, slots: Any, *args: Any, **kwargs: Any) -> None:
        if (
            sys._getframe(2).f_code.co_name == "free_swa_out_of_window_slots"
        ):  # not duplicates, nor what a request leaves
            self.freed += int((self.rig.alloc.full_to_swa_index_mapping[slots.long()] > 0).sum())
        original(slots, *args, **kwargs)

    def _publish_generation(self, original: Any, req: Any, end: int) -> None:
        self.phase = "decode"
        original(req, end)
        self.phase = "prefill"

    def _count_hit(self, original: Any, req: Any) -> None:
        original(req)
        found, ids = req.prefix_len if req.extend_batch_idx <= 1 else 0, self.rig.ids(req)
        found = req.kv.cache_protected_len or found
        others = [*self.rig.running, *(self.rig.pending.reqs if self.rig.pending else []), self.rig.chunked]
        runs = any(
            other is not req
            and other.kv.holds_kv
            and not other.finished()
            and other.kv.cache_protected_len >= found
            and self.rig.ids(other)[:found] == ids[:found]
            for other in others
            if other is not None
        )
        self.hits["running" if runs else "finished"] += found

    def holds(self) -> list[int]:
        """SWA tokens that each running request pins: its own pages, and the locked window of its island."""
        page, window = self.rig.sizes.page, -(-(self.rig.sizes.window - 1) // self.rig.sizes.page) * self.rig.sizes.page
        found = []
        for running in self.cache.holds.published.values():
            req, kv = running.req, running.req.kv
            if not kv.holds_kv or req.finished():
                continue
            first = max(kv.get_evicted_seqlen(SWA), kv.cache_protected_len)
            own = self.mapped(req, kv.cache_protected_len, kv.kv_allocated_len)
            assert own == kv.kv_allocated_len - first, "a hole in what a request owns"
            locked = 0
            if req.lock is not None and not req.lock.swa_released:
                locked = min(kv.cache_protected_len, window)
                assert self.mapped(req, kv.cache_protected_len - locked, kv.cache_protected_len) == locked
            found.append(own + -kv.kv_allocated_len % page + locked)
        return sorted(found)


@pytest.mark.parametrize(
    ("overlap", "window"), [(False, 64), (True, 64), (True, 66)], ids=["sync", "overlap", "no whole pages in a window"]
)
def test_what_is_reported_is_what_is_there(overlap: bool, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(3)  # noqa: S311 - a test's data
    rig = Rig(IslandRadixCache, Sizes(full=4096, swa=1600, rows=12, window=window), overlap=overlap)
    rig.cache.interval = 96
    hand, tally = ByHand(rig, monkeypatch), rig.tally
    documents = [prompt(500, seed) for seed in range(3)]
    todo = 18
    while todo or rig.busy:
        if todo and rng.random() < 0.012:
            todo -= 1
            document, shared = rng.randrange(3), rng.randrange(500)
            ids = documents[document][:shared] + prompt(rng.randint(1, 200), rng.randrange(10**6))
            rig.add(ids, rng.randint(2, 250))
        if rig.running and rng.random() < 0.004:
            rig.abort(rng.choice(rig.running))
        if rig.running and rng.random() < 0.006:
            rig.retract(rng.choice(rig.running))
        rig.step()
        rig.cache.observe()
        owned = rig.used_swa() - rig.cache.swa_evictable_size() - rig.cache.swa_protected_size()
        assert tally.live == rig.used_swa() - owned
        assert rig.unaccounted() == 0  # so that `owned` is what requests own, page by page
        assert sorted(tally.holds) == hand.holds()
        assert tally.islands == hand.islands
        assert tally.hits == hand.hits
        assert tally.tombstoned == hand.tombstoned
        assert tally.noops == hand.noops
        assert tally.swa_freed == hand.freed
        assert tally.violations == 0
    assert min(tally.islands.values()) > 0
    assert min(tally.hits.values()) > 0
    assert min(tally.tombstoned, tally.swa_freed, tally.crossed) > 0
    assert tally.holds == []
    clean(rig)


def test_at_a_branch_point_that_others_have_left_the_window_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(IslandRadixCache, Sizes(full=4096, swa=1600, rows=12, window=66))
    hand, publish = ByHand(rig, monkeypatch), rig.cache._publish

    def at_a_branch(req: Any, end: int) -> None:
        if not req.kv.cache_protected_len:
            req.swa_branching_seqlen = 12 * rig.sizes.page  # as the match found it; then the path was evicted
        publish(req, end)

    monkeypatch.setattr(rig.cache, "_publish", at_a_branch)
    rig.add(prompt(rig.sizes.chunk), 4)
    rig.run()
    assert rig.tally.islands["prefill"] == hand.islands["prefill"] >= 2
    assert rig.tally.tombstoned == hand.tombstoned > 0
    clean(rig)
