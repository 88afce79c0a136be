"""What SGLang loads in each of its processes (entry point `sglang.srt.plugins`): registrations, nothing that runs.

Failed plugins are only logged by SGLang, so `launch` checks afterwards that this one took. Without our launcher, a
backend that nobody registered is an error of SGLang's own.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any


def load() -> None:
    """Register the cache backends; on a CPU also attention and the text-only Gemma 4 shapes."""
    from sglang.srt.mem_cache.registry import register_radix_cache_backend
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    from island_engine import guards, paced, startup
    from island_engine.platform import activate
    from island_engine.touchpoints import CONFIG, EXACT, PROCESSES, SCHEDULER, SPECULATIVE_OVERLAP

    try:
        guards.check_version()
    except guards.RefusedError as refused:  # without islands another release is none of our business
        for name in startup.BACKENDS.values():
            register_radix_cache_backend(name, partial(refuse, refused.sentence))
        return
    HookRegistry.register(PROCESSES.target, startup.before_processes, HookType.AFTER)
    HookRegistry.register(SCHEDULER.target, startup.around_scheduler, HookType.AROUND)
    register_radix_cache_backend(startup.BACKENDS["on"], island_cache)
    register_radix_cache_backend(startup.BACKENDS["lazy"], lazy_cache)
    if activate() is not None:
        os.environ.setdefault("SGLANG_EXTERNAL_MODEL_PACKAGE", "island_engine.platform.models")  # not all models: 1.5 s
        from island_engine.platform import attention, exact, gemma4_text, processes, speculation

        attention.register()
        HookRegistry.register(EXACT.target, exact.enable, HookType.REPLACE)
        HookRegistry.register(CONFIG.target, gemma4_text.split_shapes, HookType.AFTER)
        HookRegistry.register(SPECULATIVE_OVERLAP.target, speculation.overlap, HookType.REPLACE)
        HookRegistry.register(PROCESSES.target, processes.fork, HookType.AFTER)
    if paced.PROFILE in os.environ:  # started with --pace
        from island_engine.paced import server

        server.install(os.environ[paced.PROFILE])


def refuse(sentence: str, _context: Any) -> Any:
    """Instead of a cache: this release of SGLang is not the one whose every touch point was read."""
    raise ValueError(sentence)


def island_cache(context: Any, metrics: Any = None) -> Any:
    """Build the island cache in the scheduler (mem_cache/registry.py), and hook what belongs to it. It reports to
    `metrics` where somebody else than Prometheus counts (bench/tally.py).
    """
    from sglang.srt.mem_cache.registry import create_unified_radix_cache
    from sglang.srt.runtime_context import get_parallel

    from island_engine import guards
    from island_engine.islands import hooks
    from island_engine.islands.cache import IslandRadixCache
    from island_engine.metrics import speaking

    guards.check_context(context)
    cache = create_unified_radix_cache(context, cache_class=IslandRadixCache)
    guards.check_type(cache, IslandRadixCache)
    if not cache.shared_pool:
        guards.check_room(cache.holds.pool.size_swa, cache.window, cache.page_size)
    if metrics is not None:
        cache.metrics = metrics
    elif get_parallel().attn_tp_rank == get_parallel().attn_cp_rank == 0:  # the other ranks do the same, in lockstep
        cache.metrics = speaking()
    cache.holds.lag, cache.holds.block = hooks.ahead(context.server_args)
    hooks.install()
    return cache


def lazy_cache(context: Any) -> Any:
    """Build the retention of SGLang before 0.5.16, for comparison only."""
    from sglang.srt.mem_cache.registry import create_unified_radix_cache

    from island_engine import guards
    from island_engine.islands.lazy import LazyRadixCache

    guards.check_context(context)
    cache = create_unified_radix_cache(context, cache_class=LazyRadixCache)
    guards.check_type(cache, LazyRadixCache)
    return cache
