"""The decode trigger: after a result was processed, publish what is due."""

from __future__ import annotations

from typing import Any

from island_engine import guards
from island_engine.islands.cache import IslandRadixCache
from island_engine.touchpoints import STEP_RESULT


def after_result(result: Any, processor: Any, req: Any, batch: Any, *_args: Any, **_kwargs: Any) -> Any:
    """AFTER hook. The exact type, never isinstance or a capability flag: another cache must not be treated as ours."""
    cache = processor.tree_cache
    if type(cache) is IslandRadixCache and batch.forward_mode.is_decode():
        cache.decode_island(req)
        if batch.reqs[-1] is req:  # once a step
            cache.observe()
    return result


def install() -> None:
    """Patch the running process; called when the island cache is built, so with islands off nothing is on the path."""
    guards.hook(STEP_RESULT, after_result)
