"""A process that outlives its starter and takes the cluster down when the process it watches dies."""

from __future__ import annotations

import os
import select
import sys

from . import processes
from .errors import ClusterError
from .paths import HERE, RUN


def open_process(pid: int) -> int:
    """A handle on a process, which a reused pid cannot confuse; ClusterError when there is no such process."""
    try:
        return os.pidfd_open(pid)
    except (OSError, OverflowError):
        raise ClusterError(f"--tied-to {pid}: no such process; name one that runs, such as $$ in a shell") from None


def start(pidfd: int) -> None:
    """Start the guard, detached from this process and its terminal."""
    RUN.mkdir(mode=0o755, exist_ok=True)
    processes.detach([sys.executable, str(HERE / "cluster"), "guard", str(pidfd), processes.GUARD_MARK], keep=[pidfd])


def running() -> list[int]:
    """The guards on this machine, other than this process."""
    return [pid for pid in processes.marked(processes.GUARD_MARK, "python") if pid != os.getpid()]


def stop() -> bool:
    """End the guard, if there is one; False when there was none."""
    pids = running()
    processes.kill(pids)
    return bool(pids)


def watch(pidfd: int) -> None:
    """Return when the process dies."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.poll()
