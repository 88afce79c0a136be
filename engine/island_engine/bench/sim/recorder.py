"""What a run is judged by: means over virtual time, peaks, counts. Pure; sampled as the scheduler reads a result."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Sample:
    """The scheduler at one moment. Fractions are of the pool, without what could be evicted."""

    now: float  # virtual seconds
    running: int
    queued: int
    full: float
    swa: float
    decode: bool


@dataclass
class Recorder:
    """A state lasts from the result before it to the one that shows it."""

    swa_size: int  # tokens in the SWA pool
    retracted: int = 0
    running_max: int = 0
    full_peak: float = 0.0
    swa_peak: float = 0.0
    held: list[float] = field(default_factory=list)  # SWA tokens per running request
    _last: float = 0.0
    _busy: float = 0.0  # running requests * seconds
    _queued_busy: float = 0.0
    _queued: float = 0.0  # seconds with a queue
    _queued_full: float = 0.0  # full-pool fraction * seconds

    def add(self, sample: Sample) -> None:
        """One result was read."""
        passed, self._last = sample.now - self._last, sample.now
        self._busy += sample.running * passed
        if sample.queued:
            self._queued += passed
            self._queued_busy += sample.running * passed
            self._queued_full += sample.full * passed
        self.running_max = max(self.running_max, sample.running)
        self.full_peak = max(self.full_peak, sample.full)
        self.swa_peak = max(self.swa_peak, sample.swa)
        if sample.decode and sample.running:
            self.held.append(sample.swa * self.swa_size / sample.running)

    def report(self, outputs: int, latencies: list[float]) -> dict[str, float | int | None]:
        """`outputs`: tokens generated; rates per virtual second."""
        seconds = self._last
        queued = self._queued or None
        return {
            "virtual_s": round(seconds, 2),
            "output_tokens_per_s": round(outputs / seconds, 1),
            "latency_mean_s": round(statistics.mean(latencies), 2),
            "latency_p99_s": round(sorted(latencies)[int(0.99 * len(latencies))], 2),
            "running_mean": round(self._busy / seconds, 2),
            "running_while_queued": round(self._queued_busy / queued, 2) if queued else None,
            "full_while_queued": round(self._queued_full / queued, 4) if queued else None,
            "running_max": self.running_max,
            "retractions": self.retracted,
            "full_peak": round(self.full_peak, 4),
            "swa_peak": round(self.swa_peak, 4),
            "swa_hold_mean": round(statistics.mean(self.held)) if self.held else None,
        }
