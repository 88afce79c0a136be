"""An engine's /metrics as a Sample: only the few series that something is decided by, and nothing is believed.

Text format: prometheus.io/docs/instrumenting/exposition_formats. Names as SGLang 0.5.23 and island_engine.metrics spell
them; the series of several schedulers of one engine are added up, except usages, of which the largest counts.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

MOST_BYTES = 4 * 1024 * 1024  # of one exposition; an engine's is 0.1 to 0.5 MB
MOST_BUCKETS = 64
LONGEST_LINE = 8192  # characters

_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?[ \t]+(\S+)")
_RESPONSES, _BUCKETS = "sglang:http_responses_total", "sglang:time_to_first_token_seconds_bucket"
_COUNTERS = {
    "sglang:num_requests_total": "requests",
    "sglang:num_retracted_requests_total": "retracted",
    "island_frontier_violations_total": "violations",
}
_GAUGES = {"sglang:num_queue_reqs": "queued", "sglang:num_running_reqs": "running"}
_USAGES = {"sglang:full_token_usage": "full_usage", "sglang:swa_token_usage": "swa_usage"}
_FIELDS = _COUNTERS | _GAUGES | _USAGES
_WANTED = (*_FIELDS, _RESPONSES, _BUCKETS)
_PROBES = {"/health", "/health_generate", "/metrics"}  # a probe that fails is readiness, not an error of a user's


class UnreadableError(ValueError):
    """No sample can be made of it; `str()` says why in a few words, without anything of the text itself."""


@dataclass(frozen=True)
class Sample:
    """One engine at one time. Counters since its boot."""

    at: float  # seconds, of one clock
    requests: float = 0.0
    retracted: float = 0.0
    violations: float = 0.0
    responses: float = 0.0  # HTTP, but for probes
    errors: float = 0.0  # of those, 5xx
    running: float = 0.0
    queued: float = 0.0
    full_usage: float = 0.0  # 0 to 1
    swa_usage: float = 0.0
    ttft: tuple[tuple[float, float], ...] = field(default=())  # (upper bound in seconds, requests up to it)


def parse(text: str, at: float) -> Sample:
    """UnreadableError: it is not Prometheus text, not an engine's, or holds what cannot be."""
    sums: dict[str, float] = dict.fromkeys((*_FIELDS.values(), "responses", "errors"), 0.0)
    buckets: dict[float, float] = {}
    lines = found = 0
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        lines += 1
        if not line.startswith(_WANTED):
            continue
        if len(line) > LONGEST_LINE or (match := _LINE.match(line)) is None:
            raise UnreadableError("not Prometheus text")
        name, labels, value = match[1], match[2] or "", _number(match[3])
        found += name in _WANTED
        if target := _COUNTERS.get(name) or _GAUGES.get(name):
            sums[target] += value
        elif target := _USAGES.get(name):
            sums[target] = max(sums[target], value)
        elif name == _RESPONSES and _label(labels, "endpoint") not in _PROBES:
            sums["responses"] += value
            sums["errors"] += value * _label(labels, "status_code").startswith("5")
        elif name == _BUCKETS:
            bound = _bound(_label(labels, "le"))
            buckets[bound] = buckets.get(bound, 0.0) + value
            if len(buckets) > MOST_BUCKETS:
                raise UnreadableError(f"more than {MOST_BUCKETS} buckets of a histogram")
    if not found:
        looks = lines and all(_LINE.match(line) for line in text[:LONGEST_LINE].splitlines()[:3] if line[:1] != "#")
        raise UnreadableError("none of SGLang's metrics" if looks else "not Prometheus text")
    return Sample(at, **sums, ttft=tuple(sorted(buckets.items())))


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise UnreadableError("not Prometheus text") from None
    if not math.isfinite(value) or value < 0:
        raise UnreadableError("a value that is not a number from 0 on")
    return value


def _bound(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise UnreadableError("a bucket without a bound") from None
    if math.isnan(value):
        raise UnreadableError("a bucket without a bound")
    return value


def _label(labels: str, name: str) -> str:
    """A label's value; a quote within another label's value is escaped, so it cannot pose as one."""
    match = re.search(rf'(?:^|,){name}="((?:[^"\\]|\\.)*)"', labels)
    return match[1] if match else ""
