"""What a question is, how many are asked, and of which geometry. Pure; `plan` draws them.

Terms as in the design: w sliding window, p page, cp prefill chunk, all in tokens. A *cold* probe must find nothing in
the cache, a *hit* probe must find a cached prefix; hits are only ever compared with hits, because a hit recomputes
fewer positions under another kernel tiling and may flip a near-tie in any engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ProbeClass = Literal["cold", "hit", "lengths", "branch", "extension", "running", "concurrent", "pressure", "text"]
CLASSES: tuple[ProbeClass, ...] = (
    *("cold", "hit", "lengths", "branch", "extension", "running", "concurrent", "pressure", "text"),
)
# Several requests at once: who shares a step with whom is a matter of timing, so equality is only owed by an engine
# whose bits do not depend on the batch (arguments.batch_invariant).
TIMED: tuple[ProbeClass, ...] = ("running", "concurrent", "pressure")


@dataclass(frozen=True)
class Geometry:
    """What the booted engine says of itself, in tokens (vocab: token ids, running: requests)."""

    window: int
    page: int
    chunk: int
    decode_interval: int  # committed tokens between two decode islands
    full_tokens: int  # capacity of the full-attention pool
    swa_tokens: int  # capacity of the sliding-window pool
    context: int  # longest input plus output of one request
    vocab: int
    running: int = 8  # most requests that decode at once


@dataclass(frozen=True)
class Profile:
    """How much is asked."""

    name: str
    prompts: int  # in cold and in hit
    new_tokens: int  # generated per cold, hit, branch and extension probe
    chunks: int  # longest prompt, in prefill chunks
    length_tokens: int  # generated per boundary length
    cuts: int  # random lengths, and random cuts of a served prompt
    decode_islands: int  # decode islands that the extension must lie beyond
    extension_tokens: int  # ... and generated tokens, at least
    turns: int  # re-sent transcripts after the long generation
    churn: int  # unrelated prompts between a serve and its re-serve, so that freed slots are given out again
    readers: int  # requests that extend a running one
    together: int  # requests at once, where the engine allows as many
    rounds: int  # forced retractions of everything that runs
    queue: int  # most requests that may fill the sliding-window pool, so that a prompt waits between its chunks


_PROFILES = (
    Profile(
        name="quick",
        prompts=2,
        new_tokens=16,
        chunks=3,
        length_tokens=3,
        cuts=2,
        decode_islands=2,
        extension_tokens=0,
        turns=2,
        churn=2,
        readers=1,
        together=4,
        rounds=4,
        queue=64,
    ),
    Profile(
        name="standard",
        prompts=6,
        new_tokens=64,
        chunks=6,
        length_tokens=16,
        cuts=6,
        decode_islands=8,
        extension_tokens=9_000,
        turns=4,
        churn=4,
        readers=3,
        together=8,
        rounds=6,
        queue=256,
    ),
    Profile(
        name="deep",
        prompts=16,
        new_tokens=128,
        chunks=12,
        length_tokens=32,
        cuts=16,
        decode_islands=16,
        extension_tokens=18_000,
        turns=8,
        churn=8,
        readers=8,
        together=16,
        rounds=12,
        queue=256,
    ),
)
PROFILES = {profile.name: profile for profile in _PROFILES}
LEAST_RETRACTIONS = 10  # that the class pressure must have seen in every arm
SHORT, ENDS = 4, 4  # in the queue of class pressure: prompts behind the long one, and tokens that each generates


@dataclass(frozen=True)
class Probe:
    """One request. Its input is (input + output of `follows`, if any) + `tokens`, or `text`."""

    cls: ProbeClass
    name: str  # unique, "class/what"
    expect: Literal["cold", "hit", "any"]
    tokens: tuple[int, ...]
    new_tokens: int
    follows: str | None = None
    scene: str = ""  # probes of one scene are in flight together; its first is the lead
    after: int = 0  # sent when the lead has generated that many; one that `follows` the lead extends just these
    rounds: int = 0  # of the lead: everything that runs is retracted so often ...
    every: int = 0  # ... each time the lead has generated so many more
    text: str = ""

    @property
    def reads(self) -> bool:
        """Whether it extends a request that still runs."""
        return bool(self.follows) and self.after > 0


def frontier(committed: int, window: int, page: int) -> int:
    """First position that an island keeps after a commit of `committed` tokens: max(0, floor((L-w-p)/p)*p)."""
    return max(0, (committed - window - page) // page * page)


def boundary_lengths(geometry: Geometry) -> tuple[int, ...]:
    """Prompt lengths around every boundary: kp, kp+-1, w+-1, w+p+-1, cp+-1; sorted, without repeats."""
    w, p, cp = geometry.window, geometry.page, geometry.chunk
    kp = (w + 3 * p) // p * p
    around = {edge + step for edge in (kp, w, w + p, cp, cp + w) for step in (-1, 0, 1)}
    return tuple(sorted(length for length in around if length > 1))


def generation_length(geometry: Geometry, profile: Profile) -> int:
    """Tokens the long generation decodes: past its last wanted island, but the island still inside the last window."""
    islands = max(profile.decode_islands, -(-profile.extension_tokens // geometry.decode_interval))
    return islands * geometry.decode_interval + max(1, min(geometry.window, geometry.page) // 2)


def reading_length(geometry: Geometry) -> int:
    """Tokens that a running request must have generated before another extends it: its first decode island is behind
    it, whatever its stagger (ledger.first_island), and there is a page to read.
    """
    return geometry.decode_interval + geometry.decode_interval // 4 + geometry.page


def running_length(geometry: Geometry, profile: Profile) -> int:
    """Tokens that a request generates which another extends meanwhile."""
    return reading_length(geometry) + late(profile)


def late(profile: Profile) -> int:
    """Tokens that a request goes on for after what the gate does to it while it runs, so that this comes in time,
    however late a busy machine tells of its tokens.
    """
    return 8 * profile.new_tokens


def pressed(geometry: Geometry, profile: Profile) -> tuple[int, int, int]:
    """Requests that are retracted together, how often, and tokens of the first of them between two times."""
    count = min(profile.together, geometry.running, 3)
    rounds = max(profile.rounds, -(-2 * LEAST_RETRACTIONS // count))  # some may just be over, or not yet begun
    return count, rounds, max(2, profile.new_tokens // 4)


def longest(geometry: Geometry, profile: Profile) -> int:
    """Input plus output of the longest request, in tokens."""
    prompts = max(profile.chunks * geometry.chunk, geometry.chunk + geometry.window + geometry.page + 1)
    base = geometry.chunk + geometry.window
    turns = profile.turns * (geometry.page + profile.new_tokens)
    read = geometry.window + 2 * geometry.page + running_length(geometry, profile) + profile.new_tokens
    _, rounds, every = pressed(geometry, profile)
    grown = max(geometry.window // 2, geometry.chunk // 2 + every * rounds)
    return max(
        prompts + geometry.page + profile.new_tokens,
        base + generation_length(geometry, profile) + turns,
        read,
        geometry.window + 3 * geometry.page + grown + late(profile),
    )
