"""What the user sees while a step runs: one line per step, and how long it took when that was long."""

from __future__ import annotations

import contextlib
import fcntl
import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_START = time.monotonic()
# A step that is done before this says nothing but its result; one that lasts repeats that it is alive.
ANNOUNCE_S = 2.0
ALIVE_S = 20.0


def say(text: str) -> None:
    """One line on stderr, stamped with the seconds since this command began; stdout is for results alone."""
    print(f"[{time.monotonic() - _START:6.1f}s] {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def step(text: str, estimate: str = "") -> Iterator[None]:
    """Announce `text` (with `estimate`, such as "about 4 min") as soon as it has taken over 2 s, then that it lives."""
    done = threading.Event()
    start = time.monotonic()

    def watch() -> None:
        if done.wait(ANNOUNCE_S):
            return
        say(f"{text}{f' ({estimate})' if estimate else ''} ...")
        while not done.wait(ALIVE_S):
            say(f"  {text}: {time.monotonic() - start:.0f} s so far")

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
    took = time.monotonic() - start
    if took >= ANNOUNCE_S:
        say(f"  {text}: done in {took:.1f} s")


@contextlib.contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold an exclusive lock on the file `path`; say so when another process holds it and we wait for `what`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting: another process on this machine is at work on {what}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
