"""Counts islands that leave a hole in the window which is read next, without waiting for the device."""

from __future__ import annotations

from typing import Any

import torch


class Watch:
    """Looks are enqueued behind the frees that they judge; the sum travels to the host when it comes."""

    def __init__(self, pool: Any, rows: Any, page: int) -> None:
        self.pool, self.rows, self.page = pool, rows, page
        device = rows.req_to_token.device
        self._holes = torch.zeros((), dtype=torch.int64, device=device)
        self._arrived = torch.zeros((), dtype=torch.int64, pin_memory=device.type == "cuda")
        self._told = 0

    def look(self, req: Any, first: int, end: int) -> None:
        """Whether a position of [first, end) of the request has no SWA slot; a page has all of its slots or none."""
        heads = self.rows.req_to_token[req.kv.req_pool_idx, first // self.page * self.page : end : self.page]
        self._holes += (self.pool.translate_loc_from_full_to_swa(heads.long()) <= 0).any()
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
