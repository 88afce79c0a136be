"""The running requests as the ledger sees them: SGLang's request objects in, `ledger.Hold` out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sglang.srt.mem_cache.unified_cache.components import ComponentType

from island_engine.islands import ledger

SWA = ComponentType.SWA


@dataclass(slots=True)
class Running:
    """A request that was published and not released. `due`: committed tokens at which its next decode island comes,
    None until its prompt is through.
    """

    req: Any
    due: int | None = None


class Holds:
    """The requests of one scheduler that hold KV. `lag`, `block`: as in the ledger, set when the cache is built."""

    def __init__(self, cache: Any, *, window: int, chunk: int) -> None:
        self.cache = cache
        self.pool = cache.token_to_kv_pool_allocator
        self.window, self.page = window, cache.page_size
        # Kept free for those who wait; of a small pool half, else one request would run at a time.
        self.chunk = min(chunk if chunk > 0 else window, self.pool.size_swa // 2)
        self.lag, self.block = 0, 1
        self.published: dict[int, Running] = {}  # by id(request)
        self.adder: Any = None  # SGLang's last admission pass
        self.parked = False  # in it, a prompt in the middle of its chunks has to wait
        self.ordinal = 0  # of prompts that came through

    @property
    def cap(self) -> int:
        """See ledger.cap."""
        return ledger.cap(self.window, self.page, self.lag)

    @property
    def smallest_chunk(self) -> int:
        """See ledger.smallest_chunk."""
        return ledger.smallest_chunk(self.chunk)

    @property
    def waiting(self) -> int:
        """Requests that the last admission pass left in the queue."""
        return 0 if self.adder is None else max(0, self.adder.waiting_queue_len - len(self.adder.can_run_list))

    def live(self) -> list[Any]:
        """Every request that holds KV: published ones, the running batch, and what was admitted last."""
        reqs = {key: running.req for key, running in self.published.items()}
        if self.adder is not None:
            batch = self.adder.running_batch
            reqs |= {id(req): req for req in (*(batch.reqs if batch else ()), *self.adder.can_run_list)}
        return [req for req in reqs.values() if req.kv.holds_kv and not req.finished()]

    def _known(self) -> set[int]:
        """The ids of those of `live`, and maybe of some who hold nothing."""
        known = set(self.published)
        if self.adder is not None:
            known.update(map(id, self.adder.running_batch.reqs if self.adder.running_batch else ()))
            known.update(map(id, self.adder.can_run_list))
        return known

    def processed(self, req: Any) -> bool:
        """Whether the result of its whole prompt was processed; until then its last chunk is in flight. SGLang's count
        of decode steps does not tell: with speculation it is one already while slots for the first of them are
        allocated (eagle_utils.py:861).
        """
        running = self.published.get(id(req))
        if running is not None:
            return running.due is not None
        return req.decode_batch_idx >= 1 and not self.cache.publishable(req)

    def own(self, req: Any) -> int:
        """SWA tokens of the pages that a request owns."""
        kv = req.kv
        return int(ledger.up(kv.kv_allocated_len, self.page) - max(kv.get_evicted_seqlen(SWA), kv.cache_protected_len))

    def hold(self, req: Any) -> ledger.Hold:
        """What it holds now and will."""
        kv, now = req.kv, self.own(req)
        left = max(0, req.sampling_params.max_new_tokens - len(req.output_ids)) + self.lag
        if not self.processed(req):
            hold = ledger.computing(now, len(req.full_untruncated_fill_ids), left, self.cap, self.page)
            release = left if req.lock is None else self.window + left  # it may publish its tail, and lock that
        else:
            hold = ledger.decoding(now, -kv.kv_allocated_len % self.page, left, self.cap, self.page)
            release = max(0, kv.cache_protected_len + self.window - committed(req))
        if req.lock is None or req.lock.swa_released:
            return hold
        return replace(hold, island=req.lock.node, release_in=release)

    def growth(self, holds: list[ledger.Hold], locking: int = 0) -> int:
        """See ledger.growth. `locking`: tokens that the tree is about to lock beside what it pins now."""
        locked = int(self.cache.swa_protected_size()) + locking
        return ledger.growth(holds, locked, self.window, self.page, self.block)

    def growth_if_published(self, req: Any) -> int:
        """The same, of all, if `req` published up to its last committed token now, and locked that island."""
        others = [self.hold(other) for other in self.live() if other is not req]
        left = max(0, req.sampling_params.max_new_tokens - len(req.output_ids)) + self.lag
        mine = replace(ledger.decoding(0, 0, left, self.cap, self.page), island=req.rid, release_in=self.window)
        return self.growth([*others, mine], locking=ledger.up(self.window, self.page))

    def available(self) -> int:
        """SWA tokens that are free or can be evicted."""
        return int(self.pool.swa_available_size() + self.cache.swa_evictable_size())

    @property
    def idle_slots(self) -> bool:
        """Whether slots for a chunk lie idle. Islands inside a chunk are worth these, as where the full pool binds; not
        cached windows of others, which they would drive out.
        """
        return bool(self.pool.swa_available_size() >= self.chunk)

    def roomy(self, req: Any) -> bool:
        """Whether a prompt's tail may be published: beside what everybody will take then, a chunk fits and a window of
        each waiting request that the full pool can take; else a burst would be half admitted and then wait.
        """
        more = 0
        if waiting := self.waiting:
            live = self.live()
            mean = max(1, sum(other.kv.kv_allocated_len for other in live) // max(1, len(live)))
            more = min(waiting, max(0, self.pool.size_full // mean - len(live)))
        return self._fits(req, self.chunk + more * self.cap)

    def affordable(self, req: Any) -> bool:
        """Whether a decode island may be published: it must leave a chunk to those who wait. If nobody waits it may
        borrow that, down to the smallest chunk.
        """
        return self._fits(req, self.chunk if self.waiting else self.smallest_chunk)

    def bearable(self, req: Any) -> bool:
        """Whether a tail that others share may be published: everybody's windows still fit, whatever waits."""
        return self._fits(req, 0)

    def _fits(self, req: Any, reserve: int) -> bool:
        left = self.available() - self.window - self.page - reserve
        most = (len(self._known()) + 1) * self.cap  # nobody takes more: where that fits, the sum need not be worked out
        return bool(most <= left or self.growth_if_published(req) <= left)

    def slide(self, need: int) -> None:
        """Free dead window pages of running requests until `need` tokens came back: what SGLang's own evictor does
        later in the same step (ScheduleBatch.maybe_evict_swa), behind the same frontier, and never of a prompt whose
        result is still to come: its window would be gone when it is published.
        """
        if need <= 0:
            return
        alone = self.pool.free_group is None
        if alone:
            self.pool.free_group_begin()
        for req in self.live():
            if need <= 0:
                break
            if self.processed(req):
                before = self.own(req)
                self.cache.evict_sliding_windows(req, req.seqlen - 1, eviction_interval=1)
                need -= before - self.own(req)
        if alone:
            self.pool.free_group_end()


def committed(req: Any) -> int:
    """Tokens with a known id and written KV; under overlap kv_committed_len counts the step in flight too."""
    return int(min(req.kv.kv_committed_len, req.seqlen - 1))
