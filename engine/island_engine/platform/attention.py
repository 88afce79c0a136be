"""Paged attention on torch SDPA that knows about the two KV index spaces.

`req_to_token` stores full-pool slots. A sliding-window layer lives in another, smaller buffer, so its slots go through
the pool's full->SWA map first; SGLang's in-tree torch_native backend does not do that (torch_native_backend.py:139).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as functional
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.mem_cache.memory_pool import KVWriteLoc
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool

from island_engine.platform import BACKEND


@dataclass(frozen=True)
class Row:
    """One request of a batch: where its queries start, and the KV slots of its tokens in both pools."""

    start: int
    queries: int
    length: int  # committed tokens and the queries
    full: torch.Tensor  # [length] int64
    swa: torch.Tensor  # [length] int64


class SdpaBackend(AttentionBackend):
    """Prefill and decode, one request at a time. fp32 output equals Hugging Face greedy token for token."""

    def __init__(self, runner: Any) -> None:
        super().__init__()
        self.device = runner.device
        self.req_to_token_pool = runner.req_to_token_pool  # core reads the pools off the backend by these names
        self.token_to_kv_pool = runner.token_to_kv_pool
        self.rows: list[Row] = []

    def support_triton(self) -> bool:
        """No triton kernel may be launched."""
        return False

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Look up the slots of the batch once for all layers."""
        self.rows = []
        if forward_batch.forward_mode.is_idle():
            return
        lengths = forward_batch.seq_lens.tolist()
        decode = forward_batch.forward_mode.is_decode()
        queries = [1] * len(lengths) if decode else forward_batch.extend_seq_lens.tolist()
        start = 0
        for slot, count, length in zip(forward_batch.req_pool_indices.tolist(), queries, lengths, strict=True):
            full = self.req_to_token_pool.req_to_token[slot, :length].to(torch.int64)
            swa = self.token_to_kv_pool.translate_loc_from_full_to_swa(full).to(torch.int64) if self._hybrid else full
            self.rows.append(Row(start, count, length, full, swa))
            start += count

    def forward_extend(
        self, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, save_kv_cache: bool = True, **_: Any
    ) -> torch.Tensor:
        """Attention of a prefill chunk. q: [tokens, heads * dim]."""
        return self._run(q, k, v, layer, forward_batch, save_kv_cache)

    def forward_decode(
        self, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, save_kv_cache: bool = True, **_: Any
    ) -> torch.Tensor:
        """Attention of one token per request. q: [requests, heads * dim]."""
        return self._run(q, k, v, layer, forward_batch, save_kv_cache)

    @property
    def _hybrid(self) -> bool:
        return isinstance(self.token_to_kv_pool, SWAKVPool) and self.token_to_kv_pool.swa_layer_nums > 0

    def _run(self, q: Any, k: Any, v: Any, layer: Any, batch: Any, save: bool) -> torch.Tensor:
        pool = self.token_to_kv_pool
        if save and k is not None and v is not None:
            loc = batch.out_cache_loc
            pool.set_kv_buffer(
                layer, KVWriteLoc(loc, pool.translate_loc_from_full_to_swa(loc) if self._hybrid else None), k, v
            )
        q = q.reshape(-1, layer.tp_q_head_num, layer.qk_head_dim)
        out = q.new_zeros(q.shape[0], layer.tp_q_head_num, layer.v_head_dim)
        keys, values = pool.get_key_buffer(layer.layer_id), pool.get_value_buffer(layer.layer_id)
        in_swa = self._hybrid and pool.layers_mapping[layer.layer_id][1]
        window = layer.sliding_window_size if (layer.sliding_window_size or -1) >= 0 else None
        causal = layer.attn_type != AttentionType.ENCODER_ONLY
        for row in self.rows:
            first = row.length - row.queries
            low = (
                max(0, first - window) if window is not None else 0
            )  # a key behind the window may be freed: never read it
            slots = (row.swa if in_swa else row.full)[low : row.length]
            mask = None
            if causal and (row.queries > 1 or window is not None):
                positions, past = (
                    torch.arange(first, row.length).unsqueeze(1),
                    torch.arange(low, row.length).unsqueeze(0),
                )
                mask = past <= positions
                if window is not None:
                    mask &= past >= positions - window
            rows = slice(row.start, row.start + row.queries)
            answer = functional.scaled_dot_product_attention(
                q[rows].transpose(0, 1).unsqueeze(0),
                keys[slots].to(q.dtype).transpose(0, 1).unsqueeze(0),
                values[slots].to(q.dtype).transpose(0, 1).unsqueeze(0),
                attn_mask=mask,
                scale=layer.scaling,
                enable_gqa=layer.tp_q_head_num != layer.tp_k_head_num,
            )
            out[rows] = answer.squeeze(0).transpose(0, 1)
        return out.reshape(-1, layer.tp_q_head_num * layer.v_head_dim)


def register() -> None:
    """Take the backend name over (attention_registry.py)."""
    from sglang.srt.layers.attention.attention_registry import register_attention_backend

    register_attention_backend(BACKEND)(SdpaBackend)
