"""The coupled pair. One function picks the half from the switch, and everything else takes the half it returns.

The switch, the SWA ratio, the token pool and the request cap exist outside this module only together, in one `Half`:
no other code reads `islands.enabled` or a partition, so no pod can be built from pieces of two halves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from island_engine import drafts, sizing

if TYPE_CHECKING:
    from island_operator.core.model import Object

UNIFIED = "unified"  # spec.partition.mode: SGLang's shared pool


@dataclass(frozen=True)
class Half:
    """One half of the pair: what an engine is told about islands and about its pools."""

    islands: bool
    decode_interval: int | None  # tokens between decode islands; None: the engine's own choice
    ratio: str | None  # SWA pool / full pool; None: one unified pool, which has no ratio
    max_total_tokens: int | None  # of the full pool; None: of the unified pool the engine makes what fits
    max_running_requests: int

    @property
    def label(self) -> str:
        """Its name, as label `radix-islands.dev/half` and as key of `spec.partition`."""
        return "islands" if self.islands else "stock"

    @property
    def switch(self) -> list[str]:
        """The engine arguments that switch islands."""
        return ["--islands", "on" if self.islands else "off", *self.interval]

    @property
    def interval(self) -> list[str]:
        """The argument that paces decode islands, where it is not left to the engine."""
        return ["--island-decode-interval", str(self.decode_interval)] if self.decode_interval else []

    @property
    def pools(self) -> list[str]:
        """The engine arguments that size its pools."""
        if self.ratio is None:
            return ["--enable-unified-memory"]
        return ["--swa-full-tokens-ratio", self.ratio, "--max-total-tokens", str(self.max_total_tokens)]

    @property
    def cap(self) -> list[str]:
        """The engine argument that caps its running requests: past what the pools hold, throughput collapses."""
        return ["--max-running-requests", str(self.max_running_requests)]


def half_of(parts: Object) -> Half:
    """The half that the switch of a revision asks for; with a unified pool both are the same but for the switch."""
    on = bool(parts["islands"]["enabled"])
    split = parts["partition"].get("mode") != UNIFIED
    side = parts["partition"]["islands" if on else "stock"] if split else {}
    return Half(
        islands=on,
        decode_interval=parts["islands"].get("decodeInterval") if on else None,
        ratio=str(side["swaFullTokensRatio"]) if split else None,
        max_total_tokens=int(side["maxTotalTokens"]) if split else None,
        max_running_requests=int(side.get("maxRunningRequests") or parts["engine"]["maxRunningRequests"]),
    )


def planned(parts: Object, window: int) -> int:
    """Requests that an engine of this half is sized to run at once: what its SWA pool holds with its switch (`window`:
    tokens of the sliding window), or its cap. A shared pool has no such number of its own.
    """
    half, engine = half_of(parts), parts["engine"]
    if half.ratio is None or half.max_total_tokens is None:
        return half.max_running_requests
    ahead = drafts.of_arguments(engine.get("args") or ()).ahead(engine["pageSize"])
    serving = sizing.Serving(engine["pageSize"], engine["chunkedPrefillSize"], half.max_running_requests, ahead)
    pools = sizing.Half(half.ratio, half.max_total_tokens)
    return min(half.max_running_requests, sizing.swa_bound(pools, window, serving, islands=half.islands))


def cramped(parts: Object, window: int) -> str | None:
    """One sentence where islands would refuse the pools of their half at boot (`window`: tokens of the sliding window).
    The API server lets none in; an older one may have.
    """
    half, page = half_of(parts), parts["engine"]["pageSize"]
    if not half.islands or half.ratio is None or half.max_total_tokens is None:
        return None
    pool, least = sizing.Half(half.ratio, half.max_total_tokens).allocated(page), sizing.lone(window, page)
    if pool >= least:
        return None
    enough = math.ceil((least + 2 * page) / float(half.ratio))
    return (
        f"spec.partition.islands: its SWA pool has {pool} tokens, and islands need {least} for a prompt of several "
        f"chunks: use maxTotalTokens {enough} at this swaFullTokensRatio, or set spec.islands.enabled to false"
    )


def gains_nothing(parts: Object) -> str | None:
    """One sentence where islands are on and both halves are the same: what they free stays unused. The shared pool of
    the mode unified is one by design, and lends what is free by itself.
    """
    half = half_of(parts)
    twin = half_of({**parts, "islands": {"enabled": False}})
    same = (half.ratio, half.max_total_tokens, half.max_running_requests)
    if not half.islands or half.ratio is None or same != (twin.ratio, twin.max_total_tokens, twin.max_running_requests):
        return None
    return (
        f"spec.partition: both halves are {half.ratio} of {half.max_total_tokens} tokens, so the full pool "
        "gains nothing from islands: give partition.islands a smaller swaFullTokensRatio and a larger maxTotalTokens, "
        "such as island-engine plan computes"
    )
