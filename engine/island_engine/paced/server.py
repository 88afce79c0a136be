"""`island-engine serve --pace PROFILE`: the flags that turn a boot into a paced one, and the hooks in its processes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from island_engine import paced
from island_engine.paced import launch, profiles, standin

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def prepare(name: str, model: str | None, rest: Sequence[str], folder: Path) -> list[str]:
    """Flags that go last, so that they win over the same flags of a real engine; sets up this process.

    Every reply carries the weight version, in `meta_info` and in the `metadata` of OpenAI's API: it says what this is.
    `model`: the name to serve under, because the model itself is the stand-in in `folder`.
    """
    profile = profiles.profile(name)
    os.environ[paced.PROFILE] = name
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # a GPU would only be in the way
    standin.write(folder, profile)
    flags = ["--model-path", str(folder), "--tokenizer-path", str(folder), *launch.arguments(profile)]
    flags += ["--weight-version", f"paced:{name}, its tokens are dummies"]
    if not any(flag.split("=", 1)[0] == "--served-model-name" for flag in rest):
        flags += ["--served-model-name", model or name]
    return flags


def install(name: str) -> None:
    """In each process of SGLang, as its plugins are loaded."""
    from island_engine.paced import kernels, worker
    from island_engine.paced.clock import WallClock

    worker.install(worker.Pace(profiles.PROFILES[name], WallClock()))
    kernels.install()
