"""Every place where this package touches SGLang 0.5.23, as data: what, where it was read, why.

The hooks take their targets from here; tests/integration/engine/test_touchpoints.py fails when one of them has moved.
Paths are under sglang/srt.
"""

from __future__ import annotations

from dataclasses import dataclass

SRT = "sglang.srt."


@dataclass(frozen=True)
class Touch:
    """One touch point. `file`:`line` is where its definition starts (a decorator counts)."""

    name: str
    file: str
    line: int
    why: str

    @property
    def target(self) -> str:
        """The dotted name, as HookRegistry and pkgutil.resolve_name take it."""
        return SRT + self.file.removesuffix(".py").replace("/", ".") + "." + self.name


_RESULTS = "managers/scheduler_components/batch_result_processor.py"
_TREE = "mem_cache/unified_radix_cache.py"
_SWA = "mem_cache/unified_cache/components/swa.py"
_PREFIX = "mem_cache/base_prefix_cache.py"
_CORE = "mem_cache/unified_cache/unified_tree_core_interface.py"
_REGISTRY = "mem_cache/registry.py"

# Hooked: SGLang's HookRegistry wraps these.
STEP_RESULT = Touch(
    "SchedulerBatchResultProcessor._handle_finish_state_updated_req",
    _RESULTS,
    1377,
    "once per request and decode step, after its new tokens are in output_ids: decode islands",
)
SCHEDULER = Touch("Scheduler.__init__", "managers/scheduler.py", 465, "check what was built; keep why it died")
DRAIN = Touch(
    "TokenizerManager.sigterm_watchdog",
    "managers/tokenizer_manager.py",
    3508,
    "SIGTERM: accepts while it ends",
)
PROCESSES = Touch("_set_envs_and_config", "entrypoints/engine.py", 1878, "how processes start: fork on a CPU")
CONFIG = Touch("HfModelConfigParser.parse", "utils/hf_transformers/config.py", 217, "text-only Gemma 4: both shapes")
HOOKED = (STEP_RESULT, SCHEDULER, DRAIN, PROCESSES, CONFIG)

# Overridden or called.
USED = (
    Touch("UnifiedRadixCache", _TREE, 199, "the base class: keeps the Rust tree core"),
    Touch("UnifiedRadixCache.checkpoint_into_tree", _TREE, 1164, "one island: insert, tombstones, lock moved"),
    Touch("UnifiedRadixCache.checkpoint", _TREE, 1158, "decode islands enter here: sessions keep their own record"),
    Touch("UnifiedRadixCache.swa_retain_floor", _TREE, 3771, "asked while a stash frees: the frontier"),
    Touch("UnifiedRadixCache.release_swa_prefix_lock", _TREE, 1116, "drops the SWA half of a request's lock"),
    Touch("UnifiedRadixCache.on_release", _TREE, 1151, "a request gives its KV back"),
    Touch("BasePrefixCache.evict_sliding_windows", _PREFIX, 690, "the decode-time evictor"),
    Touch("BasePrefixCache.swa_retain_window", _PREFIX, 682, "the window, in tokens"),
    Touch("SWAComponent.free_out_of_window_slots", _SWA, 1043, "frees at a stash; lazy does not"),
    Touch("SWAComponent._maybe_split_leaf_for_swa_lock", _SWA, 593, "caps the lock; lazy does not"),
    Touch("free_swa_out_of_window_slots", "mem_cache/common.py", 75, "page and window arithmetic of a stash"),
    Touch("RadixKey", "mem_cache/radix_cache.py", 59, "the key of a prefix"),
    Touch("UnifiedTreeCoreInterface.swa_tombstone_ranges", _CORE, 745, "whether a hit crosses a tombstone"),
    Touch("create_unified_radix_cache", _REGISTRY, 149, "builds the cache of a class that we name"),
    Touch("register_radix_cache_backend", _REGISTRY, 58, "makes --radix-cache-backend islands and lazy known"),
    Touch("register_attention_backend", "layers/attention/attention_registry.py", 47, "attention of the CPU platform"),
    Touch("SRTPlatform", "platforms/interface.py", 76, "the base of the CPU platform"),
    Touch("set_prometheus_multiproc_dir", "utils/common.py", 2825, "before it nobody may import prometheus_client"),
    Touch("prepare_server_args", "server_args.py", 668, "SGLang's own flags"),
)
