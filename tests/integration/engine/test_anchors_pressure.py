"""Pools that ran dry, engines that hung or crashed elsewhere (docs/anchors.md), on our cache at the same ratios."""

from __future__ import annotations

import pytest
from support.anchors import clean, prompt, steps

from island_engine.bench.rig import Rig, Sizes
from island_engine.islands.cache import IslandRadixCache

PAGE, WINDOW, CHUNK = 16, 64, 256


def test_a_small_pool_makes_progress() -> None:
    """sglang 36458: chunk 8192, page 256, total 131,072, ratio 0.1, 16 long documents at once; all over 16."""
    rig = Rig(IslandRadixCache, Sizes(chunk=512, full=8192, swa=816))
    for n in range(16):
        rig.add(prompt(900 + 64 * (n % 8), n), new=8, seed=n)
    rig.run()  # fails when it is stuck
    assert len(rig.finished) == 16
    assert rig.retractions == 0
    clean(rig)


@pytest.mark.parametrize("overlap", [False, True])
def test_many_rounds_keep_swa_bounded(overlap: bool) -> None:
    """sglang 17220, 18970: MiMo, ratio 0.2, 10 clients with long outputs in rounds (10 x 3,000 there, over 20)."""
    rig = Rig(IslandRadixCache, Sizes(full=16384, swa=3264), overlap=overlap)
    paths = [prompt(60, n) for n in range(10)]
    for turn in range(2):
        for n, path in enumerate(paths):
            rig.add(path, new=150, seed=10 * turn + n)
        for now in steps(rig):
            assert now.pinned_swa() <= CHUNK + 10 * (2 * WINDOW + 3 * PAGE)
        paths = [path + prompt(60, 100 * turn + n) for n, path in enumerate(paths)]
    assert rig.retractions == 0
    clean(rig)


@pytest.mark.parametrize("ratio", [0.1, 0.17, 0.32, 0.8, 1.0])
def test_a_ratio_of_ones_own(ratio: float) -> None:
    """sglang 23375: Gemma 4 at a custom ratio read where it must not; here every read is checked."""
    rig = Rig(IslandRadixCache, Sizes(full=8192, swa=int(ratio * 8192) // PAGE * PAGE))
    for n in range(8):
        rig.add(prompt(300, n % 3) + prompt(40 * n, 50 + n), new=90, seed=n)
    rig.run()
    assert len(rig.finished) == 8
    clean(rig)


@pytest.mark.parametrize("overlap", [False, True])
def test_a_nearly_full_swa_pool_with_drafts(overlap: bool) -> None:
    """sglang 26957: Gemma 4 with MTP crashed when more than 85 % of the SWA pool was used."""
    rig = Rig(IslandRadixCache, Sizes(full=8192, swa=1024), draft=4, bigram=True, overlap=overlap)
    for n in range(10):
        rig.add(prompt(150 + 30 * n, n), new=80, seed=n)
    most = max(now.used_swa() for now in steps(rig))
    assert most > 0.85 * 1024
    assert len(rig.finished) == 10
    clean(rig)


def test_concurrency_at_a_fifth() -> None:
    """sglang-jax 1234: 16K in, ratio 0.2: concurrency fell from 64 to 16; prompts over 16 here."""
    full = 72 * (1024 + 64)
    rig = Rig(IslandRadixCache, Sizes(full=full, swa=full // 5 // PAGE * PAGE, rows=64, context=2048), contents=False)
    for n in range(64):
        rig.add(prompt(1024, n), new=64, seed=n)
    most = 0
    while rig.busy and most < 64:
        rig.step()
        most = max(most, len(rig.running))
    assert most >= 60
    assert rig.retractions == 0
    rig.drain()
    clean(rig)
