"""Boot on a CPU: the scheduler and the detokenizer are forked from the process that has imported everything already.

SGLang spawns them, because CUDA does not survive a fork; each then imports torch, transformers and SGLang again, which
is most of a boot on two cores. There is no CUDA here, nothing runs yet when they start, and they inherit the plugin.
"""

from __future__ import annotations

import multiprocessing
from typing import Any


def fork(_result: Any, *_args: Any, **_kwargs: Any) -> None:
    """AFTER hook: SGLang has just asked for spawn (entrypoints/engine.py:1995)."""
    multiprocessing.set_start_method("fork", force=True)
