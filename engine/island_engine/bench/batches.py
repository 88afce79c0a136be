"""SGLang's batches without the tensors that only a model needs. Sizes in tokens."""

from __future__ import annotations

import types
from dataclasses import dataclass, field
from typing import Any

import torch
from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.srt.mem_cache.allocation import alloc_paged_token_slots_extend
from sglang.srt.mem_cache.allocation_sizing import get_alloc_reserve_per_decode, page_aligned_decode_alloc_lens
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

from island_engine.bench.kv import VOCABULARY


@dataclass
class Launched:
    """A step whose result was not processed. `accepted`: tokens that each request will commit."""

    batch: Any
    decode: bool
    middle: Any = None  # the request whose prompt goes on in a later chunk
    accepted: dict[str, int] = field(default_factory=dict)

    @property
    def reqs(self) -> list[Any]:
        """Its requests."""
        reqs: list[Any] = self.batch.reqs
        return reqs


def bare(rig: Any, reqs: list[Any], mode: Any) -> Any:
    """A batch of these requests on the rig's pools."""
    batch = object.__new__(ScheduleBatch)
    batch.reqs = list(reqs)
    batch.req_to_token_pool, batch.token_to_kv_pool_allocator, batch.tree_cache = rig.rows, rig.alloc, rig.cache
    batch.device, batch.forward_mode, batch.forward_iter = "cpu", mode, rig.clock
    batch.model_config = types.SimpleNamespace(is_encoder_decoder=False, vocab_size=VOCABULARY)
    batch.enable_overlap, batch.hisparse_coordinator = rig.overlap, None
    batch.spec_algorithm = SpeculativeAlgorithm.from_string(rig.args.speculative_algorithm)
    batch.is_dllm = lambda: False

    def keep(*, keep_indices: list[int]) -> None:  # SGLang's filters many tensors that are not there
        batch.reqs = [batch.reqs[index] for index in keep_indices]
        batch.req_pool_indices = torch.tensor([req.kv.req_pool_idx for req in batch.reqs])
        batch.req_pool_indices_cpu = batch.req_pool_indices

    batch.filter_batch = keep
    if mode.is_decode():
        keep(keep_indices=list(range(len(reqs))))
    return batch


def allocate_ahead(batch: Any, page: int) -> None:
    """What SGLang's eagle_prepare_for_decode does without kernels: slots for a verify step and the one behind it."""
    rows = batch.req_to_token_pool
    batch.maybe_evict_swa()
    starts, ends, need = page_aligned_decode_alloc_lens(
        batch.reqs, reserve=get_alloc_reserve_per_decode(), page_size=page
    )
    if need:
        before, after = torch.tensor(starts), torch.tensor(ends)
        last = rows.req_to_token[batch.req_pool_indices, before - 1].long()
        slots = alloc_paged_token_slots_extend(
            batch.tree_cache, before, before, after, after, last, need, req_pool_indices=batch.req_pool_indices
        ).to(torch.int32)
        for req, start, end in zip(batch.reqs, starts, ends, strict=True):
            rows.write((req.kv.req_pool_idx, slice(start, end)), slots[: end - start])
            slots = slots[end - start :]
    for req, end in zip(batch.reqs, ends, strict=True):
        req.kv.kv_allocated_len = end
