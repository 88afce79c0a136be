"""Which SWA ratio an arm should want for a workload, by the planner's formulas (island_engine.planner.capacity). Pure.

Sessions get a little more than they need (sizing.MARGIN): a mistake to the left costs them half their throughput.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from island_engine import sizing
from island_engine.bench.sim.clients import Independent, Sessions
from island_engine.planner.capacity import Demand, crossing
from island_engine.planner.workload import Workload

if TYPE_CHECKING:
    from island_engine.bench.sim.setting import Setting


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
    return Workload((1 + workload.floor) * workload.longest_input / 2, 0, decoded(workload)).length


def predict(setting: Setting, budget: int) -> Prediction:
    """The ratio of one arm and workload; `setting.ratio` and `setting.tokens` are not looked at."""
    geometry, workload = setting.engine.roofline.geometry, setting.workload
    pinned, chunk = hold(setting), setting.chunk + geometry.window + setting.page
    most = min(workload.concurrency, setting.running)
    least = min(1.0, sizing.leanest(geometry, (most - 1) * pinned + chunk, budget))
    if isinstance(workload, Sessions):
        return Prediction(min(1.0, sizing.MARGIN * least), "concurrency", most)
    ratio, both = crossing(Demand(pinned, chunk, length(workload)), geometry, budget)
    return Prediction(ratio, "pools", both) if both <= most else Prediction(least, "concurrency", most)
