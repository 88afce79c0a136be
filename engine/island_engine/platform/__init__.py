"""Where there is no accelerator: SGLang on a plain CPU. On a machine that has one nothing of this package is used."""

from __future__ import annotations

BACKEND = "triton"  # attention: Gemma 4 lets only a fixed list of names through, so on a CPU we take this one over


def activate() -> str | None:
    """SGLang's platform entry point: the platform to use; None leaves the choice to SGLang (platforms/__init__.py)."""
    import torch

    if torch.accelerator.is_available():  # any: CUDA, ROCm, XPU, NPU
        return None
    return "island_engine.platform.cpu:CpuPlatform"
