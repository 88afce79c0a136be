"""What the gate asks: from a geometry, a profile and a seed to the list of probes. Pure.

Terms as in the design: w sliding window, p page, cp prefill chunk, all in tokens. A *cold* probe must find nothing in
the cache, a *hit* probe must find a cached prefix; hits are only ever compared with hits, because a hit recomputes
fewer positions under another kernel tiling and may flip a near-tie in any engine.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from island_engine.gate.outcome import inconclusive

CLASSES = ("cold", "hit", "lengths", "extension")
ProbeClass = Literal["cold", "hit", "lengths", "extension"]


@dataclass(frozen=True)
class Geometry:
    """What the booted engine says of itself, in tokens (vocab: token ids)."""

    window: int
    page: int
    chunk: int
    decode_interval: int  # committed tokens between two decode islands
    full_tokens: int  # capacity of the full-attention pool
    swa_tokens: int  # capacity of the sliding-window pool
    context: int  # longest input plus output of one request
    vocab: int


@dataclass(frozen=True)
class Profile:
    """How much is asked."""

    prompts: int  # in cold and in hit
    new_tokens: int  # generated per cold, hit and extension probe
    chunks: int  # longest prompt, in prefill chunks
    length_tokens: int  # generated per boundary length
    decode_islands: int  # decode islands that the extension must lie beyond
    extension_tokens: int  # ... and generated tokens, at least
    turns: int  # re-sent transcripts after the long generation
    churn: int  # unrelated prompts between a serve and its re-serve, so that freed slots are given out again


PROFILES = {
    "quick": Profile(
        prompts=3, new_tokens=24, chunks=3, length_tokens=4, decode_islands=4, extension_tokens=0, turns=2, churn=2
    ),
    "standard": Profile(
        prompts=8, new_tokens=64, chunks=6, length_tokens=16, decode_islands=8, extension_tokens=9_000, turns=4, churn=4
    ),
}


@dataclass(frozen=True)
class Probe:
    """One request. Its input is (input + output of `follows`, if any) + `tokens`."""

    cls: ProbeClass
    name: str  # unique, "class/what"
    expect: Literal["cold", "hit"]
    tokens: tuple[int, ...]
    new_tokens: int
    follows: str | None = None


def plan(geometry: Geometry, profile: Profile, seed: int) -> tuple[Probe, ...]:
    """Every probe in order; classes are contiguous, and the cache is to be flushed before each class.

    Concludes INCONCLUSIVE NoChunks or PoolTooSmall when the geometry leaves nothing to prove.
    """
    _check(geometry, profile)
    make = _Maker(geometry, random.Random(f"gate/{seed}"))  # noqa: S311 - reproducible on purpose
    return (
        *_cold(make, profile),
        *_hit(make, profile),
        *_lengths(make, profile),
        *_extension(make, profile),
    )


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


def longest(geometry: Geometry, profile: Profile) -> int:
    """Input plus output of the longest request, in tokens."""
    prompts = max(profile.chunks * geometry.chunk, geometry.chunk + geometry.window + geometry.page + 1)
    base = geometry.chunk + geometry.window
    turns = profile.turns * (geometry.page + profile.new_tokens)
    return max(prompts + profile.new_tokens, base + generation_length(geometry, profile) + turns)


def _check(geometry: Geometry, profile: Profile) -> None:
    if geometry.chunk <= 0:
        raise inconclusive(
            "NoChunks", "chunked prefill is off, so no prefill island is ever published: set --chunked-prefill-size"
        )
    need = longest(geometry, profile)
    churn = profile.churn * geometry.chunk
    if need + churn > geometry.full_tokens:
        raise inconclusive(
            "PoolTooSmall",
            f"the probes need {need + churn} full-attention tokens and the pool has {geometry.full_tokens}: "
            "set a larger --max-total-tokens or a smaller --chunked-prefill-size",
        )
    if need > geometry.context:
        raise inconclusive(
            "PoolTooSmall",
            f"the probes need requests of {need} tokens and the engine takes {geometry.context}: "
            "set a larger --context-length or a smaller --chunked-prefill-size",
        )
    swa = geometry.chunk + 4 * (geometry.window + 2 * geometry.page)
    if swa > geometry.swa_tokens:
        raise inconclusive(
            "PoolTooSmall",
            f"the probes need {swa} sliding-window tokens and the pool has {geometry.swa_tokens}: "
            "set a larger --swa-full-tokens-ratio or --max-total-tokens",
        )


class _Maker:
    """Draws prompts. Every prompt is fresh, so that two probes share no prefix unless one follows the other."""

    def __init__(self, geometry: Geometry, rng: random.Random) -> None:
        self.geometry = geometry
        self.rng = rng

    def prompt(self, length: int) -> tuple[int, ...]:
        # The middle of the vocabulary: special tokens and image placeholders live at both ends.
        low, high = self.geometry.vocab // 8, max(self.geometry.vocab // 8 + 2, self.geometry.vocab // 2)
        return tuple(self.rng.randrange(low, high) for _ in range(length))

    def churn(self, cls: ProbeClass, after: str, count: int) -> list[Probe]:
        w, p, cp = self.geometry.window, self.geometry.page, self.geometry.chunk
        low, high = min(p + 1, cp), max(min(p + 1, cp), min(cp, w + 2 * p))
        return [
            Probe(cls, f"{after}/churn{i}", "cold", self.prompt(self.rng.randint(low, high)), 2) for i in range(count)
        ]

    def long_length(self, profile: Profile) -> int:
        """A random length of more than one chunk, so that a commit frees behind its window while the request runs."""
        w, p, cp = self.geometry.window, self.geometry.page, self.geometry.chunk
        low = cp + w + p + 1
        return self.rng.randint(low, max(low, profile.chunks * cp))


def _cold(make: _Maker, profile: Profile) -> list[Probe]:
    return [
        Probe("cold", f"cold/{i}", "cold", make.prompt(make.long_length(profile)), profile.new_tokens)
        for i in range(profile.prompts)
    ]


def _hit(make: _Maker, profile: Profile) -> list[Probe]:
    probes: list[Probe] = []
    for i in range(profile.prompts):
        prompt = make.prompt(make.long_length(profile))
        probes.append(Probe("hit", f"hit/{i}/prime", "cold", prompt, 1))
        probes += make.churn("hit", f"hit/{i}", profile.churn)
        probes.append(Probe("hit", f"hit/{i}", "hit", prompt, profile.new_tokens))
    return probes


def _lengths(make: _Maker, profile: Profile) -> list[Probe]:
    geometry, probes = make.geometry, []
    for length in boundary_lengths(geometry):
        prompt, name = make.prompt(length), f"lengths/{length}"
        probes.append(Probe("lengths", f"{name}/cold", "cold", prompt, profile.length_tokens))
        probes += make.churn("lengths", name, 1)
        # A prompt of a page or less leaves no whole page to hit: its last token is always computed.
        expect: Literal["cold", "hit"] = "hit" if length > geometry.page else "cold"
        probes.append(Probe("lengths", f"{name}/again", expect, prompt, profile.length_tokens))
    return probes


def _extension(make: _Maker, profile: Profile) -> list[Probe]:
    geometry = make.geometry
    base = make.prompt(geometry.chunk + make.rng.randint(1, geometry.window))
    probes = [Probe("extension", "extension/base", "cold", base, generation_length(geometry, profile))]
    previous = "extension/base"
    for turn in range(1, profile.turns + 1):
        probes += make.churn("extension", f"extension/turn{turn}", profile.churn)
        suffix = make.prompt(make.rng.randint(1, geometry.page))
        probes.append(Probe("extension", f"extension/turn{turn}", "hit", suffix, profile.new_tokens, follows=previous))
        previous = f"extension/turn{turn}"
    return probes
