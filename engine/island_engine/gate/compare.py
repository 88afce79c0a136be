"""What the gate concludes: from recorded serves and counters to a verdict. Pure.

Rules, first that holds (only the last is PASS):
ArmsDiffer, CacheNotEmpty, Nondeterminism, FirstDivergence (FAIL) or Unconfirmed, Incomplete,
FrontierViolation, Unpaired, Vacuous, Equal (PASS).
FAIL needs the control: off-B must have repeated what off-A answered up to the probe that diverged, so that an engine
that does not repeat itself is never blamed on islands.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from island_engine.gate.probes import CLASSES, Geometry, Probe, frontier
from island_engine.gate.report import Divergence, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OFF_A, ON, OFF_B = "off-A", "on", "off-B"
ARMS = (OFF_A, ON, OFF_B)

PREFILL_ISLANDS = "island_published_total{phase=prefill}"
DECODE_ISLANDS = "island_published_total{phase=decode}"
TOMBSTONE_HITS = "island_tombstone_hits_total"
TOMBSTONED = "island_tombstoned_tokens_total"
VIOLATIONS = "island_frontier_violations_total"

# Per class: what must have happened in the on arm for equality to mean anything, and what to change when it did not.
MUST_HAPPEN: dict[str, dict[str, str]] = {
    "cold": {
        PREFILL_ISLANDS: "a smaller --chunked-prefill-size",
        TOMBSTONED: "a larger --chunked-prefill-size than window and page together",
    },
    "hit": {TOMBSTONE_HITS: "a smaller --chunked-prefill-size or a larger --max-total-tokens"},
    "lengths": {
        PREFILL_ISLANDS: "a smaller --chunked-prefill-size",
        TOMBSTONE_HITS: "a smaller --chunked-prefill-size or a larger --max-total-tokens",
    },
    "extension": {
        DECODE_ISLANDS: "a smaller --island-decode-interval or --chunked-prefill-size",
        TOMBSTONE_HITS: "a larger --max-total-tokens",
    },
}


@dataclass(frozen=True)
class Serve:
    """One answered probe in one arm."""

    arm: str
    probe: Probe
    input_length: int  # tokens
    input_hash: str
    output: tuple[int, ...]  # generated token ids
    cached_tokens: int  # prefix found in the cache
    margins: tuple[float | None, ...] = ()  # top-1 minus top-2 logprob per generated token, nats


@dataclass(frozen=True)
class Pair:
    """One probe, answered by two arms."""

    comparable: bool
    why: str = ""  # when not comparable
    index: int | None = None  # first generated token that differs


@dataclass(frozen=True)
class Recording:
    """Everything one gate saw. Serves per arm, in order; counter growth per arm and class."""

    serves: Mapping[str, Sequence[Serve]]
    counters: Mapping[str, Mapping[str, Mapping[str, float]]]  # arm -> class -> counter -> growth
    geometry: Mapping[str, Geometry]  # arm -> what that boot said of itself
    enabled: Mapping[str, bool]  # arm -> whether the engine says that islands are on


@dataclass(frozen=True)
class ClassResult:
    """What was compared of one class between off-A and on."""

    name: str
    compared: int = 0  # probes
    tokens: int = 0
    hits: int = 0  # of the compared, those that found a cached prefix
    unpaired: tuple[tuple[str, str], ...] = ()  # (probe, why)


@dataclass(frozen=True)
class Conclusion:
    """A verdict with its reason (CamelCase), one sentence, and what was compared."""

    verdict: Verdict
    reason: str
    message: str
    divergence: Divergence | None = None
    classes: tuple[ClassResult, ...] = field(default=())


def pair(reference: Serve, other: Serve) -> Pair:
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
    if len(reference.output) != len(other.output):
        return Pair(True, index=min(len(reference.output), len(other.output)))
    return Pair(True)


def judge(plan: Sequence[Probe], seen: Recording) -> Conclusion:
    """The verdict over a recording, by the rules of this module, first that holds."""
    by_arm = {arm: {s.probe.name: s for s in seen.serves.get(arm, ())} for arm in ARMS}
    classes = tuple(_class_result(name, plan, by_arm) for name in CLASSES)
    case = _Case(plan, seen, by_arm, classes)
    for rule in (
        _arms_differ,
        _cache_not_empty,
        _nondeterminism,
        _divergence,
        _incomplete,
        _violated,
        _unpaired,
        _vacuous,
    ):
        found = rule(case)
        if found is not None:
            return Conclusion(found.verdict, found.reason, found.message, found.divergence, classes)
    compared, tokens = sum(c.compared for c in classes), sum(c.tokens for c in classes)
    return Conclusion(
        Verdict.PASS,
        "Equal",
        f"{compared} serves and {tokens} generated tokens are equal with islands on and off, in {len(classes)} classes",
        classes=classes,
    )


def explain(reference: Serve, other: Serve, index: int, geometry: Geometry) -> Divergence:
    """Where and how `other` left `reference` at generated token `index`."""
    position = reference.input_length + index
    cut = frontier(_last_commit(reference, position, geometry), geometry.window, geometry.page)
    return Divergence(
        probe=reference.probe.name,
        index=index,
        expected=reference.output[index] if index < len(reference.output) else -1,
        got=other.output[index] if index < len(other.output) else -1,
        cached_tokens=reference.cached_tokens,
        frontier_distance=position - cut,
        margin=reference.margins[index] if index < len(reference.margins) else None,
    )


def _last_commit(serve: Serve, position: int, geometry: Geometry) -> int:
    """Length of the last commit before `position`: the cached prefix, a whole chunk, or a decode island."""
    if position > serve.input_length:
        decoded = (position - serve.input_length) // geometry.decode_interval * geometry.decode_interval
        return serve.input_length + decoded
    chunks = (serve.input_length - 1 - serve.cached_tokens) // geometry.chunk
    return serve.cached_tokens + max(0, chunks) * geometry.chunk


# --- the rules: each returns a Conclusion when it holds, else None ---------------------------------------------------

_ByArm = dict[str, dict[str, Serve]]


@dataclass(frozen=True)
class _Case:
    """A recording, indexed for the rules."""

    plan: Sequence[Probe]
    seen: Recording
    by_arm: _ByArm  # arm -> probe name -> serve
    classes: tuple[ClassResult, ...]


def _arms_differ(case: _Case) -> Conclusion | None:
    first = case.seen.geometry.get(OFF_A)
    for arm, geometry in case.seen.geometry.items():
        if geometry != first:
            return _inconclusive(
                "ArmsDiffer",
                f"{arm} booted as {geometry} and {OFF_A} as {first}: "
                "set --max-total-tokens, so that the pools do not depend on free memory",
            )
    return None


def _cache_not_empty(case: _Case) -> Conclusion | None:
    for arm in ARMS:
        for serve in case.seen.serves.get(arm, ()):
            if serve.probe.expect == "cold" and serve.cached_tokens:
                return _inconclusive(
                    "CacheNotEmpty",
                    f"{serve.probe.name} found {serve.cached_tokens} cached tokens in {arm} right after a flush: "
                    "is another client using this engine?",
                )
    return None


def _nondeterminism(case: _Case) -> Conclusion | None:
    for name, again in case.by_arm[OFF_B].items():
        first = case.by_arm[OFF_A].get(name)
        if first is None:
            continue
        result = pair(first, again)
        if not result.comparable:
            return _inconclusive(
                "Nondeterminism", f"two boots with islands off were served differently at {name}: {result.why}"
            )
        if result.index is not None:
            return _inconclusive(
                "Nondeterminism",
                f"two boots with islands off differ at {name}, generated token {result.index}: "
                "make the engine deterministic (on a CPU --dtype float32, on a GPU --enable-deterministic-inference)",
            )
    return None


def _divergence(case: _Case) -> Conclusion | None:
    for name, got in case.by_arm[ON].items():
        expected = case.by_arm[OFF_A].get(name)
        result = pair(expected, got) if expected else Pair(False)
        if expected is None or result.index is None:
            continue
        where = explain(expected, got, result.index, case.seen.geometry[OFF_A])
        said = (
            f"islands change the answer of {name} at generated token {where.index}: "
            f"{where.expected} without, {where.got} with, {where.frontier_distance} tokens after the frontier"
        )
        if name not in case.by_arm[OFF_B]:
            return _inconclusive("Unconfirmed", f"{said}; the second boot with islands off did not get to confirm it")
        return Conclusion(Verdict.FAIL, "FirstDivergence", said, where)
    return None


def _incomplete(case: _Case) -> Conclusion | None:
    for arm in ARMS:
        missing = [p.name for p in case.plan if p.name not in case.by_arm[arm]]
        if missing or not case.plan:
            return _inconclusive("Incomplete", f"{len(missing)} probes were never served in {arm}")
    return None


def _violated(case: _Case) -> Conclusion | None:
    for name in CLASSES:
        count = case.seen.counters.get(ON, {}).get(name, {}).get(VIOLATIONS)
        if count:
            return _inconclusive(
                "FrontierViolation",
                f"every answer is equal, but the engine counted {count:.0f} frontier violations in class {name}",
            )
    return None


def _unpaired(case: _Case) -> Conclusion | None:
    for result in case.classes:
        wants_hits = any(p.cls == result.name and p.expect == "hit" for p in case.plan)
        if result.compared and (result.hits or not wants_hits):
            continue
        why = f": {result.unpaired[0][0]} has {result.unpaired[0][1]}" if result.unpaired else ""
        return _inconclusive(
            "Unpaired",
            f"no {'hit of equal depth' if wants_hits else 'serve'} could be compared in class {result.name}{why}; "
            "set a larger --max-total-tokens or --swa-full-tokens-ratio",
        )
    return None


def _vacuous(case: _Case) -> Conclusion | None:
    for arm in ARMS:
        if case.seen.enabled.get(arm) != (arm == ON):
            return _inconclusive(
                "Vacuous",
                f"islands are {'off' if arm == ON else 'on'} in arm {arm} by its own /metrics (island_enabled)",
            )
    for name in CLASSES:
        for arm in (OFF_A, OFF_B):
            moved = [c for c, value in case.seen.counters.get(arm, {}).get(name, {}).items() if value]
            if moved:
                return _inconclusive("Vacuous", f"{moved[0]} grew in class {name} of {arm}, where islands are off")
        grown = case.seen.counters.get(ON, {}).get(name, {})
        for counter, advice in MUST_HAPPEN[name].items():
            if not grown.get(counter):
                return _inconclusive(
                    "Vacuous", f"{counter} did not grow in class {name}, so it proves nothing: set {advice}"
                )
    return None


def _class_result(name: str, plan: Sequence[Probe], by_arm: _ByArm) -> ClassResult:
    compared = tokens = hits = 0
    unpaired: list[tuple[str, str]] = []
    for probe in plan:
        reference, other = by_arm[OFF_A].get(probe.name), by_arm[ON].get(probe.name)
        if probe.cls != name or reference is None or other is None:
            continue
        result = pair(reference, other)
        if not result.comparable:
            unpaired.append((probe.name, result.why))
            continue
        compared += 1
        tokens += len(reference.output) if result.index is None else result.index
        hits += bool(reference.cached_tokens)
    return ClassResult(name, compared, tokens, hits, tuple(unpaired))


def _inconclusive(reason: str, message: str) -> Conclusion:
    return Conclusion(Verdict.INCONCLUSIVE, reason, message)
