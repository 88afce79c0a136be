"""`gate --self-test`: plant every known fault, one after the other, and demand that the class that should see it does.

One boot with islands off answers the plan once; one with islands on serves it with no fault, then with each. The fault
is switched where the cache is emptied between classes, so that no boot is needed; an engine that a fault kills is
caught too, and booted again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING

from island_engine.gate import artifacts
from island_engine.gate.arms import Engine
from island_engine.gate.compare import ON, Comparison, Serve
from island_engine.gate.counters import DECODE_ISLANDS, MUST_HAPPEN, VIOLATIONS
from island_engine.gate.outcome import Conclude, error
from island_engine.gate.probes import CLASSES, Probe
from island_engine.gate.serve import TRIES, Server
from island_engine.islands.mutation import ALLOW, BY_FILE, MUTATE, NONE
from island_engine.islands.mutations import TABLE, Mutation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from island_engine.gate.client import Answer, Metrics
    from island_engine.gate.progress import Progress
    from island_engine.gate.settings import Settings

FIRED = "island_mutation_fired_total"
CAUGHT, HARMLESS, MISSED, SILENT, DISPROVED, ELSEWHERE = (
    *("caught", "harmless", "MISSED", "NEVER FIRED", "NOT HARMLESS", "caught elsewhere"),
)


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    mutation: str
    what: str
    expected: str  # class, or why it is harmless
    outcome: str  # CAUGHT, HARMLESS, ...
    caught_by: str = ""  # class
    how: str = ""  # what told
    fired: int = 0

    @property
    def good(self) -> bool:
        """Whether the gate did what it must. One that is caught by another class than expected is caught."""
        return self.outcome in (CAUGHT, HARMLESS, ELSEWHERE)


class SelfTest:
    """One run over all mutations. `plan` and `reference` come from an engine with islands off."""

    def __init__(
        self, settings: Settings, plan: Sequence[Probe], reference: Sequence[Serve], progress: Progress, lines: IO[str]
    ) -> None:
        self.switch = settings.report / "mutation"
        arm = settings.arm(ON)
        self.arm = replace(arm, env={**arm.env, MUTATE: f"{BY_FILE}{self.switch.absolute()}", ALLOW: "1"})
        self.log, self.serve, self.rules = settings.report / "engine-self-test.log", settings.serve, settings.rules
        self.plan, self.progress, self.lines = plan, progress, lines
        self.reference = {s.probe.name: s for s in reference}
        self.engine: Engine | None = None

    def served(self, serve: Serve, answer: Answer, seconds: float) -> None:
        """One answer came (serve.Witness)."""
        artifacts.write_serve(self.lines, serve, answer, seconds)

    async def run(self, names: Sequence[str] = ()) -> list[Row]:
        """The table, of `names` or all. Concludes ERROR SelfTestBroken when the engine differs without a fault."""
        asked = [TABLE[name] for name in names or TABLE]
        self.progress.parts(len(asked) + 1)
        try:
            found = await self._classes(NONE, self._order(""))
            self.progress.did(1)
            if found.caught_by:
                raise error("SelfTestBroken", f"class {found.caught_by} sees {found.how} with no fault planted")
            rows = []
            for i, mutation in enumerate(asked, 1):
                row = await self._mutation(mutation)
                rows.append(row)
                self.progress.did(1)
                self.progress.say(f"mutation {i} of {len(asked)}, {row.mutation}: {row.outcome} {row.caught_by}")
            return rows
        finally:
            await self._stop()

    async def _mutation(self, mutation: Mutation) -> Row:
        seen = await self._classes(mutation.name, self._order(mutation.caught_by))
        row = Row(mutation.name, mutation.what, mutation.caught_by or mutation.harmless, "", fired=seen.fired)
        if not seen.caught_by:
            outcome = SILENT if not seen.fired else HARMLESS if mutation.harmless else MISSED
            return replace(row, outcome=outcome)
        outcome = DISPROVED if mutation.harmless else CAUGHT if seen.caught_by == mutation.caught_by else ELSEWHERE
        return replace(row, outcome=outcome, caught_by=seen.caught_by, how=seen.how)

    def _order(self, first: str) -> list[str]:
        there = [c for c in CLASSES if any(p.cls == c for p in self.plan)]
        return sorted(there, key=lambda c: c != first)  # stable: the rest stays in order

    async def _classes(self, name: str, order: list[str]) -> _Seen:
        self.switch.write_text(name, encoding="utf-8")
        fired = 0.0
        for cls in order:
            self.progress.at(f"self-test: {name}, class {cls}")
            try:
                engine = await self._booted()
                server = Server(engine, self)
                for _ in range(TRIES):
                    before = await server.begin()  # here the fault is planted
                    how = await self._class(server, cls, before)
                    fired += _grown(before, await engine.alive(engine.client.look()), FIRED)
                    if how or not server.late:
                        break
            except Conclude as end:
                if end.reason not in ("EngineDied", "NoAnswer", "EngineSilent", "NeverIdle"):
                    raise
                await self._stop()
                return _Seen(cls, f"{end.reason}: {end.message}"[:200], int(fired) + 1)
            if how:
                return _Seen(cls, how, int(fired))
        return _Seen("", "", int(fired))

    async def _class(self, server: Server, cls: str, before: Metrics) -> str:
        told: list[str] = []
        compare = Comparison(self.rules)

        def stop(serve: Serve) -> bool:
            found = compare(self.reference[serve.probe.name], serve)
            if found.index is not None:
                told.append(f"{serve.probe.name} differs at token {found.index}")
            return bool(told)

        if await server.serve([p for p in self.plan if p.cls == cls], stop):
            return told[0]
        after = await server.engine.alive(server.engine.client.look())
        if _grown(before, after, VIOLATIONS):
            return "the engine counted frontier violations"
        empty = [counter for counter in MUST_HAPPEN[cls] if not _grown(before, after, counter)]
        told_so = DECODE_ISLANDS in MUST_HAPPEN[cls] and not server.late
        return f"vacuous: {empty[0]} did not grow" if empty and told_so else ""

    async def _booted(self) -> Engine:
        if self.engine is None:
            self.progress.at("boot 2 of 2, islands on with faults: starting")
            self.engine = await Engine(self.arm, self.log, self.serve).__aenter__()
        return self.engine

    async def _stop(self) -> None:
        if self.engine is not None:
            engine, self.engine = self.engine, None
            await engine.stop()


@dataclass(frozen=True)
class _Seen:
    caught_by: str  # class
    how: str
    fired: int


def _grown(before: Metrics, after: Metrics, counter: str) -> float:
    return after.islands.get(counter, 0.0) - before.islands.get(counter, 0.0)
