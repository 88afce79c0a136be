"""What one gate is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from island_engine.gate import arguments
from island_engine.gate.arms import SERVE, Arm
from island_engine.gate.compare import Rules
from island_engine.gate.probes import PROFILES, Profile
from island_engine.gate.progress import to_stderr

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """What one gate is asked to do."""

    engine_args: tuple[str, ...]
    report: Path
    profile: Profile = PROFILES["quick"]
    seed: int = 0
    deadline: float = 1_800.0  # seconds from the start
    decode_interval: int | None = None  # tokens, for the on arm; None: the engine's default
    self_test: bool = False
    mutations: tuple[str, ...] = ()  # of the self-test; none: all
    strict: bool = False
    prompts: Path | None = None  # the user's own, one a line
    termination_log: Path | None = None
    serve: tuple[str, ...] = SERVE
    boot: type[Arm] = Arm  # what an arm's name means
    say: Callable[[str], None] = to_stderr  # a line of progress

    @property
    def rules(self) -> Rules:
        """What equality these arguments promise."""
        exact = arguments.exact(self.engine_args)
        invariant = exact or arguments.batch_invariant(self.engine_args)
        return Rules(self.strict, invariant, exact, arguments.speculates(self.engine_args))

    def arm(self, name: str) -> Arm:
        """The boot of that arm."""
        return self.boot(name, arguments.with_metrics(self.engine_args), self.decode_interval)
