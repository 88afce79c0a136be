"""Prompts, nobody else, one after another, in the smallest SWA pool that islands boot with (guards.check_room): none
may wait between its chunks for ever. In one of w + p + a chunk, the floor for one running request, some would.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from support.engine import Engine, apart, tiny

if TYPE_CHECKING:
    from pathlib import Path

PAGE, WINDOW, TOTAL = 8, 64, 4096
POOL = 3 * WINDOW + 4 * PAGE
FLAGS = (
    *("--dtype", "float32", "--page-size", str(PAGE), "--context-length", "2048"),
    *("--max-total-tokens", str(TOTAL), "--max-running-requests", "1", "--radix-cache-backend", "islands"),
    *("--swa-full-tokens-ratio", f"{(POOL + PAGE / 2) / TOTAL:.4f}"),
)


def serve(model: Path, *flags: str) -> list[int]:
    engine, steps = Engine(model, *FLAGS, *flags, vocabulary=0), iter(range(20_000))
    rng = random.Random(0)  # noqa: S311 - repeatable on purpose
    assert engine.baseline[1] == POOL

    def during() -> list[Any]:
        assert next(steps, None) is not None, f"it waits for ever: (full, SWA, rows) free {engine.free()}"
        return []

    lengths = [166, *range(150, 260, 5), 400, 700]
    prompts = [[rng.randrange(4, 512) for _ in range(length)] for length in lengths]
    again = [ids + [9] * 90 for ids in prompts[:8]]  # each finds the first of them
    return [len(engine.run([ids], 4, during)[0].tokens) for ids in (*prompts, *again)]


@pytest.mark.parametrize("chunk", [8, 64, 128])
def test_a_prompt_that_is_alone_ends(chunk: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    model = tiny(tmp_path_factory.mktemp("models") / "model", WINDOW)
    assert set(apart(serve, model, "--chunked-prefill-size", str(chunk))) == {4}
