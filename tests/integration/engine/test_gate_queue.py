"""The gate's queue (class pressure) on SGLang's own scheduler: does it make a prompt wait between its chunks, and would
its answer tell if others were admitted meanwhile? The gate cannot count the former, no metric tells it. fp32, greedy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from support.engine import Engine, apart, parked

from island_engine import tiny_model
from island_engine.gate.plan import plan
from island_engine.gate.probes import PROFILES, Geometry
from island_engine.islands.holds import Holds

if TYPE_CHECKING:
    from pathlib import Path

PAGE, CHUNK, FULL, CONTEXT, RUNNING = 16, 1024, 19_968, 4_096, 32
FLAGS = (
    *("--dtype", "float32", "--page-size", str(PAGE), "--chunked-prefill-size", str(CHUNK)),
    *("--context-length", str(CONTEXT), "--max-total-tokens", str(FULL), "--swa-full-tokens-ratio", "0.15"),
    *("--max-running-requests", str(RUNNING)),
)
ISLANDS = ("--radix-cache-backend", "islands")
SEEDS = range(3)


@dataclass
class Seen:
    answers: list[list[list[int]]] = field(default_factory=list)  # by seed and probe
    waited: list[int] = field(default_factory=list)  # by seed: passes in which a prompt waited between its chunks
    long: int = 0  # which probe that was


def serve(model: Path, fault: bool, *flags: str) -> Seen:
    if fault:  # whoever fits is admitted, beside whom ever; hooks may have been installed before the fork
        Holds.parked = property(lambda _: False, lambda *_: None)
    engine, seen = Engine(model, *FLAGS, *flags, vocabulary=0), Seen()
    scheduler = engine.scheduler
    run, (full, swa, _) = scheduler.run_batch, engine.baseline
    geometry = Geometry(tiny_model.WINDOW, PAGE, CHUNK, CHUNK // 4, full, swa, CONTEXT, tiny_model.VOCABULARY, RUNNING)

    def watched(batch: Any, *args: Any, **kwargs: Any) -> Any:
        seen.waited[-1] += parked(scheduler, batch)
        return run(batch, *args, **kwargs)

    scheduler.run_batch = watched
    for seed in SEEDS:
        probes = [p for p in plan(geometry, PROFILES["quick"], seed) if p.scene == "pressure/queue"]
        (new,) = {p.new_tokens for p in probes}
        seen.long = max(i for i, p in enumerate(probes) if len(p.tokens) > CHUNK)
        seen.waited.append(0)
        seen.answers.append([answer.tokens for answer in engine.run([list(p.tokens) for p in probes], new)])
        engine.flush()
    return seen


@pytest.fixture(scope="module")
def arms(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    model = tmp_path_factory.mktemp("models") / "model"
    tiny_model.make(model)
    return {
        "off": apart(serve, model, False),
        "on": apart(serve, model, False, *ISLANDS),
        "fault": apart(serve, model, True, *ISLANDS),
    }


def test_its_long_prompt_waits_between_its_chunks_with_islands_on(arms: dict[str, Seen]) -> None:
    assert min(arms["on"].waited) > 0
    assert arms["on"].answers == arms["off"].answers


def test_its_answer_tells_if_others_are_admitted_meanwhile(arms: dict[str, Seen]) -> None:
    long = arms["off"].long
    for right, wrong in zip(arms["off"].answers, arms["fault"].answers, strict=True):
        assert [i for i, answer in enumerate(right) if wrong[i] != answer] == [long]
