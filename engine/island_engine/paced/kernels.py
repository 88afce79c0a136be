"""What stands in for device memory and for the kernels that touch it. Nothing is stored: KV of dummy tokens is dummy.

Slots, page tables, allocators and pool sizes stay SGLang's own; only buffers and kernels are replaced.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from island_engine import touchpoints
from island_engine.paced import unified


def one_row_buffers(pool: Any) -> None:
    """REPLACE hook: KV buffers of one row that look like `size` rows, so a production pool costs no memory."""
    shapes = pool._kv_buffer_shapes()  # noqa: SLF001 - the hooked method reads it too

    def rows(shape: tuple[int, ...]) -> list[torch.Tensor]:
        return [torch.zeros((1, *shape[1:]), dtype=pool.store_dtype).expand(shape) for _ in range(pool.layer_num)]

    pool.k_buffer, pool.v_buffer = map(rows, shapes)


def no_slot_copy(pool: Any) -> None:
    """REPLACE hook: the Triton copy of slots is not set up; it would need a GPU's driver."""
    pool._kv_copy_config = None  # noqa: SLF001 - what the hooked method sets


def last_slots(req_to_token: torch.Tensor, requests: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """REPLACE hook: the slot of each request's last token, -1 without one; SGLang's own form for CPUs."""
    from sglang.srt.mem_cache.allocation import get_last_loc_torch

    slots: torch.Tensor = get_last_loc_torch(req_to_token, requests, lengths)
    return slots


def assign_slots(
    requests: torch.Tensor, req_to_token: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor, slots: Any, _: int
) -> None:
    """REPLACE hook: write each request's newly allocated slots into its row of the page table."""
    at = 0
    for row, start, end in zip(requests.tolist(), starts.tolist(), ends.tolist(), strict=True):
        if end > start:
            req_to_token[row, start:end] = slots[at : at + end - start]
            at += end - start


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
