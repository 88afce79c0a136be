"""What is compared with what, and where two answers part. Pure; `judge` draws the conclusion.

Only serves of equal input at equal cached_tokens are compared: a hit of another depth computes other positions, under
other kernel shapes. Such a pair is reported apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from island_engine.gate.probes import TIMED, Geometry, Probe, frontier
from island_engine.gate.report import Divergence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from island_engine.gate.client import Top

OFF_A, ON, OFF_B = "off-A", "on", "off-B"
ARMS = (OFF_A, ON, OFF_B)
ON_B = "on-B"  # booted only when `on` diverges, to repeat that


@dataclass(frozen=True)
class Serve:
    """One answered probe in one arm."""

    arm: str
    probe: Probe
    input_length: int  # tokens
    input_hash: str
    output: tuple[int, ...]  # generated token ids
    cached_tokens: int  # prefix found in the cache
    top: tuple[Top, ...] = ()  # per generated token: its likeliest candidates
    retractions: int = 0
    steps: int = 0  # verify steps that it took, with speculation
    batch: int = 1  # requests in flight with it, itself included

    def margin(self, index: int) -> float | None:
        """Top-1 less top-2 logprob at generated token `index`, nats."""
        top = self.top[index] if index < len(self.top) else ()
        return top[0][0] - top[1][0] if len(top) > 1 else None


@dataclass(frozen=True)
class Pair:
    """One probe, answered by two arms."""

    comparable: bool
    why: str = ""  # when not comparable
    index: int | None = None  # first generated token that differs
    kind: str = "token"  # or logprob: the token is the same, what it was chosen by is not


@dataclass(frozen=True)
class Recording:
    """Everything one gate saw. Serves per arm, in order; counter growth per arm and class."""

    serves: Mapping[str, Sequence[Serve]]
    counters: Mapping[str, Mapping[str, Mapping[str, float]]]  # arm -> class -> counter -> growth
    geometry: Mapping[str, Geometry]  # arm -> what that boot said of itself
    enabled: Mapping[str, bool]  # arm -> whether the engine says that islands are on
    # Probe that extends a running one -> off-B's answers to it at the depth that `on` found, each after a flush. With
    # islands off nothing of a running generation is in the cache, so no plain serve has that depth.
    references: Mapping[str, Sequence[Serve]] = field(default_factory=dict)
    # Later boot (off-B, on-B) -> its further answers to the probe that divides the arms, each from an empty cache.
    again: Mapping[str, Sequence[Serve]] = field(default_factory=dict)


@dataclass(frozen=True)
class Rules:
    """What equality this engine owes, by its arguments."""

    strict: bool = False  # logprobs too, bit for bit
    invariant: bool = True  # answers do not depend on what else is in a step, so the TIMED classes count
    exact: bool = False  # ... not even their last bit, so --strict holds there too
    speculates: bool = False  # so that steps must be seen which commit several tokens


class Comparison:
    """Pairs the serves of two arms, fed in the order of the plan."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.apart: dict[str, str] = {}  # class -> first probe that was served at another depth

    def __call__(self, reference: Serve, other: Serve) -> Pair:
        """Compare two serves of one probe."""
        cls = reference.probe.cls
        if cls in TIMED and not self.rules.invariant:
            return Pair(False, "answers of this engine depend on the batch, and timing decides who shares one")
        strict = self.rules.strict and (self.rules.exact or cls not in TIMED)
        found = pair(reference, other, strict=strict)
        if not found.comparable:
            self.apart.setdefault(cls, reference.probe.name)
        elif reference.cached_tokens and cls in self.apart and not self.rules.invariant:
            return Pair(False, f"its prefix may come from {self.apart[cls]}, which was computed in other shapes")
        return found


def pair(reference: Serve, other: Serve, *, strict: bool = False) -> Pair:
    """Compare two serves of one probe: only equal inputs at equal cached_tokens are comparable."""
    if reference.input_hash != other.input_hash:
        return Pair(False, "inputs differ, because the serve that it follows was not comparable and differed")
    if reference.cached_tokens != other.cached_tokens:
        return Pair(
            False,
            f"cached_tokens {reference.cached_tokens} in {reference.arm} and {other.cached_tokens} in {other.arm}",
        )
    for index, (a, b) in enumerate(zip(reference.output, other.output, strict=False)):
        if a != b:
            return Pair(True, index=index)
        if strict and reference.top[index : index + 1] != other.top[index : index + 1]:
            return Pair(True, index=index, kind="logprob")
    if len(reference.output) != len(other.output):
        return Pair(True, index=min(len(reference.output), len(other.output)))
    return Pair(True)


def repeats(told: Serve, again: Serve, found: Pair) -> bool:
    """Whether a later answer has the same divergence, at whatever depth it was served."""
    end = (found.index or 0) + 1
    same = told.output[:end] == again.output[:end]
    return same and (found.kind == "token" or told.top[end - 1 : end] == again.top[end - 1 : end])


def explain(reference: Serve, other: Serve, found: Pair, geometry: Geometry) -> Divergence:
    """Where and how `other` left `reference`. `found` has an index."""
    index = found.index or 0
    position = reference.input_length + index
    commit = _last_commit(reference, position, geometry)
    return Divergence(
        probe=reference.probe.name,
        index=index,
        expected=reference.output[index] if index < len(reference.output) else -1,
        got=other.output[index] if index < len(other.output) else -1,
        cached_tokens=reference.cached_tokens,
        frontier_distance=position - frontier(commit, geometry.window, geometry.page),
        margin=reference.margin(index),
        kind=found.kind,
        margin_on=other.margin(index),
        island_distance=position - commit,
        page_offset=position % geometry.page,
        chunk_offset=(position - reference.cached_tokens) % geometry.chunk,
        batch=other.batch,
    )


def _last_commit(serve: Serve, position: int, geometry: Geometry) -> int:
    """Length of the last commit before `position`: the cached prefix, a whole chunk, or a decode island."""
    if position > serve.input_length:
        decoded = (position - serve.input_length) // geometry.decode_interval * geometry.decode_interval
        return serve.input_length + decoded
    chunks = (serve.input_length - 1 - serve.cached_tokens) // geometry.chunk
    return serve.cached_tokens + max(0, chunks) * geometry.chunk
