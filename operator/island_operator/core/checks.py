"""What the engines' own numbers say about a revision: canary checks, and the two faults that only they show.

A window is what an engine counted between the oldest and the newest sample that is kept of it. Nothing is judged by
fewer requests than `minRequests`: a canary without traffic goes on by its pauses alone.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING

from island_operator.core.observe import Trouble

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from island_operator.core.exposition import Sample
    from island_operator.core.model import Object

FULL = 0.8  # of the SWA pool, where requests wait for it: the first of them wants a whole chunk
FEWER = 0.8  # of the requests that the pools are sized for: an island that waits for its turn holds a page or two more
REBIND_SECONDS = 30.0  # for so long at least, in more than one sample
MISSES = 3  # failed readings in a row before somebody is told: one is a busy engine


@dataclass(frozen=True)
class Reading:
    """What is kept of one engine: its last samples, oldest first, and why it cannot be read, if it cannot."""

    samples: tuple[Sample, ...] = ()
    misses: int = 0
    fault: str | None = None

    def heard(self, sample: Sample, keep: int) -> Reading:
        """With a new sample. An engine that counts less than before has been restarted: what it was is forgotten."""
        last = self.samples[-1] if self.samples else sample
        again = sample.requests < last.requests or sample.responses < last.responses
        return Reading((*(() if again else self.samples), sample)[-keep:])

    def missed(self, why: str) -> Reading:
        """Without one."""
        misses = self.misses + 1
        return replace(self, misses=misses, fault=why if misses >= MISSES else self.fault)


@dataclass(frozen=True)
class Window:
    """What the engines of a revision did, together."""

    requests: float
    retracted: float
    responses: float
    errors: float
    queued: float  # of the fullest queue
    swa_usage: float  # of the fullest pool
    ttft: tuple[tuple[float, float], ...]  # as Sample's, in the window

    @classmethod
    def of(cls, readings: Iterable[Reading]) -> Window:
        """Of engines that were heard at all."""
        heard = [(r.samples[0], r.samples[-1]) for r in readings if r.samples]
        buckets: Counter[float] = Counter()
        for first, last in heard:
            buckets.update(dict(last.ttft))
            buckets.subtract(dict(first.ttft))
        return cls(
            requests=sum(last.requests - first.requests for first, last in heard),
            retracted=sum(last.retracted - first.retracted for first, last in heard),
            responses=sum(last.responses - first.responses for first, last in heard),
            errors=sum(last.errors - first.errors for first, last in heard),
            queued=max((last.queued for _, last in heard), default=0.0),
            swa_usage=max((last.swa_usage for _, last in heard), default=0.0),
            ttft=tuple(sorted(buckets.items())),
        )

    @property
    def samples(self) -> float:
        """Requests whose first token was timed."""
        return self.ttft[-1][1] if self.ttft else 0.0


def quantile(buckets: Sequence[tuple[float, float]], q: float) -> float | None:
    """Seconds below which a share q of the requests lies, linear within a bucket as Prometheus does; beyond the last
    finite bound it is that bound. None: there are no requests.
    """
    total = buckets[-1][1] if buckets else 0.0
    if total <= 0:
        return None
    for (low, below), (high, count) in pairwise([(0.0, 0.0), *buckets]):
        if count >= q * total:
            return low if math.isinf(high) else low + (high - low) * (q * total - below) / max(count - below, 1e-9)
    return None


def failed(limits: Object, canary: Iterable[Reading], stable: Iterable[Reading]) -> Trouble | None:
    """The first check that the canary fails. `limits`: spec.rollout.checks; an absent limit is not checked."""
    least, ours = int(limits["minRequests"]), Window.of(canary)
    enough = ours.responses >= least or ours.requests >= least
    shares = (
        ("error rate", "maxErrorRate", ours.errors, ours.responses),
        ("retraction rate", "maxRetractionRate", ours.retracted, ours.requests),
    )
    for what, field, bad, all_ in shares:
        limit = limits.get(field)
        if limit is not None and all_ >= least and bad > float(limit) * all_:
            return _over(what, f"{bad / all_:.4f} of {all_:.0f} requests", field, limit)
    for what, field, value in (("SWA usage", "maxSwaUsage", ours.swa_usage), ("queue", "maxQueued", ours.queued)):
        limit = limits.get(field)
        if limit is not None and enough and value > float(limit):
            return _over(what, f"{value:.4g}", field, limit)
    if (limit := limits.get("maxTtftRatio")) is None:
        return None
    theirs = Window.of(stable)
    mine, other = quantile(ours.ttft, 0.99), quantile(theirs.ttft, 0.99)
    if min(ours.samples, theirs.samples) < least or not mine or not other or mine <= float(limit) * other:
        return None
    return _over("p99 TTFT", f"{mine:.3g} s, stable {other:.3g} s", "maxTtftRatio", limit)


def _over(what: str, value: str, field: str, limit: object) -> Trouble:
    return Trouble("CheckFailed", f"{what} {value}, above spec.rollout.checks.{field} {limit}", fatal=True)


def violated(readings: Mapping[str, Reading]) -> Trouble | None:
    """A frontier violation, ever since the engine's boot: wrong KV may have been read."""
    for pod, reading in readings.items():
        if reading.samples and (count := reading.samples[-1].violations):
            told = f"pod {pod} counted {count:.0f} frontier violations (island_frontier_violations_total)"
            return Trouble("FrontierViolation", told, fatal=True)
    return None


def rebound(readings: Mapping[str, Reading], planned: int) -> Trouble | None:
    """Requests queue because the SWA pool is full, the fuller of the two, and far fewer run than this ratio is sized
    for (`planned`): each holds more SWA KV than the switch promises. A full SWA pool alone is no fault: with short
    prompts it is what binds.
    """
    for pod, reading in readings.items():
        few = takewhile(lambda sample: sample.running < FEWER * planned and _binding(sample), reversed(reading.samples))
        tail = list(few)
        if len(tail) > 1 and tail[0].at - tail[-1].at >= REBIND_SECONDS:
            now = tail[0]
            told = (
                f"pod {pod} runs {now.running:.0f} of {planned} requests and queues {now.queued:.0f} with its SWA pool "
                f"{now.swa_usage:.0%} full and its full pool {now.full_usage:.0%}: the ratio does not fit the switch"
            )
            return Trouble("AdmissionRebind", told, fatal=True)
    return None


def _binding(sample: Sample) -> bool:
    return sample.queued > 0 and sample.swa_usage >= FULL and sample.full_usage < sample.swa_usage


def faulty(readings: Mapping[str, Reading], planned: int) -> Trouble | None:
    """What no revision may go on with, whatever its checks say."""
    return violated(readings) or rebound(readings, planned)
