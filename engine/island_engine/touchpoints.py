"""Every place where this package touches SGLang 0.5.23, as data: what, where it was read, why.

The hooks take their targets from here; tests/integration/engine/test_touchpoints.py fails when one of them has moved.
Paths are under sglang/srt, those of kernels under sglang.
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
        return self.module + "." + self.name

    @property
    def module(self) -> str:
        """The dotted name of the file."""
        return ("sglang." if self.file.startswith("kernels/") else SRT) + self.file.removesuffix(".py").replace(
            "/", "."
        )


_RESULTS = "managers/scheduler_components/batch_result_processor.py"
_TREE = "mem_cache/unified_radix_cache.py"
_SWA = "mem_cache/unified_cache/components/swa.py"
_PREFIX = "mem_cache/base_prefix_cache.py"
_CORE = "mem_cache/unified_cache/unified_tree_core_interface.py"
_REGISTRY = "mem_cache/registry.py"
_POOL = "mem_cache/allocator/swa.py"
_SCHEDULER = "managers/scheduler.py"
_POLICY = "managers/schedule_policy.py"
_BATCH = "managers/schedule_batch.py"
_ALLOCATION = "mem_cache/allocation.py"
_BUDGET = "mem_cache/prefill_budget.py"

# Hooked: SGLang's HookRegistry wraps these.
STEP_RESULT = Touch(
    "SchedulerBatchResultProcessor._handle_finish_state_updated_req",
    _RESULTS,
    1377,
    "once per request and decode step, after its new tokens are in output_ids: decode islands",
)
BUDGET = Touch(
    "SWATokenToKVPoolAllocator.create_prefill_budget",
    _POOL,
    173,
    "a pass: reserve what running requests take",
)
ADMISSION = Touch("PrefillAdder.__init__", "managers/schedule_policy.py", 608, "who runs, how many wait")
GOES_ON = Touch(
    "PrefillAdder.add_chunked_req",
    "managers/schedule_policy.py",
    1140,
    "a prompt between its chunks may wait",
)
CANDIDATE = Touch("PrefillAdder.add_one_req", "managers/schedule_policy.py", 1395, "and then nobody is admitted")
MAKE_ROOM = Touch(
    "SWATokenToKVPoolAllocator.evict_to_free_tokens",
    _POOL,
    210,
    "before allocations and checks: slide windows",
)
RETRACTION = Touch("ScheduleBatch.release_req", "managers/schedule_batch.py", 3582, "the tree keeps what was generated")
SCHEDULER = Touch("Scheduler.__init__", "managers/scheduler.py", 465, "check what was built; keep why it died")
DRAIN = Touch(
    "TokenizerManager.sigterm_watchdog",
    "managers/tokenizer_manager.py",
    3508,
    "SIGTERM: accepts while it ends",
)
PROCESSES = Touch(
    "_set_envs_and_config", "entrypoints/engine.py", 1878, "before processes start: refuse, announce; fork on a CPU"
)
EXACT = Touch(
    "ModelRunner.maybe_enable_batch_invariant_mode",
    "model_executor/model_runner.py",
    842,
    "--enable-deterministic-inference on a CPU: fixed tiles instead of Triton kernels",
)
CONFIG = Touch("HfModelConfigParser.parse", "utils/hf_transformers/config.py", 217, "text-only Gemma 4: both shapes")
SPECULATIVE_OVERLAP = Touch(
    "_disable_overlap_schedule_for_cpu",
    "arg_groups/speculative_hook.py",
    66,
    "its own CPU kernels lack it, ours do not",
)

# Replaced where steps are paced instead of computed (island_engine.paced, bench arms and best); nowhere else.
FORWARD = Touch("TpModelWorker.forward_batch_generation", "managers/tp_worker.py", 622, "no model: a step takes time")
RESULT = Touch("Scheduler.process_batch_result", "managers/scheduler.py", 5073, "waits for the step that it reads")
KV_BUFFERS = Touch("MHATokenToKVPool._create_buffers_normal", "mem_cache/memory_pool.py", 2580, "one row seen as many")
KV_COPY = Touch("MHATokenToKVPool._init_kv_copy_and_warmup", "mem_cache/memory_pool.py", 2375, "a Triton kernel")
LAST_SLOTS = Touch("get_last_loc", "mem_cache/allocation.py", 108, "a Triton kernel")
ASSIGN_SLOTS = Touch("assign_req_to_token_pool_func", "mem_cache/allocation.py", 737, "a Triton kernel")
UNIFIED_FLAGS = Touch(
    "handle_unified_memory_pool", "arg_groups/kv_cache_hook.py", 528, "lists the audited speculative algorithms"
)
UNIFIED_TREES = Touch("reject_out_of_tree_path", "platforms/interface.py", 300, "refuses platforms of plugins")
UNIFIED_ZERO = Touch(
    "UnifiedMHATokenToKVPool.zero_physical_pages", "mem_cache/unified_memory_pool.py", 905, "KV is dummy"
)
UNIFIED_MOVE = Touch(
    "UnifiedMHATokenToKVPool.move_physical_pages", "mem_cache/unified_memory_pool.py", 883, "KV is dummy"
)
# Replaced on a CPU that speculates (island_engine.platform.speculation), with KV_COPY, LAST_SLOTS and ASSIGN_SLOTS.
_SPEC_TREE = "kernels/ops/speculative/spec_tree.py"
_DRAFTS = "speculative/draft_utils.py"
BUILD_TREE = Touch("build_tree_kernel_efficient_func", _SPEC_TREE, 367, "refuses platforms of plugins")
VERIFY_GREEDY = Touch("verify_tree_greedy_func", _SPEC_TREE, 480, "refuses platforms of plugins")
DRAFT_SLOTS = Touch(
    "assign_draft_cache_locs_contiguous_func", "kernels/ops/speculative/cache_locs.py", 85, "a Triton kernel"
)
BONUS = Touch("fill_bonus_tokens_func", "kernels/ops/speculative/eagle.py", 32, "a Triton kernel")
KEEP_ACCEPTED = Touch("move_accept_tokens_to_target_kvcache", "speculative/spec_utils.py", 859, "Triton kernels")
DRAFT_DECODE = Touch("DraftBackendFactory._create_triton_decode_backend", _DRAFTS, 250, "our attention")
DRAFT_EXTEND = Touch("DraftBackendFactory._create_triton_prefill_backend", _DRAFTS, 456, "our attention")
RELAY = Touch("gather_spec_extras", "kernels/ops/speculative/gather_spec_extras.py", 60, "a Triton kernel")
GREEDY = Touch("_verify_uses_greedy", "speculative/eagle_utils.py", 485, "sampling takes kernels of a GPU")
SPECULATION = (BUILD_TREE, VERIFY_GREEDY, GREEDY, DRAFT_SLOTS, BONUS, KEEP_ACCEPTED, DRAFT_DECODE, DRAFT_EXTEND, RELAY)
# Replaced in the benches only: sockets become virtual clients.
RECEIVE = Touch(
    "SchedulerRequestReceiver._pull_raw_reqs", "managers/scheduler_components/request_receiver.py", 112, "requests in"
)
SEND = Touch("SenderWrapper.send_output", "managers/scheduler_components/output_sender.py", 12, "answers out")
RETRACT = Touch("ScheduleBatch.retract_decode", "managers/schedule_batch.py", 3451, "counted")
PACED = (
    FORWARD,
    RESULT,
    KV_BUFFERS,
    KV_COPY,
    LAST_SLOTS,
    ASSIGN_SLOTS,
    UNIFIED_FLAGS,
    UNIFIED_TREES,
    UNIFIED_ZERO,
    UNIFIED_MOVE,
    RECEIVE,
    SEND,
    RETRACT,
)
HOOKED = (
    STEP_RESULT,
    BUDGET,
    ADMISSION,
    GOES_ON,
    CANDIDATE,
    MAKE_ROOM,
    RETRACTION,
    SCHEDULER,
    DRAIN,
    PROCESSES,
    EXACT,
    CONFIG,
    SPECULATIVE_OVERLAP,
    *PACED,
    *SPECULATION,
)

# Overridden or called.
USED = (
    Touch("UnifiedRadixCache", _TREE, 199, "the base class: keeps the Rust tree core"),
    Touch("UnifiedRadixCache.checkpoint_into_tree", _TREE, 1164, "done by a stash of ours while a request goes on"),
    Touch("UnifiedRadixCache.insert", _TREE, 657, "what a stash inserts, and how much was there"),
    Touch("UnifiedRadixCache.path_device_indices", _TREE, 3965, "the slots of others that a stash finds in the tree"),
    Touch("UnifiedRadixCache.lock", _TREE, 1094, "a stash moves the request's lock to its island"),
    Touch("UnifiedRadixCache.unlock", _TREE, 1103, "a stash moves the request's lock to its island"),
    Touch("InsertParams", _PREFIX, 75, "what a stash inserts"),
    Touch("UnifiedRadixCache.checkpoint", _TREE, 1158, "decode islands enter here: sessions keep their own record"),
    Touch("UnifiedRadixCache.swa_retain_floor", _TREE, 3771, "asked while a stash frees: the frontier"),
    Touch("UnifiedRadixCache.release_swa_prefix_lock", _TREE, 1116, "drops the SWA half of a request's lock"),
    Touch("UnifiedRadixCache.on_release", _TREE, 1151, "a request gives its KV back"),
    Touch("UnifiedRadixCache.release_swa", _TREE, 1108, "a private window needs no SWA lock"),
    Touch("SWAComponent.prepare_for_caching_req", _SWA, 999, "an insert stops at a branch point once"),
    Touch("SWAComponent.cleanup_after_caching_req", _SWA, 1051, "frees behind a branch point"),
    Touch("SWAPrefillBudget", _BUDGET, 171, "the base of the reserving budget"),
    Touch("SWAPrefillBudget.check_prefill", _BUDGET, 230, "replaced: admission of one request"),
    Touch("get_alloc_len_per_decode", "mem_cache/allocation_sizing.py", 28, "most that a step may commit"),
    Touch("get_alloc_reserve_per_decode", "mem_cache/allocation_sizing.py", 64, "tokens allocated ahead of a commit"),
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
    Touch("UnquantizedLinearMethod.apply", "layers/quantization/unquant.py", 572, "exact mode on a CPU: by tiles"),
    Touch("LogitsProcessor._compute_lm_head", "layers/logits_processor.py", 1144, "exact mode on a CPU: by tiles"),
    Touch("SRTPlatform", "platforms/interface.py", 76, "the base of the CPU platform"),
    Touch("set_prometheus_multiproc_dir", "utils/common.py", 2825, "before it nobody may import prometheus_client"),
    Touch("prepare_server_args", "server_args.py", 668, "SGLang's own flags"),
    Touch(
        "resolving_view", "arg_groups/model_override_base.py", 120, "flags as resolved: what does not fit is refused"
    ),
    Touch("model_config_of", "arg_groups/model_override_base.py", 192, "the model as SGLang sees it, before it boots"),
    Touch("resolution_result", "arg_groups/overrides.py", 178, "the ratio in effect"),
    Touch("uses_ssm_state", "mem_cache/kv_cache_builder.py", 173, "Mamba and linear attention"),
    Touch("ReqKvInfo.swa_dead_lo", "managers/schedule_batch.py", 994, "where an eager free begins: counted"),
    # Paced engines and the benches arms and best.
    Touch("MultiEndedAllocator.alloc_extend", "mem_cache/allocator/unified_sub_pool.py", 1193, "a Triton kernel"),
    Touch("MultiEndedAllocator.alloc_decode", "mem_cache/allocator/unified_sub_pool.py", 1264, "a Triton kernel"),
    Touch(
        "NGRAMWorker._prepare_for_speculative_decoding",
        "speculative/ngram_worker.py",
        307,
        "what tree_links stands for",
    ),
    Touch("_derive_tree_links", "speculative/ngram_worker.py", 48, "SGLang's own form of that for CPUs, of the links"),
    Touch(
        "prepare_for_draft",
        "speculative/eagle_worker_common.py",
        241,
        "where the branches of a draft lie in the page table",
    ),
    Touch("organize_draft_results", "speculative/eagle_utils.py", 100, "the candidates that build_tree reads"),
    Touch("CustomSpecAlgo", "speculative/spec_registry.py", 26, "block speculation by the plugin API"),
    Touch("BaseSpecWorker", "speculative/base_spec_worker.py", 152, "its worker"),
    Touch("Scheduler.event_loop_overlap", "managers/scheduler.py", 2060, "the loop that runs in virtual time"),
    # The in-process benches: bench/rig.py stands in for the scheduler's loop and must do what it does, in its order.
    Touch("Scheduler._get_new_batch_prefill_raw", _SCHEDULER, 4079, "rig: the order of an admission pass"),
    Touch("Scheduler.update_running_batch", _SCHEDULER, 4459, "rig: capacity check, retraction, decode"),
    Touch("PrefillAdder.budget_state", _POLICY, 874, "rig: whether a pass goes on"),
    Touch("ScheduleBatch.check_decode_mem", _BATCH, 3432, "rig: before a decode step"),
    Touch("ScheduleBatch.maybe_evict_swa", _BATCH, 4068, "rig: when windows are trimmed"),
    Touch("Req.init_next_round_input", _BATCH, 1692, "rig: the match before an admission"),
    Touch("Req.update_finish_state", _BATCH, 2007, "rig: when a request ends"),
    Touch("Req.next_output_finishes_by_length", _BATCH, 1661, "rig: who ends with the step in flight"),
    Touch("alloc_for_extend", _ALLOCATION, 374, "rig: slots of a chunk"),
    Touch("alloc_for_decode", _ALLOCATION, 729, "rig: slots of a decode step"),
    Touch("alloc_paged_token_slots_extend", _ALLOCATION, 175, "rig: slots of a verify step"),
    Touch("page_aligned_decode_alloc_lens", "mem_cache/allocation_sizing.py", 73, "rig: how many of them"),
    Touch("eagle_prepare_for_decode", "speculative/eagle_utils.py", 857, "rig: batches.allocate_ahead does the same"),
    Touch("checkpoint_kv_cache", "mem_cache/common.py", 271, "rig: a prompt is committed"),
    Touch("release_kv_cache", "mem_cache/common.py", 400, "rig: a request gives its KV back"),
    Touch(
        "NewTokenRatioTracker",
        "managers/scheduler_components/new_token_ratio_tracker.py",
        13,
        "rig: share of new tokens that admission charges",
    ),
    Touch("CacheInitParams", "mem_cache/cache_init_params.py", 19, "rig: what a cache is built of"),
    Touch("TreeCacheBuildContext", _REGISTRY, 34, "rig: the same, for a backend"),
    Touch("set_global_server_args_for_scheduler", "server_args.py", 627, "rig: the flags in effect"),
    # The simulated benches: a scheduler in virtual time.
    Touch("spawn_world_rank", "runtime_context.py", 95, "sim: a scheduler without its process"),
    Touch("publish", "runtime_context.py", 1489, "sim: the same"),
    Touch(
        "SchedulerPoolStatsObserver.get_pool_stats",
        "managers/scheduler_components/pool_stats_observer.py",
        213,
        "sim: how full the pools are",
    ),
    Touch("TokenizedGenerateReqInput", "managers/io_struct.py", 1065, "sim: a request as the tokenizer sends it"),
    Touch("GenerationBatchResult", "managers/utils.py", 55, "paced: what a step returns"),
    Touch("EagleDraftInput", "speculative/eagle_info.py", 156, "paced: what a verify step hands on"),
)
