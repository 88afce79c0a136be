"""Answers of an engine: the good one, every kind of garbage, and its metrics page."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from support.virtual_time import virtually

from island_engine.gate import arms
from island_engine.gate.arms import Arm, Engine, free_port, last_words
from island_engine.gate.client import merged, parse_answer, parse_metrics
from island_engine.gate.outcome import Conclude, error
from island_engine.gate.progress import Work

if TYPE_CHECKING:
    from pathlib import Path


def answer(**meta: Any) -> dict[str, Any]:
    known = {
        "cached_tokens": 64,
        "num_retractions": 2,
        "prompt_tokens": 90,
        "output_top_logprobs": [[[-0.1, 5, None], [-0.6, 7, None]], [[-0.2, 6, None], [-0.2, 8, None]]],
    }
    return {"output_ids": [5, 6], "meta_info": {**known, **meta}}


def test_a_good_answer() -> None:
    parsed = parse_answer(answer(), 2)
    assert parsed.output == (5, 6)
    assert parsed.cached_tokens == 64
    assert parsed.top == (((-0.1, 5), (-0.6, 7)), ((-0.2, 6), (-0.2, 8)))
    assert (parsed.prompt_tokens, parsed.retractions) == (90, 2)
    assert parsed.margins == (pytest.approx(0.5), 0.0)


@pytest.mark.parametrize("first", [0, 1])  # token of the second event: it says all so far, or what is new
def test_a_stream_is_put_together(first: int) -> None:
    tops, told = answer()["meta_info"]["output_top_logprobs"], dict[str, Any]()
    for part in (slice(0, 1), slice(first, 2)):
        told = merged(told, {**answer(output_top_logprobs=tops[part]), "output_ids": [5, 6][part]})
    assert parse_answer(told, 2) == parse_answer(answer(), 2)


def test_margins_are_unknown_rather_than_wrong() -> None:
    assert parse_answer(answer(output_top_logprobs=[None, [[-0.2, 6, None]]]), 2).margins == (None, None)
    assert parse_answer(answer(output_top_logprobs=None), 2).margins == ()


@pytest.mark.parametrize(
    "garbage",
    [
        {},
        {"output_ids": [5, 6]},
        {"output_ids": [5, 6], "meta_info": None},
        {"output_ids": [5], "meta_info": {"cached_tokens": 0}},
        {"output_ids": [5, "6"], "meta_info": {"cached_tokens": 0}},
        {"output_ids": [5, True], "meta_info": {"cached_tokens": 0}},
        {"output_ids": [5, 6], "meta_info": {}},
        {"output_ids": [5, 6], "meta_info": {"cached_tokens": None}},
        {"output_ids": [5, 6], "meta_info": {"cached_tokens": -1}},
        {"output_ids": [5, 6], "meta_info": {"cached_tokens": 0, "output_top_logprobs": [[[]]]}},
        {"output_ids": [5, 6], "meta_info": []},
    ],
)
def test_garbage_is_no_answer(garbage: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, IndexError)):
        parse_answer(garbage, 2)


def test_metrics_are_summed_over_ranks_and_kept_by_phase() -> None:
    page = """# HELP island_published_total Islands
# TYPE island_published_total counter
island_published_total{phase="prefill",tp_rank="0"} 3.0
island_published_total{phase="prefill",tp_rank="1"} 4.0
island_published_total{phase="decode",tp_rank="0"} 1e1
island_enabled 1.0
island_broken x
sglang:num_running_reqs{model_name="island_x"} 7.0
sglang:swa_used_tokens{tp_rank="0"} 128.0
sglang:kv_evictable_tokens 640.0
"""
    seen = parse_metrics(page)
    assert seen.pools == {"swa_used": 128, "full_cached": 640}
    assert seen.islands == {
        "island_published_total{phase=prefill}": 7.0,
        "island_published_total{phase=decode}": 10.0,
        "island_enabled": 1.0,
    }


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("", ""),
        ("loading\n\n", "loading"),
        (
            "Traceback:\n  x\nRuntimeError: no weights in /m\n\n[07:00] Received sigquit\n",
            "RuntimeError: no weights in /m",
        ),
        (
            "torch.OutOfMemoryError: CUDA out of memory: 2 GiB\nkilled",
            "torch.OutOfMemoryError: CUDA out of memory: 2 GiB",
        ),
        (
            "serve: error: argument --dtype: invalid",
            "serve: error: argument --dtype: invalid",
        ),
        ("x" * 900, "x" * 500),
    ],
)
def test_last_words(log: str, said: str) -> None:
    assert last_words(log) == said


def test_time_left_follows_what_was_measured() -> None:
    work = Work(boots_left=3, weight_left=300.0)
    assert work.seconds_left() is None
    work = Work(boots_left=2, boots_done=1, boot_seconds=30.0, weight_left=200.0, weight_done=100.0, probe_seconds=10.0)
    assert work.seconds_left() == 80.0


@pytest.mark.parametrize(
    ("fault", "seconds", "reason"),
    [
        ("NoAnswer", 15, "EngineDied"),  # a machine may be too busy to end a process at once
        ("NoAnswer", 60, "NoAnswer"),
        ("BadAnswer", 1, "EngineDied"),
        ("BadAnswer", 15, "BadAnswer"),
    ],
)
def test_an_engine_that_ends_soon_after_it_failed_has_died(
    fault: str, seconds: float, reason: str, tmp_path: Path
) -> None:
    engine: Any = Engine(Arm("on", ()), tmp_path / "log")
    engine.process = SimpleNamespace(returncode=3)

    async def fails() -> None:
        raise error(fault, "it failed")

    async def asked() -> None:
        engine.exited = asyncio.create_task(asyncio.sleep(seconds))
        await engine.alive(fails())

    with pytest.raises(Conclude) as ended:
        virtually(asked())
    assert ended.value.reason == reason


def test_no_outgoing_connection_takes_an_engine_s_port(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In CI an engine that had loaded its weights could not listen: a connection of somebody else's had its port."""
    monkeypatch.setattr(arms, "PORTS", tmp_path / "range")
    (tmp_path / "range").write_text("10002\t60999\n")
    with socket.create_server(("127.0.0.1", 10_000)):
        assert {free_port() for _ in range(20)} == {10_001}
    (tmp_path / "range").write_text("1024\t65535\n")
    assert 10_000 <= free_port() < 60_000
