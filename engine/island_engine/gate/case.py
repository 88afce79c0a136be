"""What the rules of a gate look at: a recording, indexed, with its pairs; and what a rule may conclude. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from island_engine.gate.compare import ARMS, OFF_A, ON, ON_B, Comparison, Pair, Recording, Rules, Serve, pair
from island_engine.gate.probes import CLASSES, Probe
from island_engine.gate.report import Divergence, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class ClassResult:
    """What was compared of one class between off-A and on."""

    name: str
    compared: int = 0  # probes
    tokens: int = 0
    hits: int = 0  # of the compared, those that found a cached prefix
    retractions: int = 0  # in the on arm
    unpaired: tuple[tuple[str, str], ...] = ()  # (probe, why)


@dataclass(frozen=True)
class Conclusion:
    """A verdict with its reason (CamelCase), one sentence, and what was compared."""

    verdict: Verdict
    reason: str
    message: str
    divergence: Divergence | None = None
    classes: tuple[ClassResult, ...] = field(default=())


def proves_nothing(reason: str, message: str) -> Conclusion:
    """Everything ran, but proves nothing."""
    return Conclusion(Verdict.INCONCLUSIVE, reason, message)


@dataclass(frozen=True)
class Case:
    """A recording, indexed for the rules."""

    plan: Sequence[Probe]
    seen: Recording
    rules: Rules
    by_arm: Mapping[str, Mapping[str, Serve]]  # arm -> probe name -> serve
    pairs: Mapping[str, tuple[Serve, Serve, Pair]]  # probe name -> what on is compared with, on, and how they pair
    classes: tuple[ClassResult, ...] = ()

    @classmethod
    def of(cls, plan: Sequence[Probe], seen: Recording, rules: Rules) -> Case:
        """Every serve by arm and probe, paired as the rules of this engine allow."""
        by_arm = {arm: {s.probe.name: s for s in seen.serves.get(arm, ())} for arm in (*ARMS, ON_B)}
        pairs = dict(_pairs(seen, by_arm, rules))
        names = [name for name in CLASSES if any(p.cls == name for p in plan)]
        return cls(plan, seen, rules, by_arm, pairs, tuple(_class_result(name, pairs) for name in names))


def _pairs(
    seen: Recording, by_arm: Mapping[str, Mapping[str, Serve]], rules: Rules
) -> list[tuple[str, tuple[Serve, Serve, Pair]]]:
    compare, found = Comparison(rules), []
    for name, got in by_arm[ON].items():
        expected = by_arm[OFF_A].get(name)
        if expected is None:
            continue
        result = compare(expected, got)
        if not result.comparable and seen.references.get(name) and rules.invariant:
            expected = seen.references[name][0]
            result = pair(expected, got, strict=rules.strict and rules.exact)
        found.append((name, (expected, got, result)))
    return found


def _class_result(name: str, pairs: Mapping[str, tuple[Serve, Serve, Pair]]) -> ClassResult:
    mine = [found for found in pairs.values() if found[1].probe.cls == name]
    compared = [(expected, result) for expected, _, result in mine if result.comparable]
    return ClassResult(
        name=name,
        compared=len(compared),
        tokens=sum(len(e.output) if result.index is None else result.index for e, result in compared),
        hits=sum(bool(expected.cached_tokens) for expected, _ in compared),
        retractions=sum(got.retractions for _, got, _ in mine),
        unpaired=tuple((got.probe.name, result.why) for _, got, result in mine if not result.comparable),
    )
