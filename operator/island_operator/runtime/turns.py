"""Whose turn it is to write. While a pass that a user waits for is under way, all others together have few writes at
the API server: on a busy one, each of theirs makes every answer come later.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

BESIDE = 2  # writes of others meanwhile: edits that never end must not stop what is not urgent
PATIENCE = 2.0  # seconds that others give way to one pass: an admission webhook that hangs holds up its own key alone

_first: ContextVar[bool] = ContextVar("first", default=False)


class Turns:
    """Passes enter `urgent()` where they are; every write of any pass is made inside of `write()`."""

    def __init__(self, beside: int = BESIDE, patience: float = PATIENCE) -> None:
        self._beside, self._patience = beside, patience
        self._urgent: set[object] = set()  # passes that others give way to
        self._writes = 0  # of others, under way
        self._changed = asyncio.Event()

    @contextlib.contextmanager
    def urgent(self) -> Iterator[None]:
        """What is written inside never waits here."""
        mine, outer = object(), _first.set(True)
        self._urgent.add(mine)
        over = asyncio.get_running_loop().call_later(self._patience, self._over, mine)
        try:
            yield
        finally:
            over.cancel()
            self._over(mine)
            _first.reset(outer)

    @contextlib.asynccontextmanager
    async def write(self) -> AsyncIterator[None]:
        """One write."""
        if _first.get():
            yield
            return
        while self._urgent and self._writes >= self._beside:
            await self._changed.wait()
        self._writes += 1
        try:
            yield
        finally:
            self._writes -= 1
            self._tell()

    def _over(self, one: object) -> None:
        self._urgent.discard(one)
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
