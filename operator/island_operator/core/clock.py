"""Time as the API writes it: RFC 3339 UTC stamps and durations such as 1h30m. No clock is read here."""

from __future__ import annotations

import re
from datetime import datetime

_UNITS = {"h": 3600, "m": 60, "s": 1}


def seconds(duration: str) -> int:
    """`90s`, `5m`, `1h30m` as seconds; the CRD's pattern has refused everything else."""
    return sum(int(n) * _UNITS[unit] for n, unit in re.findall(r"([0-9]+)([hms])", duration))


def elapsed(since: str, now: str) -> float:
    """Seconds from one stamp to another; negative when `since` lies ahead (a clock that was set back)."""
    return (datetime.fromisoformat(now) - datetime.fromisoformat(since)).total_seconds()
