"""What is hooked into SGLang beside the cache class, when an island cache is built: never with islands off.

Every hook asks for the exact type, never isinstance or a capability flag: another cache must not be treated as ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from island_engine import guards
from island_engine.islands.admission import ReservingSWABudget
from island_engine.islands.cache import IslandRadixCache
from island_engine.touchpoints import ADMISSION, BUDGET, CANDIDATE, GOES_ON, MAKE_ROOM, RETRACTION, STEP_RESULT

if TYPE_CHECKING:
    from collections.abc import Callable


def around_budget(original: Callable[..., Any], pool: Any, tree_cache: Any, **kwargs: Any) -> Any:
    """The budget of an admission pass. A pool that full and SWA tokens share makes one of its own, not hooked."""
    if type(tree_cache) is IslandRadixCache:
        return ReservingSWABudget(pool, tree_cache, **kwargs)
    return original(pool, tree_cache, **kwargs)


def after_adder(result: Any, adder: Any, *_args: Any, **_kwargs: Any) -> Any:
    """An admission pass begins: who runs, and how many wait."""
    if type(adder.tree_cache) is IslandRadixCache:
        adder.tree_cache.holds.adder, adder.tree_cache.holds.parked = adder, False
        if type(adder.memory_budget) is ReservingSWABudget:
            adder.memory_budget.begin()
    return result


def after_going_on(result: Any, adder: Any, req: Any) -> Any:
    """The prompt that is in the middle of its chunks: it comes back, and computes nothing, where it has to wait."""
    if type(adder.tree_cache) is IslandRadixCache:
        adder.tree_cache.holds.parked = result is req and req not in adder.can_run_list
    return result


def around_candidate(original: Callable[..., Any], adder: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
    """Nobody is admitted beside a prompt that waits in the middle of its chunks.

    SGLang counts a chunk of it in flight with every batch (scheduler.py:4330), whether it is in there or not. The
    result of its last chunk would pass for one in the middle then: its first token is dropped, nothing is published.
    """
    if type(adder.tree_cache) is IslandRadixCache and adder.tree_cache.holds.parked:
        from sglang.srt.managers.schedule_policy import AddReqResult

        return AddReqResult.OTHER
    return original(adder, req, *args, **kwargs)


def around_making_room(original: Callable[..., Any], pool: Any, tree_cache: Any, num_tokens: int) -> Any:
    """Before every allocation, and when a decode step's capacity is checked: dead windows first, then the tree."""
    if type(tree_cache) is IslandRadixCache:
        tree_cache.holds.slide(num_tokens - int(pool.swa_available_size()))
    return original(pool, tree_cache, num_tokens)


def around_retraction(original: Callable[..., Any], batch: Any, idx: int, *args: Any, **kwargs: Any) -> Any:
    """Retraction and preemption of a running request. Not retract_all, which may precede other weights."""
    if type(batch.tree_cache) is IslandRadixCache:
        batch.tree_cache.keep_before_retraction(batch.reqs[idx])
    return original(batch, idx, *args, **kwargs)


def after_result(result: Any, processor: Any, req: Any, batch: Any, *_args: Any, **_kwargs: Any) -> Any:
    """One request's result of a decode step."""
    if type(processor.tree_cache) is IslandRadixCache and batch.forward_mode.is_decode():
        processor.tree_cache.after_result(req, batch.forward_iter)
    return result


def ahead(server_args: Any) -> tuple[int, int]:
    """Tokens that are allocated ahead of the last processed result, and the most that a step may commit."""
    from sglang.srt.mem_cache.allocation_sizing import get_alloc_len_per_decode, get_alloc_reserve_per_decode

    if server_args.speculative_algorithm:
        return get_alloc_reserve_per_decode(), get_alloc_len_per_decode()
    return int(not server_args.disable_overlap_schedule), 1


def install() -> None:
    """Patch the running process."""
    guards.hook(BUDGET, around_budget, "AROUND")
    guards.hook(ADMISSION, after_adder)
    guards.hook(GOES_ON, after_going_on)
    guards.hook(CANDIDATE, around_candidate, "AROUND")
    guards.hook(MAKE_ROOM, around_making_room, "AROUND")
    guards.hook(RETRACTION, around_retraction, "AROUND")
    guards.hook(STEP_RESULT, after_result)
