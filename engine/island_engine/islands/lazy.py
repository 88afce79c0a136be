"""SWA retention before SGLang 0.5.16, on the 0.5.23 tree: for comparison, to measure the seed's numbers again."""

from __future__ import annotations

from typing import Any

from sglang.srt.environ import envs
from sglang.srt.mem_cache.unified_cache.components import ComponentType, SWAComponent
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache


class LazySwa(SWAComponent):
    """A chunk is inserted with all its SWA KV alive, and the request's lock pins all of it."""

    def free_out_of_window_slots(self, req: Any, pre_len: int, insert_params: Any) -> None:
        """Nothing is freed at a stash (0.5.18 made that the default)."""
        insert_params.set_evicted_seqlen(self.component_type, req.kv.get_evicted_seqlen(self.component_type))

    def _maybe_split_leaf_for_swa_lock(self, leaf: Any, cache_actions: Any) -> None:
        """The leaf is not split at the window, so the lock covers the whole chunk (0.5.16 capped it)."""


class LazyRadixCache(UnifiedRadixCache):
    """The component override needs the Python tree core, which SGLang then chooses by itself."""

    def __init__(self, params: Any) -> None:
        params.component_registry_override = {**(params.component_registry_override or {}), ComponentType.SWA: LazySwa}
        super().__init__(params)
        envs.SGLANG_SWA_EVICTION_INTERVAL.set(1)  # be asked before every step; evict_sliding_windows decides

    def release_swa_prefix_lock(self, req: Any) -> None:
        """The whole chunk stays locked while the request runs."""

    def evict_sliding_windows(self, req: Any, pre_len: int, *, eviction_interval: int = 1) -> None:
        """0.5.13 trimmed a request every w decode *steps*, not tokens (its managers/schedule_batch.py:2793): under
        speculation, which commits several tokens a step, the dead part grows to several windows before a trim.
        """
        if req.decode_batch_idx % self.swa_retain_window == 1:
            super().evict_sliding_windows(req, pre_len, eviction_interval=1)
