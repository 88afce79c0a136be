"""The planted fault that the gate must catch: a frontier that frees a page which is still read.

Refused at boot unless it is allowed by name, so that it never runs by accident (`launch.check_mutation`).
"""

from __future__ import annotations

import os
from typing import Any

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


def plant(cache: Any, req: Any, up_to: int) -> None:
    """Before a stash of `up_to` tokens: free the first page that the next token still reads.

    The books stay in balance, only the frontier is wrong: what decodes next, and whoever hits the island, reads slots
    that were given back (they map to the padding slot, or to another request's KV once it took them).
    """
    from sglang.srt.mem_cache.common import free_swa_out_of_window_slots

    if asked() != FRONTIER:
        return
    page = cache.page_size
    free_swa_out_of_window_slots(
        req,
        up_to,
        sliding_window_size=page,  # a page stays in any case: the tree refuses a leaf that is all tombstone
        page_size=page,
        req_to_token_pool=cache.req_to_token_pool,
        token_to_kv_pool_allocator=cache.token_to_kv_pool_allocator,
        retain_floor=((up_to - cache.swa_retain_window) // page + 1) * page,
    )
