"""--enable-unified-memory without a GPU: CPU forms of the two kernels of SGLang's shared pool that have none.

Allocator, budget, compaction plan, tree and sizing are SGLang's own; a compaction copies nothing and is not charged to
the clock (the prototype counted it: under 0.1 % of the device's memory time).
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.mem_cache.allocator import unified_sub_pool
from sglang.srt.mem_cache.allocator.paged import alloc_decode_naive, alloc_extend_naive
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from island_engine import touchpoints


class Kernel:
    """Launched as Triton kernels are: `kernel[grid](...)`."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __getitem__(self, grid: Any) -> Any:
        return self.function


def extend(before: Any, lengths: Any, last: Any, free: Any, out: Any, _: Any, page: int) -> None:
    """Slots of a prefill chunk."""
    alloc_extend_naive(before, lengths, last, free, out, page, "cpu")


def decode(lengths: Any, last: Any, free: Any, out: Any, _: Any, page: int) -> None:
    """Slots of a decode step; a request needs a page when its new token is the first of one."""
    alloc_decode_naive(lengths, last, free, out, page, int(((lengths - 1) % page == 0).sum()))


class Done:
    """A stream or an event of a device whose work is done by the time anyone asks."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: True


def nothing(*_: Any, **__: Any) -> None:
    """REPLACE hook."""


def install() -> None:
    """Replace the kernels, the copies and the streams; skip the list of speculative algorithms that were audited."""
    for touch in (
        touchpoints.UNIFIED_FLAGS,
        touchpoints.UNIFIED_TREES,
        touchpoints.UNIFIED_ZERO,
        touchpoints.UNIFIED_MOVE,
    ):
        HookRegistry.register(touch.target, nothing, HookType.REPLACE)
    unified_sub_pool.alloc_extend_kernel = Kernel(extend)
    unified_sub_pool.alloc_decode_kernel = Kernel(decode)
    torch.cuda.current_stream = lambda *_, **__: Done()
    torch.cuda.Event = torch.cpu.Event = Done
