"""Speculation on a CPU: what SGLang does there with Triton or with sgl_kernel, in torch. NGRAM, STANDALONE, EAGLE, MTP.

Everything else is SGLang's own: workers, drafting, allocation ahead of the commit, acceptance, the scheduler. Nodes are
the tokens that one request verifies in a step, `nodes` of them; node 0 is the last committed token.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from island_engine import guards
from island_engine.platform import BACKEND
from island_engine.touchpoints import (
    ASSIGN_SLOTS,
    BONUS,
    BUILD_TREE,
    DRAFT_DECODE,
    DRAFT_EXTEND,
    DRAFT_SLOTS,
    GREEDY,
    KEEP_ACCEPTED,
    KV_COPY,
    LAST_SLOTS,
    RELAY,
    VERIFY_GREEDY,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def install() -> None:
    """In a scheduler that speculates, before its worker is imported and before KV pools are made."""
    os.environ["SGLANG_NATIVE_MOVE_KV_CACHE"] = "1"
    torch.compiler.set_stance("force_eager")  # compiling a function of ten lines takes as long as all of a boot
    stand_in()
    replaced: tuple[tuple[Any, Callable[..., Any]], ...] = (
        (ASSIGN_SLOTS, assign_slots),
        (BONUS, bonus_tokens),
        (BUILD_TREE, build_tree),
        (DRAFT_DECODE, draft_decode_backend),
        (DRAFT_EXTEND, draft_extend_backend),
        (DRAFT_SLOTS, draft_slots),
        (GREEDY, greedy),
        (KEEP_ACCEPTED, keep_accepted),
        (KV_COPY, no_slot_copy),
        (LAST_SLOTS, last_slots),
        (RELAY, relay),
        (VERIFY_GREEDY, verify_greedy),
    )
    for touch, function in replaced:
        guards.hook(touch, function, "REPLACE")


def stand_in() -> None:
    """Instead of the module of SGLang's that imports sgl_kernel, which has no wheel for CPUs."""
    module = ModuleType("sglang.kernels.ops.speculative.reconstruct_tree")
    module.reconstruct_indices_from_tree_mask_func = tree_links  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module


# --- slots --------------------------------------------------------------------------------------------------------


def no_slot_copy(pool: Any) -> None:
    """The tiled copy of slots is not set up."""
    pool._kv_copy_config = None  # noqa: SLF001 - what the replaced method sets


