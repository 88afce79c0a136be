"""Admission that reserves what running requests will still take of the SWA pool, so that nobody is retracted for it.

SGLang charges the running requests nothing (its `swa_offset` starts at 0), admits a burst into the pages that their
windows have not taken yet, and retracts when they do. Here two things must hold, each at its own time:

    now:    soon(running) + demand(chunk) + what this pass admitted      <= free + evictable
    later:  growth(running) + window of the candidate and of this pass's <= free + evictable

A chunk is gone before a decode step needs its pages (ledger.soon), so it is not charged beside the later windows.
"""

from __future__ import annotations

from typing import Any

from sglang.srt.mem_cache.prefill_budget import SWAPrefillBudget

from island_engine.islands import ledger


class ReservingSWABudget(SWAPrefillBudget):
    """SGLang's budget of one admission pass, plus the reserve. Nobody running: an idle engine admits what it can."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.holds = self.tree_cache.holds
        self.held: list[Any] = []  # requests that hold KV when the pass begins
        self.windows = 0  # of those who were admitted in this pass
        self._charge: tuple[int, int] | None = None

    def begin(self) -> None:
        """The pass knows its running batch now."""
        self.held = self.holds.live()

    @property
    def busy(self) -> bool:
        """Whether somebody holds KV or was admitted in this pass, and will give back what a candidate is short of."""
        return bool(self.held or self.windows)

    @property
    def charge(self) -> tuple[int, int]:
        """What the requests that run take, soon and later, both beyond what they pin. Worked out only when a candidate
        has passed the full pool's test.
        """
        if self._charge is None:
            holds = [self.holds.hold(req) for req in self.held]
            steps = 1 + (self.holds.lag > 0)  # decode steps that are launched before a chunk is committed
            self._charge = (
                ledger.soon(holds, steps * self.holds.block, self.page_size),
                self.holds.growth(holds),
            )
        return self._charge

    @property
    def remaining_swa(self) -> int:
        """Tokens that this pass may still give to chunks."""
        return int(super().remaining_swa) - self.charge[0]

    def has_capacity(self) -> bool:
        """Asked before every candidate: whether it is worth looking at one."""
        return bool(self.remaining_total > 0 and self.remaining_current > 0)

    def swa_tokens(
        self, extend_input_len: int, max_new_tokens: int, *, chunk_limit: int | None = None, **_: Any
    ) -> int:
        """See ledger.demand. There is no host memory behind this cache."""
        cap, window = self.holds.cap, self.holds.window
        return ledger.demand(extend_input_len, max_new_tokens, cap, window, self.page_size, chunk_limit)

    def check_prefill(
        self, *, extend_input_len: int, total_tokens: int, max_new_tokens: int, chunk_limit: int | None, **_: Any
    ) -> tuple[bool, int | None]:
        """(admit?, limit of its chunk). A chunk shrinks to what there is, down to the smallest (ledger.smallest_chunk).
        SGLang must not do that because it would eat pages that decoding requests need; here these are charged. An idle
        engine takes any chunk, or nobody would ever run.
        """
        if total_tokens >= self.remaining_total:
            return False, None
        extend = self.ceil_paged_tokens(extend_input_len)
        later = self.charge[1] + self.windows + self.swa_tokens(0, extend + max_new_tokens)
        if self.busy and later > self.holds.available():
            return False, None
        if self.swa_tokens(extend, max_new_tokens, chunk_limit=chunk_limit) < self.remaining_swa:
            return True, chunk_limit
        if chunk_limit is None:
            return False, None
        chunk = min(chunk_limit, ledger.shrunk(self.remaining_swa, self.holds.window, self.page_size))
        least = self.holds.smallest_chunk if self.busy else self.page_size
        return (True, chunk) if chunk >= least and (chunk < extend or not self.busy) else (False, None)

    def fit_chunk(self, *, extend_input_len: int, max_new_tokens: int, chunk_limit: int) -> int | None:
        """A prompt that goes on waits for the others rather than take any sliver that is free."""
        least = min(extend_input_len, self.holds.smallest_chunk)
        return None if len(self.held) > 1 and chunk_limit < least else chunk_limit

    def reserve(self, extend_input_len: int, max_new_tokens: int, **kwargs: Any) -> None:
        """Charge what was admitted: its chunk now, its window later (that of a prompt that goes on is charged)."""
        super().reserve(extend_input_len, max_new_tokens, **kwargs)
        if not kwargs.get("is_chunked_continuation"):
            self.windows += self.holds.cap
