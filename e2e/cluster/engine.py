"""What engine pods mount from the node: SGLang's virtual environment and the tiny model, both in the cache."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from typing import TYPE_CHECKING

from .errors import ClusterError
from .paths import CHECKOUT, cache, content_key, need_space
from .progress import locked, say, step

if TYPE_CHECKING:
    from pathlib import Path

ENGINE_LOCKS = tuple(CHECKOUT / "locks" / name for name in ("engine-cpu.txt", "sglang.txt"))
MODEL_MAKER = CHECKOUT / "engine" / "island_engine" / "tiny_model.py"
MODEL = "tiny-gemma"


def venv_key() -> str:
    """The key under which `make venv-engine` keeps torch and SGLang: its own formula, over the locks."""
    return hashlib.sha256(b"".join(lock.read_bytes() for lock in ENGINE_LOCKS)).hexdigest()[:16]


def venv() -> Path:
    """The engine's virtual environment; `make venv-engine` makes it when missing."""
    target = cache() / "engine-venv" / venv_key()
    if not (target / ".ready").exists() or not (CHECKOUT / ".venv-engine" / ".ready").exists():
        need_space(target, 9, "the engine's Python environment (torch and SGLang)")
        with step("make venv-engine: torch and SGLang for the CPU", "about 1 min, once per machine"):
            _run(["make", "-C", str(CHECKOUT), "venv-engine"], "make venv-engine")
    return target


def models() -> Path:
    """A directory that holds tiny-gemma, made by `island-engine tiny-model`, keyed by the maker's source."""
    target = cache() / "models" / content_key([MODEL_MAKER, venv_key()])
    if not (target / MODEL).exists():
        with locked(cache() / "models" / ".lock", "the tiny model"):
            if not (target / MODEL).exists():
                fresh = target.with_suffix(".new")
                shutil.rmtree(fresh, ignore_errors=True)
                fresh.mkdir(parents=True)
                with step("making the tiny model", "about 20 s, once"):
                    tool = CHECKOUT / ".venv-engine" / "bin" / "island-engine"
                    _run([str(tool), "tiny-model", str(fresh / MODEL)], "island-engine tiny-model")
                for path in fresh.rglob("*"):  # weights are written for their owner alone; engines run as another user
                    path.chmod(0o755 if path.is_dir() else 0o644)
                fresh.rename(target)
    return target


def _run(command: list[str], what: str) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        say(said[-3000:])
        raise ClusterError(f"{what} failed: {said.splitlines()[-1] if said else f'exit {done.returncode}'}")
