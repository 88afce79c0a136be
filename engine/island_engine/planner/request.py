"""What one request pins in the SWA pool while it runs, for each arm: the third picture of `plan --plot`. Pure.

Means and maxima of the decode part are those that `island-engine bench hold` measured (docs/bench/hold.json), which a
test compares. Tokens throughout.
"""

from __future__ import annotations

from typing import Literal

from island_engine.sizing import EVICTION_INTERVAL

Arm = Literal["lazy", "stock", "islands"]


def occupancy(arm: Arm, prompt: int, output: int, *, window: int, page: int, chunk: int) -> list[tuple[int, int]]:
    """(tokens committed, SWA tokens pinned) at every chunk's start and end and then at every page that is generated."""
    points = []
    retained = last = 0
    for start in range(0, prompt, chunk):
        size = min(chunk, prompt - start)
        points += [(start, retained + size), (start + size, retained + size)]
        retained = _retained(arm, size, last, window, page)
        last = size
    return points + [
        (prompt + done, _decoding(arm, done, retained, window, page)) for done in range(0, output + 1, page)
    ]


def _retained(arm: Arm, chunk: int, before: int, window: int, page: int) -> int:
    """Of the prompt, once a chunk is in the tree: lazily the whole leaf, and the one before it if it is too short."""
    if arm == "lazy":
        return chunk if chunk >= window else chunk + before
    return min(chunk + before, window + page if arm == "islands" else window)


def _decoding(arm: Arm, done: int, retained: int, window: int, page: int) -> int:
    if arm == "islands":  # one window, wherever it is, cut at pages
        return min(retained + done, window + page + done % page)
    if arm == "stock":  # the prompt's tail stays locked beside a window of its own, which is cut at an interval
        return retained + min(done, window + max(2 * page, EVICTION_INTERVAL))
    return retained + min(done, window + page + done % window)  # before 0.5.16 it was cut once in a window
