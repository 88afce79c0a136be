"""IslandRadixCache: SGLang's unified radix cache with tombstones, islands and a lock that moves with them.

Invariant that makes eager freeing safe under overlap scheduling: a request's SWA slots are freed, or its SWA lock is
dropped, only for positions at least a window behind the last token whose result was processed. A step in flight is at
a later position and reads less far back; a freed slot that is given out again is written only by kernels that are
enqueued later on the same stream.
"""

from __future__ import annotations

from typing import Any

from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_cache.components import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

from island_engine import guards
from island_engine.islands import mutation
from island_engine.islands.frontier import decode_interval, frontier, island_due, left_behind
from island_engine.metrics import Silent

SWA = ComponentType.SWA


class IslandRadixCache(UnifiedRadixCache):
    """One per scheduler. `interval`: committed tokens between decode islands of a request."""

    def __init__(self, params: Any) -> None:
        super().__init__(params)
        self.window = self.swa_retain_window + 1  # w counts the token that reads, SGLang's does not
        self.interval = guards.interval() or decode_interval(params.chunked_prefill_size, self.window, self.page_size)
        self.metrics: Any = Silent()  # the plugin gives the reporting rank a speaking one
        self.holders: dict[int, Any] = {}  # id(request) -> a request that was published and has not been released
        self._frontier: int | None = None  # set while a stash runs
        self._decoding = False  # set while a decode island is published; a prompt's last stash may have output too

    # --- islands --------------------------------------------------------------------------------------------------

    def checkpoint_into_tree(self, req: Any, *, up_to: int, **kwargs: Any) -> None:
        """Insert the first `up_to` tokens: what is before the frontier becomes tombstone, the rest an island."""
        if id(req) not in self.holders:
            self._count_hit(req)
        self.holders[id(req)] = req
        start, freed = req.kv.cache_protected_len, req.kv.get_evicted_seqlen(SWA)
        allowed = frontier(up_to, self.window, self.page_size)
        self._frontier = allowed
        try:
            super().checkpoint_into_tree(req, up_to=up_to, **kwargs)
        finally:
            self._frontier = None
        if not req.finished() and req.kv.cache_protected_len > start:
            reached = req.kv.get_evicted_seqlen(SWA)  # everything the request owned before it is freed
            self.metrics.published("decode" if self._decoding else "prefill", tombstoned=max(0, reached - start))
            self.metrics.freed(max(0, reached - max(freed, start)))
            self.metrics.noop(max(0, min(allowed, freed) - start))  # the evictor was here before: nothing to free
            if mutation.plant(self, req, up_to) or self._reads_freed(req, up_to):
                self.metrics.violation()
        self.observe()

    def _reads_freed(self, req: Any, length: int) -> bool:
        """Whether the window behind token `length` holds a position without an SWA slot: the next token reads it.
        Waits for the device, once an island, that is once every `interval` tokens of a request.
        """
        first = max(0, length - self.window + 1)
        row = self.req_to_token_pool.req_to_token[req.kv.req_pool_idx, first:length]
        mapped = self.token_to_kv_pool_allocator.full_to_swa_index_mapping[row.long()]
        return bool((mapped <= 0).any())

    def swa_retain_floor(self, req: Any) -> int | None:
        """At a stash stock frees a page more than the frontier allows; it never frees past this floor."""
        return super().swa_retain_floor(req) if self._frontier is None else self._frontier

    def decode_island(self, req: Any) -> bool:
        """Publish prompt and generation when the request has committed `interval` tokens since its last island."""
        kv = req.kv
        if not kv.holds_kv or req.lock is None or req.finished() or req.is_retracted:
            return False
        if req.skip_radix_cache_insert or req.session is not None or req.beam_group is not None:
            return False  # barred from the tree, or its row is not its own
        committed = self.committed(req)
        if not island_due(committed, kv.cache_protected_len, self.interval):
            return False
        req.refresh_fill_ids()
        self._decoding = True
        try:
            self.checkpoint(req, up_to=committed)
        finally:
            self._decoding = False
        return True

    @staticmethod
    def committed(req: Any) -> int:
        """Tokens with a known id and written KV; under overlap kv_committed_len counts the step in flight too."""
        return int(min(req.kv.kv_committed_len, req.seqlen - 1))

    # --- the lock moves with the island ---------------------------------------------------------------------------

    def release_swa_prefix_lock(self, req: Any) -> None:
        """Only once the window has left the newest island: stock counts steps since the prefill, outdated by one."""
        if left_behind(self.committed(req), req.kv.cache_protected_len, self.window, self.page_size):
            super().release_swa_prefix_lock(req)

    def evict_sliding_windows(self, req: Any, pre_len: int, *, eviction_interval: int = 1) -> None:
        """The decode-time evictor: free the request's own dead window, then let go of an island it has left."""
        before = max(req.kv.get_evicted_seqlen(SWA), req.kv.cache_protected_len)
        super().evict_sliding_windows(req, pre_len, eviction_interval=eviction_interval)
        self.metrics.freed(max(0, req.kv.get_evicted_seqlen(SWA) - before))
        if req.lock is not None:
            self.release_swa_prefix_lock(req)

    # --- accounting -----------------------------------------------------------------------------------------------

    def on_release(self, req: Any, *, checkpointed: bool) -> None:
        """SGLang is giving the request's row back: finished, aborted or retracted."""
        super().on_release(req, checkpointed=checkpointed)
        self.holders.pop(id(req), None)
        self.observe()

    def _count_hit(self, req: Any) -> None:
        """At its first stash: what the cache gave an admitted request. A match alone may be tried many times."""
        hit = req.kv.cache_protected_len
        if not hit:
            return
        ids = req.full_untruncated_fill_ids
        key = RadixKey(
            ids[: hit + int(self.tree_core.is_eagle)],  # n bigrams span n + 1 tokens
            req.extra_key,
            is_bigram=self.tree_core.is_eagle,
            cache_salt=req.cache_salt,
        )
        tail = slice(hit - self.page_size, hit)  # compared first: a page tells most requests apart
        running = any(
            other.kv.cache_protected_len >= hit
            and other.extra_key == req.extra_key
            and other.full_untruncated_fill_ids[tail] == ids[tail]
            and other.full_untruncated_fill_ids[:hit] == ids[:hit]
            for other in self.holders.values()
        )
        self.metrics.hit(hit, running=running, crossed=bool(self.tree_core.swa_tombstone_ranges(key, 0, hit)))

    def observe(self) -> None:
        """Set the gauges from the trees and pools as they are."""
        self.holders = {key: req for key, req in self.holders.items() if req.kv.holds_kv}
        holds = [self.held(req) for req in self.holders.values() if not req.finished()]
        self.metrics.held(holds, live=self.swa_evictable_size() + self.swa_protected_size())

    def held(self, req: Any) -> int:
        """SWA tokens that a running request pins: the pages it owns and the window of the island that it locks."""
        page = self.page_size
        own = -(-req.kv.kv_allocated_len // page) * page - max(
            req.kv.get_evicted_seqlen(SWA), req.kv.cache_protected_len
        )
        locked = 0
        if req.lock is not None and not req.lock.swa_released:
            locked = min(req.kv.cache_protected_len, -(-self.swa_retain_window // page) * page)
        return int(max(0, own) + locked)
