"""Many runs, each in a process forked from one that has imported SGLang already; finished ones are kept in a file."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import traceback
import warnings
from dataclasses import asdict
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from island_engine.bench.sim.setting import Setting

PR_SET_PDEATHSIG = 1
LIMIT_SECONDS = 1_800  # a run that takes longer hangs; none has taken a tenth of it


class Results:
    """A file of finished runs, one JSON object a line. What a killed bench has finished, the next one does not run."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.found: dict[str, dict[str, Any]] = {}
        if path and path.is_file():
            for line in path.read_text().splitlines():
                try:
                    entry = json.loads(line)
                except ValueError:  # the bench was killed while it wrote
                    continue
                self.found[entry["key"]] = entry["result"]

    def add(self, setting: Setting, result: dict[str, Any]) -> None:
        """A run has finished."""
        self.found[setting.key] = result
        if self.path:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(json.dumps({"key": setting.key, "setting": asdict(setting), "result": result}) + "\n")


def run_all(
    settings: Sequence[Setting], results: Results, jobs: int, done: Callable[[Setting], None]
) -> list[dict[str, Any]]:
    """The result of each setting, in their order; `done` is called as each is there. RuntimeError when one fails."""
    todo: list[Setting] = []
    for setting in settings:
        if setting.key in results.found:
            done(setting)
        elif setting not in todo:
            todo.append(setting)
    if todo:
        _prepare()
    running: dict[int, tuple[Setting, int]] = {}  # pipe -> what its writer runs, and its process
    try:
        while todo or running:
            while todo and len(running) < jobs:
                setting = todo.pop(0)
                child, pipe = _start(setting)
                running[pipe] = setting, child
            ready = wait(list(running))
            for pipe in [pipe for pipe in running if pipe in ready]:
                setting, child = running[pipe]
                with open(pipe, closefd=False) as answer:
                    text = answer.read()
                _, status = os.waitpid(child, 0)
                os.close(pipe)
                del running[pipe]
                if status:
                    raise RuntimeError(f"{setting.arm} at ratio {setting.ratio} failed: {text.strip() or status}")
                results.add(setting, json.loads(text))
                done(setting)
    finally:
        for pipe, (_, child) in running.items():
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(pipe)
    return [results.found[setting.key] for setting in settings]


def _prepare() -> None:
    """Import once what every run needs: a boot is then 2 s instead of 9. Without a device: CUDA survives no fork."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch

        import island_engine.bench.sim.run  # noqa: F401
    torch.set_num_threads(1)


def _start(setting: Setting) -> tuple[int, int]:
    """Fork a run; its process and the pipe that its answer comes through."""
    mine, its = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        os.close(its)
        return child, mine
    status, text = 1, ""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a killed bench leaves no run behind
        signal.alarm(LIMIT_SECONDS)
        os.close(mine)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        warnings.simplefilter("ignore")
        from island_engine.bench.sim.run import simulate

        text, status = json.dumps(simulate(setting)), 0
    except BaseException:  # noqa: BLE001 - whatever it was, the parent says it
        text = traceback.format_exc()
    finally:
        os.write(its, text.encode())
        os._exit(status)
