"""Reads the engines' own /metrics all the time: what runs, what waits, how full the pools are."""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from demo.kube import KubectlError
from demo.observer import is_ready, pair_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from demo.kube import Kube, Object
    from demo.traffic import Request

EVERY = 3.0  # seconds between two readings
PORT = 30000
NAMES = {
    "sglang:num_running_reqs": "running",
    "sglang:num_queue_reqs": "queued",
    "sglang:swa_token_usage": "swa",
    "sglang:full_token_usage": "full",
}


@dataclass(frozen=True)
class Sample:
    """One engine at one moment. `at`: seconds since the epoch; `swa` and `full`: shares of the pools in use."""

    at: float
    pod: str
    islands: bool
    running: float
    queued: float
    swa: float
    full: float


@dataclass(frozen=True)
class Measured:
    """One stretch of time. Seconds, requests, tokens."""

    seconds: float
    running: float  # mean of all engines together
    queued: float
    latency: float  # mean of the requests that were answered in it
    tok_s: float  # generated tokens of those
    answered: int


def measure(samples: Iterable[Sample], requests: Sequence[Request], since: float, until: float) -> Measured:
    """Between two moments; ValueError when nothing was seen there."""
    seen = [s for s in samples if since <= s.at <= until]
    ended = [r for r in requests if r.ok and since <= r.at + r.seconds <= until]
    if not seen or not ended:
        raise ValueError(
            f"{len(seen)} readings and {len(ended)} answers from {since:.0f} to {until:.0f}: none to judge by"
        )
    rounds = len({s.at for s in seen})
    return Measured(
        seconds=until - since,
        running=sum(s.running for s in seen) / rounds,
        queued=sum(s.queued for s in seen) / rounds,
        latency=statistics.mean(r.seconds for r in ended),
        tok_s=sum(r.new for r in ended) / (until - since),
        answered=len(ended),
    )


class Meter:
    """Reads every Ready engine through the API server until `stop`."""

    def __init__(self, kube: Kube, selector: str) -> None:
        self.samples: list[Sample] = []
        self._kube, self._selector = kube, selector
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="meter", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Read no more; harmless when it was never started."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(timeout=30)

    def _follow(self) -> None:
        while not self._ended.wait(EVERY):
            with contextlib.suppress(KubectlError):  # Ctrl-C, or a pod that has just gone
                now = time.time()
                for pod in self._kube.items("pods", self._selector):
                    if is_ready(pod):
                        with contextlib.suppress(KubectlError):
                            self.samples.append(self._read(pod, now))

    def _read(self, pod: Object, now: float) -> Sample:
        meta = pod["metadata"]
        text = self._kube.run(
            "get", "--raw", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}:{PORT}/proxy/metrics"
        )
        found = dict.fromkeys(NAMES.values(), 0.0)
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name in NAMES:
                    found[NAMES[sample.name]] = sample.value
        pair = pair_of(pod)
        return Sample(at=now, pod=meta["name"], islands=bool(pair and pair[0]), **found)
