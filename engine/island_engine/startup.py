"""In the scheduler process, when it has built itself: is it what `serve` asked for? And if it died: why.

SGLang only logs a plugin or a hook that failed and goes on with its own cache or attention; nobody would notice until
the numbers are wrong. A scheduler that dies takes the server down with a signal, and the log's last line says nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

MODE = "ISLAND_MODE"  # on, off or lazy: set by the launcher for the processes that it starts
LAST_WORDS = "ISLAND_LAST_WORDS"  # file that takes the sentence of a boot that failed
CACHES = {
    "on": "island_engine.islands.cache.IslandRadixCache",
    "lazy": "island_engine.islands.lazy.LazyRadixCache",
}


def around_scheduler(original: Any, scheduler: Any, *args: Any, **kwargs: Any) -> None:
    """AROUND hook on the constructor."""
    try:
        original(scheduler, *args, **kwargs)
        check(scheduler, os.environ[MODE])
    except BaseException as error:
        leave(error)
        raise


def check(scheduler: Any, mode: str) -> None:
    """RuntimeError when the cache or, on a CPU, the attention is not exactly the one that `serve` asked for."""
    cache, wanted = _name(scheduler.tree_cache), CACHES.get(mode)
    if wanted is None and not cache.startswith("sglang."):
        raise RuntimeError(
            f"--islands {mode} asks for SGLang's own cache, but {cache} was built: check --radix-cache-backend"
        )
    if wanted is not None and cache != wanted:
        raise RuntimeError(f"--islands {mode} asks for {wanted}, but {cache} was built: reinstall radix-islands")
    from island_engine import guards
    from island_engine.platform import activate

    guards.check_hooks()
    if activate() is not None:
        from island_engine.platform.attention import SdpaBackend

        backend = scheduler.tp_worker.model_runner.attn_backend
        if type(backend) is not SdpaBackend:
            raise RuntimeError(
                f"on a CPU only --attention-backend triton (ours) is right, but {_name(backend)} was built: drop it"
            )


def leave(error: BaseException) -> None:
    """Keep the reason for the process that ends last."""
    path = os.environ.get(LAST_WORDS)
    if path:
        Path(path).write_text(sentence(error), encoding="utf-8")


def sentence(error: BaseException) -> str:
    """The first line of an exception, as one line of a log."""
    text = str(error).strip().splitlines()
    return text[0] if text else type(error).__name__


def die(reason: str) -> None:
    """The last line of the log says why, because a pod's termination message is the end of its log; then all ends."""
    from sglang.srt.utils import kill_process_tree

    kill_process_tree(os.getpid(), include_parent=False)
    print(f"island-engine: the engine did not start: {reason}", file=sys.stderr, flush=True)
    os._exit(1)


def scheduler_died(*_: Any) -> None:
    """SIGQUIT during the boot: SGLang's children send it when they fail."""
    path = os.environ.get(LAST_WORDS, "")
    kept = Path(path).read_text(encoding="utf-8") if path and Path(path).is_file() else ""
    die(kept or "one of its processes failed, see the log above")


def _name(thing: Any) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"
