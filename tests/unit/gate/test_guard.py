"""The guard: exit codes, and that it takes every descendant with it, however it ends itself."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from island_engine.gate import guard

from .test_run import alive, eventually

if TYPE_CHECKING:
    from pathlib import Path

FAMILY = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
        time.sleep(600)
    time.sleep(600)
open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
time.sleep(600)
"""


def start(log: Path, *command: str) -> subprocess.Popen[bytes]:
    """A guard; leaving its `with` block closes its input, and waits for it."""
    return subprocess.Popen([sys.executable, "-I", "-S", guard.__file__, str(log), *command], stdin=subprocess.PIPE)


@pytest.mark.parametrize(
    ("code", "expected"), [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137), ("pass", 0)]
)
def test_it_ends_with_the_engine_and_its_code(tmp_path: Path, code: str, expected: int) -> None:
    with start(tmp_path / "log", sys.executable, "-c", code) as process:
        assert process.wait(30) == expected


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    with start(tmp_path / "log", "/no/such/program") as process:
        assert process.wait(30) == 127
    assert "/no/such/program" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("how", ["input closes", "SIGTERM"])
def test_nothing_outlives_it(tmp_path: Path, how: str) -> None:
    pids = tmp_path / "pids"
    with start(tmp_path / "log", sys.executable, "-c", FAMILY, str(pids)) as process:
        assert eventually(lambda: pids.exists() and pids.read_text().count("\n") == 2)
        family = [int(line) for line in pids.read_text().split()]
        assert all(alive(pid) for pid in family)
        if how == "SIGTERM":
            process.send_signal(signal.SIGTERM)
            process.wait(30)
    assert not any(alive(pid) for pid in family)


def test_a_killed_guard_takes_the_engine_along(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = f"import os, time; open({str(pids)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    with start(tmp_path / "log", sys.executable, "-c", code) as process:
        assert eventually(lambda: pids.exists() and pids.read_text() != "")
        process.kill()
    assert eventually(lambda: not alive(int(pids.read_text())))
