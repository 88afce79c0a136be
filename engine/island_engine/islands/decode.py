"""The decode trigger: after a result was processed, publish what is due."""

from __future__ import annotations

from typing import Any

from island_engine.islands.cache import IslandRadixCache

# Called once per request and step, after its new tokens are in output_ids (batch_result_processor.py:1377).
TARGET = (
    "sglang.srt.managers.scheduler_components.batch_result_processor."
    "SchedulerBatchResultProcessor._handle_finish_state_updated_req"
)


def after_result(result: Any, processor: Any, req: Any, batch: Any, *_args: Any, **_kwargs: Any) -> Any:
    """AFTER hook. The exact type, never isinstance or a capability flag: another cache must not be treated as ours."""
    if type(processor.tree_cache) is IslandRadixCache and batch.forward_mode.is_decode():
        processor.tree_cache.decode_island(req)
    return result


def install() -> None:
    """Patch the running process; called when the island cache is built, so with islands off nothing is on the path."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(TARGET, after_result, HookType.AFTER)
    HookRegistry.apply_hooks()
