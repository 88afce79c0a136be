"""Counts pages that islands miss in the window which is read next, without waiting for the device."""

from __future__ import annotations

from typing import Any

import torch

TOGETHER = 64  # looks that are summed up at once: a sum is as long on its way as a look


class Watch:
    """Looks are enqueued behind the frees that they judge; the sum travels to the host when it comes."""

    def __init__(self, pool: Any, rows: Any) -> None:
        self.pool, self.rows = pool, rows
        device = rows.req_to_token.device
        self._looks: list[torch.Tensor] = []  # SWA slots that were there, a page each
        self._holes = torch.zeros((), dtype=torch.int64, device=device)
        self._there = device.type == "cpu"  # nothing has to travel
        self._arrived = (
            self._holes if self._there else torch.zeros((), dtype=torch.int64, pin_memory=device.type == "cuda")
        )
        self._told = 0

    def look(self, req: Any, first: int, end: int) -> None:
        """At the pages of positions [first, end) of the request, which come and go as a whole."""
        page = self.pool.page_size
        pages = self.rows.req_to_token[req.kv.req_pool_idx, first // page * page : end : page]
        self._looks.append(self.pool.translate_loc_from_full_to_swa(pages))
        if len(self._looks) >= TOGETHER:
            self._sum()

    def _sum(self) -> None:
        self._holes += (torch.cat(self._looks) <= 0).sum()
        self._looks.clear()
        if not self._there:
            self._arrived.copy_(self._holes, non_blocking=True)

    @property
    def found(self) -> int:
        """Pages that were missing, as far as is known here."""
        if self._looks:
            self._sum()
        return int(self._arrived)

    def news(self, *, wait: bool = False) -> int:
        """Those since it was asked last. `wait`: for what is on its way, so that nothing stays untold."""
        seen = self.found
        if wait and not self._there:
            self._arrived.copy_(self._holes)
            seen = int(self._arrived)
        news, self._told = seen - self._told, seen
        return news
