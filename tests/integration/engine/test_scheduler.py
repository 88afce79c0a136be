"""What SGLang's real scheduler can do to a tree full of islands, with a real model: islands on against islands off.

Mixed chunks, aborts, priority preemption, pause and continue, flush, other weights, release and resume of memory, each
by the request that a client would send. Every token must be that of the engine without islands, and after each both
pools must be whole. fp32, greedy; each engine is a fork.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file
from sglang.srt.managers.io_struct import (
    AbortReq,
    BeginWeightUpdateReqInput,
    ContinueGenerationReqInput,
    EndWeightUpdateReqInput,
    FlushCacheReqInput,
    PauseGenerationReqInput,
    ReleaseMemoryOccupationReqInput,
    ResumeMemoryOccupationReqInput,
    UpdateWeightFromDiskReqInput,
    UpdateWeightsFromTensorReqInput,
)
from sglang.srt.utils import MultiprocessingSerializer
from support.engine import Answer, Engine, apart, tiny

from island_engine.bench.tally import Tally
from island_engine.islands.cache import IslandRadixCache

if TYPE_CHECKING:
    from pathlib import Path

Script = Iterator[list[Any]]
PAGE, WINDOW, CHUNK, INTERVAL = 8, 32, 64, 48
NEW, WHEN = 80, INTERVAL + 12  # tokens generated, and how many there are when something happens: after an island
FLAGS = (
    *("--dtype", "float32", "--page-size", str(PAGE), "--chunked-prefill-size", str(CHUNK), "--context-length", "512"),
    *("--max-total-tokens", "2048", "--swa-full-tokens-ratio", "0.25", "--max-running-requests", "3"),
    *("--enable-mixed-chunk", "--enable-priority-scheduling"),
)


def prompt(length: int, seed: int) -> list[int]:
    rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
    return [rng.randrange(4, 512) for _ in range(length)]


@dataclass
class Seen:
    """Of one engine, by what was done to it."""

    answers: dict[str, list[Answer]] = field(default_factory=dict)
    lost: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    replies: dict[str, list[bool]] = field(default_factory=dict)
    islands: dict[str, int] = field(default_factory=dict)  # decode islands
    recomputed: list[int] = field(default_factory=list)  # tokens, by each request that a pause retracted
    mixed: int = 0  # steps
    violations: int = 0

    def tokens(self, name: str) -> list[list[int]]:
        return [answer.tokens for answer in self.answers[name]]


class Driver:
    """Does everything to one engine."""

    def __init__(self, model: Path, other: Path, *flags: str) -> None:
        self.engine, self.seen, self.tally = Engine(model, *FLAGS, *flags, vocabulary=0), Seen(), Tally()
        self.model, self.other = model, other
        cache = self.engine.scheduler.tree_cache
        if type(cache) is IslandRadixCache:
            cache.interval, cache.metrics = INTERVAL, self.tally
        step = self.engine.scheduler.run_batch

        def counted(batch: Any, *args: Any, **kwargs: Any) -> Any:
            self.seen.mixed += batch.forward_mode.is_mixed()
            return step(batch, *args, **kwargs)

        self.engine.scheduler.run_batch = counted

    def part(self, name: str, prompts: list[list[int]], script: Script | None = None, priority: int = 0) -> None:
        """Run these requests. The script goes on at each step of the scheduler, with what is to be sent to it."""
        before, going = self.tally.islands["decode"], True

        def during() -> list[Any]:
            nonlocal going
            for sent in script or ():
                return sent
            going = False
            return []

        self.seen.answers[name] = self.engine.run(prompts, NEW, during, [priority] * len(prompts))
        assert not going, f"{name}: it never came to that"
        self.seen.islands[name] = self.tally.islands["decode"] - before
        self.seen.lost[name] = self.engine.lost()

    def req(self, index: int) -> Any:
        """A request of this part, as the scheduler knows it; None before it does."""
        known = [*self.engine.requests.values()]
        return known[index] if index < len(known) else None

    def generated(self, *indices: int) -> Script:
        """Nothing, until all of these have generated enough."""
        while any(self.req(index) is None or len(self.req(index).output_ids) < WHEN for index in indices):
            yield []

    def all(self) -> Seen:
        self.part("mixed", [prompt(40 + 90 * n, n) for n in range(5)])
        self.part("aborted", [prompt(400, 10), prompt(30, 11), prompt(50, 12)], self.abort())
        self.preempted()
        self.part("retracted", [prompt(60, 30), prompt(90, 31)], self.pause())
        self.part("paused", [prompt(60, 40)], self.stand_still())
        self.part("busy", [prompt(60, 50)], self.flush_while_busy())
        self.engine.run([prompt(200, 60)], 1)
        self.seen.replies["flush"] = [reply.success for reply in self.engine.control(FlushCacheReqInput())]
        self.part("flushed", [prompt(200, 60)])
        self.weights()
        self.engine.run([prompt(200, 60)], 1)
        # SGLang waits for a GPU there whatever the device (weight_updater.py:379), and without one there is no memory
        # saver to unmap pages: what is left is what happens to the tree, the pools and the weights.
        torch.cuda.synchronize = lambda: None
        self.engine.control(ReleaseMemoryOccupationReqInput(), ResumeMemoryOccupationReqInput())
        self.part("resumed", [prompt(200, 60)])
        self.seen.violations = self.tally.violations
        return self.seen

    def abort(self) -> Script:
        """One between its chunks, one in the middle of its generation."""
        while (long := self.req(0)) is None or self.engine.scheduler.chunked_req is not long or not long.prefix_len:
            yield []
        yield [AbortReq(rid=long.rid)]
        yield from self.generated(1)
        yield [AbortReq(rid=self.req(1).rid)]

    def preempted(self) -> None:
        """Somebody urgent comes while all seats are taken."""
        urgent = self.engine.request(prompt(120, 23), 20, priority=100)

        def script() -> Script:
            yield from self.generated(0, 1, 2)
            yield [urgent]

        self.part("preempted", [prompt(40 + 30 * n, 20 + n) for n in range(3)], script())
        self.seen.answers["urgent"] = [self.engine.answer(urgent)]

    def pause(self) -> Script:
        """Everything that runs is retracted, and goes on."""
        yield from self.generated(0, 1)
        yield [PauseGenerationReqInput(mode="retract"), ContinueGenerationReqInput()]
        reqs = [self.req(0), self.req(1)]
        known = [len(req.origin_input_ids) + len(req.output_ids) for req in reqs]
        while any(req.is_retracted for req in reqs):
            yield []
        matched = [req.num_matched_prefix_tokens for req in reqs]
        self.seen.recomputed = [all_of - cached for all_of, cached in zip(known, matched, strict=True)]

    def stand_still(self) -> Script:
        """In place, for some steps of the scheduler's loop."""
        yield from self.generated(0)
        yield [PauseGenerationReqInput(mode="in_place")]
        there = len(self.req(0).output_ids)
        for _ in range(5):
            yield []
        assert len(self.req(0).output_ids) == there
        yield [ContinueGenerationReqInput()]

    def flush_while_busy(self) -> Script:
        yield from self.generated(0)
        self.engine.replies.clear()
        yield [FlushCacheReqInput()]
        self.seen.replies["busy"] = [reply.success for reply in self.engine.replies]

    def weights(self) -> None:
        """Others from disk, in the middle of a generation; then the first ones, from tensors."""

        def script() -> Script:
            yield from self.generated(0)
            self.engine.replies.clear()
            yield [
                PauseGenerationReqInput(mode="retract"),
                UpdateWeightFromDiskReqInput(model_path=str(self.other), load_format="auto"),
                ContinueGenerationReqInput(),
            ]
            self.seen.replies["from disk"] = [reply.success for reply in self.engine.replies]

        self.part("other weights", [prompt(200, 60)], script())
        self.part("on other weights", [prompt(200, 60)])
        tensors = [*load_file(self.model / "model.safetensors").items()]
        replies = self.engine.control(
            BeginWeightUpdateReqInput(),
            UpdateWeightsFromTensorReqInput(
                serialized_named_tensors=[MultiprocessingSerializer.serialize(tensors)],
            ),
            EndWeightUpdateReqInput(),
        )
        self.seen.replies["from tensors"] = [reply.success for reply in replies]
        self.part("first weights", [prompt(200, 60)])
        self.engine.run([prompt(200, 60)], 1)
        same = UpdateWeightFromDiskReqInput(model_path=str(self.model), load_format="auto", flush_cache=False)
        self.seen.replies["no flush"] = [reply.success for reply in self.engine.control(same)]
        self.part("not flushed", [prompt(200, 60)])


