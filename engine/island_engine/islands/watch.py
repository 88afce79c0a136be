"""Counts islands that leave a hole in the window which is read next, without waiting for the device."""

from __future__ import annotations

from typing import Any

import torch


class Watch:
    """Looks are enqueued behind the frees that they judge; the sum travels to the host when it comes."""

    def __init__(self, pool: Any, rows: Any) -> None:
        self.pool, self.rows = pool, rows
        device = rows.req_to_token.device
        self._holes = torch.zeros((), dtype=torch.int64, device=device)
        self._there = device.type == "cpu"  # nothing has to travel
        self._arrived = (
            self._holes if self._there else torch.zeros((), dtype=torch.int64, pin_memory=device.type == "cuda")
        )
        self._told = 0

    def look(self, req: Any, first: int, end: int) -> None:
        """Whether a position of [first, end) of the request has no SWA slot."""
        slots = self.pool.translate_loc_from_full_to_swa(self.rows.req_to_token[req.kv.req_pool_idx, first:end].long())
        self._holes += (slots <= 0).any()
        if not self._there:
            self._arrived.copy_(self._holes, non_blocking=True)

    @property
    def found(self) -> int:
        """Holes that were found, as far as is known here."""
        return int(self._arrived)

    def news(self) -> int:
        """Those since it was asked last."""
        seen = self.found
        news, self._told = seen - self._told, seen
        return news
