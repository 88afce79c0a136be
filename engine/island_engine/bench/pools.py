"""SGLang's pools and caches, as its scheduler would build them, in this process; and their books. Sizes in tokens."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any

import torch
from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.registry import TreeCacheBuildContext, create_unified_radix_cache
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.mem_cache.unified_cache.components import ComponentType
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler

from island_engine import plugin
from island_engine.bench.tally import Tally
from island_engine.islands.cache import IslandRadixCache
from island_engine.islands.lazy import LazyRadixCache

SWA = ComponentType.SWA
EVERYTHING = EvictParams(num_tokens=10**9, swa_num_tokens=10**9)


@dataclass
class Sizes:
    """Pool and window sizes; the SWA pool is large enough unless somebody wants pressure."""

    page: int = 16
    window: int = 64
    chunk: int = 256
    full: int = 16384
    swa: int = 4096
    rows: int = 32
    context: int = 4096


class Pools:
    """Both KV pools, the rows of requests and the cache over them. `draft`: tokens that a verify step computes (0: no
    speculation), `bigram`: EAGLE's keys.
    """

    def __init__(self, cache_class: type, sizes: Sizes, *, overlap: bool, draft: int, bigram: bool) -> None:
        self.sizes = sizes
        self.args = ServerArgs(
            model_path="dummy",
            page_size=sizes.page,
            device="cpu",
            attention_backend="torch_native",
            chunked_prefill_size=sizes.chunk,
            disable_overlap_schedule=not overlap,
        )
        if draft:
            self.args.speculative_algorithm = "EAGLE" if bigram else "NGRAM"
            self.args.speculative_num_draft_tokens = draft
            self.args.speculative_num_steps, self.args.speculative_eagle_topk = draft - 1, 1
        set_global_server_args_for_scheduler(self.args)
        shape = {"page_size": sizes.page, "dtype": torch.bfloat16, "device": "cpu"}
        layers = {"swa_attention_layer_ids": [0], "full_attention_layer_ids": [1]}
        pool = SWAKVPool(size=sizes.full, size_swa=sizes.swa, head_num=1, head_dim=1, **layers, **shape)
        self.alloc = SWATokenToKVPoolAllocator(
            size=sizes.full, size_swa=sizes.swa, kvcache=pool, need_sort=False, **shape
        )
        self.rows = ReqToTokenPool(
            size=sizes.rows, max_context_len=sizes.context, device="cpu", enable_memory_saver=False
        )
        self.tally = Tally()
        self.cache: Any = self._cache(cache_class, bigram=bigram)
        self.baseline = self.free()

    def _cache(self, cache_class: type, *, bigram: bool) -> Any:
        params = CacheInitParams(
            disable=False,
            req_to_token_pool=self.rows,
            token_to_kv_pool_allocator=self.alloc,
            page_size=self.sizes.page,
            sliding_window_size=self.sizes.window - 1,  # SGLang does not count the token that reads
            chunked_prefill_size=self.sizes.chunk,
            is_eagle=bigram,
        )
        context = TreeCacheBuildContext(
            server_args=self.args,
            params=params,
            is_hybrid_swa=True,
            is_hybrid_ssm=False,
            enable_hierarchical_cache=False,
            disable_radix_cache=False,
            tp_worker=None,
            model_config=None,
            tp_size=1,
            tp_rank=0,
            tp_group=None,
        )
        if cache_class is IslandRadixCache:
            return plugin.island_cache(context, metrics=self.tally)
        if cache_class is LazyRadixCache:
            return plugin.lazy_cache(context)
        return create_unified_radix_cache(context, cache_class=cache_class)

    def free(self) -> tuple[int, int]:
        """Free tokens of the full and of the SWA pool."""
        return self.alloc.full_available_size(), self.alloc.swa_available_size()

    def used_swa(self) -> int:
        """SWA tokens in use, by requests and by the tree."""
        return int(self.sizes.swa - self.alloc.swa_available_size())

    def pinned_swa(self) -> int:
        """SWA tokens that eviction cannot get back: locked in the tree, or owned by requests."""
        return self.used_swa() - int(self.cache.swa_evictable_size())

    def hit(self, ids: list[int]) -> int:
        """Tokens of this path that a request would find in the cache now."""
        return int(self.cache.match_prefix(MatchPrefixParams(key=RadixKey(array("q", ids), None))).device_prefix_len)

    def tombstones(self, ids: list[int]) -> list[tuple[int, int]]:
        """Ranges of this token path whose SWA slots are gone while full KV is cached."""
        return list(self.cache.tree_core.swa_tombstone_ranges(RadixKey(array("q", ids), None), 0, len(ids)))

    def orphans(self, holders: list[Any]) -> int:
        """SWA tokens in use that neither the tree nor these requests answer for; 0 when they are all that hold KV."""
        page, owned = self.sizes.page, 0
        for req in holders:
            first = max(req.kv.get_evicted_seqlen(SWA), req.kv.cache_protected_len)
            owned += -(-req.kv.kv_allocated_len // page) * page - first
        return self.used_swa() - int(self.cache.swa_evictable_size()) - int(self.cache.swa_protected_size()) - owned

    def evict_all(self) -> None:
        """Empty the cache of everything that nobody locks."""
        for _ in range(3):
            self.cache.evict(EVERYTHING)

    def leaks(self) -> list[str]:
        """What is wrong with the pools when nothing runs and everything was evicted; empty when all is back."""
        self.evict_all()
        wrong = []
        if self.free() != self.baseline:
            wrong.append(f"free (full, swa) {self.free()} instead of {self.baseline}")
        for name, pool in (("full", self.alloc.full_attn_allocator), ("swa", self.alloc.swa_attn_allocator)):
            pages = pool.get_all_free_pages()
            if len(torch.unique(pages)) != len(pages):
                wrong.append(f"a {name} page is free twice")
        if bool((self.alloc.full_to_swa_index_mapping[:-1] != 0).any()):
            wrong.append("a full slot still maps to an SWA slot")
        if self.rows.available_size() != self.sizes.rows:
            wrong.append(f"{self.sizes.rows - self.rows.available_size()} rows of requests were not given back")
        return wrong
