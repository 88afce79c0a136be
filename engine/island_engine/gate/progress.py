"""What a person sees while the gate runs: arm, class, how far, how much time is left."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from island_engine.gate.probes import Probe

HEARTBEAT_SECONDS = 10.0
INPUT_WEIGHT = 1 / 64  # one prompt token costs about this many generated ones


@dataclass
class Work:
    """Done and left, for an estimate."""

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


class Progress:
    """Prints a line per step, and one every HEARTBEAT_SECONDS of silence. Standard error, so --json stays clean."""

    def __init__(self, arms: int) -> None:
        self.started = time.monotonic()
        self.spoke = self.measured = self.started
        self.arms = arms
        self.work = Work(boots_left=arms)
        self.where = "nothing yet"

    def planned(self, plan: Sequence[Probe]) -> None:
        """The plan is known: every arm will serve all of it."""
        self.work.weight_left = self.arms * sum(weight(p) for p in plan)

    def booted(self, seconds: float) -> None:
        """One more arm answers."""
        self.work.boots_left -= 1
        self.work.boots_done += 1
        self.work.boot_seconds += seconds
        self.measured = time.monotonic()

    def served(self, probe: Probe, seconds: float) -> None:
        """One more probe is answered."""
        self.work.weight_left -= weight(probe)
        self.work.weight_done += weight(probe)
        self.work.probe_seconds += seconds
        self.measured = time.monotonic()

    def at(self, where: str) -> None:
        """Say where the gate is now."""
        self.where = where
        self.say(where)

    def say(self, text: str) -> None:
        """One line with the time so far and the time left."""
        self.spoke = time.monotonic()
        left = self.work.seconds_left()
        tail = "" if left is None else f" (about {max(0.0, left - (self.spoke - self.measured)):.0f} s left)"
        print(f"gate {self.spoke - self.started:5.0f} s  {text}{tail}", file=sys.stderr, flush=True)

    async def heartbeat(self) -> None:
        """Repeat the last line when nothing was said for a while. Runs until cancelled."""
        while True:
            await asyncio.sleep(1)
            if time.monotonic() - self.spoke >= HEARTBEAT_SECONDS:
                self.say(f"{self.where} ...")
