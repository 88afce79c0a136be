"""Runs one engine and lets nothing of it outlive the gate. Standard library only; started by path, not imported.

    python guard.py LOG COMMAND...

The engine and all its descendants end when (a) the engine's first process ends, (b) standard input closes: the gate
asked for it, or was killed, or (c) the guard itself is killed. SGLang's own children only ask to die with their parent
some seconds after they start, so a killed parent could otherwise leave a scheduler that holds the GPU. As subreaper
the guard inherits every orphan, in whatever session, and so finds them all.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
POLL_SECONDS = 0.1


def main(log: str, command: list[str]) -> int:
    """Run `command` with both outputs appended to `log`; its exit code, or 128 + signal."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the gate's to handle; it then closes our input
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    guard = os.getpid()
    engine = os.fork()
    if engine == 0:
        _become(log, command, libc, guard)
    status = None
    try:
        while status is None and not _closed(sys.stdin.fileno()):
            status = _reap(engine)
    finally:
        _end_descendants(guard)
    if status is None:
        return 0
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _become(log: str, command: list[str], libc: ctypes.CDLL, guard: int) -> None:
    try:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != guard:
            os._exit(1)  # the guard died before we asked to be told
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.execvp(command[0], command)  # noqa: S606 - an argument list, no shell
    except OSError as error:
        print(f"cannot run {command[0]}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(127)


def _closed(fd: int) -> bool:
    """Wait a moment; whether the gate's end of our standard input is gone. What it says is ignored."""
    ready, _, _ = select.select([fd], [], [], POLL_SECONDS)
    return bool(ready) and not os.read(fd, 4096)


def _reap(engine: int) -> int | None:
    """Collect ended descendants without waiting; the wait status of the engine's first process, if it ended."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == engine:
            return status
        if pid == 0:
            return None


def _end_descendants(guard: int) -> None:
    while True:
        for pid in _children(guard):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            os.waitpid(-1, 0)  # the killed one's children are ours in the next round
        except ChildProcessError:
            return


def _children(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended while we looked
        if int(fields[1]) == parent:
            found.append(int(entry.name))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
