"""Planted faults that the gate must catch: which one is on, and where it gets into the cache. `mutations` lists them.

Refused at boot unless it is allowed by name, so that none ever runs by accident (`guards.check_mutation`).
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from island_engine.islands.mutations import FRONTIER, TABLE, Mutation

__all__ = ["ALLOW", "FRONTIER", "MUTATE", "asked", "install", "plant"]

MUTATE, ALLOW = "ISLAND_MUTATE", "ISLAND_ALLOW_MUTATION"
BY_FILE = "@"  # ISLAND_MUTATE=@FILE: the name in that file, read again each time the cache is emptied; none: no fault
NONE = "none"


def asked() -> str:
    """The mutation that the environment asks for; ValueError (one sentence) when it is unknown or not allowed."""
    kind = os.environ.get(MUTATE, "")
    if kind and kind not in TABLE and not kind.startswith(BY_FILE):
        raise ValueError(f"{MUTATE}={kind} is not a mutation: use {', '.join(TABLE)}, or unset it")
    if kind and os.environ.get(ALLOW) != "1":
        raise ValueError(
            f"{MUTATE}={kind} plants wrong answers: unset it, or set {ALLOW}=1 where that is what you want"
        )
    return kind


class Saboteur:
    """Where mutations get into one cache, by methods of the instance: its type stays exact."""

    def __init__(self, tree: Any) -> None:
        from sglang.srt.mem_cache.unified_cache.components import ComponentType

        self.cache, self.swa = tree, ComponentType.SWA
        self.now: Mutation | None = None
        self.undo: list[tuple[Any, str, Any]] = []
        self.fired = _fired()
        self.fired.inc(0)
        self.right = {
            name: getattr(tree, name) for name in ("reset", "evict_sliding_windows", "release_swa_prefix_lock")
        }
        tree.reset, tree.evict_sliding_windows = self._reset, self._evict_sliding_windows
        tree.release_swa_prefix_lock = self._release_swa_prefix_lock
        self.choose()

    def choose(self) -> None:
        """Take back the fault that is on, and plant the one that is asked for."""
        for owner, name, original in reversed(self.undo):
            setattr(owner, name, original)
        self.undo.clear()
        kind = asked()
        if kind.startswith(BY_FILE):
            kind = Path(kind.removeprefix(BY_FILE)).read_text(encoding="utf-8").strip()
        self.now = None if kind in ("", NONE) else TABLE[kind]
        if self.now is not None and self.now.replace is not None:
            owner, name, made = self.now.replace(self.cache, self.tell)
            self.undo.append((owner, name, getattr(owner, name)))
            setattr(owner, name, made)

    def tell(self, happened: bool = True) -> bool:
        """Count it if something happened."""
        if happened:
            self.fired.inc()
        return happened

    def insert(self, req: Any, up_to: int) -> bool:
        """An island of `up_to` tokens was published."""
        act = self.now.insert if self.now else None
        return act is not None and self.tell(act(self.cache, req, up_to))

    def _reset(self, *args: Any, **kwargs: Any) -> Any:
        self.choose()
        return self.right["reset"](*args, **kwargs)

    def _evict_sliding_windows(self, req: Any, pre_len: int, **kwargs: Any) -> Any:
        more = self.now.evict(self.cache) if self.now and self.now.evict else 0
        freed = req.kv.get_evicted_seqlen(self.swa)
        made = self.right["evict_sliding_windows"](req, pre_len + more, **kwargs)
        self.tell(more > 0 and req.kv.get_evicted_seqlen(self.swa) > freed)
        return made

    def _release_swa_prefix_lock(self, req: Any) -> Any:
        if self.now is None or not self.now.lock:
            return self.right["release_swa_prefix_lock"](req)
        self.tell(req.lock is not None and not req.lock.swa_released)
        return None


@cache
def _fired() -> Any:
    from prometheus_client import Counter

    return Counter("island_mutation_fired_total", "Times that the planted fault changed something")


def install(tree: Any) -> None:
    """Where an island cache is built: nothing, unless a mutation is asked for."""
    if asked():
        tree.saboteur = Saboteur(tree)


def plant(tree: Any, req: Any, up_to: int) -> bool:
    """After an island of `up_to` tokens: do what is asked for. Whether it did something."""
    saboteur = getattr(tree, "saboteur", None)
    return saboteur is not None and saboteur.insert(req, up_to)
