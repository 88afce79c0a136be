"""What running requests hold of the SWA pool and what they will still take: pure arithmetic, in tokens.

Symbols: w window (it counts the token that reads), p page, cp chunk, W = up(w, p). Time is counted in tokens that every
running request decodes from now on: decode steps, unless speculation commits several in one. A request that stops
before its limit only holds less, so every sum here is an upper bound.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

GOLDEN = (math.sqrt(5) - 1) / 2


def up(tokens: int, page: int) -> int:
    """Tokens of the whole pages that hold `tokens`."""
    return -(-tokens // page) * page


def down(tokens: int, page: int) -> int:
    """Tokens of the whole pages in `tokens`."""
    return tokens // page * page


# --- one request ------------------------------------------------------------------------------------------------------


def cap(window: int, page: int, lag: int) -> int:
    """Most SWA tokens that a decoding request has to own: W + up(p + lag).

    With c = kp + j committed tokens (0 <= j < p) the next one reads back to c - w + 1, so whole pages before
    floor(c - W) = kp - W are dead. Slots are allocated up to c + 1 + lag, in whole pages: up(kp + j + 1 + lag) <=
    kp + up(p + lag). The difference is the cap. `lag`: tokens allocated ahead of the last result: 0, under overlap 1
    (the step in flight), with speculation what is set aside for drafts.

    SGLang frees dead pages every SGLANG_SWA_EVICTION_INTERVAL tokens, after the step's capacity check. Here they count
    as free at that check (admission.slide), so the interval is no part of the cap.
    """
    return up(window, page) + up(page + lag, page)


@dataclass(frozen=True, slots=True)
class Hold:
    """What one request holds of the SWA pool. `now`: pages that it owns at this moment. `own`: those that count for
    what comes: without dead window that slides out, of a prompt that is being computed only the window that will stay.
    `top`: the most `own` grows to. `spare`: tokens until it takes a page, None while its prompt is computed: what that
    needs is charged where it is admitted. `left`: tokens until it gives everything back.
    `island`: the published window that it locks, None without; who locks the same shares it. `release_in`: tokens until
    it lets go of it.
    """

    now: int
    own: int
    top: int
    left: int
    spare: int | None = None
    island: Hashable = None
    release_in: int = 0


def decoding(now: int, spare: int, left: int, limit: int, page: int) -> Hold:
    """A request that decodes: what it owns beyond its cap `limit` is dead; it grows a page at a time, to its cap or to
    its end.
    """
    own = min(now, limit)
    return Hold(now=now, own=own, top=min(own + up(left, page), limit), left=left, spare=spare)


def computing(now: int, length: int, left: int, limit: int, page: int) -> Hold:
    """A request whose prompt of `length` tokens is being computed: it owns a chunk now, and its window as soon as that
    is committed, without a token being decoded in between.
    """
    window = min(limit, up(length + left, page))
    return Hold(now=now, own=window, top=window, left=left)


# --- all of them ------------------------------------------------------------------------------------------------------


def drift(tokens: int, block: int) -> int:
    """How far one request may be ahead of or behind the others' `tokens`: 0 if every step commits one token each. If a
    step commits 1 to `block`: one step and two standard deviations (a step's is at most block / 3.4, and it takes at
    most 2 t / block steps on average acceptance to get t far).
    """
    return block + math.isqrt(tokens * block) if block > 1 else 0


def late(tokens: int, block: int) -> int:
    """When even the slowest has decoded `tokens`: the least simple t with t - drift(t) >= tokens."""
    return tokens + 2 * drift(tokens, block) + 2 * block if block > 1 else tokens


def peak(holds: Sequence[Hold], locked: int, window: int, page: int, block: int = 1) -> int:
    """Most SWA tokens that these requests pin together from now on, if nobody is admitted and nobody publishes.

    After t tokens request i owns min(own_i + up(t), top_i), and nothing after left_i. `locked` is what the tree pins
    now, where overlapping windows count once: of n islands still locked at most n W remain and never more than now;
    what none of `holds` explains stays. The sum falls only where an island is let go or a request ends, so its maximum
    is right before one of these moments. With speculation everybody is `drift` ahead in taking and `late` in giving.
    """
    islands: dict[Hashable, int] = {}
    for hold in holds:
        if hold.island is not None:
            islands[hold.island] = max(islands.get(hold.island, 0), min(hold.release_in, hold.left))
    whole, still = up(window, page), len(islands)
    foreign = max(0, locked - whole * still)
    settled = sum(hold.own for hold in holds)
    ramps = sorted(hold.top - hold.own for hold in holds if hold.top > hold.own)
    done, best = 0, settled + locked  # ramps[:done] have reached their top
    drops = [(late(hold.left, block), hold.own, hold.top - hold.own) for hold in holds]
    drops += [(late(until, block), -1, 0) for until in islands.values()]
    drops.sort()
    for when, owned, ramp in drops:
        reach = up(when + drift(when, block), page)
        while done < len(ramps) and ramps[done] <= reach:
            settled += ramps[done]
            done += 1
        best = max(best, settled + reach * (len(ramps) - done) + min(locked, whole * still + foreign))
        if done == len(ramps):
            break  # from here on it only falls
        if owned < 0:
            still -= 1
        elif ramp <= reach:
            settled -= owned + ramp
        else:
            settled -= owned
            del ramps[bisect_left(ramps, ramp, done)]
    return best


def growth(holds: Sequence[Hold], locked: int, window: int, page: int, block: int = 1) -> int:
    """What these requests will take beyond what they pin now: `peak` less that. Negative when more comes back first."""
    return peak(holds, locked, window, page, block) - sum(hold.now for hold in holds) - locked


def soon(holds: Sequence[Hold], tokens: int, page: int) -> int:
    """What these requests take within the next `tokens`, beyond what they pin now: pages whose turn it is.

    A chunk is pinned from its launch to its commit. No decode step is launched between them without overlap, one with
    it; so this, and not `growth`, is what has to fit beside a chunk.
    """
    return sum(
        min(hold.own + up(max(0, tokens - hold.spare), page), hold.top) - hold.now
        for hold in holds
        if hold.spare is not None
    )


# --- admission --------------------------------------------------------------------------------------------------------


def smallest_chunk(chunk: int) -> int:
    """To how much a chunk may shrink while the pool is short: a half.

    A chunk, like a decode step, costs one pass over the weights. A request of L tokens in and o out needs L / c + o / N
    of them, with N(c) = (P - c) / h requests that share a decode step (`bound`). The sum is least where c / (P - c) =
    sqrt(L / (o h)), and flat around that. With h 1,152 and as many tokens in as out that is 3 % of the pool; with 16
    times as many in, 11 %: 17,600 of the 166,600 tokens at r .17, 5,200 of 49,000 at r .05. A whole chunk of 16,384 is
    a third of the latter, 7 windows more than half a one. Below a half, prompts with short answers lose.
    """
    return chunk // 2


def bound(pool: int, chunk: int, window: int, page: int, lag: int) -> int:
    """Requests that decode in a pool of `pool` SWA tokens: N = (pool - c - w - p) / cap + 1, at least 1, while prompts
    are computed in chunks of c: at least these with the whole `chunk`, at most with the smallest one.

    The last one is admitted while N - 1 own their cap and its own chunk is computed behind the locked window of the
    chunk before: (N - 1) cap + c + w + p <= pool. Then it owns a cap as well, less than its chunk.
    """
    return max(1, (pool - chunk - window - page) // cap(window, page, lag) + 1)


def demand(extend: int, new: int, limit: int, window: int, page: int, chunk: int | None) -> int:
    """Most SWA tokens of a request that is to be admitted: `extend` tokens to compute, `new` at most to generate.

    First its chunk, and behind it the window of the chunk before if another has to follow; later its window. Not the
    sum: the chunk's dead part is freed when it is committed. A page for alignment.
    """
    first = extend if chunk is None else min(extend, chunk)
    behind = window if extend > first else 0
    return max(first + behind, min(extend + new, limit)) + page


def shrunk(room: int, window: int, page: int) -> int:
    """The largest chunk whose `demand` fits into `room` while more of the prompt has to follow: room - w - 2p, in whole
    pages (one more page, because SGLang's comparison is strict).
    """
    return down(room - window - 2 * page, page)


# --- decode islands ---------------------------------------------------------------------------------------------------


def first_island(ordinal: int, interval: int) -> int:
    """Tokens until a request's first decode island: an interval and up to a sixth of one more, by the golden ratio, so
    that requests that were admitted together do not publish together, however many they are. Later and not sooner, or
    the second island would come before two intervals; a sixth, and it is there soon after.
    """
    return interval + int(interval * (ordinal * GOLDEN % 1) / 6)
