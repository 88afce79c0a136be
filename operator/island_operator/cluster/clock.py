"""Time as the API server tells it. Pods and Jobs bear its stamps, and the clock of our node may be hours off: it would
take every gate for late, or none, and leave the next leader deadlines in the future.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("island_operator.clock")

TOLERANCE = timedelta(seconds=5)  # within which both clocks agree: an answer tells whole seconds, and travels
PROMPT = 2.0  # seconds that an answer may have taken to tell the time


class Clock:
    """The time of our node, put right by what answers say."""

    def __init__(self, local: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._local, self._off = local, timedelta()

    def now(self) -> datetime:
        """In UTC."""
        return self._local() - self._off

    def heard(self, date: str | None, took: float) -> None:
        """The Date of an answer (RFC 9110), `took` seconds after its request; one that is none tells nothing."""
        with suppress(TypeError, ValueError):
            off = self._local() - parsedate_to_datetime(str(date))
            off = timedelta() if abs(off) < TOLERANCE else off
            if took > PROMPT or (off and abs(off - self._off) < TOLERANCE) or off == self._off:
                return
            self._off = off
            told = f"{off.total_seconds():+.0f} s off the API server's, which is believed: set it right"
            log.warning("this node's clock is %s", told if off else "right again")
