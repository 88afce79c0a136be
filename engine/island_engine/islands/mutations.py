"""The planted faults, each a small patch, with the class of the gate that must see it or the proof that nobody can.

Symbols as in the design: w window, p page, L committed tokens, t frontier. Most steal: they give SWA pages of a request
back and let others take their place, unknown to the tree. That is what a page that was freed too early looks like once
somebody else has it; the books of pool and tree stay in balance, so that nothing but the answers tells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from island_engine.islands import frontier as arithmetic

if TYPE_CHECKING:
    from collections.abc import Callable

FRONTIER = "frontier"


@dataclass(frozen=True)
class Mutation:
    """One fault. `caught_by`: the class that must see it; else `harmless`: why no answer can change."""

    name: str
    what: str
    caught_by: str = ""
    harmless: str = ""
    insert: Callable[[Any, Any, int], bool] | None = None  # (cache, request, committed): after an island
    evict: Callable[[Any], int] | None = None  # (cache): tokens that the decode-time evictor goes too far
    lock: bool = False  # the lock of an island is never let go of
    replace: Callable[[Any, Callable[..., bool]], tuple[Any, str, Any]] | None = None  # (owner, name, new value)


def steal(cache: Any, req: Any, first: int, end: int) -> bool:
    """Let other SWA pages take the place of those of positions [first, end) of a request. Whether there were any."""
    pool, first = cache.token_to_kv_pool_allocator, max(0, first)
    slots = cache.req_to_token_pool.req_to_token[req.kv.req_pool_idx, first : max(first, end)].long()
    freed = pool.full_to_swa_index_mapping[slots]
    slots, freed = slots[freed > 0], freed[freed > 0]
    others = pool.swa_attn_allocator.alloc(len(slots)) if len(slots) else None
    if others is None:  # the pool is full, or these are tombstones already
        return False
    pool.set_full_to_swa_mapping(slots, others)
    pool.swa_attn_allocator.free(freed)
    return True


def _cut(cache: Any, req: Any, up_to: int) -> tuple[int, int]:
    """(t, whole pages published)."""
    published = min(up_to // cache.page_size * cache.page_size, int(req.kv.cache_protected_len))
    return arithmetic.frontier(up_to, cache.window, cache.page_size), published


def _too_far(pages: int, phase: str = "") -> Callable[[Any, Any, int], bool]:
    """Steal from t on, `pages` pages."""

    def act(cache: Any, req: Any, up_to: int) -> bool:
        first, published = _cut(cache, req, up_to)
        if phase not in ("", cache._phase):  # noqa: SLF001 - a mutation is part of what it mutates
            return False
        return steal(cache, req, first, min(first + pages * cache.page_size, published))

    return act


def _behind_end(pages: int, count: int = 1, phase: str = "") -> Callable[[Any, Any, int], bool]:
    """Steal `count` pages that begin `pages` before the end of what is published."""

    def act(cache: Any, req: Any, up_to: int) -> bool:
        _, published = _cut(cache, req, up_to)
        if phase not in ("", cache._phase):  # noqa: SLF001
            return False
        first = published - pages * cache.page_size
        return first >= 0 and steal(cache, req, first, first + count * cache.page_size)

    return act


def _shift(tokens: int = 0, pages: int = 0) -> Callable[[Any, Any, int], bool]:
    """The last published page holds the SWA KV of what is `tokens` and `pages` before it."""

    def act(cache: Any, req: Any, up_to: int) -> bool:
        _, published = _cut(cache, req, up_to)
        return _overwrite(cache, req, published, tokens + pages * cache.page_size)

    return act


def _overwrite(cache: Any, req: Any, end: int, by: int) -> bool:
    """The page that ends at position `end` gets the SWA KV of what is `by` tokens before it."""
    page, first = cache.page_size, end - cache.page_size
    if first < by:
        return False
    pool = cache.token_to_kv_pool_allocator
    row = cache.req_to_token_pool.req_to_token[req.kv.req_pool_idx]
    to = pool.full_to_swa_index_mapping[row[first : first + page].long()]
    source = pool.full_to_swa_index_mapping[row[first - by : first - by + page].long()]
    if bool((to <= 0).any()) or bool((source <= 0).any()):
        return False
    for buffers in _buffers(pool):
        buffers[to] = buffers[source].clone()
    return True


def _buffers(pool: Any) -> list[Any]:
    """The K and V tensors of the sliding-window layers, [slot, ...]."""
    kv = pool.get_kvcache().swa_kv_pool
    return [*kv.k_buffer, *kv.v_buffer]


def _wipe(layers: slice) -> Callable[[Any, Any, int], bool]:
    """The last published page is zero in some layers, as if it had never been written."""

    def act(cache: Any, req: Any, up_to: int) -> bool:
        _, published = _cut(cache, req, up_to)
        pool, page = cache.token_to_kv_pool_allocator, cache.page_size
        row = cache.req_to_token_pool.req_to_token[req.kv.req_pool_idx, max(0, published - page) : published]
        slots = pool.full_to_swa_index_mapping[row.long()]
        slots = slots[slots > 0]
        kv = pool.get_kvcache().swa_kv_pool
        for buffer in (*kv.k_buffer[layers], *kv.v_buffer[layers]):
            buffer[slots] = 0
        return bool(len(slots))

    return act


def _double(cache: Any, req: Any, up_to: int) -> bool:
    """The pages from w before the end on are credited to the pool a second time while they live."""
    _, published = _cut(cache, req, up_to)
    pool, first = cache.token_to_kv_pool_allocator, max(0, published - 2 * cache.page_size)
    row = cache.req_to_token_pool.req_to_token[req.kv.req_pool_idx, first:published].long()
    slots = pool.full_to_swa_index_mapping[row]
    slots = slots[slots > 0]
    others = pool.swa_attn_allocator.alloc(len(slots)) if len(slots) else None
    if others is None:
        return False
    # Others are on loan, so that the books balance; what lives is handed out in their stead.
    pool.swa_attn_allocator.free(slots)
    return True


def _unlock(cache: Any, req: Any, _up_to: int) -> bool:
    """The lock of an island goes as soon as it is published."""
    if req.lock is None or req.lock.swa_released:
        return False
    cache.release_swa(req.lock)
    return True


def _stale(cache: Any, req: Any, up_to: int) -> bool:
    """The last published page is mapped to the slots of the oldest page of its island, and that one to its own."""
    first, published = _cut(cache, req, up_to)
    page = cache.page_size
    if published - page <= first:
        return False
    pool = cache.token_to_kv_pool_allocator
    row = cache.req_to_token_pool.req_to_token[req.kv.req_pool_idx]
    old, new = row[first : first + page].long(), row[published - page : published].long()
    mapped = pool.full_to_swa_index_mapping[old], pool.full_to_swa_index_mapping[new]
    if any(bool((slots <= 0).any()) for slots in mapped):
        return False
    pool.set_full_to_swa_mapping(old, mapped[1])
    pool.set_full_to_swa_mapping(new, mapped[0])
    return True


def _branch(cache: Any, tell: Callable[..., bool]) -> tuple[Any, str, Any]:
    """A branch point is published with the window of another place: a page late."""
    right = cache._publish  # noqa: SLF001

    def publish(req: Any, end: int) -> None:
        branch, before = req.swa_branching_seqlen, req.kv.cache_protected_len
        right(req, end)
        if branch is not None and before < branch <= req.kv.cache_protected_len:
            tell(_overwrite(cache, req, branch, cache.page_size))

    return cache, "_publish", publish


def _value(module: str, name: str, change: Callable[..., Any]) -> Callable[..., tuple[Any, str, Any]]:
    """Replace a function that the cache module uses: `change(original result, *arguments)`."""

    def made(_cache: Any, tell: Callable[..., bool]) -> tuple[Any, str, Any]:
        import importlib

        owner = importlib.import_module(f"island_engine.islands.{module}")
        original = getattr(owner, name)

        def mutated(*args: Any) -> Any:
            right = original(*args)
            wrong = change(right, *args)
            tell(wrong != right)
            return wrong

        return owner, name, mutated

    return made


def _method(name: str, result: Any) -> Callable[..., tuple[Any, str, Any]]:
    """Let a method of the requests' book say `result`, whatever it should."""

    def made(cache: Any, tell: Callable[..., bool]) -> tuple[Any, str, Any]:
        def mutated(*_args: Any, **_kwargs: Any) -> Any:
            tell()
            return result

        return cache.holds, name, mutated

    return made


