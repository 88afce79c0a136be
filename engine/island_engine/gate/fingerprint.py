"""What a verdict is about. Whatever changes one of these facts voids a PASS."""

from __future__ import annotations

import hashlib
import json
import subprocess
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from island_engine import flags
from island_engine.gate import arguments, model

if TYPE_CHECKING:
    from collections.abc import Mapping

# Variables that change what an engine computes; ISLAND_IMAGE has its own place.
BEHAVIOUR = ("ISLAND_", "SGLANG_", "OMP_", "CUBLAS_", "NVIDIA_TF32_", "TORCH")


def facts(
    engine_args: tuple[str, ...], decode_interval: int | None, environment: Mapping[str, str]
) -> dict[str, object]:
    """Image digest, model revision, arguments, environment, device, driver and versions. Secrets are left out."""
    device, driver = _device(engine_args)
    return {
        "image": environment.get("ISLAND_IMAGE", ""),
        "model": model.revision(model.directory(engine_args, environment)),
        "engine_args": list(arguments.redacted(engine_args)),
        "decode_interval": decode_interval,
        "environment": {
            name: value
            for name, value in sorted(environment.items())
            if name.startswith(BEHAVIOUR) and name != "ISLAND_IMAGE"
        },
        "device": device,
        "driver": driver,
        "sglang": _version("sglang"),
        "plugin": _version("radix-islands"),
    }


def digest(known: Mapping[str, object]) -> str:
    """`sha256:...` over the facts, independent of their order."""
    text = json.dumps(known, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def accelerators(engine_args: tuple[str, ...]) -> list[str]:
    """The name of every accelerator of this machine that the engine may use; none on a CPU."""
    return [name for name, _ in _accelerators(engine_args)]


def _accelerators(engine_args: tuple[str, ...]) -> list[tuple[str, str]]:
    """(name, driver version) of each."""
    if flags.value(engine_args, "--device") == "cpu":
        return []
    try:
        seen = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        ).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return []
    parts = [line.rpartition(",") for line in seen]
    return [(name.strip(), driver.strip()) for name, _, driver in parts]


def _device(engine_args: tuple[str, ...]) -> tuple[str, str]:
    if seen := _accelerators(engine_args):
        return " + ".join(name for name, _ in seen), seen[0][1]
    for line in _lines(Path("/proc/cpuinfo")):
        if line.startswith("model name"):
            return "cpu " + line.partition(":")[2].strip(), ""
    return "cpu", ""


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "absent"
