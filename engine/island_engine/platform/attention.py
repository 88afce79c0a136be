"""Paged attention on torch SDPA that knows about the two KV index spaces.

`req_to_token` stores full-pool slots. A sliding-window layer lives in another, smaller buffer, so its slots go through
the pool's full->SWA map first; SGLang's in-tree torch_native backend does not do that (torch_native_backend.py:139).

Every query of a window layer and of a decode step is a problem of its own, [1 query x its keys], and all of them are
one call of SDPA: a kernel call costs more than the arithmetic of a small model. Only the full layers of a prefill chunk
are computed as one [queries x keys] problem, because there the keys are many; exact mode takes them apart too, because
in a shared problem the bits of a row depend on the rows beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as functional
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.layers.radix_attention import AttentionType, RadixAttention
from sglang.srt.mem_cache.memory_pool import KVWriteLoc
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool

from island_engine.platform import BACKEND

if TYPE_CHECKING:
    from collections.abc import Iterator

# SDPA's CPU kernel sums over keys in blocks of 512. Exact mode pads keys to whole blocks and masks them, so that a
# query gets the same bits however many keys of others it is padded to: a block that is masked whole changes nothing.
EXACT_BLOCK, BLOCK = 512, 64


@dataclass(frozen=True)
class Trees:
    """What a verify step computes: of each request some nodes, one row each, which see their ancestors alone.

    The KV of node i is at position prefix + i; a row sees it at the depth that the node has on the row's path.
    """

    prefix: torch.Tensor  # [rows] int64, committed tokens
    path: torch.Tensor  # [rows, nodes] int64, nodes from the root to the row's own, then anything
    lengths: list[int]  # tokens that a row sees, itself included

    @classmethod
    def of(cls, batch: Any) -> Trees:
        """`custom_mask` is flat; of each request [nodes, length + nodes], true where a node sees a position."""
        nodes, at, trees = batch.spec_info.draft_token_num, 0, []
        for length in batch.seq_lens.tolist():
            size = nodes * (length + nodes)
            trees.append(batch.spec_info.custom_mask[at : at + size].view(nodes, -1)[:, length:])
            at += size
        tree = torch.cat(trees).bool()
        prefix = batch.seq_lens.long().repeat_interleave(nodes)
        path = (~tree).byte().argsort(stable=True, dim=1)  # an ancestor comes before its descendants
        return cls(prefix, path, (prefix + tree.sum(1)).tolist())

    def place(self, rows: torch.Tensor, depths: torch.Tensor) -> torch.Tensor:
        """Positions [rows, keys] of what these rows see at these depths, which count from the start of the request."""
        prefix, path = self.prefix[rows].unsqueeze(1), self.path[rows]
        inside = (depths - prefix).clamp(0, path.shape[1] - 1)
        return torch.where(depths < prefix, depths, prefix + path.gather(1, inside))


@dataclass(frozen=True)
class Branches:
    """What one decode step of a draft model computes: of each request `topk` branches, one row each, which see the
    committed tokens and what their own branch has drafted. That lies in the request's row of the page table, branch
    behind branch; a branch begins as far into its page as the committed tokens end in theirs (prepare_for_draft).
    """

    prefix: torch.Tensor  # [rows] int64, committed tokens
    first: torch.Tensor  # [rows] int64, where in the request's row of the page table its branch begins
    lengths: list[int]  # tokens that a row sees, itself included

    @classmethod
    def of(cls, lengths: torch.Tensor, topk: int, depth: int, page: int, drafted: int) -> Branches:
        """`lengths`: [requests], committed tokens; `depth`: tokens that a branch has room for; `drafted`: has now."""
        pages = (lengths % page + depth + page - 1) // page
        first = lengths.unsqueeze(1) + torch.arange(topk) * (pages * page).unsqueeze(1)
        prefix = lengths.long().repeat_interleave(topk)
        return cls(prefix, first.flatten().long(), (prefix + drafted).tolist())

    def place(self, rows: torch.Tensor, depths: torch.Tensor) -> torch.Tensor:
        """Positions [rows, keys] of what these rows see at these depths, which count from the start of the request."""
        prefix = self.prefix[rows].unsqueeze(1)
        return torch.where(depths < prefix, depths, depths - prefix + self.first[rows].unsqueeze(1))


@dataclass(frozen=True)
class Problems:
    """One call of SDPA: `count` problems over `keys` keys each, which start `stride` slots after one another."""

    rows: slice | torch.Tensor  # of the batch's queries
    slots: torch.Tensor  # [n] int64, in the pool of the layers that this is for
    count: int
    keys: int
    stride: int  # keys: side by side; 1: windows that slide; 0: all the same
    mask: torch.Tensor | None  # bool, broadcast to [count, heads, queries, keys]; None: every query sees every key


class SdpaBackend(AttentionBackend):
    """Prefill and decode. fp32 output equals Hugging Face greedy token for token."""

    def __init__(self, runner: Any) -> None:
        super().__init__()
        from sglang.srt.runtime_context import get_exec

        check(runner.model)
        self.device = runner.device
        self.exact = bool(get_exec().deterministic.enable_deterministic_inference)
        self.block = EXACT_BLOCK if self.exact else BLOCK
        self.req_to_token_pool = runner.req_to_token_pool  # core reads the pools off the backend by these names
        self.token_to_kv_pool = runner.token_to_kv_pool
        self.batch: Any = None
        self.planned: dict[tuple[int | None, bool], list[Problems]] = {}

    def support_triton(self) -> bool:
        """No triton kernel may be launched."""
        return False

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """A new batch: what its layers have in common is worked out by the first layer of each kind."""
        self.batch, self.planned = forward_batch, {}

    def forward_extend(
        self, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, save_kv_cache: bool = True, **more: Any
    ) -> torch.Tensor:
        """Attention of a prefill chunk. q: [tokens, heads * dim]."""
        return self._run(q, k, v, layer, forward_batch, save_kv_cache, more)

    def forward_decode(
        self, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, save_kv_cache: bool = True, **more: Any
    ) -> torch.Tensor:
        """Attention of one token per request. q: [requests, heads * dim]."""
        return self._run(q, k, v, layer, forward_batch, save_kv_cache, more)

    def _run(self, q: Any, k: Any, v: Any, layer: Any, batch: Any, save: bool, more: dict[str, Any]) -> torch.Tensor:
        if unknown := [name for name, value in more.items() if value is not None]:
            raise ValueError(f"attention on a CPU does not know {', '.join(unknown)}: serve this model on a GPU")
        pool, heads = self.token_to_kv_pool, layer.tp_k_head_num
        hybrid = isinstance(pool, SWAKVPool) and pool.swa_layer_nums > 0
        if save and k is not None and v is not None:
            loc = batch.out_cache_loc
            pool.set_kv_buffer(
                layer, KVWriteLoc(loc, pool.translate_loc_from_full_to_swa(loc) if hybrid else None), k, v
            )
        q = q.reshape(-1, heads, layer.tp_q_head_num // heads, layer.qk_head_dim)
        out = q.new_empty(q.shape[0], layer.tp_q_head_num, layer.v_head_dim)
        buffers = pool.get_key_buffer(layer.layer_id), pool.get_value_buffer(layer.layer_id)
        window = layer.sliding_window_size if layer.sliding_window_size >= 0 else None
        for problems in self._problems(window, hybrid and pool.layers_mapping[layer.layer_id][1]):
            keys, values = (_gather(buffer, problems) for buffer in buffers)
            queries = q[problems.rows].float()
            together = len(queries) != problems.count  # [queries x keys]
            answer = functional.scaled_dot_product_attention(
                queries.flatten(1, 2).transpose(0, 1).unsqueeze(0) if together else queries,
                keys,
                values,
                attn_mask=problems.mask,
                scale=layer.scaling,
                enable_gqa=together and layer.tp_q_head_num != heads,
            )
            out[problems.rows] = (answer.squeeze(0).transpose(0, 1) if together else answer.flatten(1, 2)).to(q.dtype)
        return out.flatten(1)

    def _problems(self, window: int | None, in_swa: bool) -> list[Problems]:
        """Of the current batch, for layers of this window (keys before a query that it sees; None: all) and pool."""
        key = window, in_swa
        if key not in self.planned:
            lengths = self.batch.seq_lens.tolist()
            if (rows := self._rows()) is not None:
                made = self._decode(rows.lengths, window, in_swa, rows)
            elif self.batch.forward_mode.is_decode():
                made = self._decode(lengths, window, in_swa)
            else:
                made = self._prefill(lengths, self.batch.extend_seq_lens.tolist(), window, in_swa)
            self.planned[key] = list(made)
        return self.planned[key]

    def _rows(self) -> Trees | Branches | None:
        """None: a row is a request."""
        return Trees.of(self.batch) if self.batch.forward_mode.is_target_verify() else None

    def _decode(
        self, lengths: list[int], window: int | None, in_swa: bool, drafts: Trees | Branches | None = None
    ) -> Iterator[Problems]:
        """One query a row, the last token of what the row sees. A row is a request, or what was drafted for it."""
        last = torch.tensor(lengths).unsqueeze(1) - 1
        requests = self.batch.req_pool_indices.repeat_interleave(len(lengths) // len(self.batch.req_pool_indices))

        def slots(rows: torch.Tensor, past: torch.Tensor) -> torch.Tensor:
            return self._slots(requests[rows], drafts.place(rows, past) if drafts else past, in_swa)

        if window is not None:
            past = last + torch.arange(-window, 1)
            mask = None if min(lengths) > window else (past >= 0)[:, None, None]
            every = torch.arange(len(lengths))
            yield Problems(slice(None), slots(every, past.clamp_(min=0)), len(lengths), window + 1, window + 1, mask)
            return
        sizes: dict[int, list[int]] = {}  # by the power of two, so that one long request does not pad all the others
        for row, length in enumerate(lengths):
            sizes.setdefault(((length - 1) // EXACT_BLOCK).bit_length(), []).append(row)
        for members in sizes.values():
            rows = torch.tensor(members)
            past = torch.arange(self._padded(max(lengths[row] for row in members)))
            mask = past <= last[rows]
            yield Problems(rows, slots(rows, past * mask), len(members), len(past), len(past), mask[:, None, None])

    def _prefill(self, lengths: list[int], counts: list[int], window: int | None, in_swa: bool) -> Iterator[Problems]:
        start = 0
        for request, length, count in zip(self.batch.req_pool_indices, lengths, counts, strict=True):
            rows, positions = slice(start, start + count), torch.arange(length - count, length)
            start += count
            if window is not None:
                past = torch.arange(length - count - window, length)  # a key behind the window may be freed: not read
                seen = positions.unsqueeze(1) + torch.arange(-window, 1)
                mask = None if length - count >= window else (seen >= 0)[:, None, None]
                yield Problems(rows, self._slots(request, past.clamp_(min=0), in_swa), count, window + 1, 1, mask)
                continue
            past = torch.arange(self._padded(length))
            mask = past <= positions.unsqueeze(1)
            slots = self._slots(request, past * (past < length), in_swa)
            if self.exact:
                yield Problems(rows, slots, count, len(past), 0, mask[:, None, None])
            else:
                yield Problems(rows, slots, 1, len(past), 0, mask)

    def _padded(self, length: int) -> int:
        return -(-length // self.block) * self.block

    def _slots(self, requests: torch.Tensor, positions: torch.Tensor, in_swa: bool) -> torch.Tensor:
        """Slots [n] of the tokens at `positions`, [requests, keys] or [keys] of one request."""
        table = self.req_to_token_pool.req_to_token
        cells = requests.long().unsqueeze(-1) * table.shape[1] + positions
        slots = table.view(-1).index_select(0, cells.view(-1)).long()
        return self.token_to_kv_pool.translate_loc_from_full_to_swa(slots).long() if in_swa else slots


class DraftStep(SdpaBackend):
    """One decode step of a draft model, in which each branch has `drafted` tokens."""

    def __init__(self, runner: Any, topk: int, steps: int, drafted: int) -> None:
        super().__init__(runner)
        self.topk, self.steps, self.drafted = topk, steps, drafted

    def _rows(self) -> Branches:
        page = self.token_to_kv_pool.page_size
        return Branches.of(self.batch.seq_lens, self.topk, self.steps, page, self.drafted)


class DraftSteps:
    """The decode steps of a draft model: SGLang asks for one backend each (eagle_worker_v2.py, draft_forward)."""

    def __init__(self, runner: Any, topk: int, steps: int) -> None:
        self.attn_backends = [DraftStep(runner, topk, steps, step + 1) for step in range(steps - 1)]

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """A new batch."""
        for backend in self.attn_backends:
            backend.init_forward_metadata(forward_batch)


def _gather(buffer: torch.Tensor, problems: Problems) -> torch.Tensor:
    """Keys or values of all problems, [count, heads, keys, dim] in fp32; overlapping windows share their memory."""
    rows = buffer.index_select(0, problems.slots).float()  # five times as fast as buffer[slots]
    heads, dim = rows.shape[1:]
    token = heads * dim
    return rows.as_strided((problems.count, heads, problems.keys, dim), (problems.stride * token, dim, token, 1))


def check(model: torch.nn.Module) -> None:
    """ValueError, one sentence, for attention that this backend would compute wrongly."""
    for name, layer in model.named_modules():
        if not isinstance(layer, RadixAttention):
            continue
        if layer.attn_type != AttentionType.DECODER or layer.is_cross_attention:
            raise ValueError(f"{name} is not causal self-attention, which is all that a CPU knows: use a GPU")
        if layer.logit_cap:
            raise ValueError(f"{name} caps its logits at {layer.logit_cap}, which a CPU does not know: use a GPU")


def register() -> None:
    """Take the backend name over (attention_registry.py)."""
    from sglang.srt.layers.attention.attention_registry import register_attention_backend

    register_attention_backend(BACKEND)(SdpaBackend)
