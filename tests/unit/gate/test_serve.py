"""Scenes are asked in the order of the plan. References for requests that extend a running one have just the depth that
islands found.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from island_engine.gate.client import Answer, Prompt
from island_engine.gate.plan import plan
from island_engine.gate.probes import PROFILES, Geometry, Probe
from island_engine.gate.serve import Server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence


class Stock:
    """Keeps what one request left, whole pages of it, and generates 7s. `keys`: tokens of a key, 2 with EAGLE."""

    def __init__(self, page: int, keys: int) -> None:
        self.page, self.keys = page, keys
        self.kept: tuple[int, ...] = ()
        self.asked: list[int] = []

    async def flush(self) -> None:
        self.kept = ()

    async def generate(self, prompts: Sequence[Prompt], *_: Any) -> list[Answer]:
        ((tokens, new),) = ((prompt.tokens, prompt.new_tokens) for prompt in prompts)
        found = next((i for i, (a, b) in enumerate(zip(tokens, self.kept, strict=False)) if a != b), len(self.kept))
        self.asked.append(new)
        answer = Answer((7,) * new, max(0, found - self.keys + 1) // self.page * self.page, ())
        self.kept = (tokens + answer.output)[:-1]  # the last token has no KV
        return [answer]


class Counting:
    """Answers 0, 1, 2, ... to everyone; `asked` has every request's prompts, in order of arrival."""

    def __init__(self) -> None:
        self.asked: list[list[tuple[int, ...]]] = []
        self.heeded: list[bool] = []
        self.told = 0

    async def generate(self, prompts: Sequence[Prompt], on_tokens: Any = None, every: int = 1) -> list[Answer]:
        self.asked.append([prompt.tokens for prompt in prompts])
        self.heeded.append(on_tokens is not None)
        for length in range(1, prompts[0].new_tokens + 1):
            await asyncio.sleep(0)
            if on_tokens is not None and (length % every == 1 % every or length == prompts[0].new_tokens):
                self.told += 1
                await on_tokens(tuple(range(length)), 0)
        return [Answer(tuple(range(prompt.new_tokens)), 0, ()) for prompt in prompts]


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


def ask(probes: Sequence[Probe]) -> tuple[Counting, list[str]]:
    """What reached the engine, and whose answers came, in order."""
    client, came = Counting(), []

    def stop(serve: Any) -> bool:
        came.append(serve.probe.name)
        return False

    engine: Any = SimpleNamespace(client=client, alive=alive, arm=SimpleNamespace(name="on"))
    asyncio.run(Server(engine, SimpleNamespace(served=lambda *_: None)).serve(probes, stop))
    return client, came


def scene(*after: int) -> list[Probe]:
    return [
        Probe("pressure", f"pressure/{i}", "cold", (i,), 20, scene="pressure", after=tokens)
        for i, tokens in enumerate(after)
    ]


def test_what_is_asked_at_once_is_one_request_in_the_order_of_the_plan() -> None:
    client, came = ask([*scene(*[0] * 40), Probe("text", "text/0", "any", (), 2, text="alone")])
    assert client.asked == [[(i,) for i in range(40)], [()]]
    assert came == [*(f"pressure/{i}" for i in range(40)), "text/0"]
    assert not any(client.heeded)


def test_who_waits_for_tokens_of_the_lead_is_asked_in_turn() -> None:
    client, came = ask(scene(0, 0, 3, 3, 3, 9))
    assert client.asked == [[(0,), (1,)], [(2,), (3,), (4,)], [(5,)]]
    assert came == [f"pressure/{i}" for i in range(6)]
    assert client.heeded == [True, False, False]  # to the lead's tokens


@pytest.mark.parametrize(("rounds", "told"), [(0, 160), (1, 5_000)])
def test_of_a_long_lead_one_hears_now_and_then_but_where_tokens_count(rounds: int, told: int) -> None:
    """Each tidings has all log probabilities so far: 5,000 of 5,000 tokens were 1.9 GB."""
    lead = Probe("pressure", "pressure/0", "cold", (1,), 5_000, scene="pressure", rounds=rounds, every=9_000)
    client, came = ask([lead, *scene(4_000)])
    assert came == ["pressure/0", "pressure/0"]
    assert client.told <= told
    assert client.told >= told - 5


