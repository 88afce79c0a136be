"""What stands in for device memory and for the kernels that touch it. Nothing is stored: KV of dummy tokens is dummy.

Slots, page tables, allocators and pool sizes stay SGLang's own; only buffers and kernels are replaced.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from island_engine import touchpoints
from island_engine.paced import unified
from island_engine.platform.speculation import assign_slots, last_slots, no_slot_copy


def one_row_buffers(pool: Any) -> None:
    """REPLACE hook: KV buffers of one row that look like `size` rows, so a production pool costs no memory."""
    shapes = pool._kv_buffer_shapes()  # noqa: SLF001 - the hooked method reads it too

    def rows(shape: tuple[int, ...]) -> list[torch.Tensor]:
        return [torch.zeros((1, *shape[1:]), dtype=pool.store_dtype).expand(shape) for _ in range(pool.layer_num)]

    pool.k_buffer, pool.v_buffer = map(rows, shapes)


def install() -> None:
    """Register the replacements; SGLang applies them when it loads its plugins."""
    for touch, function in (
        (touchpoints.KV_BUFFERS, one_row_buffers),
        (touchpoints.KV_COPY, no_slot_copy),
        (touchpoints.LAST_SLOTS, last_slots),
        (touchpoints.ASSIGN_SLOTS, assign_slots),
    ):
        HookRegistry.register(touch.target, function, HookType.REPLACE)
    unified.install()
