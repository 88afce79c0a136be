"""Which SWA ratio an arm should want for a workload: the planner's formulas (design: The island engine, Planner). Pure.

F bytes of full and draft KV a token, S of SWA KV, B byte budget, h SWA tokens that a decoding request pins at its
worst, L full-pool tokens that it occupies, C = cp + w + p the chunk in flight, N requests at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from island_engine import sizing
from island_engine.bench.sim.clients import Independent, Sessions

if TYPE_CHECKING:
    from island_engine.bench.sim.setting import Setting

CLIP = 4_096  # output tokens that SGLang's admission reserves of a running request at most
# A mistake to the left costs an agentic workload half its throughput, so aim a little to the right (sizing.MARGIN).


@dataclass(frozen=True)
class Prediction:
    """The ratio, what limits there, and the requests that run then."""

    ratio: float
    binds: str  # pools: both at once; concurrency: as many as there are clients or slots
    running: float


def hold(setting: Setting) -> int:
    """h, tokens. Stock: the prompt's locked tail, a window of its own once it has decoded one, an eviction interval;
    `release` lets go of the prompt only after w steps, so at its worst it pins the same.
    """
    window, page = setting.engine.roofline.geometry.window, setting.page
    if setting.arm == "lazy":  # the whole chunk, and a decode part that is trimmed every w steps
        return setting.chunk + window + round(setting.engine.accept * window)
    if setting.arm.startswith("islands"):  # allocated ahead: two blocks under overlap with speculation, else a token
        ahead = 2 * setting.engine.block if setting.engine.block > 1 else 1
        return window + -(-(page + ahead) // page) * page
    return window + min(window, round(decoded(setting.workload))) + sizing.EVICTION_INTERVAL


def decoded(workload: Independent | Sessions) -> float:
    """E[o^2]/2E[o] of uniform outputs o: what a running request has generated; as much is left on average."""
    if isinstance(workload, Sessions):
        low, high = workload.output
    else:
        low, high = round(workload.floor * workload.longest_output), workload.longest_output
    return (low * low + low * high + high * high) / 3 / (low + high)


def length(workload: Independent) -> float:
    """L: the mean input, what was decoded so far, and what admission reserves of the rest."""
    so_far = decoded(workload)
    return (1 + workload.floor) * workload.longest_input / 2 + so_far + min(CLIP, so_far)


def predict(setting: Setting, budget: int) -> Prediction:
    """The ratio of one arm and workload; `setting.ratio` and `setting.tokens` are not looked at."""
    geometry, workload = setting.engine.roofline.geometry, setting.workload
    flat, swa = geometry.full_bytes + geometry.draft_bytes, geometry.swa_bytes
    pinned, chunk = hold(setting), setting.chunk + geometry.window + setting.page
    most = min(workload.concurrency, setting.running)
    if isinstance(workload, Sessions):
        return _concurrency(budget, flat, swa, (most - 1) * pinned + chunk, most, sizing.MARGIN)
    occupied = length(workload)
    both = (budget - chunk * swa) / (flat * occupied + swa * pinned)
    if both > most:
        return _concurrency(budget, flat, swa, (most - 1) * pinned + chunk, most, 1.0)
    return Prediction((budget * pinned / occupied + chunk * flat) / (budget - chunk * swa), "pools", both)


def _concurrency(budget: int, flat: int, swa: int, need: int, running: int, margin: float) -> Prediction:
    """The leanest ratio whose SWA pool holds `need` tokens."""
    room = budget - need * swa
    return Prediction(min(1.0, margin * need * flat / room) if room > 0 else 1.0, "concurrency", running)
