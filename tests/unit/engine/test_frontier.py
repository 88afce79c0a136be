"""The arithmetic of islands (seed: The mechanism), in tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from island_engine.islands.frontier import decode_interval, frontier, inner_islands, left_behind, live_tail

LENGTH = st.integers(0, 200_000)
WINDOW = st.integers(1, 8_192)
PAGE = st.sampled_from([1, 2, 16, 64, 128])


@given(LENGTH, WINDOW, PAGE)
def test_at_least_window_and_page_stay_and_less_than_a_page_more(length: int, window: int, page: int) -> None:
    at = frontier(length, window, page)
    assert at % page == 0
    assert 0 <= at <= length
    assert live_tail(length, window, page) == length - at
    if at:
        assert window + page <= length - at < window + 2 * page
    else:
        assert length < window + 2 * page


@given(LENGTH, st.integers(0, 20_000), WINDOW, PAGE)
def test_the_frontier_never_moves_back(length: int, more: int, window: int, page: int) -> None:
    assert frontier(length, window, page) <= frontier(length + more, window, page)


@given(LENGTH, WINDOW, PAGE)
def test_the_last_page_of_an_insert_is_never_all_tombstone(length: int, window: int, page: int) -> None:
    if length >= page:
        assert frontier(length, window, page) < length // page * page


@pytest.mark.parametrize(("length", "expected"), [(0, 0), (1151, 0), (1152, 64), (1215, 64), (16384, 15296)])
def test_the_frontier_at_the_sizes_of_production(length: int, expected: int) -> None:
    assert frontier(length, 1024, 64) == expected


@given(LENGTH, st.integers(0, 70_000), st.integers(64, 9_000))
def test_islands_inside_a_chunk_come_at_the_multiples_of_the_interval(start: int, more: int, interval: int) -> None:
    end = start + more
    assert list(inner_islands(start, end, interval)) == [at for at in range(0, end + 1, interval) if start < at]


@given(LENGTH, st.integers(0, 20_000), WINDOW)
def test_a_lock_goes_only_when_no_token_of_the_island_is_in_the_window(published: int, since: int, window: int) -> None:
    committed = published + since
    first = committed - window + 1  # the next token reads [first, committed]
    assert left_behind(committed, published, window) == (first > published)


@pytest.mark.parametrize(
    ("chunk", "expected"), [(16384, 4096), (512, 128), (128, 64), (-1, 1024), (None, 1024), (0, 1024)]
)
def test_the_default_interval_is_a_quarter_of_the_chunk(chunk: int | None, expected: int) -> None:
    assert decode_interval(chunk, window=1024, page=64) == expected
