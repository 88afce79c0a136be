"""With an accelerator nothing of the CPU platform is used: the plugin, loaded in a process that believes in one."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

LOADS = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
import torch
if sys.argv[1] == "cuda":
    really = torch.cuda.is_available
    torch.accelerator.is_available = torch.cuda.is_available = lambda: True
    torch.cuda.get_device_name = lambda *_: "NVIDIA H200"
from sglang.srt.platforms import current_platform
if sys.argv[1] == "cuda":
    torch.cuda.is_available = really  # SGLang's modules ask the device for more while they are imported
from sglang.srt.plugins import load_plugins
from sglang.srt.plugins.hook_registry import HookRegistry
load_plugins()
from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS
from sglang.srt.mem_cache.registry import registered_radix_cache_backends
print(json.dumps({
    "platform": type(current_platform).__name__,
    "hooks": {target: [hook.__module__ for _, hook, _ in hooks] for target, hooks in HookRegistry._hooks.items()},
    "triton": ATTENTION_BACKENDS["triton"].__module__,
    "modules": sorted(name for name in sys.modules if name.startswith("island_engine.platform.")),
    "models": os.environ.get("SGLANG_EXTERNAL_MODEL_PACKAGE"),
    "backends": sorted(registered_radix_cache_backends()),
}))
"""


def load(device: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", LOADS, device], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def cuda() -> dict[str, Any]:
    return load("cuda")


@pytest.fixture(scope="module")
def cpu() -> dict[str, Any]:
    return load("cpu")


def of_platform(found: dict[str, Any]) -> list[str]:
    """Targets that a module of island_engine.platform hooks."""
    hooks = found["hooks"].items()
    return sorted(t for t, modules in hooks if any(m.startswith("island_engine.platform") for m in modules))


def test_on_cuda_none_of_it(cuda: dict[str, Any]) -> None:
    assert cuda["platform"] == "CudaSRTPlatform"
    assert of_platform(cuda) == []
    assert cuda["triton"].startswith("sglang.")
    assert cuda["modules"] == []
    assert cuda["models"] is None


def test_on_a_cpu_all_of_it(cpu: dict[str, Any]) -> None:
    assert cpu["platform"] == "CpuPlatform"
    assert len(of_platform(cpu)) == 4
    assert cpu["triton"] == "island_engine.platform.attention"
    assert cpu["modules"]
    assert cpu["models"] == "island_engine.platform.models"


def test_the_cache_backends_are_there_on_both(cuda: dict[str, Any], cpu: dict[str, Any]) -> None:
    assert {"islands", "lazy"} <= set(cuda["backends"]) == set(cpu["backends"])
