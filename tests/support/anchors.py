"""What the tests of docs/anchors.md share: prompts, a request served to its end, and the books after a run."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from island_engine.bench.rig import Rig


def prompt(length: int, seed: int = 0) -> list[int]:
    """Random tokens, the same for a seed."""
    return random.Random(seed).choices(range(1 << 20), k=length)  # noqa: S311 - a test's data


def serve(rig: Rig, ids: list[int], new: int, seed: int = 1) -> Any:
    """One request alone, to its end; `num_matched_prefix_tokens` says what it found."""
    req = rig.add(ids, new, seed)
    rig.run()
    return req


def steps(rig: Rig) -> Any:
    """Until nothing is left to do, a step at a time; every pool answers for all its tokens after each."""
    for _ in range(20_000):
        if not rig.busy:
            return
        rig.step()
        assert rig.unaccounted() == 0
        assert rig.used_swa() >= 0
        yield rig
    raise AssertionError("not done")


def clean(rig: Rig) -> None:
    """Nothing was freed that is read, every tree is in order, and both pools come back whole."""
    rig.cache.observe()
    assert rig.tally.violations == 0
    assert rig.unaccounted() == 0
    rig.cache.sanity_check()
    assert rig.leaks() == []