_ALL = (
    Mutation(FRONTIER, "two pages too far at every island: the next token's window is cut", "cold", insert=_too_far(2)),
    Mutation("frontier-prefill", "the same, only at prompts' islands", "cold", insert=_too_far(2, "prefill")),
    Mutation("frontier-decode", "the same, only at decode islands", "extension", insert=_too_far(2, "decode")),
    Mutation("frontier-page", "one page too far: what a shorter hit reads", "lengths", insert=_too_far(1)),
    Mutation("frontier-window", "everything published is freed", "cold", insert=_too_far(1 << 20)),
    Mutation("tail-page", "the last published page is freed", "cold", insert=_behind_end(1)),
    Mutation("middle-page", "a page in the middle of the window is freed", "cold", insert=_behind_end(2)),
    Mutation(
        "tail-page-decode",
        "a decode island's last page is freed: who reads while it is written",
        "running",
        insert=_behind_end(1, phase="decode"),
    ),
    Mutation("token-off", "an island's last page holds the KV of the token before", "cold", insert=_shift(tokens=1)),
    Mutation("page-off", "an island's last page holds the KV of the page before", "cold", insert=_shift(pages=1)),
    Mutation("unwritten", "an island's last page was never written", "cold", insert=_wipe(slice(None))),
    Mutation("unwritten-layer", "... in the first sliding layer only", "cold", insert=_wipe(slice(0, 1))),
    Mutation("double-credit", "living pages are credited twice, and handed to others", "hit", insert=_double),
    Mutation("evictor-window", "the decode-time evictor frees a window too far", "extension", evict=lambda c: c.window),
    Mutation(
        "evictor-pages", "the decode-time evictor goes two pages too far", "extension", evict=lambda c: 2 * c.page_size
    ),
    Mutation("lock-skipped", "an island is not locked while its request reads it", "pressure", insert=_unlock),
    Mutation(
        "lock-early",
        "the lock of an island goes with the next token, not with the window",
        "pressure",
        replace=_value("cache", "left_behind", lambda _right, *_: True),
    ),
    Mutation("stale-mapping", "an island's last page is mapped to its oldest page's slots", "cold", insert=_stale),
    Mutation("branch-window", "a branch point is published with a window a page late", "branch", replace=_branch),
    Mutation(
        "lock-never",
        "the lock stays until the request ends",
        harmless="a lock only keeps pages from being freed: no slot that is read can change; what is lost is room",
        lock=True,
    ),
    Mutation(
        "trigger-modulo",
        "the decode trigger waits for a multiple that is stepped over",
        "extension",
        replace=_value("ledger", "first_island", lambda right, *_: right + (1 << 30)),
    ),
    Mutation(
        "stagger-off",
        "every first decode island comes at the same distance",
        harmless="when an island comes decides what is published, not what is computed: any time is right",
        replace=_value("ledger", "first_island", lambda _right, _ordinal, interval: interval),
    ),
    Mutation(
        "frontier-lags",
        "the frontier is a page too early",
        harmless="it frees less: every slot that was read before is still there",
        replace=_value("cache", "frontier", lambda right, _length, _window, page: max(0, right - page)),
    ),
    Mutation(
        "admission-blind",
        "nothing is kept for those who run",
        harmless="who is admitted too early is retracted, and computed again: time, not bytes",
        replace=_method("available", 1 << 30),
    ),
    Mutation(
        "window-always-private",
        "no prompt's tail is ever published",
        harmless="an equal prompt finds w tokens less: it computes them again",
        replace=_method("roomy", result=False),
    ),
)
TABLE = {mutation.name: mutation for mutation in _ALL}
