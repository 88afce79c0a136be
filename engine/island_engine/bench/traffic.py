"""Random life on one small engine: whatever a scheduler does to a cache, at pool sizes where everything runs short."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from island_engine.bench.kv import VOCABULARY
from island_engine.bench.rig import Rig, Sizes

CHECK = 16  # steps between looks at the books


@dataclass(frozen=True)
class Life:
    """One run, drawn from its seed. `draft`: tokens of a verify step, 0 without speculation; `bigram`: EAGLE's keys."""

    seed: int
    sizes: Sizes
    overlap: bool
    draft: int
    bigram: bool
    requests: int

    @property
    def mode(self) -> str:
        """How the engine schedules, for the table."""
        spec = "EAGLE" if self.bigram else "NGRAM" if self.draft else "no speculation"
        return f"{spec}, {'overlap' if self.overlap else 'no overlap'}"


def draw(seed: int) -> Life:
    """Six modes in turn; sizes at random: the SWA pool short, the full pool short, or both."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    page = rng.choice((4, 16))
    window, chunk = page * rng.choice((2, 4)), page * rng.choice((8, 16))
    least = chunk + 3 * window + 8 * page  # one request and a chunk, with what speculation allocates ahead
    longest = 7 * chunk  # see _request and _live
    swa = least + rng.choice((1, 2, 12)) * (window + 2 * page)
    full = longest * rng.choice((1, 2, 4)) + 16 * page
    sizes = Sizes(page, window, chunk, full=full, swa=swa, rows=16, context=longest + 16 * page)
    return Life(
        seed, sizes, overlap=seed % 2 == 1, draft=4 * (seed % 6 >= 2), bigram=seed % 6 >= 4, requests=rng.randint(6, 12)
    )


def live(life: Life, cache_class: type) -> tuple[Rig, list[str], int]:
    """Run it to its end. The engine, what was wrong (empty when nothing), and how many requests were aborted."""
    rng = random.Random(life.seed)  # noqa: S311 - no secret
    engine = Rig(cache_class, life.sizes, overlap=life.overlap, draft=life.draft, bigram=life.bigram, seed=life.seed)
    try:
        aborted = _live(engine, life, rng)
    except Exception as fault:  # noqa: BLE001 - whatever a run dies of is its finding
        return engine, [f"{type(fault).__name__}: {fault}"], 0
    wrong = engine.leaks()
    if engine.tally.violations:
        wrong.append(f"{engine.tally.violations} frontier violations")
    return engine, wrong, aborted


def _live(engine: Rig, life: Life, rng: random.Random) -> int:
    chunk = life.sizes.chunk
    documents = [[rng.randrange(VOCABULARY) for _ in range(3 * chunk)] for _ in range(3)]
    todo = [_request(rng, documents, chunk) for _ in range(life.requests)]
    done: list[Any] = []
    aborted = 0
    while todo or engine.busy:
        if todo and rng.random() < 0.1:
            engine.add(*todo.pop())
        if done and rng.random() < 0.05:  # a session goes on from a finished request: a branch, or an extension
            earlier = engine.ids(done.pop())
            kept = earlier[: rng.randint(1, len(earlier))] if rng.random() < 0.5 else earlier
            engine.add([*kept[: 4 * chunk], *_random(rng, chunk // 2)], rng.randint(1, chunk // 4), rng.randrange(4))
        alive = [*engine.waiting, *engine.running, *([engine.chunked] if engine.chunked else [])]
        if alive and rng.random() < 0.01:
            engine.abort(rng.choice(alive))
            aborted += 1
        if engine.running and rng.random() < 0.02:
            engine.retract(rng.choice(engine.running))
        engine.step()
        if engine.stuck:
            raise AssertionError(f"stuck: {len(engine.waiting)} waiting, free {engine.free()}")
        if engine.clock % CHECK == 0 and (lost := engine.unaccounted()):
            raise AssertionError(f"{lost} SWA tokens that nobody answers for, at step {engine.clock}")
        done, engine.finished = [*done, *engine.finished], []
    return aborted


def _random(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, count))]


def _request(rng: random.Random, documents: list[list[int]], chunk: int) -> tuple[list[int], int, int]:
    """Prompt, tokens to generate, seed of the generation: documents and generations are shared."""
    document, own = rng.choice(documents), _random(rng, chunk)
    return [*document[: rng.randint(0, len(document))], *own], rng.randint(1, 2 * chunk), rng.randrange(4)
