"""What a person sees while the gate runs: which boot, arm and class, how far, how much time is left."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from island_engine.gate.probes import Probe

HEARTBEAT_SECONDS = 10.0
INPUT_WEIGHT = 1 / 64  # one prompt token costs about this many generated ones


@dataclass
class Work:
    """Done and left, for an estimate. Weights are in any unit, so long as it is one."""

    boots_left: int
    boot_seconds: float = 0.0
    boots_done: int = 0
    weight_left: float = 0.0
    weight_done: float = 0.0
    probe_seconds: float = 0.0

    def seconds_left(self) -> float | None:
        """Estimated seconds to the end; None before anything was measured."""
        if not self.boots_done or not self.weight_done:
            return None
        boot, rate = self.boot_seconds / self.boots_done, self.probe_seconds / self.weight_done
        return self.boots_left * boot + self.weight_left * rate


def weight(probe: Probe) -> float:
    """Cost of a probe in generated tokens."""
    return probe.new_tokens + INPUT_WEIGHT * len(probe.tokens)


def to_stderr(line: str) -> None:
    """Standard error, so that --json stays clean; at once, so that `kubectl logs -f` has it."""
    print(line, file=sys.stderr, flush=True)


class Progress:
    """Says a line per step, and one every HEARTBEAT_SECONDS of silence."""

    def __init__(self, boots: int, write: Callable[[str], None] = to_stderr) -> None:
        self.started = time.monotonic()
        self.spoke = self.measured = self.started
        self.write = write
        self.work = Work(boots_left=boots)
        self.where = "nothing yet"

    def left(self, arms: int, probes: Sequence[Probe]) -> None:
        """So many arms, the current one included, have these to answer."""
        self.work.weight_left = arms * sum(weight(p) for p in probes)

    def expects(self, boots: int) -> None:
        """So many boots are to come, at least."""
        self.work.boots_left = max(self.work.boots_left, boots)

    def parts(self, count: int) -> None:
        """From here on the work is `count` parts of about the same size, and no boot."""
        self.work = Work(boots_left=0, boots_done=1, weight_left=count)

    def booted(self, seconds: float) -> None:
        """One more arm answers."""
        self.work.boots_left = max(0, self.work.boots_left - 1)
        self.work.boots_done += 1
        self.work.boot_seconds += seconds
        self.measured = time.monotonic()

    def did(self, amount: float) -> None:
        """So much of the work is done since something was measured last."""
        now = time.monotonic()
        self.work.weight_left -= amount
        self.work.weight_done += amount
        self.work.probe_seconds += now - self.measured
        self.measured = now

    def at(self, where: str) -> None:
        """Say where the gate is now."""
        self.where = where
        self.say(where)

    def say(self, text: str) -> None:
        """One line with the time so far and the time left."""
        self.spoke = time.monotonic()
        left = self.work.seconds_left()
        tail = "" if left is None else f" (about {max(0.0, left - (self.spoke - self.measured)):.0f} s left)"
        self.write(f"gate {self.spoke - self.started:5.0f} s  {text}{tail}")

    async def heartbeat(self) -> None:
        """Repeat the last line when nothing was said for a while. Runs until cancelled."""
        while True:
            await asyncio.sleep(1)
            if time.monotonic() - self.spoke >= HEARTBEAT_SECONDS:
                self.say(f"{self.where} ...")
