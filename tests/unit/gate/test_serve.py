"""References for requests that extend a running one: a hit of just the depth that islands found."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from island_engine.gate.client import Answer
from island_engine.gate.probes import Probe
from island_engine.gate.serve import Server

if TYPE_CHECKING:
    from collections.abc import Awaitable


class Stock:
    """Keeps what one request left, whole pages of it, and generates 7s. `keys`: tokens of a key, 2 with EAGLE."""

    def __init__(self, page: int, keys: int) -> None:
        self.page, self.keys = page, keys
        self.kept: tuple[int, ...] = ()
        self.asked: list[int] = []

    async def flush(self) -> None:
        self.kept = ()

    async def generate(self, tokens: tuple[int, ...], new: int, *_: Any) -> Answer:
        found = next((i for i, (a, b) in enumerate(zip(tokens, self.kept, strict=False)) if a != b), len(self.kept))
        self.asked.append(new)
        answer = Answer((7,) * new, max(0, found - self.keys + 1) // self.page * self.page, ())
        self.kept = (tokens + answer.output)[:-1]  # the last token has no KV
        return answer


async def alive(answer: Awaitable[Any]) -> Any:
    return await answer


@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize(("keys", "generated"), [(1, [61]), (2, [61, 62])])
def test_a_reference_has_the_depth_that_islands_found(page: int, keys: int, generated: list[int]) -> None:
    client = Stock(page, keys)
    engine: Any = SimpleNamespace(client=client, alive=alive, arm=SimpleNamespace(name="off-B"))
    writer = Probe("running", "running/0/writer", "cold", (1,) * 20, 100)
    reader = Probe("running", "running/0", "any", (2,) * 10, 5, follows=writer.name, after=90)
    server = Server(engine, SimpleNamespace(served=lambda *_: None))
    server.transcripts[writer.name] = writer.tokens + (7,) * 100
    found = asyncio.run(server.reference(writer, reader, 80))
    assert found is not None
    assert (found.cached_tokens, found.input_length) == (80, 120)
    assert client.asked[::2] == generated  # a second try only where keys are pairs
    assert asyncio.run(server.reference(writer, reader, 16)) is None  # within the prompt
