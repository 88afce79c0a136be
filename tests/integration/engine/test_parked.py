"""A prompt that waits between its chunks because the SWA pool is short, while short ones queue that would fit.

SGLang 0.5.23 counts a chunk of it with every batch that is formed meanwhile (scheduler.py:4330), and so takes the
result of its last chunk for one in the middle: its first token is dropped and its prompt is never published. With its
own partitioned pools nobody fits where a chunk does not, so this does not come up there. fp32, greedy.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from support.engine import Engine, apart, parked, tiny

from island_engine.islands.cache import IslandRadixCache

if TYPE_CHECKING:
    from pathlib import Path

FLAGS = (
    *("--dtype", "float32", "--page-size", "8", "--chunked-prefill-size", "256", "--context-length", "2048"),
    *("--max-total-tokens", "8192", "--max-running-requests", "16"),
)
TIGHT = ("--swa-full-tokens-ratio", "0.06", "--radix-cache-backend", "islands")
ROOMY = ("--swa-full-tokens-ratio", "1.0")
LENGTHS = ((20, 30, 40, 900, 1400), (9, 12, 300, 600))  # of prompts, short ones and long ones


@dataclass
class Seen:
    tokens: list[list[int]] = field(default_factory=list)
    waited: int = 0  # passes in which a prompt waited between its chunks
    beside: int = 0  # batches of others that were formed meanwhile
    unpublished: int = 0  # of requests that decode, those whose prompt has not come through, by the step
    lost: tuple[int, int, int] = (0, 0, 0)


def prompts(lengths: tuple[int, ...], seed: int) -> list[list[int]]:
    """Drawn from these."""
    rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
    drawn = [rng.choice(lengths) for _ in range(30)]
    return [[rng.randrange(4, 512) for _ in range(length)] for length in drawn]


def serve(model: Path, *flags: str) -> Seen:
    engine, seen = Engine(model, *FLAGS, *flags, vocabulary=0), Seen()
    scheduler = engine.scheduler
    run, cache = scheduler.run_batch, scheduler.tree_cache

    def watched(batch: Any, *args: Any, **kwargs: Any) -> Any:
        waits = parked(scheduler, batch)
        seen.waited += waits
        seen.beside += waits and batch.forward_mode.is_extend()
        if type(cache) is IslandRadixCache:
            seen.unpublished += sum(req.decode_batch_idx > 2 and not cache.holds.processed(req) for req in batch.reqs)
        return run(batch, *args, **kwargs)

    scheduler.run_batch = watched
    for lengths in LENGTHS:
        for seed in range(4):
            seen.tokens += [answer.tokens for answer in engine.run(prompts(lengths, seed), 50)]
    seen.lost = engine.lost()
    return seen


@pytest.fixture(scope="module")
def arms(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    model = tiny(tmp_path_factory.mktemp("models") / "model", window=32)
    return {"roomy": apart(serve, model, *ROOMY), "tight": apart(serve, model, *TIGHT)}


def test_it_waits_and_nobody_is_admitted_beside_it(arms: dict[str, Seen]) -> None:
    assert arms["tight"].waited > 3
    assert arms["tight"].beside == 0


def test_it_loses_no_token(arms: dict[str, Seen]) -> None:
    assert arms["tight"].tokens == arms["roomy"].tokens


def test_its_prompt_comes_through(arms: dict[str, Seen]) -> None:
    assert arms["tight"].unpublished == 0
    assert arms["tight"].lost == (0, 0, 0)
