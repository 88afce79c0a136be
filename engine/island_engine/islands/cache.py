"""IslandRadixCache: SGLang's unified radix cache with tombstones, islands and a lock that moves with them.

Invariant that makes eager freeing safe under overlap scheduling: a request's SWA slots are freed, or its SWA lock is
dropped, only for positions at least a window behind the last token whose result was processed. A step in flight is at a
later position and reads less far back; a freed slot that is given out again is written only by kernels that are enqueued
later on the same stream.
"""

from __future__ import annotations

from typing import Any

from sglang.srt.mem_cache.unified_cache.components import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

from island_engine import guards
from island_engine.islands import mutation
from island_engine.islands.frontier import frontier, island_due, left_behind
from island_engine.metrics import IslandMetrics

SWA = ComponentType.SWA
QUARTER = 4  # a decode island every quarter of a prefill chunk, unless told otherwise


class IslandRadixCache(UnifiedRadixCache):
    """One per scheduler. `interval`: committed tokens between decode islands of a request."""

    def __init__(self, params: Any) -> None:
        super().__init__(params)
        chunk = params.chunked_prefill_size or 0
        self.interval = guards.interval() or max(
            self.page_size, chunk // QUARTER if chunk > 0 else self.swa_retain_window
        )
        self.metrics = IslandMetrics()
        self.holders: dict[int, Any] = {}  # id(request) -> request that holds KV, for the hold gauges
        self._frontier: int | None = None  # set while a stash runs
        self._decoding = False  # set while a decode island is published; a prompt's last stash may see its first token too

    # --- islands --------------------------------------------------------------------------------------------------

    def checkpoint_into_tree(self, req: Any, *, up_to: int, **kwargs: Any) -> None:
        """Insert the first `up_to` tokens: what is before the frontier becomes tombstone, the rest an island."""
        start, freed = req.kv.cache_protected_len, req.kv.get_evicted_seqlen(SWA)
        allowed = frontier(up_to, self.swa_retain_window, self.page_size)
        mutation.plant(self, req, up_to)
        self._frontier = allowed
        try:
            super().checkpoint_into_tree(req, up_to=up_to, **kwargs)
        finally:
            self._frontier = None
        if req.finished() or not req.kv.holds_kv:
            self.holders.pop(id(req), None)
        elif req.kv.cache_protected_len > start:
            self.holders[id(req)] = req
            reached = req.kv.get_evicted_seqlen(SWA)  # everything the request owned before it is freed
            self.metrics.published("decode" if self._decoding else "prefill", tombstoned=max(0, reached - start))
            self.metrics.freed(max(0, reached - max(freed, start)))
            self.metrics.noop(max(0, min(allowed, freed) - start))  # the evictor was here before: nothing to free again
            if self._reads_freed(req, up_to):
                self.metrics.violation()
        self.observe()

    def _reads_freed(self, req: Any, length: int) -> bool:
        """Whether the window behind token `length` holds a position without an SWA slot: the next token would read it."""
        row = self.req_to_token_pool.req_to_token[
            req.kv.req_pool_idx, max(0, length - self.swa_retain_window + 1) : length
        ]
        mapped = self.token_to_kv_pool_allocator.full_to_swa_index_mapping[row.long()]
        return bool((mapped <= 0).any())

    def swa_retain_floor(self, req: Any) -> int | None:
        """Stock frees one page more at a stash than the frontier allows (base_prefix_cache.py:708 is asked by it)."""
        return super().swa_retain_floor(req) if self._frontier is None else self._frontier

    def decode_island(self, req: Any) -> bool:
        """Publish prompt and generation when the request has committed `interval` tokens since its last island."""
        kv = req.kv
        if self.disable or not kv.holds_kv or req.lock is None or req.finished() or req.is_retracted:
            return False
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
        """Tokens whose ids are known and whose KV is written; under overlap kv_committed_len counts the step in flight."""
        return int(min(req.kv.kv_committed_len, req.seqlen - 1))

    # --- the lock moves with the island ---------------------------------------------------------------------------

    def release_swa_prefix_lock(self, req: Any) -> None:
        """Only once the window has left the newest island: stock counts steps since the prefill, which an island outdates."""
        if left_behind(self.committed(req), req.kv.cache_protected_len, self.swa_retain_window, self.page_size):
            super().release_swa_prefix_lock(req)

    def evict_sliding_windows(self, req: Any, pre_len: int, *, eviction_interval: int = 1) -> None:
        """The decode-time evictor: free the request's own dead window, then let go of an island it has left."""
        before = req.kv.get_evicted_seqlen(SWA)
        super().evict_sliding_windows(req, pre_len, eviction_interval=eviction_interval)
        freed = req.kv.get_evicted_seqlen(SWA) - max(before, req.kv.cache_protected_len)
        if freed > 0:
            self.metrics.freed(freed)
            self.observe()
        if req.lock is not None:
            self.release_swa_prefix_lock(req)

    # --- accounting -----------------------------------------------------------------------------------------------

    def match_prefix(self, params: Any) -> Any:
        """SGLang's match, counted: whose tokens were hit, and whether the path crossed a tombstone."""
        result = super().match_prefix(params)
        hit = int(result.device_prefix_len)
        if params.req is not None and hit:
            crossed = bool(self.tree_core.swa_tombstone_ranges(params.key, 0, hit))
            self.metrics.hit(hit, running=self._still_running(params, hit), crossed=crossed)
        return result

    def _still_running(self, params: Any, hit: int) -> bool:
        """Whether a request that still runs published what was hit: its tokens are the same up to there."""
        wanted = list(params.key.token_ids[:hit])
        tail = wanted[-self.page_size :]
        for req in self.holders.values():
            if req is params.req or req.kv.cache_protected_len < hit:
                continue
            tokens = req.full_untruncated_fill_ids
            if list(tokens[hit - len(tail) : hit]) == tail and list(tokens[:hit]) == wanted:
                return True
        return False

    def observe(self) -> None:
        """Set the gauges from the trees and pools as they are."""
        alive = [r for r in self.holders.values() if r.kv.holds_kv and not r.finished()]
        self.holders = {id(r): r for r in alive}
        self.metrics.held([self.held(r) for r in alive], live=self.swa_evictable_size() + self.swa_protected_size())

    def held(self, req: Any) -> int:
        """SWA tokens that a running request pins: its own slots and the island that it locks."""
        own = req.kv.kv_allocated_len - max(req.kv.get_evicted_seqlen(SWA), req.kv.cache_protected_len)
        locked = 0
        if req.lock is not None and not req.lock.swa_released:
            locked = min(req.kv.cache_protected_len, self.swa_retain_window + self.page_size)
        return int(max(0, own) + locked)
