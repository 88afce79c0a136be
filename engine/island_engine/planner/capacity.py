"""How many requests two pools run, which of them binds, and which split is best. Pure formulas (design: The island
engine, Planner), checked against SGLang's scheduler in virtual time (docs/plan.md).

B bytes for KV, F bytes of full and draft KV a token, S of SWA KV, r SWA ratio, T full-pool tokens, w window, p page,
cp prefill chunk, h SWA tokens that a decoding request pins at its worst, C those of the chunk in flight, L full-pool
tokens that a request occupies, N requests at once. Sizes are in tokens unless they say bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from island_engine import sizing

if TYPE_CHECKING:
    from island_engine.planner.workload import Workload
    from island_engine.sizing import Geometry, Serving

Binds = Literal["full", "swa", "cap"]
FLAT = 0.98  # running requests within 2 % of the most count as just as good
STEP = 0.001  # of the ratios that are tried


@dataclass(frozen=True)
class Demand:
    """What requests of one arm ask of the pools: h, C and L; `shared` of L is there once for all."""

    hold: float
    in_flight: float
    length: float
    shared: float = 0.0


def hold(window: int, page: int, decoded: float = math.inf, *, islands: bool) -> float:
    """SWA tokens that a request pins, h. Islands: one window, cut at pages; stock: the prompt's locked tail, a window
    of its own once it has decoded one, and an eviction interval.
    """
    if islands:
        return window + 2 * page
    return window + min(window, decoded) + max(2 * page, sizing.EVICTION_INTERVAL)


def demand(geometry: Geometry, serving: Serving, workload: Workload, *, islands: bool) -> Demand:
    """What the requests of a workload ask for, switch on or off."""
    most = workload.length + serving.page  # nothing is behind the window of a shorter request
    return Demand(
        min(most, hold(geometry.window, serving.page, workload.decoded, islands=islands)) + serving.drafted,
        serving.chunk + geometry.window + serving.page,
        workload.length + serving.drafted,
        workload.shared,
    )


def least_demand(geometry: Geometry, serving: Serving, workload: Workload) -> Demand:
    """No cache can ask for less: each request its window and its drafts, and one chunk in flight."""
    return Demand(
        min(geometry.window, workload.length) + serving.drafted,
        serving.chunk + geometry.window,
        workload.length + serving.drafted,
        workload.shared,
    )


def limits(asked: Demand, full: float, swa: float) -> dict[Binds, float]:
    """How many requests each pool runs, whatever the other does."""
    return {
        "full": max(0.0, full - asked.shared) / (asked.length - asked.shared),
        "swa": max(0.0, (swa - asked.in_flight) / asked.hold + 1),
    }


def running(asked: Demand, full: float, swa: float, most: float = math.inf) -> tuple[Binds, float]:
    """What binds, and the requests that run."""
    found: dict[Binds, float] = {"cap": most, **limits(asked, full, swa)}
    return min(found.items(), key=lambda limit: limit[1])


def at(asked: Demand, geometry: Geometry, budget: int, ratio: float, most: float = math.inf) -> float:
    """Requests that run at a ratio, of real-valued pools."""
    full = budget / geometry.bytes_per_token(ratio)
    return running(asked, full, ratio * full, most)[1]


def crossing(asked: Demand, geometry: Geometry, budget: int) -> tuple[float, float]:
    """The ratio at which both pools bind at once, and the requests that run then, the most at any ratio.

    Without a shared prefix r = (B h/L + C F) / (B - C S) and N = (B - C S) / (F L + S h); (0, 0) when not even the
    chunk in flight fits. The request in flight is taken to pin a window already, so that `running` counts one more.
    """
    flat, swa = geometry.full_bytes + geometry.draft_bytes, geometry.swa_bytes
    own = asked.length - asked.shared
    room = budget - asked.in_flight * swa - asked.shared * flat
    if room <= 0:
        return 0.0, 0.0
    most = room / (flat * own + swa * asked.hold)
    full = most * own + asked.shared
    return (most * asked.hold + asked.in_flight) / full, most


def plateau(asked: Demand, geometry: Geometry, budget: int, most: float) -> tuple[float, float] | None:
    """The ratios at which `most` requests run, None without any: left of them the SWA pool binds, right the full."""
    least = sizing.leanest(geometry, (most - 1) * asked.hold + asked.in_flight, budget)
    flat = geometry.full_bytes + geometry.draft_bytes
    full = most * (asked.length - asked.shared) + asked.shared
    highest = (budget / full - flat) / geometry.swa_bytes
    return (least, min(1.0, highest)) if least <= min(1.0, highest) else None


def flat(asked: Demand, geometry: Geometry, budget: int, most: float) -> tuple[float, float]:
    """The ratios around the best at which FLAT of the most requests run."""
    ratios = [step * STEP for step in range(1, round(1 / STEP) + 1)]
    found = [at(asked, geometry, budget, ratio, most) for ratio in ratios]
    good = [ratio for ratio, count in zip(ratios, found, strict=True) if count >= FLAT * max(found)]
    return good[0], good[-1]
