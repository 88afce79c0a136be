"""When a step ends. Seconds.

A step is launched when the one before it may still run on the device, as in SGLang's overlap loop: it starts when both
the device and the scheduler have got there. The scheduler then waits for the step whose result it reads.
"""

from __future__ import annotations

import time


class VirtualClock:
    """Time passes only by steps, so a run takes as long as its scheduling and comes out the same every time."""

    def __init__(self) -> None:
        self.now = 0.0  # when the scheduler last read a result
        self._free = 0.0  # when the device ends what it was given

    def launch(self, seconds: float) -> float:
        """Enqueue a step; when it will end."""
        self._free = max(self._free, self.now) + seconds
        return self._free

    def reach(self, end: float) -> None:
        """Wait for a step."""
        self.now = max(self.now, end)


class WallClock(VirtualClock):
    """Steps take real time, slept where a scheduler waits for a device."""

    def launch(self, seconds: float) -> float:
        """Enqueue a step; when it will end."""
        self.now = time.monotonic()
        return super().launch(seconds)

    def reach(self, end: float) -> None:
        """Wait for a step."""
        time.sleep(max(0.0, end - time.monotonic()))
        self.now = time.monotonic()
