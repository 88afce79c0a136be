"""From a geometry, a profile and a seed to the list of probes. Pure."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from island_engine.gate.outcome import inconclusive
from island_engine.gate.probes import (
    CLASSES,
    ENDS,
    SHORT,
    Geometry,
    Probe,
    ProbeClass,
    Profile,
    boundary_lengths,
    generation_length,
    late,
    longest,
    pressed,
    reading_length,
    running_length,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def plan(geometry: Geometry, profile: Profile, seed: int, prompts: Sequence[str] = ()) -> tuple[Probe, ...]:
    """Every probe in order; classes are contiguous, and the cache is to be flushed before each class. `prompts`: texts
    of the user, asked as they are.

    Concludes INCONCLUSIVE NoChunks or PoolTooSmall when the geometry leaves nothing to prove.
    """
    _check(geometry, profile)
    makers = {
        "cold": _cold,
        "hit": _hit,
        "lengths": _lengths,
        "branch": _branch,
        "extension": _extension,
        "running": _running,
        "concurrent": _concurrent,
        "pressure": _pressure,
    }
    probes: list[Probe] = []
    for name in CLASSES:  # each class has a generator of its own: a change to one leaves the others' questions
        draw = _Draw(geometry, random.Random(f"gate/{seed}/{name}"), name)  # noqa: S311 - reproducible on purpose
        probes += makers[name](draw, profile) if name in makers else _text(draw, profile, prompts)
    return tuple(probes)


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


class _Draw:
    """Draws prompts of one class. Every prompt is fresh, so that two share no prefix unless one follows the other."""

    def __init__(self, geometry: Geometry, rng: random.Random, cls: ProbeClass) -> None:
        self.geometry = geometry
        self.rng = rng
        self.cls = cls

    def prompt(self, length: int) -> tuple[int, ...]:
        # The middle of the vocabulary: special tokens and image placeholders live at both ends.
        low, high = self.geometry.vocab // 8, max(self.geometry.vocab // 8 + 2, self.geometry.vocab // 2)
        return tuple(self.rng.randrange(low, high) for _ in range(length))

    def churn(self, after: str, count: int) -> list[Probe]:
        w, p, cp = self.geometry.window, self.geometry.page, self.geometry.chunk
        low, high = min(p + 1, cp), max(min(p + 1, cp), min(cp, w + 2 * p))
        return [
            Probe(self.cls, f"{after}/churn{i}", "cold", self.prompt(self.rng.randint(low, high)), 2)
            for i in range(count)
        ]

    def long_length(self, profile: Profile) -> int:
        """A random length of more than one chunk, so that a commit frees behind its window while the request runs."""
        w, p, cp = self.geometry.window, self.geometry.page, self.geometry.chunk
        low = cp + w + p + 1
        return self.rng.randint(low, max(low, profile.chunks * cp))


def _cold(draw: _Draw, profile: Profile) -> list[Probe]:
    return [
        Probe("cold", f"cold/{i}", "cold", draw.prompt(draw.long_length(profile)), profile.new_tokens)
        for i in range(profile.prompts)
    ]


def _hit(draw: _Draw, profile: Profile) -> list[Probe]:
    probes: list[Probe] = []
    for i in range(profile.prompts):
        prompt = draw.prompt(draw.long_length(profile))
        probes.append(Probe("hit", f"hit/{i}/prime", "cold", prompt, 1))
        probes += draw.churn(f"hit/{i}", profile.churn)
        probes.append(Probe("hit", f"hit/{i}", "hit", prompt, profile.new_tokens))
    return probes


def _lengths(draw: _Draw, profile: Profile) -> list[Probe]:
    geometry, probes = draw.geometry, []
    chance = {draw.rng.randint(2, geometry.chunk + geometry.window) for _ in range(profile.cuts)}
    for length in sorted({*boundary_lengths(geometry), *chance}):
        prompt, name = draw.prompt(length), f"lengths/{length}"
        probes.append(Probe("lengths", f"{name}/cold", "cold", prompt, profile.length_tokens))
        probes += draw.churn(name, 1)
        # A prompt of a page or less leaves no whole page to hit: its last token is always computed.
        expect: Literal["cold", "hit"] = "hit" if length > geometry.page else "cold"
        probes.append(Probe("lengths", f"{name}/again", expect, prompt, profile.length_tokens))
    return probes


def _branch(draw: _Draw, profile: Profile) -> list[Probe]:
    """Three continuations of one prefix that ends off every boundary, then random cuts of one of them, 0 included."""
    geometry, probes = draw.geometry, []
    shared = draw.prompt(geometry.chunk + geometry.window + 2 * geometry.page + max(1, geometry.page // 2))
    whole = shared
    for i in range(3):
        whole = shared + draw.prompt(draw.rng.randint(1, geometry.page))
        if i:
            probes += draw.churn(f"branch/{i}", 1)
        # The first finds nothing; the second leaves a window at the branch point; so the third must find one.
        expect: Literal["cold", "hit", "any"] = ("cold", "any", "hit")[i]
        probes.append(Probe("branch", f"branch/{i}", expect, whole, profile.new_tokens))
    cuts = [0, *sorted(draw.rng.randint(1, len(whole)) for _ in range(profile.cuts))]
    for i, cut in enumerate(cuts):
        prompt = whole[:cut] + draw.prompt(draw.rng.randint(1, geometry.page))
        probes.append(Probe("branch", f"branch/cut{i}-{cut}", "any", prompt, profile.length_tokens))
    return probes


def _extension(draw: _Draw, profile: Profile) -> list[Probe]:
    geometry = draw.geometry
    base = draw.prompt(geometry.chunk + draw.rng.randint(1, geometry.window))
    probes = [Probe("extension", "extension/base", "cold", base, generation_length(geometry, profile))]
    previous = "extension/base"
    for turn in range(1, profile.turns + 1):
        probes += draw.churn(f"extension/turn{turn}", profile.churn)
        suffix = draw.prompt(draw.rng.randint(1, geometry.page))
        probes.append(Probe("extension", f"extension/turn{turn}", "hit", suffix, profile.new_tokens, follows=previous))
        previous = f"extension/turn{turn}"
    return probes


def _running(draw: _Draw, profile: Profile) -> list[Probe]:
    """A second request extends the first, with what it has generated so far, while it still generates."""
    geometry, probes = draw.geometry, []
    for i in range(profile.readers):
        name, after = f"running/{i}", reading_length(geometry)
        base = draw.prompt(geometry.page + draw.rng.randint(1, geometry.window))
        new = running_length(geometry, profile)
        writer = Probe("running", f"{name}/writer", "cold", base, new, scene=name)
        suffix = draw.prompt(draw.rng.randint(1, geometry.page))
        reader = Probe("running", name, "any", suffix, profile.new_tokens, follows=writer.name, scene=name, after=after)
        probes += [writer, reader]
    return probes


def _concurrent(draw: _Draw, profile: Profile) -> list[Probe]:
    """As many as the engine takes, all at once; then the same prompts again, as hits."""
    count, probes = min(profile.together, draw.geometry.running), []
    prompts = [draw.prompt(draw.long_length(profile)) for _ in range(count)]
    for again in ("", "/again"):
        expect: Literal["cold", "any"] = "any" if again else "cold"
        probes += [
            Probe(
                "concurrent", f"concurrent/{i}{again}", expect, prompt, profile.new_tokens, scene=f"concurrent{again}"
            )
            for i, prompt in enumerate(prompts)
        ]
    return probes


def _pressure(draw: _Draw, profile: Profile) -> list[Probe]:
    """In an empty cache the queue, so that every boot's pools are alike before it; then a request that decodes over its
    published window while others fill the sliding-window pool; then, in the full pool, requests that decode while
    others come, and are retracted again and again.
    """
    geometry = draw.geometry
    w, p, cp = geometry.window, geometry.page, geometry.chunk
    # Half as many again as the pool takes: whatever is not locked is evicted, and what came first goes first.
    fill = min(geometry.swa_tokens * 3 // 2, 32 * (w + p)) // (w + p)
    new = w // 2 + late(profile)
    probes = [Probe("pressure", "pressure/reader", "cold", draw.prompt(w + 3 * p), new, scene="pressure/fill")]
    probes += [
        Probe("pressure", f"pressure/fill{i}", "cold", draw.prompt(w + 3 * p), 1, scene="pressure/fill", after=1)
        for i in range(fill)
    ]
    count, rounds, every = pressed(geometry, profile)
    prompts = [draw.prompt(cp // 2 + draw.rng.randint(w, w + 2 * p)) for _ in range(count)]
    for i, prompt in enumerate(prompts):
        probe = Probe("pressure", f"pressure/{i}", "cold", prompt, every * rounds + late(profile), scene="pressure")
        probes.append(probe if i else replace(probe, rounds=rounds, every=every))
    for i in range(rounds):
        intruder = draw.prompt(draw.rng.randint(max(1, cp // 2), cp))
        probes.append(
            Probe("pressure", f"pressure/intruder{i}", "cold", intruder, 2, scene="pressure", after=every * i + 1)
        )
    probes += [
        Probe("pressure", f"pressure/{i}/again", "any", prompt, profile.length_tokens)
        for i, prompt in enumerate(prompts)
    ]
    return _queue(draw, profile) + probes


def _queue(draw: _Draw, profile: Profile) -> list[Probe]:
    """A prompt of more than a chunk that must wait between its chunks, with short ones behind it that would fit.

    Requests that end within their last page, so that they grow no more, fill the sliding-window pool until about a
    quarter of a chunk is free. The long one's first chunk is what is left of that pass; the next one is at least half a
    chunk. The lead takes the first pass for itself, so that all have come by the second, in one message or in several.
    """
    geometry = draw.geometry
    w, p, cp = geometry.window, geometry.page, geometry.chunk
    each, first = (-(-w // p) + 1) * p, 2 * p
    free = (w + 4 * p + cp // 2) // 2
    count = (geometry.swa_tokens - free - 2 * (w + p)) // each
    most = min(profile.queue, geometry.running - 2 - SHORT)
    if cp // 2 < w + 8 * p or p <= ENDS + 2 or not 0 < count <= most:
        return []
    lead = cp + (-count * each - first) % cp
    if lead + count * each + 2 * cp > geometry.full_tokens:
        return []
    lengths = [lead, *[each - ENDS - 2] * count, cp + draw.rng.randint(w, 2 * w)]
    lengths += [draw.rng.randint(2, p) for _ in range(SHORT)]
    return [
        Probe("pressure", f"pressure/queue{i}", "cold", draw.prompt(length), ENDS, scene="pressure/queue")
        for i, length in enumerate(lengths)
    ]


def _text(draw: _Draw, profile: Profile, prompts: Sequence[str]) -> list[Probe]:
    """What the user's own file asks, each once and, after the others, again."""
    return [
        Probe("text", f"text/{i}{again}", "any", (), profile.new_tokens, text=prompt)
        for again in ("", "/again")
        for i, prompt in enumerate(prompts)
    ]
