"""What kernels would write to KV slots and read back, without kernels: one number per token and position.

A slot that is given back too early shows as unmapped, or as holding the number of somebody else's token. Writes and
reads happen when a step is launched, in the order of launches, as on a CUDA stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

VOCABULARY = 1 << 20
REJECTED = -1  # a drafted token that the verification refuses: in a slot, never to be read


class CorruptKvError(AssertionError):
    """Attention would have read a slot that was freed, or given to somebody else."""


def token(seed: int, index: int) -> int:
    """The generation of a request is a function of its seed, so that equal requests generate equal tokens."""
    return (seed * 7919 + index * 104729) % VOCABULARY


class WrittenKv:
    """Contents of both pools. `rows` maps positions to full slots, `pool.full_to_swa_index_mapping` those to SWA."""

    def __init__(self, pool: Any, rows: Any, *, window: int) -> None:
        self.pool, self.rows, self.window = pool, rows, window
        self.full = torch.zeros(pool.size_full + pool.page_size + 1, dtype=torch.int64)
        self.swa = torch.zeros(pool.size_swa + pool.page_size + 1, dtype=torch.int64)
        self.values: dict[str, torch.Tensor] = {}

    def expect(self, req: Any, prompt: Sequence[int], new: int, seed: int) -> None:
        """What the KV of each of the request's positions will be; `new`: the most tokens that it may generate."""
        ids = torch.tensor([*prompt, *(token(seed, index) for index in range(new))], dtype=torch.int64)
        self.values[req.rid] = ids * 1_000_003 + torch.arange(len(ids)) + 7

    def slots(self, req: Any, start: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Full and SWA slots of positions [start, end); an SWA slot is 0 where there is none."""
        full = self.rows.req_to_token[req.kv.req_pool_idx, start:end].long()
        return full, self.pool.full_to_swa_index_mapping[full]

    def write(self, req: Any, start: int, end: int, *, accepted: int | None = None) -> None:
        """Compute positions [start, end); those from `accepted` on are drafted and will be refused."""
        values = self.values[req.rid][start:end]
        if accepted is not None:
            values = values.clone()
            values[accepted - start :] = REJECTED
        full, swa = self.slots(req, start, end)
        if not bool((swa > 0).all()):
            raise CorruptKvError(f"{req.rid}: a token of [{start}, {end}) is being computed without an SWA slot")
        self.full[full] = values
        self.swa[swa] = values

    def read(self, req: Any, end: int, *, everything: bool) -> None:
        """What the token at `end` attends to: the window before it, and with `everything` all full KV before it."""
        start = max(0, end - self.window + 1)
        values = self.values[req.rid]
        _, swa = self.slots(req, start, end)
        if not bool((swa > 0).all()):
            raise CorruptKvError(f"{req.rid}: {int((swa <= 0).sum())} SWA slots of [{start}, {end}) were freed")
        if not torch.equal(self.swa[swa], values[start:end]):
            raise CorruptKvError(f"{req.rid}: SWA KV of [{start}, {end}) was overwritten")
        if everything and not torch.equal(self.full[self.slots(req, 0, end)[0]], values[:end]):
            raise CorruptKvError(f"{req.rid}: full KV before {end} was overwritten")
