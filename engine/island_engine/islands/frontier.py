"""Where islands begin and when the next one is due. Pure arithmetic on token counts (seed: The mechanism)."""

from __future__ import annotations

QUARTER = 4


def frontier(length: int, window: int, page: int) -> int:
    """Position t = max(0, floor((L - w - p) / p) * p): SWA slots before it are freed when L tokens are committed.

    What stays is at least w+p tokens, so the earliest token of the next chunk finds its whole window, and the last leaf
    is never all tombstone; at most w+2p-1, and nothing is freed before there is a page to spare.
    """
    return max(0, (length - window - page) // page * page)


def live_tail(length: int, window: int, page: int) -> int:
    """SWA tokens that stay alive behind L committed tokens: at least min(L, w+p), less than w+2p."""
    return length - frontier(length, window, page)


def decode_interval(chunk: int | None, window: int, page: int) -> int:
    """Tokens between decode islands when nobody says otherwise: a quarter of the prefill chunk, at least a page.

    Without chunked prefill (SGLang: None or -1) one per window.
    """
    return max(page, chunk // QUARTER if chunk and chunk > 0 else window)


def inner_islands(start: int, end: int, interval: int) -> range:
    """Where islands come inside a chunk that is committed from `start` on: at every multiple of `interval` up to `end`,
    so that equal prompts publish at equal places, whatever their chunks.
    """
    return range((start // interval + 1) * interval, end + 1, interval)


def left_behind(committed: int, published: int, window: int) -> bool:
    """Whether the window has moved past a published island: the next token reads [committed - w + 1, committed], and
    whoever decodes reads no token of the island any more, so its SWA lock may go.
    """
    return committed - published >= window
