"""Our processes on this machine, found by a mark in their arguments: a kill at any moment cannot lose them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# argv elements that only these processes carry.
NODE_MARK = "radix-islands-node"
GUARD_MARK = "radix-islands-guard"


def arguments(pid: int) -> list[str]:
    """The argument list of a process; [] for a kernel thread, a zombie or one that is gone."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [part.decode(errors="replace") for part in raw.split(b"\0")[:-1]]


def marked(mark: str, program: str) -> list[int]:
    """Pids of the processes whose arguments contain `mark` and whose argv[0] ends in `program`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            argv = arguments(int(entry.name))
            if mark in argv and Path(argv[0]).name.startswith(program):
                found.append(int(entry.name))
    return found


def node_init() -> int | None:
    """The pid, as this machine sees it, of the node's first process; None when no node runs."""
    return next(iter(marked(NODE_MARK, "tini")), None)


def detach(
    argv: list[str], *, env: dict[str, str] | None = None, log: Path | None = None, keep: Sequence[int] = ()
) -> None:
    """Run `argv` as nobody's child, out of reach of the caller's terminal, its output appended to `log`."""
    with (log or Path(os.devnull)).open("ab") as out:
        subprocess.run(
            ["setsid", "--fork", *argv],
            env=env,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            pass_fds=keep,
            check=True,
        )


def kill(pids: list[int], patience: float = 5.0) -> bool:
    """SIGKILL, then wait until they are gone; False when one is still there after `patience` seconds."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + patience
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        if time.monotonic() > deadline:  # a zombie holds nothing: it is its parent's to bury
            return not any(arguments(pid) for pid in pids)
        time.sleep(0.02)
    return True
