"""A burst of requests on one arm, and what is counted while it runs. Sizes in tokens, time in scheduler steps."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from island_engine.bench.kv import VOCABULARY
from island_engine.bench.rig import Rig, Sizes
from island_engine.bench.worker import cache_class

if TYPE_CHECKING:
    from collections.abc import Iterator

    from island_engine.bench.geometry import Geometry

SAMPLE = 7  # steps between looks at the hold; no divisor of a page or an interval
TELL = 64  # steps between signs of life


@dataclass(frozen=True)
class Burst:
    """`requests` arrive at once, each to generate `shortest` to `longest` tokens; `share` of them have one prompt."""

    requests: int
    steps: int
    shortest: int
    longest: int
    share: int = 1
    seed: int = 5


def prompts(rng: np.random.Generator, count: int, length: int) -> list[array[int]]:
    """Random token ids; no two prompts share a page."""
    return [array("q", row.tobytes()) for row in rng.integers(0, VOCABULARY, (count, length), dtype=np.int64)]


def rig(arm: str, geometry: Geometry, *, full: int, swa: int, rows: int, longest: int, overlap: bool) -> Rig:
    """An engine of that geometry without contents: counts and books only."""
    page = geometry.page
    sizes = Sizes(
        page=page,
        window=geometry.window,
        chunk=geometry.chunk,
        full=full // page * page,
        swa=swa // page * page,
        rows=rows,
        context=geometry.prompt + longest + 4 * page,
    )
    return Rig(cache_class(arm), sizes, overlap=overlap, contents=False)


def run(
    arm: str, geometry: Geometry, burst: Burst, ratio: float, *, big: bool, overlap: bool
) -> Iterator[float | dict[str, Any]]:
    """Drive the burst for its steps. `big`: the full pool holds everything, so that the SWA pool binds; else the full
    pool has geometry.tokens. Then everything is aborted, and both pools must be back.
    """
    rng = np.random.default_rng(burst.seed)
    everything = burst.requests * (geometry.prompt + burst.longest + 4 * geometry.page) + 2 * geometry.chunk
    engine = rig(
        arm,
        geometry,
        full=everything if big else geometry.tokens,
        swa=geometry.swa(ratio),
        rows=burst.requests + 2,
        longest=burst.longest,
        overlap=overlap,
    )
    distinct = prompts(rng, -(-burst.requests // burst.share), geometry.prompt)
    outputs = rng.integers(burst.shortest, burst.longest + 1, burst.requests).tolist()
    for index, output in enumerate(outputs):
        engine.add(distinct[index // burst.share], output, seed=index)
    running: list[int] = []
    holds: list[float] = []
    first = prefills = 0
    for step in range(burst.steps):
        job = engine.step()
        if engine.stuck or not engine.busy:
            break
        running.append(len(engine.running) + (engine.chunked is not None))
        if job is not None and job.decode:
            first = first or running[-1]
            if step >= burst.steps // 2 and step % SAMPLE == 0 and engine.chunked is None and engine.running:
                holds.append(engine.pinned_swa() / len(engine.running))
        prefills += job is not None and not job.decode
        if step % TELL == 0:
            yield step / burst.steps
    late = running[len(running) // 2 :]
    counted = {
        "sustained": round(float(np.mean(late)), 1),
        "first": first,
        "swa_retractions": engine.swa_retractions,
        "full_retractions": engine.retractions - engine.swa_retractions,
        "recomputed": engine.recomputed,
        "prefilled": engine.prefilled,
        "decoded_per_step": round(engine.decoded / len(running), 1),
        "steps": len(running),
        "prefill_steps": prefills,
        "finished": len(engine.finished),
        "hold_mean": round(float(np.mean(holds)), 1) if holds else None,
        "hold_max": round(max(holds), 1) if holds else None,
        "islands": dict(engine.tally.islands),
        "stuck": engine.stuck,
    }
    engine.drain()
    yield counted | {"leaks": engine.leaks()}
