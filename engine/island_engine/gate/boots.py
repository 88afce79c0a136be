"""Which engines are booted when: one after the other where they share an accelerator, beside each other where they do
not have to.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from island_engine import flags
from island_engine.gate.arms import Engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from island_engine.gate.arms import Arm
    from island_engine.gate.progress import Progress

VISIBLE = "CUDA_VISIBLE_DEVICES"
Slot = dict[str, str]  # what an engine in it has in its environment


def slots(engine_args: tuple[str, ...], environment: Mapping[str, str], names: Sequence[str], most: int) -> list[Slot]:
    """Where engines may run at the same time, at most `most`; at least one, which leaves the environment as it is.

    `names`: of every accelerator of this machine, in the driver's order. Each engine gets as many as its arguments ask
    for, all of one kind, so that the arms differ in nothing but the switch.
    """
    visible = environment.get(VISIBLE, "").split(",") if environment.get(VISIBLE) else list(map(str, range(len(names))))
    need = flags.devices(engine_args)
    count = min(most, len(visible) // need) if need else 1
    if count < 2 or len(set(names)) > 1:
        return [{}]
    return [{VISIBLE: ",".join(visible[i * need : (i + 1) * need])} for i in range(count)]


class Boots:
    """Boots arms in order, as many at a time as there are slots. Leaving its `async with` block stops all."""

    def __init__(
        self, directory: Path, serve: tuple[str, ...], places: Sequence[Slot], progress: Progress, count: int
    ) -> None:
        self.directory, self.serve, self.progress, self.count = directory, serve, progress, count
        self.begun = 0
        self.free: asyncio.Queue[Slot] = asyncio.Queue()
        for slot in places:
            self.free.put_nowait(slot)
        self.booting: dict[str, asyncio.Task[tuple[Engine, Slot]]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self.booting.values():
            task.cancel()  # one that is booting stops its engine before it ends
        ended = await asyncio.gather(*self.booting.values(), return_exceptions=True)
        await asyncio.gather(*(done[0].stop() for done in ended if not isinstance(done, BaseException)))

    def ahead(self, *arms: Arm) -> None:
        """These are wanted, in this order."""
        for arm in arms:
            self.begun += 1
            self.booting[arm.name] = asyncio.create_task(self._boot(arm, self.begun))
        self.progress.expects(len(self.booting))

    @contextlib.asynccontextmanager
    async def arm(self, name: str) -> AsyncIterator[Engine]:
        """One that was wanted, booted; stopped afterwards, so that the next may have its place."""
        engine, slot = await self.booting[name]
        try:
            yield engine
        finally:
            del self.booting[name]
            await engine.stop()
            self.free.put_nowait(slot)

    async def _boot(self, arm: Arm, number: int) -> tuple[Engine, Slot]:
        slot = await self.free.get()
        where = f"boot {number} of {max(number, self.count)}, arm {arm.name}"
        self.progress.at(f"{where}: starting")
        engine = Engine(replace(arm, env={**arm.env, **slot}), self.directory / f"engine-{arm.name}.log", self.serve)
        await engine.__aenter__()
        self.progress.booted(engine.boot_seconds)
        self.progress.at(f"{where}: up after {engine.boot_seconds:.0f} s")
        return engine, slot
