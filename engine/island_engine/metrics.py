"""island_* metrics beside SGLang's own on /metrics (design: The island engine, Metrics).

SGLang serves prometheus_client's multiprocess registry: the scheduler counts in its process, the HTTP server adds the
processes up. prometheus_client must be imported after SGLang chose the directory, so it is imported when first needed.
With several schedulers (data parallelism) counters and `island_live_tokens` are their sums, `island_hold_tokens` is of
the one that spoke last.
"""

from __future__ import annotations

from functools import cache


class Silent:
    """Counts nothing: for the ranks of a tensor-parallel engine that would count the same things again."""

    def published(self, phase: str, *, tombstoned: int) -> None:
        """See IslandMetrics."""

    def freed(self, tokens: int) -> None:
        """See IslandMetrics."""

    def hit(self, tokens: int, *, running: bool, crossed: bool) -> None:
        """See IslandMetrics."""

    def noop(self, tokens: int) -> None:
        """See IslandMetrics."""

    def violation(self) -> None:
        """See IslandMetrics."""

    def held(self, holds: list[int], *, live: int) -> None:
        """See IslandMetrics."""


class IslandMetrics(Silent):
    """What a scheduler counts. Tokens unless the name says otherwise."""

    def __init__(self) -> None:
        from prometheus_client import Counter, Gauge

        self._published = Counter("island_published_total", "Islands published", ("phase",))
        self._tombstoned = Counter("island_tombstoned_tokens_total", "SWA tokens that became tombstone")
        self._freed = Counter(
            "island_swa_freed_tokens_total", "SWA tokens freed eagerly, at a stash or behind a window"
        )
        self._hits = Counter("island_hit_tokens_total", "Prefix tokens found in the cache", ("origin",))
        self._crossed = Counter("island_tombstone_hits_total", "Prefix hits whose path crosses a tombstone")
        self._noops = Counter("island_double_free_noops_total", "SWA slots freed a second time, without effect")
        self._violations = Counter("island_frontier_violations_total", "SWA slots freed that a later token could read")
        self._live = Gauge("island_live_tokens", "SWA tokens that the tree holds", multiprocess_mode="livesum")
        self._hold = Gauge(
            "island_hold_tokens",
            "SWA tokens pinned per running request",
            ("stat",),
            multiprocess_mode="livemostrecent",
        )
        for phase in ("prefill", "decode"):
            self._published.labels(phase=phase).inc(0)
        for origin in ("running", "finished"):
            self._hits.labels(origin=origin).inc(0)
        for stat in ("mean", "max"):
            self._hold.labels(stat=stat)

    def published(self, phase: str, *, tombstoned: int) -> None:
        """An island, and how many tokens became tombstone with it."""
        self._published.labels(phase=phase).inc()
        self._tombstoned.inc(tombstoned)

    def freed(self, tokens: int) -> None:
        """SWA slots given back, at a stash or by the decode-time evictor."""
        self._freed.inc(tokens)

    def hit(self, tokens: int, *, running: bool, crossed: bool) -> None:
        """The prefix that an admitted request found; `running`: a request that still runs holds the same tokens."""
        self._hits.labels(origin="running" if running else "finished").inc(tokens)
        if crossed:
            self._crossed.inc()

    def noop(self, tokens: int) -> None:
        """Slots that were free already."""
        self._noops.inc(tokens)

    def violation(self) -> None:
        """A frontier beyond what a later token reads: must stay 0."""
        self._violations.inc()

    def held(self, holds: list[int], *, live: int) -> None:
        """What running requests pin, and what the tree holds."""
        self._live.set(live)
        self._hold.labels(stat="mean").set(sum(holds) / len(holds) if holds else 0)
        self._hold.labels(stat="max").set(max(holds, default=0))


@cache
def speaking() -> IslandMetrics:
    """The one of this process. A scheduler that was forked finds the names taken, by the process that announced."""
    return IslandMetrics()


def announce(*, enabled: bool, ratio: float, paced: bool) -> None:
    """Say in the first process what the engine was told, whatever the cache class: off is announced too.

    The counters of the scheduler are declared here as well, so that every name is there, at 0, with islands off.
    """
    from prometheus_client import Gauge

    speaking()
    Gauge("island_enabled", "1 while the island cache serves", multiprocess_mode="livemostrecent").set(int(enabled))
    Gauge("island_swa_ratio", "SWA pool over full pool", multiprocess_mode="livemostrecent").set(ratio)
    Gauge("island_paced", "1 where tokens are dummies", multiprocess_mode="livemostrecent").set(int(paced))
