"""The ledger's sums against a simulation that allocates and frees page by page (islands/ledger.py)."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from island_engine.islands import ledger
from island_engine.islands.ledger import Hold, bound, cap, down, growth, late, peak, soon, up

PAGE, WINDOW = 16, 64
WHOLE = up(WINDOW, PAGE)
simulated = settings(deadline=None, max_examples=40)


# --- a brute-force world ----------------------------------------------------------------------------------------------


@dataclass
class Request:
    """Decodes a token a step, takes a page when it needs one, gives dead pages back at once; ends after `left`."""

    committed: int
    left: int
    lag: int = 0
    island: int | None = None  # which published window it locks
    published: int = 0  # where that ends
    freed: int = 0

    def __post_init__(self) -> None:
        self.freed = max(self.freed, self.published, down(max(0, self.committed - WINDOW), PAGE))

    @property
    def own(self) -> int:
        return up(self.committed + self.lag, PAGE) - self.freed

    @property
    def locks(self) -> bool:
        return self.island is not None and self.committed - self.published < WINDOW

    def step(self, tokens: int = 1) -> None:
        self.left -= tokens
        self.committed += tokens
        self.freed = max(self.freed, down(max(0, self.committed - WINDOW), PAGE))

    def hold(self) -> Hold:
        limit = cap(WINDOW, PAGE, self.lag)
        hold = ledger.decoding(self.own, -(self.committed + self.lag) % PAGE, self.left + self.lag, limit, PAGE)
        if not self.locks:
            return hold
        return replace(hold, island=self.island, release_in=self.published + WINDOW - self.committed)


def locked(requests: list[Request]) -> int:
    return WHOLE * len({request.island for request in requests if request.locks})


def pinned(requests: list[Request]) -> int:
    return sum(request.own for request in requests) + locked(requests)


def run(requests: list[Request]) -> list[int]:
    """What is pinned now and after every step, also in the middle of one: pages are taken before others come back."""
    seen, alive = [pinned(requests)], list(requests)
    while alive:
        for request in alive:
            request.step()
            seen.append(pinned(alive))
        alive = [request for request in alive if request.left > 0]
    return seen


@st.composite
def worlds(draw: st.DrawFn) -> list[Request]:
    lag = draw(st.sampled_from([0, 1]))
    islands = [down(draw(st.integers(WINDOW, 2_000)), PAGE) for _ in range(draw(st.integers(1, 4)))]
    requests = []
    for _ in range(draw(st.integers(1, 12))):
        left = draw(st.integers(1, 150))
        if draw(st.booleans()):
            island = draw(st.integers(0, len(islands) - 1))
            since = draw(st.integers(0, 2 * WINDOW))
            requests.append(Request(islands[island] + since, left, lag, island=island, published=islands[island]))
        else:
            requests.append(Request(draw(st.integers(1, 2_000)), left, lag))
    return requests


# --- one request ------------------------------------------------------------------------------------------------------


@given(st.integers(0, 500), st.sampled_from([1, 2, 8, 16, 64]), st.integers(1, 300), st.integers(0, 70))
def test_the_cap_is_reached_and_never_exceeded(start: int, page: int, window: int, lag: int) -> None:
    lengths = range(start + 2 * (window + page), start + 3 * (window + page))
    assert max(up(at + 1 + lag, page) - down(at - up(window, page), page) for at in lengths) == cap(window, page, lag)


@pytest.mark.parametrize(("lag", "expected"), [(0, 1088), (1, 1152), (32, 1152)])
def test_the_cap_at_the_sizes_of_production(lag: int, expected: int) -> None:
    assert cap(1024, 64, lag) == expected


# --- all of them ------------------------------------------------------------------------------------------------------


@simulated
@given(worlds())
def test_growth_is_never_less_than_what_is_taken(requests: list[Request]) -> None:
    reserved = pinned(requests) + growth([request.hold() for request in requests], locked(requests), WINDOW, PAGE)
    assert max(run(requests)) <= reserved


@simulated
@given(worlds())
def test_peak_is_the_maximum_over_time_of_the_holds_as_declared(requests: list[Request]) -> None:
    holds, tied = [request.hold() for request in requests], locked(requests)

    def profile(t: int) -> int:
        alive = [hold for hold in holds if t <= hold.left]
        still = {hold.island for hold in alive if hold.island is not None and t <= hold.release_in}
        return sum(min(hold.own + up(t, PAGE), hold.top) for hold in alive) + min(tied, WHOLE * len(still))

    assert peak(holds, tied, WINDOW, PAGE) == max(profile(t) for t in range(max(hold.left for hold in holds) + 1))


@given(worlds(), st.integers(0, 500))
def test_what_nobody_explains_stays_locked(requests: list[Request], foreign: int) -> None:
    holds = [request.hold() for request in requests]
    assert (
        peak(holds, locked(requests) + foreign, WINDOW, PAGE) == peak(holds, locked(requests), WINDOW, PAGE) + foreign
    )


@given(worlds(), st.integers(1, 3))
def test_soon_is_never_less_than_what_is_taken_soon(requests: list[Request], steps: int) -> None:
    reserved = pinned(requests) + soon([request.hold() for request in requests], steps, PAGE)
    for _ in range(steps):
        for request in requests:
            if request.left > 0:
                request.step()
            assert pinned(requests) <= reserved


@given(st.integers(0, 100_000), st.integers(2, 64))
def test_late_is_when_the_slowest_is_there(tokens: int, block: int) -> None:
    when = late(tokens, block)
    assert when - ledger.drift(when, block) >= tokens
    assert late(tokens, 1) == tokens


@simulated
@given(worlds(), st.integers(2, 8), st.randoms(use_true_random=False))
def test_growth_holds_when_requests_drift_apart(requests: list[Request], block: int, rng: random.Random) -> None:
    """Speculation: anybody may be as far ahead or behind as `drift` says, and no further."""
    holds = [request.hold() for request in requests]
    reserved = pinned(requests) + growth(holds, locked(requests), WINDOW, PAGE, block)
    start = [(request.committed, request.left) for request in requests]
    alive = list(requests)
    for t in range(1, 250):
        for request, (committed, left) in zip(requests, start, strict=True):
            done = request.committed - committed
            drift = ledger.drift(t, block)
            target = rng.randint(max(done, t - drift), max(done, t + drift))
            request.step(min(target, left) - done)
        alive = [request for request in alive if request.left > 0]
        assert pinned(alive) <= reserved


# --- admission --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "lag", "expected"),
    [(0.17, 0, 138), (0.10, 0, 75), (0.05, 0, 29), (0.17, 1, 130), (0.10, 1, 70), (0.05, 1, 28)],
)
def test_the_bound_at_the_sizes_of_production(ratio: float, lag: int, expected: int) -> None:
    assert bound(int(980_000 * ratio) // 64 * 64, 16_384, 1024, 64, lag) == expected


@simulated
@given(st.integers(200, 5_000), st.sampled_from([64, 256]), st.integers(0, 1), st.integers(0, 2**31))
def test_who_is_admitted_by_these_sums_is_never_retracted(pool: int, chunk: int, lag: int, seed: int) -> None:
    """Prompts of a chunk come whenever `soon` and `growth` leave room, get a private window, decode and end."""
    pool, limit = down(pool, PAGE), cap(WINDOW, PAGE, lag)
    rng = random.Random(seed)  # noqa: S311 - a test's data
    alive: list[Request] = []
    admitted = 0
    for _ in range(150):
        holds = [request.hold() for request in alive]
        free, new = pool - pinned(alive), rng.choice([3, 40, 300])
        need = ledger.demand(chunk, new, limit, WINDOW, PAGE, chunk)
        later = growth(holds, locked(alive), WINDOW, PAGE) + min(limit, up(chunk + new, PAGE)) + PAGE
        if need <= free - soon(holds, 1 + lag, PAGE) and later <= free:
            assert pinned(alive) + chunk <= pool
            alive.append(Request(chunk + rng.randint(0, PAGE), new, lag))
            admitted += 1
        for request in alive:
            request.step()
            assert pinned(alive) <= pool, "somebody would have been retracted"
        alive = [request for request in alive if request.left > 0]
    assert admitted > 0 or pool < ledger.demand(chunk, 3, limit, WINDOW, PAGE, chunk)


@given(st.integers(0, 50_000), st.integers(1, 5_000))
def test_a_shrunk_chunk_fits_what_is_left(room: int, new: int) -> None:
    chunk = ledger.shrunk(room, WINDOW, PAGE)
    if chunk >= cap(WINDOW, PAGE, 0):
        assert ledger.demand(10**6, new, cap(WINDOW, PAGE, 0), WINDOW, PAGE, chunk) < room


# --- decode islands ---------------------------------------------------------------------------------------------------


@given(st.integers(1, 10_000), st.integers(64, 5_000))
def test_the_first_island_comes_after_an_interval_and_not_much_later(ordinal: int, interval: int) -> None:
    assert interval <= ledger.first_island(ordinal, interval) <= interval * 7 // 6


def test_requests_that_came_together_publish_apart() -> None:
    due = sorted(ledger.first_island(ordinal, 4096) for ordinal in range(1, 49))
    assert min(after - before for before, after in pairwise(due)) >= 4096 // 6 // 48 // 3
