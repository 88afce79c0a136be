"""How large the two KV pools must be, and what they can hold. Pure standard library: the operator imports it.

Symbols (design: The island engine): w sliding window, p page size, cp prefill chunk, r SWA ratio (SWA pool over full
pool), T tokens in the full pool, N running requests, B bytes for KV. All sizes are in tokens unless they say bytes.

What one running request pins in the SWA pool while it decodes is w+p with islands and 2(w+p) with SGLang 0.5.23's own
cache (the locked prefill tail beside the decode window; 2,176 measured at w 1,024, p 64); one chunk is in flight. That
gives the floor, below which the pool cannot run N requests. Derived halves are planned with what a request pins at its
worst, which is up to a page or an eviction interval more (design: The island engine, Planner). For a tree of drafts
SGLang reserves many pages ahead of every request (drafts), and all of these include them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from island_engine.drafts import ALONE

if TYPE_CHECKING:
    from collections.abc import Mapping

SCALE = 10_000  # a ratio has at most four decimals, so that its text can be compared and hashed
EVICTION_INTERVAL = 128  # decode steps between SGLang 0.5.23's evictions, SGLANG_SWA_EVICTION_INTERVAL
MARGIN = 1.05  # left of the needed ratio throughput falls off a cliff, right of it the optimum is flat (measured)


@dataclass(frozen=True)
class Geometry:
    """What a token of one model costs. `draft_bytes` is KV of a speculative draft model on the same index space."""

    window: int
    full_bytes: int  # bytes per token in all full-attention layers
    swa_bytes: int  # bytes per token in all sliding-window layers
    draft_bytes: int = 0

    def bytes_per_token(self, ratio: float) -> float:
        """c(r), bytes: what one token of the full pool costs with its share of the SWA pool (seed, pool layout)."""
        return self.full_bytes + self.draft_bytes + ratio * self.swa_bytes

    def capacity(self, ratio: float, budget: int) -> int:
        """T(r) = B / c(r), tokens in the full pool."""
        return int(budget / self.bytes_per_token(ratio))


@dataclass(frozen=True)
class Serving:
    """How one engine schedules: page size, prefill chunk, most running requests, and the tokens that it allocates ahead
    of each of them (drafts.Drafts.ahead).
    """

    page: int
    chunk: int
    running: int
    ahead: int = ALONE

    @property
    def drafted(self) -> int:
        """Tokens in whole pages that a request is given beyond those of one that does not speculate; 0 for a
        chain that is not longer than a page.
        """
        pages, alone = (-(-(self.page + ahead) // self.page) for ahead in (self.ahead, ALONE))
        return (pages - alone) * self.page


@dataclass(frozen=True)
class Half:
    """One half of the pair, as the spec spells it."""

    ratio: str
    max_total_tokens: int

    @property
    def swa_tokens(self) -> int:
        """Tokens in the SWA pool."""
        return round(float(self.ratio) * SCALE) * self.max_total_tokens // SCALE

    def allocated(self, page: int) -> int:
        """Tokens in the SWA pool that SGLang 0.5.23 makes of it: whole pages of both (pool_configurator.py:880)."""
        return int(self.max_total_tokens // page * page * float(self.ratio)) // page * page


@dataclass(frozen=True)
class Halves:
    """The coupled pair."""

    islands: Half
    stock: Half


def hold(window: int, serving: Serving, *, islands: bool) -> int:
    """SWA tokens that one decoding request pins."""
    return (window + serving.page) * (1 if islands else 2) + serving.drafted


def peak(window: int, serving: Serving, *, islands: bool) -> int:
    """SWA tokens that one decoding request pins at its worst: a page, or an eviction interval, behind."""
    page = serving.page
    return serving.drafted + (window + 2 * page if islands else 2 * window + max(2 * page, EVICTION_INTERVAL))


def floor(window: int, serving: Serving, *, islands: bool) -> int:
    """The smallest SWA pool in which N requests run: cp + N * hold (68,608 at w 1,024, p 64, cp 16,384, N 48)."""
    return serving.chunk + serving.running * hold(window, serving, islands=islands)


def lone(window: int, page: int) -> int:
    """The smallest SWA pool, as allocated, that islands boot with. In a smaller one a prompt that is alone might wait
    between its chunks for ever: it owns less than w + p behind the edge of what is published, its lock pins whole nodes
    of the tree, 2w + 2p at most, and SGLang starts no chunk in the last page that is free (prefill_budget.py:277).
    """
    return 3 * window + 4 * page


def least(window: int, serving: Serving, *, islands: bool) -> int:
    """The smallest SWA pool of a half that is derived: its floor, and room for a lone prompt where SGLang rounds either
    pool down to whole pages. Stock's too, which is never the leaner half.
    """
    return max(floor(window, serving, islands=islands), lone(window, serving.page) + 2 * serving.page)


def need(window: int, serving: Serving, *, islands: bool) -> int:
    """The SWA pool to plan for: N-1 requests at their peak and one whose chunk is in flight, never below the least."""
    at_work = serving.chunk + window + serving.page
    planned = (serving.running - 1) * peak(window, serving, islands=islands) + at_work
    return max(planned, least(window, serving, islands=islands))


def swa_bound(half: Half, window: int, serving: Serving, *, islands: bool) -> int:
    """How many running requests the SWA pool of a half holds beside one chunk in flight, whatever else limits them."""
    return max(0, half.swa_tokens - serving.chunk) // hold(window, serving, islands=islands)


def binds(
    half: Half, window: int, serving: Serving, length: float, *, islands: bool
) -> tuple[Literal["full", "swa", "cap"], int]:
    """What limits the running requests, and to how many. `length`: full-pool tokens that one of them occupies on
    average (mean input + E[o^2] / 2 E[o] of the outputs o).
    """
    limits: dict[Literal["full", "swa", "cap"], int] = {
        "cap": serving.running,
        "swa": swa_bound(half, window, serving, islands=islands),
        "full": int(half.max_total_tokens / length),
    }
    return min(limits.items(), key=lambda limit: limit[1])


def bound(spec: Mapping[str, Any], *, islands: bool, ratio: float, tokens: int) -> int:
    """`swa_bound` of a pool of ratio * tokens under the `geometry` and `engine` of an InferenceService's spec."""
    engine = spec["engine"]
    serving = Serving(engine["pageSize"], engine["chunkedPrefillSize"], engine["maxRunningRequests"])
    return swa_bound(Half(spell(ratio), tokens), spec["geometry"]["slidingWindow"], serving, islands=islands)


