"""IslandRadixCache: SGLang's unified radix cache with tombstones, islands and a lock that moves with them.

Invariant that makes eager freeing safe under overlap scheduling: a request's SWA slots are freed, or its SWA lock is
dropped, only for positions at least a window behind the last token whose result was processed. A step in flight is at
a later position and reads less far back; a freed slot that is given out again is written only by kernels that are
enqueued later on the same stream.
"""

from __future__ import annotations

from typing import Any

from sglang.srt.mem_cache.allocator.unified_hybrid_swa import UnifiedSWAAllocatorBase
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

from island_engine import guards
from island_engine.islands import ledger, mutation
from island_engine.islands.frontier import decode_interval, frontier, inner_islands, left_behind
from island_engine.islands.holds import SWA, Holds, Running, committed
from island_engine.islands.stash import Stashed, stash
from island_engine.islands.watch import Watch
from island_engine.metrics import Silent

A_STEP = 2  # decode islands in one step, at most: an insert takes milliseconds
PUT_OFF = 4  # pages that an island which nobody can afford is put off
OBSERVE = 32  # steps between two looks at the gauges: about a second


class IslandRadixCache(UnifiedRadixCache):
    """One per scheduler. `interval`: committed tokens between decode islands of a request. `shared_pool`: full and SWA
    tokens come from one pool (--enable-unified-memory), so that SWA saved is prefix cache won, however much is free.
    """

    def __init__(self, params: Any) -> None:
        super().__init__(params)
        self.window = self.swa_retain_window + 1  # w counts the token that reads, SGLang's does not
        self.interval = guards.interval() or decode_interval(params.chunked_prefill_size, self.window, self.page_size)
        self.shared_pool = isinstance(self.token_to_kv_pool_allocator, UnifiedSWAAllocatorBase)
        self.holds = Holds(self, window=self.window, chunk=params.chunked_prefill_size or 0)
        self.watch = Watch(self.token_to_kv_pool_allocator, self.req_to_token_pool)
        self.metrics: Any = Silent()  # the plugin gives the reporting rank a speaking one
        self._frontier: int | None = None  # set while a stash runs
        self._phase = "prefill"
        self._step = self._islands_in_step = 0
        mutation.install(self)

    # --- a prompt's islands ---------------------------------------------------------------------------------------

    def checkpoint(self, req: Any, *, up_to: int, **kwargs: Any) -> None:
        """SGLang commits a chunk of a prompt, or everything of a finished request."""
        if req.finished() or up_to != req.extend_end or not self.publishable(req):
            super().checkpoint(req, up_to=up_to, **kwargs)
            return
        running = self._running(req)
        roomy = self.holds.roomy(req)
        end = self._end_of_commit(req, up_to, roomy=roomy)
        if roomy and self.holds.idle_slots:  # no lock stays on them, and a leaf that is lost is smaller
            keep = self.window + self.page_size
            for inner in inner_islands(req.kv.cache_protected_len, end - keep, max(self.interval, 2 * keep)):
                self._publish(req, inner)
        if end > req.kv.cache_protected_len:
            self._publish(req, end)
        if up_to >= len(req.full_untruncated_fill_ids):
            if end <= up_to - self.window:  # private: the request owns the whole window that it reads next
                self.release_swa(req.lock)
            self.holds.ordinal += 1
            running.due = req.kv.cache_protected_len + ledger.first_island(self.holds.ordinal, self.interval)

    def _end_of_commit(self, req: Any, up_to: int, *, roomy: bool) -> int:
        """Where the tree's part of a committed prompt of L tokens ends: there, or at L - w (private window).

        A published tail costs a window more for the next w tokens: the tree's, locked, while the request's own one
        grows. With a private window a request holds one from its first token to its last; the price is that an equal
        prompt finds w tokens less. So the tail is published while there is room, and where somebody shares it: one
        window for all of them. If private, no chunk is committed past L - w: a short last chunk would leave part of the
        window in the tree, and the lock on it.
        """
        length = len(req.full_untruncated_fill_ids)
        edge = max(0, ledger.down(length - self.window, self.page_size))
        if up_to <= edge or req.kv.cache_protected_len > edge or (roomy and not self.shared_pool):
            return up_to
        branches = (req.swa_branching_seqlen or 0) > edge  # SGLang's match found the prompt, without a window there
        if (branches or self._others_with(req, length)) and self.holds.bearable(req):
            return up_to
        return edge

    def _publish(self, req: Any, end: int) -> None:
        """Insert the first `end` tokens. At a branch point that the match found (the full KV goes on, the window does
        not) SGLang's insert stops once, so that the branch gets a window of its own; the rest comes after it.
        """
        end = min(end + int(self.tree_core.is_eagle), req.extend_end)  # n bigrams span n + 1 tokens
        branch = req.swa_branching_seqlen
        if branch is not None and req.kv.cache_protected_len < branch < ledger.down(end, self.page_size):
            super().checkpoint(req, up_to=end)
        super().checkpoint(req, up_to=end)

    # --- islands in general ---------------------------------------------------------------------------------------

    def checkpoint_into_tree(self, req: Any, *, up_to: int, **kwargs: Any) -> None:
        """Insert the first `up_to` tokens: what is before the frontier becomes tombstone, the rest an island."""
        freed = req.kv.get_evicted_seqlen(SWA)
        self._frontier = frontier(up_to, self.window, self.page_size)
        try:
            if req.finished():  # SGLang frees nothing then: a prompt that ends with its first token would stay whole
                self.evict_sliding_windows(req, up_to - 1)
                super().checkpoint_into_tree(req, up_to=up_to, **kwargs)
                return
            new = stash(self, req, up_to)
        finally:
            allowed, self._frontier = self._frontier, None
        if new.end > new.start:
            self.metrics.published(self._phase, tombstoned=self._tombstoned(req, new))
            self.metrics.freed(new.freed)
            self.metrics.noop(max(0, min(allowed, freed) - new.start))  # the evictor was here before: nothing to free
            if mutation.plant(self, req, up_to):
                self.metrics.violation()
            self.watch.look(req, max(0, up_to - self.window + 1), up_to)

    def _tombstoned(self, req: Any, new: Stashed) -> int:
        """Tokens of a stash without SWA KV."""
        if new.alone:
            return new.dead
        ranges = self.tree_core.swa_tombstone_ranges(self.key(req, new.end), new.start, new.end)
        return int(sum(last - first for first, last in ranges))  # others may live in between

    def swa_retain_floor(self, req: Any) -> int | None:
        """At a stash stock frees a page more than the frontier allows; it never frees past this floor."""
        floor: int | None = super().swa_retain_floor(req) if self._frontier is None else self._frontier
        return floor

    @staticmethod
    def publishable(req: Any) -> bool:
        """Not barred from the tree, and its row is its own."""
        return not req.skip_radix_cache_insert and req.session is None and req.beam_group is None

    # --- decode islands -------------------------------------------------------------------------------------------

    def after_result(self, req: Any, step: int) -> None:
        """A decode result of `req` was processed. `step`: the number of SGLang's forward pass."""
        if step != self._step:
            if step // OBSERVE != self._step // OBSERVE:
                self.observe()
            self._step, self._islands_in_step = step, 0
        lock, running = req.lock, self.holds.published.get(id(req))
        if lock is None or running is None or running.due is None or req.finished() or req.is_retracted:
            return
        if not lock.swa_released:
            self.release_swa_prefix_lock(req)
        if req.seqlen > running.due and self._islands_in_step < A_STEP:
            self._islands_in_step += self.decode_island(req)

    def decode_island(self, req: Any) -> bool:
        """Publish prompt and generation if that is due: `interval` tokens since the last island, whatever the steps."""
        running, end = self.holds.published[id(req)], committed(req)
        if running.due is None or end < running.due or not self.publishable(req):
            return False
        if not self.holds.affordable(req):
            running.due = end + PUT_OFF * self.page_size
            return False
        self._publish_generation(req, end)
        running.due = req.kv.cache_protected_len + self.interval
        return True

    def keep_before_retraction(self, req: Any) -> None:
        """A request is about to lose its KV, and will be queued again: the tree keeps what it generated."""
        kv, end = req.kv, committed(req)
        if not kv.holds_kv or req.lock is None or req.finished() or req.to_finish is not None:
            return
        if self.publishable(req) and ledger.down(end, self.page_size) > kv.cache_protected_len:
            self._publish_generation(req, end)

    def _publish_generation(self, req: Any, end: int) -> None:
        req.refresh_fill_ids()
        self._phase = "decode"
        try:
            super().checkpoint(req, up_to=end)
        finally:
            self._phase = "prefill"

    # --- the lock moves with the island ---------------------------------------------------------------------------

    def release_swa_prefix_lock(self, req: Any) -> None:
        """Only once the window has left the newest island: stock counts steps since the prefill, outdated by one."""
        if left_behind(committed(req), req.kv.cache_protected_len, self.window):
            super().release_swa_prefix_lock(req)

    def evict_sliding_windows(self, req: Any, pre_len: int, *, eviction_interval: int = 1) -> None:
        """The decode-time evictor: free the request's own dead window."""
        before = max(req.kv.get_evicted_seqlen(SWA), req.kv.cache_protected_len)
        super().evict_sliding_windows(req, pre_len, eviction_interval=eviction_interval)
        self.metrics.freed(max(0, req.kv.get_evicted_seqlen(SWA) - before))

    # --- accounting -----------------------------------------------------------------------------------------------

    def on_release(self, req: Any, *, checkpointed: bool) -> None:
        """SGLang is giving the request's row back: finished, aborted or retracted."""
        super().on_release(req, checkpointed=checkpointed)
        if self.holds.published.pop(id(req), None) and not self.holds.published:
            self.observe(idle=True)  # no step may follow that would

    def _running(self, req: Any) -> Running:
        """The entry of a request, made at its first stash."""
        if id(req) not in self.holds.published:
            self._count_hit(req)
            self.holds.published[id(req)] = Running(req)
        return self.holds.published[id(req)]

    def _count_hit(self, req: Any) -> None:
        """What the cache gave an admitted request. A match alone may be tried many times."""
        hit = req.kv.cache_protected_len
        if not hit:
            return
        others = self._others_with(req, hit)
        running = any(other.kv.cache_protected_len >= hit for other in others)
        crossed = self.tree_core.swa_tombstone_ranges(self.key(req, hit), 0, hit)
        self.metrics.hit(hit, running=running, crossed=bool(crossed))

    def key(self, req: Any, length: int) -> RadixKey:
        """Of the first `length` tokens of a request, or bigrams: n of those span n + 1 tokens."""
        bigram = self.tree_core.is_eagle
        ids = req.full_untruncated_fill_ids[: length + int(bigram)]
        return RadixKey(ids, req.extra_key, is_bigram=bigram, cache_salt=req.cache_salt)

    def _others_with(self, req: Any, length: int) -> list[Any]:
        """Running requests whose first `length` tokens are those of `req`."""
        ids, tail = req.full_untruncated_fill_ids, slice(length - self.page_size, length)
        last = ids[tail]  # compared first: a page tells most requests apart
        return [
            other
            for other in (running.req for running in self.holds.published.values())
            if other is not req
            and other.full_untruncated_fill_ids[tail] == last
            and (other.extra_key, other.cache_salt) == (req.extra_key, req.cache_salt)
            and other.full_untruncated_fill_ids[:length] == ids[:length]
        ]

    def observe(self, *, idle: bool = False) -> None:
        """Set the gauges from the trees and pools as they are. `idle`: nobody is kept waiting for the device."""
        holds = [self.held(req) for req in self.holds.live() if id(req) in self.holds.published]
        self.metrics.held(holds, live=self.swa_evictable_size() + self.swa_protected_size())
        for _ in range(self.watch.news(wait=idle)):
            self.metrics.violation()

    def held(self, req: Any) -> int:
        """SWA tokens that a running request pins: the pages it owns and the window of the island that it locks."""
        locked = 0
        if req.lock is not None and not req.lock.swa_released:
            locked = min(req.kv.cache_protected_len, ledger.up(self.swa_retain_window, self.page_size))
        return max(0, self.holds.own(req)) + locked
