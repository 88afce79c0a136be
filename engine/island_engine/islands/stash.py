"""A stash: what a running request has computed goes into the tree, and its lock moves there.

Does what SGLang's own does (UnifiedRadixCache.checkpoint_into_tree) for a tree of full and SWA KV, with one copy of the
tokens instead of four; and slots are read back from the tree only where it kept those of somebody else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from sglang.srt.mem_cache.base_prefix_cache import InsertParams

from island_engine.islands import ledger
from island_engine.islands.holds import SWA


@dataclass(frozen=True, slots=True)
class Stashed:
    """[start, end): the tokens that are new in the tree, whole pages. `alone`: nobody else had published any of them,
    so the tree took the request's slots. `dead`: those from `start` on whose SWA slots the request had given back by
    then. `freed`: SWA tokens that it gave back now.
    """

    start: int
    end: int
    alone: bool
    dead: int
    freed: int


def stash(cache: Any, req: Any, up_to: int) -> Stashed:
    """Insert the first `up_to` tokens of a request that goes on, or less: at a branch point SGLang stops once. Windows
    that it owns are freed as far as `cache.swa_retain_floor` lets them. AssertionError: the tree has more already.
    """
    kv, swa = req.kv, cache.components[SWA]
    start = kv.cache_protected_len
    given = InsertParams(
        prev_prefix_len=start,
        inserted_len=kv.cache_inserted_len,
        priority=req.priority or 0,
        session_id=req.session_id,  # KV events name it
    )
    branch = swa.prepare_for_caching_req(req=req, insert_params=given, token_ids_len=up_to, is_finished=False)
    length = (up_to if branch is None else branch) - int(cache.tree_core.is_eagle)  # n bigrams span n + 1 tokens
    end = ledger.down(length, cache.page_size)
    if end < start:  # the request would own again what is the tree's
        raise AssertionError(f"{req.rid}: {up_to} tokens reach to {end}, and the tree has {start} of it")
    first = _owned_from(cache, kv)
    swa.free_out_of_window_slots(req, length - 1, given)
    freed = max(0, kv.get_evicted_seqlen(SWA) - first)
    given.key = cache.key(req, end)
    given.value = cache.req_to_token_pool.req_to_token[kv.req_pool_idx, :end].to(torch.int64, copy=True)
    result = cache.insert(given)
    node, alone = result.last_device_node, result.prefix_len <= start
    if not alone:
        slots = cache.path_device_indices(node)
        cache.req_to_token_pool.write((kv.req_pool_idx, slice(start, end)), slots[start:])
    cache.unlock(req.lock)
    req.lock, req.last_node = cache.lock(node), node
    kv.cache_protected_len, kv.cache_inserted_len = end, max(kv.cache_inserted_len, end)
    dead = max(0, min(kv.get_evicted_seqlen(SWA), end) - start)  # a branch stop frees on behind `end`
    first = _owned_from(cache, kv)
    swa.cleanup_after_caching_req(req, is_finished=False, insert_result=result, insert_params=given)
    return Stashed(start, end, alone, dead, freed + max(0, kv.get_evicted_seqlen(SWA) - first))


def _owned_from(cache: Any, kv: Any) -> int:
    """Where the SWA slots begin that a request owns itself."""
    return int(max(kv.get_evicted_seqlen(SWA), kv.swa_dead_lo(cache.page_size)))
