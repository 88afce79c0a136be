"""What an island cache reports, as plain sums."""

from __future__ import annotations

from island_engine.metrics import Silent


class Tally(Silent):
    """Stands where IslandMetrics would; tokens unless the name says otherwise."""

    def __init__(self) -> None:
        self.islands = {"prefill": 0, "decode": 0}
        self.hits = {"running": 0, "finished": 0}
        self.tombstoned = self.swa_freed = self.noops = self.violations = self.crossed = self.live = 0
        self.holds: list[int] = []

    def published(self, phase: str, *, tombstoned: int) -> None:
        """An island."""
        self.islands[phase] += 1
        self.tombstoned += tombstoned

    def freed(self, tokens: int) -> None:
        """SWA slots given back."""
        self.swa_freed += tokens

    def hit(self, tokens: int, *, running: bool, crossed: bool) -> None:
        """A prefix that was found."""
        self.hits["running" if running else "finished"] += tokens
        self.crossed += crossed

    def noop(self, tokens: int) -> None:
        """Slots that were free already."""
        self.noops += tokens

    def violation(self) -> None:
        """Slots that a later token reads."""
        self.violations += 1

    def held(self, holds: list[int], *, live: int) -> None:
        """What running requests pin, and what the tree holds."""
        self.holds, self.live = holds, live