def test_who_extends_a_running_request_reads_what_it_had_then() -> None:
    writer = Probe("running", "running/0/writer", "cold", (7, 8), 20, scene="running/0")
    reader = Probe("running", "running/0", "any", (9,), 2, follows=writer.name, scene="running/0", after=3)
    client, _ = ask([writer, reader])
    assert client.asked == [[(7, 8)], [(7, 8, 0, 1, 2, 9)]]


class Busy:
    """An engine that waits for nobody: it generates a token a step, and what it tells of them is heard `late` steps
    after the first, all at once. Who was retracted runs again after some steps.
    """

    def __init__(self, late: Sequence[int]) -> None:
        self.late = list(late)
        self.made = self.retracted = self.back = 0
        self.running = False

    async def generate(self, prompts: Sequence[Prompt], on_tokens: Any = None, _: int = 1) -> list[Answer]:
        new = prompts[0].new_tokens
        if on_tokens is None:
            return [Answer((7,) * prompt.new_tokens, 0, ()) for prompt in prompts]
        told: asyncio.Queue[tuple[tuple[int, ...], int]] = asyncio.Queue()
        engine = asyncio.create_task(self.run(new, told))
        for _ in range(new):
            await on_tokens(*await told.get())
            for _ in range(self.late.pop(0) if self.late else 0):
                await asyncio.sleep(0)
        await engine
        return [Answer((7,) * prompt.new_tokens, 0, (), retractions=self.retracted) for prompt in prompts]

    async def run(self, new: int, told: asyncio.Queue[tuple[tuple[int, ...], int]]) -> None:
        for made in range(1, new + 1):
            while self.back:
                self.back -= 1
                await asyncio.sleep(0)
            self.running = made < new
            told.put_nowait(((7,) * made, self.retracted))
            await asyncio.sleep(0)

    async def retract_all(self) -> None:
        if self.running:
            self.retracted += 1
            self.running, self.back = False, 3


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("late", [[], [90], [0] * 5 + [90], [30] * 3, [3] * 30], ids=str)
def test_every_round_retracts_however_late_its_lead_is_heard(profile: str, late: list[int]) -> None:
    """In a gate beside other work 6 were retracted of 21: the lead was over before it was heard, or heard of tokens
    that were older than the last round, which found nobody running.
    """
    geometry = Geometry(128, 64, 512, 320, 65_536, 9_856, 65_536, 512)
    scene = [probe for probe in plan(geometry, PROFILES[profile], 0) if probe.scene == "pressure"]
    engine: Any = SimpleNamespace(client=Busy(late), alive=alive, arm=SimpleNamespace(name="off-A"))
    served: list[Any] = []

    def stop(serve: Any) -> bool:
        served.append(serve)
        return False

    asyncio.run(Server(engine, SimpleNamespace(served=lambda *_: None)).serve(scene, stop))
    assert served[0].retractions == scene[0].rounds


@pytest.mark.parametrize(("after", "new", "late"), [(0, 60, False), (1, 5, False), (1, 60, True), (99, 5, True)])
def test_a_scene_is_late_whose_lead_ends_before_the_others_have_their_answers(after: int, new: int, late: bool) -> None:
    lead, other = scene(0, after)
    engine: Any = SimpleNamespace(client=Counting(), alive=alive, arm=SimpleNamespace(name="on"))
    server = Server(engine, SimpleNamespace(served=lambda *_: None))
    asyncio.run(server.serve([lead, replace(other, new_tokens=new)], lambda _: False))
    assert server.late == late


@pytest.mark.parametrize(("rounds", "late"), [(0, False), (9, True), (10, False)])
def test_a_scene_is_late_in_which_too_few_were_retracted(rounds: int, late: bool) -> None:
    engine: Any = SimpleNamespace(client=Busy([]), alive=alive, arm=SimpleNamespace(name="on"))
    server = Server(engine, SimpleNamespace(served=lambda *_: None))
    lead = Probe("pressure", "pressure/0", "cold", (7,), 60, scene="pressure", rounds=rounds, every=2)
    asyncio.run(server.serve([lead], lambda _: False))
    assert server.late == late
