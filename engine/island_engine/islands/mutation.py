"""The planted fault that the gate must catch: a frontier that frees pages which are still read.

Refused at boot unless it is allowed by name, so that it never runs by accident (`guards.check_mutation`).
"""

from __future__ import annotations

import os
from typing import Any

from island_engine.islands.frontier import frontier

MUTATE, ALLOW = "ISLAND_MUTATE", "ISLAND_ALLOW_MUTATION"
FRONTIER = "frontier"


def asked() -> str:
    """The mutation that the environment asks for; ValueError (one sentence) when it is unknown or not allowed."""
    kind = os.environ.get(MUTATE, "")
    if kind and kind != FRONTIER:
        raise ValueError(f"{MUTATE}={kind} is not a mutation: use {FRONTIER}, or unset it")
    if kind and os.environ.get(ALLOW) != "1":
        raise ValueError(
            f"{MUTATE}={kind} plants wrong answers: unset it, or set {ALLOW}=1 where that is what you want"
        )
    return kind


def wrong_frontier(length: int, window: int, page: int) -> int:
    """Two pages too far: one more than the slack that `frontier` leaves, so the window of the next token is cut."""
    return max(0, (length - window + page) // page * page)


def plant(cache: Any, req: Any, up_to: int) -> bool:
    """After an island of `up_to` tokens: give its SWA pages up to the wrong frontier back, unknown to the tree.

    Whoever decodes on, hits the island or extends it reads what is in the pages that took their place; the books of
    pool and tree stay in balance, so that nothing but the answers tells. Whether there was something to free.
    """
    window, page, pool = cache.window, cache.page_size, cache.token_to_kv_pool_allocator
    first, end = frontier(up_to, window, page), min(wrong_frontier(up_to, window, page), req.kv.cache_protected_len)
    if asked() != FRONTIER or first >= end:
        return False
    slots = cache.req_to_token_pool.req_to_token[req.kv.req_pool_idx, first:end].long()
    freed = pool.full_to_swa_index_mapping[slots]
    slots, freed = slots[freed > 0], freed[freed > 0]
    others = pool.swa_attn_allocator.alloc(len(slots)) if len(slots) else None
    if others is None:  # the pool is full, or these are tombstones already
        return False
    pool.set_full_to_swa_mapping(slots, others)
    pool.swa_attn_allocator.free(freed)
    return True