def spell(ratio: float) -> str:
    """The one spelling of a ratio: rounded up to four decimals, no trailing zero ("0.17")."""
    return f"{min(SCALE, math.ceil(ratio * SCALE - 1e-6)) / SCALE:.4f}".rstrip("0").rstrip(".")


def leanest(geometry: Geometry, tokens: float, budget: int) -> float:
    """The ratio at which the SWA pool holds exactly so many tokens; infinite when the budget cannot hold them.

    From r * T(r) = tokens and T(r) = B / (F + r S): r = tokens * F / (B - tokens * S), F full and draft, S SWA bytes.
    """
    room = budget - tokens * geometry.swa_bytes  # bytes left for the full pool
    return tokens * (geometry.full_bytes + geometry.draft_bytes) / room if room > 0 else math.inf


def cut(geometry: Geometry, page: int, budget: int, ratio: float) -> Half:
    """The half at a ratio: as many whole pages as the budget gives."""
    text = spell(ratio)
    return Half(text, geometry.capacity(float(text), budget) // page * page)


def least_budget(geometry: Geometry, serving: Serving, *, islands: bool) -> int:
    """Bytes below which no ratio up to 1 holds the least SWA pool, in whole pages."""
    tokens = least(geometry.window, serving, islands=islands) + serving.page
    return tokens * (geometry.full_bytes + geometry.draft_bytes + geometry.swa_bytes)


def derive_halves(geometry: Geometry, serving: Serving, budget: int) -> Halves:
    """Both halves for one byte budget. ValueError (one sentence with the budget to use) when it holds no floor."""
    stock = derive_half(geometry, serving, budget, islands=False)  # first: what it refuses is enough for both
    return Halves(derive_half(geometry, serving, budget, islands=True), stock)


def derive_half(geometry: Geometry, serving: Serving, budget: int, *, islands: bool) -> Half:
    """The leanest ratio whose SWA pool holds what N requests need, and 5 % more. ValueError: see derive_halves."""
    if budget < (bytes_ := least_budget(geometry, serving, islands=islands)):
        fewer = budget >= least_budget(geometry, replace(serving, running=1), islands=islands)
        raise ValueError(
            f"geometry.kvBudgetBytes {budget} is too small for {serving.running} running requests "
            f"{'with' if islands else 'without'} islands: use at least {bytes_}"
            f"{', or a smaller engine.maxRunningRequests' if fewer else ''}"
        )
    wanted = need(geometry.window, serving, islands=islands)
    half = cut(geometry, serving.page, budget, min(1.0, leanest(geometry, wanted, budget) * MARGIN))
    while half.swa_tokens < wanted and half.ratio != "1":  # a page rounded off can cost the last token;
        half = cut(geometry, serving.page, budget, float(half.ratio) + 1 / SCALE)  # r 1 was checked to hold the least
    return half
