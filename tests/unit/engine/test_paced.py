"""What a paced engine is made of, without torch: roofline, clock, accept lengths, profiles, the gate's refusal."""

from __future__ import annotations

import importlib.metadata
import json
import statistics
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from island_engine import SGLANG_VERSION, cli, guards, paced, refusals
from island_engine import launch as serve
from island_engine.gate import arguments
from island_engine.paced import launch, profiles
from island_engine.paced.accept import AcceptLengths
from island_engine.paced.clock import VirtualClock
from island_engine.paced.roofline import H100

if TYPE_CHECKING:
    from island_engine.paced.roofline import Roofline

GEMMA = profiles.PROFILES["gemma4-26b-h100"]
LENGTHS = st.lists(st.integers(1, 50_000), min_size=1, max_size=64)
CHUNKS = st.lists(st.tuples(st.integers(1, 16_384), st.integers(0, 32_768)), min_size=1, max_size=8)


@given(LENGTHS, st.integers(1, 20_000))
def test_a_longer_context_never_makes_a_step_faster(lengths: list[int], more: int) -> None:
    longer = [lengths[0] + more, *lengths[1:]]
    assert GEMMA.roofline.decode(longer, 16) >= GEMMA.roofline.decode(lengths, 16)


@given(LENGTHS, st.integers(1, 50_000), st.integers(1, 16))
def test_one_more_request_never_makes_a_step_faster(lengths: list[int], another: int, block: int) -> None:
    assert GEMMA.roofline.decode([*lengths, another], block) >= GEMMA.roofline.decode(lengths, block)


@given(CHUNKS, st.integers(1, 4_096))
def test_prefill_takes_longer_for_more_tokens_and_for_a_longer_prefix(chunks: list[tuple[int, int]], more: int) -> None:
    (new, before), *rest = chunks
    took = GEMMA.roofline.prefill(chunks)
    assert GEMMA.roofline.prefill([(new + more, before), *rest]) > took
    assert GEMMA.roofline.prefill([(new, before + more), *rest]) > took


@given(LENGTHS)
def test_a_faster_device_is_never_slower(lengths: list[int]) -> None:
    faster: Roofline = replace(GEMMA.roofline, device=replace(H100, bandwidth=2 * H100.bandwidth))
    assert faster.decode(lengths, 16) <= GEMMA.roofline.decode(lengths, 16)


def test_a_lone_short_request_waits_for_the_weights() -> None:
    roofline = GEMMA.roofline
    floor = roofline.scale * (roofline.overhead + roofline.weights / roofline.device.bandwidth)
    assert roofline.decode([1]) == pytest.approx(floor, rel=1e-3)


def test_a_window_is_all_that_a_sliding_layer_streams() -> None:
    flat = replace(GEMMA.roofline, geometry=replace(GEMMA.roofline.geometry, full_bytes=0, draft_bytes=0))
    flat = replace(flat, attention_flop=0)
    assert flat.decode([1_024]) == flat.decode([32_768]) > flat.decode([512])


def test_steps_queue_on_the_device_and_the_scheduler_waits_for_what_it_reads() -> None:
    clock = VirtualClock()
    first, second = clock.launch(2.0), clock.launch(3.0)
    assert (first, second, clock.now) == (2.0, 5.0, 0.0)
    clock.reach(first)
    assert clock.now == 2.0
    assert clock.launch(1.0) == 6.0, "the second one still runs"
    clock.reach(6.0)
    clock.reach(second)
    assert clock.now == 6.0, "time does not go back"
    assert clock.launch(1.0) == 7.0


def test_accept_lengths_are_the_requests_own_and_have_the_stated_mean() -> None:
    one, other = AcceptLengths(16, 8.5), AcceptLengths(16, 8.5)
    drawn = [one.next("r1") for _ in range(2_000)]
    interleaved = [(other.next("r2"), other.next("r1"))[1] for _ in range(2_000)]
    assert drawn == interleaved
    assert set(drawn) == set(range(1, 17))
    assert statistics.mean(drawn) == pytest.approx(8.5, abs=0.3)


def test_without_speculation_every_step_commits_one() -> None:
    assert {AcceptLengths(1, 1.0).next(f"r{n}") for n in range(100)} == {1}


def test_a_forgotten_request_begins_again() -> None:
    lengths = AcceptLengths(16, 8.5)
    before = [lengths.next("r1") for _ in range(5)]
    lengths.forget("r1")
    lengths.forget("never seen")
    assert [lengths.next("r1") for _ in range(5)] == before


def test_a_mean_outside_of_its_block_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit a block of 4"):
        AcceptLengths(4, 4.5)


def test_profiles_are_what_they_say() -> None:
    for name, profile in profiles.PROFILES.items():
        assert profile.name == name
        AcceptLengths(profile.block, profile.accept)
        speculates = "--speculative-algorithm" in launch.arguments(profile)
        assert speculates == (profile.block > 1) == bool(profile.roofline.geometry.draft_bytes)
    paces = [
        profiles.PROFILES[f"gemma4-26b-{device}"].roofline.decode([30_000] * 40, 16) for device in ("h100", "h200")
    ]
    assert all(slower > faster for slower, faster in pairwise(paces))


def test_an_unknown_profile_is_one_sentence_with_the_known_ones() -> None:
    with pytest.raises(guards.RefusedError) as refused:
        profiles.profile("gpt-9")
    assert "--pace gpt-9" in refused.value.sentence
    assert all(name in refused.value.sentence for name in profiles.PROFILES)


@pytest.mark.parametrize("given", [("--pace", "gemma4-26b-h100"), ("--pace=gemma4-26b-h100",), ("--pac", "x")])
def test_the_gate_knows_a_paced_engine(given: tuple[str, ...]) -> None:
    assert arguments.paced(given)
    arguments.check(given)  # refused by the gate itself, with a verdict; it needs no model
    assert not arguments.paced(("--model-path", "m"))


# --- the launcher -------------------------------------------------------------------------------------------------

POOLS = ("--swa-full-tokens-ratio", "0.17", "--max-total-tokens", "980000")


@pytest.fixture
def booted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paced profiles that were not refused, SGLang being there."""
    real = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: SGLANG_VERSION if name == "sglang" else real(name))
    for name in (refusals.MODE, refusals.INTERVAL, paced.PROFILE):
        monkeypatch.delenv(name, raising=False)
    boots: list[str] = []
    monkeypatch.setattr(serve, "serve", lambda options, _argv: boots.append(options.pace) or 0)
    return boots


def test_a_paced_boot_needs_no_model_and_says_what_it_is(booted: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve", "--pace", GEMMA.name, "--islands", "on", "--port", "31999", *POOLS]) == 0
    assert booted == [GEMMA.name]
    said = capsys.readouterr()
    assert json.loads(said.out)["paced"] == GEMMA.name
    assert json.loads(said.out)["window"] == 1_024
    assert "every token is a dummy" in said.err


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ((), "--model-path is missing"),
        (("--pace", "gpt-9"), "--pace gpt-9 is not a profile: use gemma4-26b-h100"),
        (("--pac", GEMMA.name, "--model-path", "m"), "--pac is short for --pace: spell it out"),
    ],
)
def test_what_is_not_clearly_paced_is_refused(
    booted: list[str], flags: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["serve", "--islands", "on", "--port", "31999", *POOLS, *flags]) == 2
    assert booted == []
    assert sentence in capsys.readouterr().err
