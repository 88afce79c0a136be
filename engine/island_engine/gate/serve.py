"""Serves probes to one engine, one after the other or a scene at a time, and records what came back."""

from __future__ import annotations

import asyncio
import hashlib
import time
from itertools import groupby
from typing import TYPE_CHECKING, Protocol

from island_engine.gate.client import Prompt
from island_engine.gate.compare import Serve
from island_engine.gate.probes import LEAST_RETRACTIONS, Probe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from island_engine.gate.arms import Engine
    from island_engine.gate.client import Answer, Metrics, OnTokens

Tokens = tuple[int, ...]
# Tokens of a lead between two tidings of it. Each has all of its log probabilities so far: told of every token, SGLang
# and the gate fall a minute behind a generation of five thousand, a decode interval at production geometry.
TOLD_EVERY = 32
TRIES = 3  # of a class with a scene that came too late


class Witness(Protocol):
    """Who writes down what was served."""

    def served(self, serve: Serve, answer: Answer, seconds: float) -> None:
        """One answer came."""


class Server:
    """Puts questions to one engine."""

    def __init__(self, engine: Engine, witness: Witness) -> None:
        self.engine = engine
        self.witness = witness
        self.transcripts: dict[str, Tokens] = {}  # probe -> its input and output
        # Since `begin`: a scene's lead was over before what is done to a running request was done. A gate that gets no
        # processor for a second hears of tokens a second late, and no generation is long enough for every such gate.
        self.late = False

    async def begin(self) -> Metrics:
        """Empty the cache, and look at the counters: what is served from here on has nothing before it."""
        self.late = False
        await self.engine.alive(self.engine.client.flush())
        return await self.engine.alive(self.engine.client.look())

    async def serve(self, probes: Sequence[Probe], stop: Callable[[Serve], bool]) -> bool:
        """Serve them in order, scenes at once, until `stop` says of an answer that nothing more is to be learnt."""
        for scene in scenes(probes):
            for serve in await self._scene(scene):
                if stop(serve):
                    return True
        return False

    async def reference(self, writer: Probe, reader: Probe, depth: int) -> Serve | None:
        """The answer to `reader` with exactly `depth` tokens of `writer`'s input and output in the cache.

        SGLang publishes all but the last token of a finished request, so a generation that ends one token behind the
        depth leaves just that; two behind it under EAGLE, whose keys are pairs of tokens. None when the depth lies
        within the prompt.
        """
        if (new := depth - len(writer.tokens) + 1) <= 0:
            return None
        answer = await self._after(writer, reader, new, depth)
        return answer if answer.cached_tokens == depth else await self._after(writer, reader, new + 1, depth)

    async def _after(self, writer: Probe, reader: Probe, new: int, depth: int) -> Serve:
        """The answer to `reader` when nothing but `writer`'s first `new` tokens came before it."""
        await self.engine.alive(self.engine.client.flush())
        prime = Probe(writer.cls, f"{writer.name}/to-{depth}", "cold", writer.tokens, new)
        await self._ask([prime], [writer.tokens], 1)
        tokens = self.transcripts[writer.name][: len(writer.tokens) + reader.after] + reader.tokens
        again = Probe(reader.cls, f"{reader.name}/at-{depth}", "hit", reader.tokens, reader.new_tokens)
        (answer,) = await self._ask([again], [tokens], 1)
        return answer

    async def _scene(self, probes: list[Probe]) -> list[Serve]:
        """Neighbours that wait for as many tokens of the lead are one turn."""
        turns = [list(turn) for _, turn in groupby(probes, key=lambda probe: probe.after)]
        lead = _Lead(self.engine, probes[0])
        heard = lead.heard if len(turns) > 1 or lead.probe.rounds else None
        tasks = [asyncio.create_task(self._turn(turn, lead, heard, len(probes))) for turn in turns]
        try:
            found = [serve for serves in await asyncio.gather(*tasks) for serve in serves]
            if lead.probe.rounds:
                lead.late = sum(serve.retractions for serve in found) < LEAST_RETRACTIONS
            self.late |= lead.late
            return found
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _turn(self, probes: list[Probe], lead: _Lead, heard: OnTokens | None, batch: int) -> list[Serve]:
        await lead.reached(probes[0].after)
        inputs = [self._input(probe, lead) for probe in probes]
        if probes[0] is not lead.probe:
            served = await self._ask(probes, inputs, batch)
            lead.late |= lead.over
            return served
        try:
            return await self._ask(probes, inputs, batch, heard)
        finally:
            lead.end()

    def _input(self, probe: Probe, lead: _Lead) -> Tokens:
        if probe.reads:
            return lead.probe.tokens + lead.output[: probe.after] + probe.tokens
        return self.transcripts.get(probe.follows or "", ()) + probe.tokens

    async def _ask(
        self, probes: Sequence[Probe], inputs: Sequence[Tokens], batch: int, heard: OnTokens | None = None
    ) -> list[Serve]:
        """Ask them at once and in order; `batch`: requests in flight with each, itself included."""
        started = time.monotonic()
        prompts = [Prompt(tokens, p.new_tokens, p.text) for p, tokens in zip(probes, inputs, strict=True)]
        every = 1 if probes[0].rounds else TOLD_EVERY  # a lead that sets off retractions is short, and counts tokens
        answers = await self.engine.alive(self.engine.client.generate(prompts, heard, every))
        seconds = time.monotonic() - started
        return [self._served(*one, batch, seconds) for one in zip(probes, prompts, answers, strict=True)]

    def _served(self, probe: Probe, prompt: Prompt, answer: Answer, batch: int, seconds: float) -> Serve:
        asked = prompt.text or ",".join(map(str, prompt.tokens))
        serve = Serve(
            arm=self.engine.arm.name,
            probe=probe,
            input_length=len(prompt.tokens) or answer.prompt_tokens,
            input_hash=hashlib.sha256(asked.encode()).hexdigest(),
            output=answer.output,
            cached_tokens=answer.cached_tokens,
            top=answer.top,
            retractions=answer.retractions,
            steps=answer.steps,
            batch=batch,
        )
        self.transcripts[probe.name] = prompt.tokens + answer.output
        self.witness.served(serve, answer, seconds)
        return serve


