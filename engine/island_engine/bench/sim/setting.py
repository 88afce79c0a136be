"""One simulated run, as data: which arm, which pools, which workload. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import island_engine
from island_engine.paced.profiles import PROFILES, Profile

if TYPE_CHECKING:
    from island_engine.bench.sim.clients import Independent, Sessions

UNIFIED_RATIO = 0.002  # a shared pool takes any ratio; a small one leaves almost all virtual ids to the full half


@dataclass(frozen=True)
class Switch:
    """How an arm differs from SGLang as it comes: mode of the launcher and the cache that it builds (none: SGLang's
    own), further flags, environment.
    """

    islands: str = "off"
    cache: str = ""
    flags: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)

    @property
    def unified(self) -> bool:
        """One pool for both kinds of layers."""
        return "--enable-unified-memory" in self.flags

    @property
    def backend(self) -> tuple[str, ...]:
        """The flag that chooses the cache."""
        return ("--radix-cache-backend", self.cache) if self.cache else ()


SWITCHES = {
    "lazy": Switch("lazy", "lazy"),
    "stock": Switch(),
    "release": Switch(env={"SGLANG_OPT_RELEASE_PREFILL_SWA": "1"}),
    "unified": Switch(flags=("--enable-unified-memory",)),
    "islands": Switch("on", "islands"),
    "islands-unified": Switch("on", "islands", flags=("--enable-unified-memory",)),
}


@dataclass(frozen=True)
class Setting:
    """Sizes in tokens. `seed` draws the workload."""

    arm: str
    workload: Independent | Sessions
    seed: int
    ratio: float
    tokens: int  # of the full pool
    running: int  # most running requests
    profile: str = "gemma4-26b-h100"
    page: int = 64
    chunk: int = 16_384

    @property
    def engine(self) -> Profile:
        """What is simulated."""
        return PROFILES[self.profile]

    @property
    def key(self) -> str:
        """The same for the same run of the same code, in every process: results are kept under it."""
        text = json.dumps([code(SWITCHES[self.arm].cache), type(self.workload).__name__, asdict(self)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def arguments(self, model: str) -> list[str]:
        """SGLang's flags, but for those that pace it."""
        return [
            *("--model-path", model, "--page-size", str(self.page), "--chunked-prefill-size", str(self.chunk)),
            *("--max-total-tokens", str(self.tokens), "--swa-full-tokens-ratio", str(self.ratio)),
            *("--max-running-requests", str(self.running), "--context-length", str(self.workload.longest + 1_024)),
            *SWITCHES[self.arm].backend,
            *SWITCHES[self.arm].flags,
        ]


@cache
def code(cache: str) -> str:
    """A digest of the code that makes a result: the simulator's own, and that of the cache where it is ours."""
    own = {"": [], "lazy": ["islands/lazy.py"], "islands": ["islands/*.py"]}[cache]
    root = Path(island_engine.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(path for pattern in ("bench/sim/*.py", "paced/*.py", *own) for path in root.glob(pattern)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def pool_tokens(profile: Profile, budget: int, ratio: float, *, unified: bool, page: int = 64) -> int:
    """T(r) = B / c(r), whole pages. In a shared pool of as many bytes a token's halves cost 1 to `swa_per_full`."""
    geometry = profile.roofline.geometry
    if not unified:
        return geometry.capacity(ratio, budget) // page * page
    flat = geometry.full_bytes + geometry.draft_bytes
    return int(budget / (flat * (1 + ratio * profile.swa_per_full))) // page * page
