"""The tests' control plane ends with the tests, however they end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from support.control_plane import ROOT, until

HOLD = """
import json, time
from support.control_plane import ControlPlane
with ControlPlane() as plane:
    print(json.dumps([process.pid for process in plane._processes.values()]), flush=True)
    time.sleep(600)
"""


def running(pid: int) -> bool:
    """Not so for one that has ended and that nobody has waited for yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_killing_the_tests_kills_their_control_plane(tmp_path: Path) -> None:
    env = os.environ | {"PYTHONPATH": str(ROOT / "tests"), "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True, env=env) as holder:
        assert holder.stdout is not None
        pids = json.loads(holder.stdout.readline())
        assert len(pids) == 3
        assert all(running(pid) for pid in pids)
        holder.kill()
    until("all three are gone", lambda: not any(running(pid) for pid in pids))