class _Lead:
    """The first request of a scene: the others wait for its tokens, and its progress sets off the retractions."""

    def __init__(self, engine: Engine, probe: Probe) -> None:
        self.engine = engine
        self.probe = probe
        self.output: Tokens = ()
        self.rounds = 0
        self.waiting: list[tuple[int, asyncio.Event]] = []
        self.ended = False
        self.late = False  # it ended before the others had their answers

    @property
    def over(self) -> bool:
        """Whether it generates no more; of its last token one hears before its answer is whole."""
        return self.ended or len(self.output) >= self.probe.new_tokens

    async def heard(self, output: Tokens, retractions: int) -> None:
        """Called with everything that it has generated so far, and how often it was retracted."""
        self.output = output
        self._tell()
        # On a busy machine tidings come late and many at once: what is older than the last round sets off no other.
        due = self.rounds < self.probe.rounds and retractions >= self.rounds
        if due and len(output) >= self.probe.every * (self.rounds + 1):
            self.rounds += 1
            await self.engine.client.retract_all()

    def end(self) -> None:
        """It has ended, well or not: nobody need wait any more."""
        self.ended = True
        self._tell()

    async def reached(self, tokens: int) -> None:
        """Wait until it has generated that many, or has ended."""
        come = asyncio.Event()
        self.waiting.append((tokens, come))
        self._tell()
        await come.wait()

    def _tell(self) -> None:
        for tokens, come in self.waiting:
            if self.ended or len(self.output) >= tokens:
                come.set()


def scenes(probes: Sequence[Probe]) -> Iterator[list[Probe]]:
    """Neighbours of one scene together, others alone."""
    for _, group in groupby(enumerate(probes), key=lambda at: at[1].scene or at[0]):
        yield [probe for _, probe in group]