def serve(model: Path, other: Path, *flags: str) -> Seen:
    return Driver(model, other, *flags).all()


@pytest.fixture(scope="module")
def arms(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    folder = tmp_path_factory.mktemp("models")
    models = tiny(folder / "model", WINDOW, seed=0), tiny(folder / "other", WINDOW, seed=1)
    return {"off": apart(serve, *models), "on": apart(serve, *models, "--radix-cache-backend", "islands")}


@pytest.mark.parametrize("name", ["mixed", "preempted", "urgent", "retracted", "paused", "busy", "flushed", "resumed"])
def test_every_token_is_the_same(arms: dict[str, Seen], name: str) -> None:
    assert arms["on"].tokens(name) == arms["off"].tokens(name)


def test_both_pools_are_whole_after_each(arms: dict[str, Seen]) -> None:
    for seen in arms.values():
        assert seen.lost == dict.fromkeys(seen.lost, (0, 0, 0))
    assert len(arms["on"].lost) == 12


def test_islands_were_there(arms: dict[str, Seen]) -> None:
    assert all(
        arms["on"].islands[name] > 0 for name in ("mixed", "aborted", "preempted", "retracted", "paused", "busy")
    )
    assert not any(arms["off"].islands.values())
    assert arms["on"].violations == 0


def test_steps_were_mixed(arms: dict[str, Seen]) -> None:
    assert min(seen.mixed for seen in arms.values()) >= 5


def test_an_abort_ends_the_aborted_and_nobody_else(arms: dict[str, Seen]) -> None:
    for seen in arms.values():
        long, short, other = seen.tokens("aborted")
        assert long == []
        assert WHEN <= len(short) < NEW == len(other)
    on, off = (arms[arm].tokens("aborted") for arm in ("on", "off"))
    assert on[2] == off[2]
    assert all(a == b for a, b in zip(on[1], off[1], strict=False))


def test_who_is_preempted_is_retracted_and_goes_on(arms: dict[str, Seen]) -> None:
    for seen in arms.values():
        assert sum(answer.retractions for answer in seen.answers["preempted"]) >= 1
        assert len(seen.tokens("urgent")[0]) == 20


def test_a_pause_that_retracts_costs_what_came_since_the_last_island(arms: dict[str, Seen]) -> None:
    """Why SGLang's retract_all is not hooked: it comes before other weights, under which what was generated must be
    computed again; and where the weights stay, the last decode island is found.
    """
    for seen in arms.values():
        assert [answer.retractions for answer in seen.answers["retracted"]] == [1, 1]
    assert max(arms["on"].recomputed) <= INTERVAL + INTERVAL // 4 + PAGE  # with the stagger of the first
    assert min(arms["off"].recomputed) >= WHEN


def test_a_flush_is_refused_while_anything_runs_and_leaves_nothing(arms: dict[str, Seen]) -> None:
    for seen in arms.values():
        assert (seen.replies["busy"], seen.replies["flush"]) == ([False], [True])
        assert seen.answers["flushed"][0].cached == 0


def test_other_weights_are_used_for_everything_that_follows(arms: dict[str, Seen]) -> None:
    on, off = arms["on"], arms["off"]
    for seen in (on, off):
        assert seen.replies["from disk"][-1:] == [True]
        assert seen.replies["from tensors"] == [True, True, True]
        assert seen.answers["on other weights"][0].cached == 0 == seen.answers["first weights"][0].cached
        assert seen.tokens("on other weights") != seen.tokens("flushed") == seen.tokens("first weights")
    assert on.tokens("on other weights") == off.tokens("on other weights")
    assert on.tokens("other weights") == off.tokens("other weights")  # the first weights' tokens, then the others'


def test_an_update_that_does_not_flush_leaves_the_tree_with_islands_and_without(arms: dict[str, Seen]) -> None:
    for seen in arms.values():
        assert seen.replies["no flush"] == [True]
        assert seen.answers["not flushed"][0].cached >= 200 - 2 * PAGE
        assert seen.tokens("not flushed") == seen.tokens("first weights")  # the weights are the same here


def test_nothing_is_cached_after_a_release_of_memory(arms: dict[str, Seen]) -> None:
    for seen in arms.values():
        assert seen.answers["resumed"][0].cached == 0
        assert seen.tokens("resumed") == seen.tokens("flushed")
