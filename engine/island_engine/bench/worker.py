"""An arm in a process of its own: its environment and its hooks are nobody else's, and it dies with the bench.

Work is a generator that runs there: it yields numbers in [0, 1] while it goes on, and its result, a dict, at the end
(or one per round, where arms take turns). It is forked from a process that has SGLang imported already.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import traceback
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

    from rich.progress import Progress

RELEASE = "SGLANG_OPT_RELEASE_PREFILL_SWA"
ENVIRONMENT = {"release": {RELEASE: "1"}}
NEUTRAL = (RELEASE, "SGLANG_SWA_EVICTION_INTERVAL", "ISLAND_DECODE_INTERVAL")  # what would change an arm from outside


def cache_class(arm: str) -> type:
    """The cache of an arm; `release` is stock with a flag."""
    from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

    from island_engine.islands.cache import IslandRadixCache
    from island_engine.islands.lazy import LazyRadixCache

    classes: dict[str, type] = {"lazy": LazyRadixCache, "islands": IslandRadixCache}
    stock: type = UnifiedRadixCache
    return classes.get(arm, stock)


class Worker:
    """The process of one arm. `next` asks for one item of its work."""

    def __init__(self, arm: str, work: Callable[..., Iterator[Any]], *args: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # SGLang warns while it is imported
            importlib.import_module("island_engine.bench.rig")
        self.arm = arm
        self.pipe, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("fork").Process(
            target=_serve, args=(theirs, arm, work, args), daemon=True
        )
        self.process.start()
        theirs.close()

    def next(self) -> Any:
        """The next item. RuntimeError with the worker's traceback when it failed."""
        try:
            self.pipe.send(None)
            failed, item = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            raise RuntimeError(f"arm {self.arm}: its process died (exit code {self.process.exitcode})") from None
        if failed:
            raise RuntimeError(f"arm {self.arm} failed:\n{item}")
        return item

    def close(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.join()
        self.pipe.close()


def _serve(pipe: Connection, arm: str, work: Callable[..., Iterator[Any]], args: tuple[Any, ...]) -> None:
    import logging

    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    for name in NEUTRAL:
        os.environ.pop(name, None)
    os.environ.update(ENVIRONMENT.get(arm, {}))
    try:
        for item in work(arm, *args):
            pipe.recv()
            pipe.send((False, item))
    except Exception:  # noqa: BLE001 - told to the parent, which raises it
        pipe.recv()
        pipe.send((True, traceback.format_exc()))


@contextmanager
def workers(arms: list[str], work: Callable[..., Iterator[Any]], *args: Any) -> Iterator[dict[str, Worker]]:
    """One process per arm, all at once; ended whatever happens."""
    started: dict[str, Worker] = {}
    try:
        for arm in arms:
            started[arm] = Worker(arm, work, *args)
        yield started
    finally:
        for worker in started.values():
            worker.close()


def measure(
    arms: list[str], progress: Progress, what: str, work: Callable[..., Iterator[Any]], *args: Any
) -> dict[str, Any]:
    """The result of each arm, one after the other."""
    results = {}
    for arm in arms:
        bar = progress.add_task(f"{what}: {arm}", total=1.0)
        with workers([arm], work, *args) as started:
            while not isinstance(item := started[arm].next(), dict):
                progress.update(bar, completed=item)
        progress.update(bar, completed=1.0)
        results[arm] = item
    return results
