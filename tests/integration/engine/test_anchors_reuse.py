"""Prefixes that were lost elsewhere (docs/anchors.md), on our cache at the same ratios."""

from __future__ import annotations

import random

import pytest
from support.anchors import clean, prompt, serve

from island_engine.bench.rig import Rig, Sizes
from island_engine.islands.cache import IslandRadixCache

PAGE, WINDOW, CHUNK = 16, 64, 256


def converse(rig: Rig, turns: int, said: int, new: int, *, seed: int = 0, path: list[int] | None = None) -> list[float]:
    """A conversation that re-sends its transcript; the share of it that each turn after the first finds."""
    found, path = [], path or []
    for turn in range(turns):
        before, path = len(path), path + prompt(said, 100 * seed + turn)
        req = serve(rig, path, new, seed=seed + turn)
        if turn:
            found.append(req.num_matched_prefix_tokens / before)
        path = rig.ids(req)
    return found


@pytest.mark.parametrize("overlap", [False, True])
def test_a_chat_loop_to_idle(overlap: bool) -> None:
    """sglang 8931: the tree is in order when nobody runs; 35129 (without its HiCache): every turn finds something."""
    rig = Rig(IslandRadixCache, overlap=overlap)
    for turn in range(6):
        assert min(converse(rig, 3, 60, 40, seed=turn, path=prompt(turn * 90, turn))) > 0
        rig.cache.sanity_check()
    clean(rig)


def test_a_branch_off_the_chunk_grid_hits_by_the_third_request() -> None:
    """sglang 36131: 32,000 shared tokens, 2K of their own, 1K out, chunk 8192; all over 32."""
    rig, shared = Rig(IslandRadixCache, Sizes(window=32)), prompt(1000)
    hits = [serve(rig, shared + prompt(64, n + 1), 32, seed=n).num_matched_prefix_tokens for n in range(3)]
    assert hits[2] >= 1000 - 2 * PAGE
    clean(rig)


def test_shared_system_prompts() -> None:
    """sglang 37584: 8 system prompts of 24,576 tokens x 8 questions of 16,384, chunk 8,192; all over 64."""
    rig = Rig(IslandRadixCache, Sizes(window=32, chunk=128, full=16384, swa=8192))
    asked = [(group, number) for group in range(8) for number in range(8)]
    random.Random(1).shuffle(asked)  # noqa: S311 - a test's order
    hits = total = 0
    for group, number in asked:
        ids = prompt(384, group) + prompt(256, 1000 + 8 * group + number)
        hits += serve(rig, ids, 2).num_matched_prefix_tokens
        total += len(ids)
    assert hits / total >= 0.465
    clean(rig)


def test_a_parked_branch_outlives_the_churn_of_others() -> None:
    """sglang 35515, 26615: its tail is not the first thing to go. Which windows are evicted is SGLang's choice (least
    recently used): stock keeps it through 4 of these prompts as well, and neither through 6.
    """
    rig, parked = Rig(IslandRadixCache, Sizes(full=32768, swa=2048)), prompt(600)
    serve(rig, parked, 20)
    for n in range(4):
        serve(rig, prompt(900, 10 + n), 20)
    assert serve(rig, [*parked, *prompt(20, 99)], 2).num_matched_prefix_tokens >= 600 - 2 * PAGE
    clean(rig)


def test_agents_at_a_tiny_ratio() -> None:
    """sglang 26577, 26907: sessions that re-send transcripts at ratio 0.015 found 8.2 % before, 94.5 % after."""
    rig = Rig(IslandRadixCache, Sizes(window=16, full=65536, swa=976, context=8192))
    paths = [prompt(200, n) for n in range(4)]
    hits = resent = 0
    for turn in range(6):
        for n, path in enumerate(paths):
            req = serve(rig, path, 24, seed=n)
            hits, resent = hits + req.num_matched_prefix_tokens, resent + (len(path) - 200 if turn else 0)
            paths[n] = rig.ids(req) + prompt(200, 50 + 10 * turn + n)
    assert hits / resent >= 0.945
    clean(rig)


def test_150_tokens_are_found() -> None:
    """sglang 16521: 100 in and 50 out, then 200 that begin with those; the KV of the last output is never written."""
    rig = Rig(IslandRadixCache, Sizes(page=1))
    first = serve(rig, prompt(100), 50)
    assert serve(rig, rig.ids(first) + prompt(50, 1), 2).num_matched_prefix_tokens == 149
    clean(rig)


@pytest.mark.parametrize("overlap", [False, True])
def test_speculation_keeps_the_depth_of_a_conversation(overlap: bool) -> None:
    """sglang 32459: EAGLE, several turns: depth 97 % (was 40 to 53)."""
    rig = Rig(IslandRadixCache, Sizes(full=32768), draft=4, bigram=True, overlap=overlap)
    assert min(converse(rig, 4, 200, 200, path=prompt(1200))) >= 0.97
    clean(rig)


def test_seats_in_turn_at_a_quarter_of_the_pool() -> None:
    """vllm 48435: 8 sessions in turn; nothing is lost while three quarters of the pool are free."""
    rig = Rig(IslandRadixCache, Sizes(full=16384, swa=4096))
    paths = [prompt(150, n) for n in range(8)]
    for turn in range(4):
        for n, path in enumerate(paths):
            req = serve(rig, path, 16, seed=n)
            if turn:
                assert req.num_matched_prefix_tokens >= len(path) - 80 - 2 * PAGE
            paths[n] = rig.ids(req) + prompt(80, 500 + 10 * turn + n)
    assert rig.free()[0] >= 0.7 * 16384
    clean(rig)


@pytest.mark.parametrize("back", [1, PAGE // 2, PAGE - 1])
def test_a_prompt_that_leaves_inside_the_last_page(back: int) -> None:
    """vllm 57610: a prompt diverges inside the last whole page; the page before it is still a hit."""
    rig, ids = Rig(IslandRadixCache), prompt(2 * CHUNK)
    serve(rig, ids, 2)
    other = serve(rig, ids[:-back] + prompt(40, 7), 2)
    assert other.num_matched_prefix_tokens == 2 * CHUNK - PAGE
    clean(rig)


def test_two_long_sessions_in_turn() -> None:
    """MiaAI-Lab DSV4.1-Flash-DGX-Sparks 27: two sessions of a million tokens in turn found nothing, 88 % free."""
    rig = Rig(IslandRadixCache, Sizes(full=65536, swa=1024, context=8192))
    paths = [prompt(2000, n) for n in range(2)]
    for turn in range(4):
        for n, path in enumerate(paths):
            req = serve(rig, path, 16, seed=n)
            if turn:
                assert req.num_matched_prefix_tokens >= len(path) - 200 - 2 * PAGE
            paths[n] = rig.ids(req) + prompt(200, 60 + 10 * turn + n)
    clean(rig)
