"""Random sequences of what can happen to a tree of islands (hypothesis), and that its checks can fail."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from island_engine.bench.rig import CorruptKvError, Rig, Sizes
from island_engine.islands import mutation
from island_engine.islands.cache import IslandRadixCache

PAGE, WINDOW, CHUNK = 16, 64, 256
SIZES = Sizes(page=PAGE, window=WINDOW, chunk=CHUNK, full=6144, swa=1280, rows=16, context=4096)
DOCUMENT = [random.Random(0).randrange(1 << 20) for _ in range(900)]  # noqa: S311 - a test's data


class Islands(RuleBasedStateMachine):
    """One engine; every read of KV is checked by the rig (CorruptKvError), the books after every rule."""

    rig: Rig

    @initialize(overlap=st.booleans(), speculation=st.sampled_from([(0, False), (4, False), (4, True)]))
    def start(self, overlap: bool, speculation: tuple[int, bool]) -> None:
        draft, bigram = speculation
        self.rig = Rig(IslandRadixCache, SIZES, overlap=overlap, draft=draft, bigram=bigram)
        self.serial = 0

    @rule(shared=st.integers(0, 900), own=st.integers(1, 200), new=st.integers(1, 250), family=st.integers(0, 3))
    def arrive(self, shared: int, own: int, new: int, family: int) -> None:
        """`shared` tokens of a document, some of its own; families generate equal tokens."""
        if len(self.rig.waiting) < 6:
            self.serial += 1
            tail = [(self.serial * 31 + index) % (1 << 20) for index in range(own if family else 0)]
            self.rig.add(DOCUMENT[: max(shared, 1)] + tail, new, seed=family)

    @rule(steps=st.integers(1, 60))
    def steps(self, steps: int) -> None:
        for _ in range(steps):
            self.rig.step()

    @precondition(lambda self: self.rig.running)
    @rule(pick=st.integers(0, 100))
    def abort(self, pick: int) -> None:
        self.rig.abort(self.rig.running[pick % len(self.rig.running)])

    @precondition(lambda self: self.rig.chunked)
    @rule()
    def abort_between_chunks(self) -> None:
        self.rig.abort(self.rig.chunked)

    @precondition(lambda self: self.rig.running)
    @rule(pick=st.integers(0, 100))
    def retract(self, pick: int) -> None:
        self.rig.retract(self.rig.running[pick % len(self.rig.running)])

    @rule()
    def evict(self) -> None:
        """Everything that nobody locks goes: what is needed must have been locked or owned."""
        self.rig.evict_all()

    @precondition(lambda self: self.rig.finished)
    @rule(own=st.integers(1, 60), new=st.integers(1, 60))
    def go_on(self, own: int, new: int) -> None:
        """A session sends its transcript and more."""
        earlier = self.rig.finished.pop()
        if len(self.rig.ids(earlier)) < 1500:
            self.rig.add(self.rig.ids(earlier) + DOCUMENT[:own], new, seed=9)

    @invariant()
    def books(self) -> None:
        rig = getattr(self, "rig", None)
        if rig is None:
            return
        assert rig.unaccounted() == 0
        for running in rig.cache.holds.published.values():
            check_request(rig, running.req)

    def teardown(self) -> None:
        if not hasattr(self, "rig"):
            return
        self.rig.run()
        self.rig.cache.observe()
        assert self.rig.tally.violations == 0
        assert self.rig.cache.holds.published == {}
        assert self.rig.leaks() == []


def check_request(rig: Rig, req: Any) -> None:
    """A published request: its part and the tree's meet at a page; it holds its window itself where it locks none."""
    kv = req.kv
    assert kv.cache_protected_len % PAGE == 0
    assert kv.cache_protected_len <= kv.kv_allocated_len
    if req.lock is not None and req.lock.swa_released and not req.finished() and rig.cache.holds.processed(req):
        assert kv.cache_protected_len <= len(rig.ids(req)) - 1 - WINDOW + 1


def run(examples: int, steps: int) -> None:
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],  # a failure of a whole engine takes minutes to shrink
        suppress_health_check=cast("Any", list(HealthCheck)),
    )
    run_state_machine_as_test(Islands, settings=chosen)


def test_whatever_happens_windows_are_whole_and_pools_come_back() -> None:
    run(30, 30)


def test_a_frontier_two_pages_too_far_goes_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(mutation.MUTATE, mutation.FRONTIER)
    monkeypatch.setenv(mutation.ALLOW, "1")
    with pytest.raises(AssertionError, match="violations") as caught:
        run(8, 20)
    assert isinstance(caught.value.__context__, CorruptKvError)  # seen by the next read first


def test_a_lock_that_goes_too_early_goes_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("island_engine.islands.cache.left_behind", lambda *_: True)
    with pytest.raises(AssertionError, match="cache_protected_len"):
        run(8, 20)
