"""The tests' control plane ends with the tests, however they end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

from support.arena import Arena
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


def test_watches_of_an_api_server_that_answers_nothing_leave_no_socket_open(control_plane: Any) -> None:
    """A loop that ends while they wait for its goodbye: any test after it would be failed for them."""

    async def watched() -> None:
        async with Arena.open(control_plane.kubeconfig) as arena:
            await arena.create_namespace("unanswered")  # the watches run by then
            stack.enter_context(control_plane.stopped_api())

    with contextlib.ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()  # what others have left
        warnings.simplefilter("always", ResourceWarning)
        caught = stack.enter_context(warnings.catch_warnings(record=True))
        asyncio.run(watched())
        gc.collect()
    assert [str(warning.message) for warning in caught] == []