def last_slots(req_to_token: torch.Tensor, requests: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """The slot of each request's last token, -1 without one; SGLang's own form for CPUs."""
    from sglang.srt.mem_cache.allocation import get_last_loc_torch

    slots: torch.Tensor = get_last_loc_torch(req_to_token, requests, lengths)
    return slots


def assign_slots(
    requests: torch.Tensor, req_to_token: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor, slots: Any, _: int
) -> None:
    """Write each request's newly allocated slots into its row of the page table."""
    at = 0
    for row, start, end in zip(requests.tolist(), starts.tolist(), ends.tolist(), strict=True):
        if end > start:
            req_to_token[row, start:end] = slots[at : at + end - start]
            at += end - start


def extend_slots(*, req_pool_indices: Any, req_to_token: Any, start_offset: Any, end_offset: Any, **_: Any) -> Any:
    """Slots of positions [start, end) of each request, one after the other: where a verify step writes."""
    rows = zip(req_pool_indices.tolist(), start_offset.tolist(), end_offset.tolist(), strict=True)
    return torch.cat([req_to_token[row, start:end] for row, start, end in rows]).long()


def draft_slots(requests: Any, table: Any, lengths: Any, out: Any, topk: int, columns: int, **_: Any) -> None:
    """Slots that each request's draft branches write, one branch behind the other, into `out`."""
    out.copy_(
        extend_slots(
            req_pool_indices=requests, req_to_token=table, start_offset=lengths, end_offset=lengths + topk * columns
        )
    )


def keep_accepted(batch: Any, accepted: torch.Tensor, drafts: torch.Tensor, allocator: Any) -> None:
    """Move the KV of accepted nodes to the front of what their request verified. `accepted`: [requests, depth] of node
    indices in the batch; `drafts`: accepted nodes beside node 0.
    """
    written = batch.out_cache_loc
    front = written.view(len(drafts), -1)
    kept = torch.arange(accepted.shape[1]) <= drafts.unsqueeze(1)
    allocator.get_kvcache().move_kv_cache(front[:, : accepted.shape[1]][kept], written[accepted[kept].long()])


def overlap(_server_args: Any) -> None:
    """Speculation overlaps as on a GPU: a result is processed while the next step is prepared."""


def relay(rows: torch.Tensor, *buffers: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
    """What a step under overlap left for the next one, of these requests."""
    return tuple(None if buffer is None else buffer[rows] for buffer in buffers)


# --- trees --------------------------------------------------------------------------------------------------------


def tree_links(
    mask: torch.Tensor,
    lengths: torch.Tensor,
    positions: torch.Tensor,
    index: torch.Tensor,
    first_child: torch.Tensor,
    next_sibling: torch.Tensor,
    requests: int,
    nodes: int,
) -> None:
    """What verification needs to know of trees, written into the tensors between. `mask`: flat, [requests, node,
    ancestor or itself]; `index`: [requests, nodes], each node's place in the batch.
    """
    from sglang.srt.speculative.ngram_worker import _derive_tree_links

    trees = mask.view(requests, nodes, nodes)
    positions.copy_((lengths.unsqueeze(1) + trees.sum(2) - 1).flatten())
    index.copy_(torch.arange(requests * nodes).view(requests, nodes))
    for out, links in zip((first_child, next_sibling), _derive_tree_links(trees.numpy(), requests, nodes), strict=True):
        out.copy_(links)


def build_tree(
    parents: torch.Tensor,
    picked: torch.Tensor,
    lengths: torch.Tensor,
    mask: torch.Tensor,
    positions: torch.Tensor,
    index: torch.Tensor,
    first_child: torch.Tensor,
    next_sibling: torch.Tensor,
    topk: int,
    depth: int,
    nodes: int,
    _mode: Any,
) -> None:
    """The tree of what was drafted. Candidates come in groups of `topk` that share a parent, which is a candidate too.

    `parents`: [requests, groups], -1 for node 0; `picked`: [requests, nodes - 1], the candidates that are verified,
    ascending, so that a parent comes before its children. `mask`: flat; of each request [nodes, its length + nodes],
    true when it comes.
    """
    requests = len(lengths)
    parent = parents.gather(1, picked // topk) if depth > 1 else torch.full_like(picked, -1)
    found = parent.unsqueeze(2) == picked.unsqueeze(1)
    node = torch.where(found.any(2), found.int().argmax(2) + 1, 0)  # 0 if it was not picked: then a child of node 0
    trees = torch.eye(nodes, dtype=torch.bool).repeat(requests, 1, 1)
    for child in range(1, nodes):
        trees[:, child] |= trees[torch.arange(requests), node[:, child - 1]]
    tree_links(trees.flatten(), lengths, positions, index, first_child, next_sibling, requests, nodes)
    at = 0
    for tree, length in zip(trees, lengths.tolist(), strict=True):
        size = nodes * (length + nodes)
        mask[at : at + size].view(nodes, -1)[:, length:] = tree
        at += size


def greedy(**_: Any) -> bool:
    """Verification commits the likeliest token whatever the temperature, as in SGLang's own CPU engine."""
    return True


def verify_greedy(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrieve_index: torch.Tensor,
    retrieve_next_token: torch.Tensor,
    retrieve_next_sibling: torch.Tensor,
    target_predict: torch.Tensor,
    topk: int = -1,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Walk each tree from its root to the child that is what the model says next, as long as there is one.

    Writes, and returns: the model's token at each accepted node (by place in the batch), their places
    [requests, depth], and how many there are beside the root.
    """
    del topk
    children, siblings = retrieve_next_token.tolist(), retrieve_next_sibling.tolist()
    drafted, says, places = candidates.tolist(), target_predict.tolist(), retrieve_index.tolist()
    for row, place in enumerate(places):
        node, path = 0, [place[0]]
        while len(path) < accept_index.shape[1]:
            child = children[row][node]
            while child != -1 and drafted[row][child] != says[row][node]:
                child = siblings[row][child]
            if child == -1:
                break
            predicts[place[node]] = says[row][node]
            node = child
            path.append(place[node])
        predicts[place[node]] = says[row][node]
        accept_index[row, : len(path)] = torch.tensor(path, dtype=accept_index.dtype)
        accept_token_num[row] = len(path) - 1
    return predicts, accept_index, accept_token_num


def bonus_tokens(tokens: torch.Tensor, counts: torch.Tensor, out: torch.Tensor, _stride: int, requests: int) -> None:
    """Each request's last accepted token, from `tokens` [requests * depth], into `out`."""
    out.copy_(tokens.view(requests, -1).gather(1, counts.long().unsqueeze(1) - 1).squeeze(1))


# --- attention of the draft model ---------------------------------------------------------------------------------


def draft_decode_backend(factory: Any) -> tuple[str, Any]:
    """Of its decode steps."""
    from island_engine.platform.attention import DraftSteps

    return BACKEND, DraftSteps(factory.draft_model_runner, factory.topk, factory.speculative_num_steps)


def draft_extend_backend(factory: Any) -> tuple[str, Any]:
    """Of the step that catches up with what was accepted."""
    from island_engine.platform.attention import SdpaBackend

    return BACKEND, SdpaBackend(factory.draft_model_runner)
