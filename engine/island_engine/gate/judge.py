"""What the gate concludes: from recorded serves and counters to a verdict. Pure.

Rules, first that holds (only the last is PASS):
ArmsDiffer, CacheNotEmpty, Nondeterminism, FirstDivergence (FAIL) or Unconfirmed or Unrepeated, Incomplete,
FrontierViolation, Unpaired, Vacuous, Equal (PASS).
FAIL needs controls, so that an engine that does not repeat itself is never blamed on islands: off-B must have repeated
what off-A answered up to the probe that diverged, on-B what `on` answered there, and both boots again when asked again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from island_engine.gate.compare import (
    ARMS,
    OFF_A,
    OFF_B,
    ON,
    ON_B,
    Comparison,
    Pair,
    Recording,
    Rules,
    Serve,
    explain,
    pair,
    repeats,
)
from island_engine.gate.counters import MUST_HAPPEN, VIOLATIONS
from island_engine.gate.probes import CLASSES, LEAST_RETRACTIONS, TIMED, Probe
from island_engine.gate.report import Divergence, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DETERMINISTIC = "make the engine deterministic (on a CPU --dtype float32, on a GPU --enable-deterministic-inference)"


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


@dataclass(frozen=True)
class _Case:
    """A recording, indexed for the rules."""

    plan: Sequence[Probe]
    seen: Recording
    rules: Rules
    by_arm: Mapping[str, Mapping[str, Serve]]  # arm -> probe name -> serve
    pairs: Mapping[str, tuple[Serve, Serve, Pair]]  # probe name -> what on is compared with, on, and how they pair
    classes: tuple[ClassResult, ...] = ()


def judge(plan: Sequence[Probe], seen: Recording, rules: Rules | None = None) -> Conclusion:
    """The verdict over a recording, by the rules of this module, first that holds."""
    rules = rules or Rules()
    by_arm = {arm: {s.probe.name: s for s in seen.serves.get(arm, ())} for arm in (*ARMS, ON_B)}
    pairs = dict(_pairs(seen, by_arm, rules))
    names = [cls for cls in CLASSES if any(p.cls == cls for p in plan)]
    case = _Case(plan, seen, rules, by_arm, pairs, tuple(_class_result(name, pairs) for name in names))
    for rule in (
        *(_arms_differ, _cache_not_empty, _nondeterminism, _divergence),
        *(_incomplete, _violated, _unpaired, _vacuous),
    ):
        found = rule(case)
        if found is not None:
            return Conclusion(found.verdict, found.reason, found.message, found.divergence, case.classes)
    untimed = [c for c in case.classes if c.name not in TIMED]  # what timing decides would change a report's bytes
    compared, tokens = sum(c.compared for c in untimed), sum(c.tokens for c in untimed)
    message = f"{compared} serves and {tokens} generated tokens are equal with islands on and off, "
    if rules.invariant:
        message += f"in {len(untimed)} classes, and so are {', '.join(TIMED)}"
    else:
        message += (
            f"in {len(untimed)} classes; {', '.join(TIMED)} were served but not compared, because answers of this "
            "engine depend on the batch: --enable-deterministic-inference would change that"
        )
    return Conclusion(Verdict.PASS, "Equal", message, classes=case.classes)


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


# --- the rules: each returns a Conclusion when it holds, else None ---------------------------------------------------


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
    compare = Comparison(case.rules)
    for name, again in case.by_arm[OFF_B].items():
        first = case.by_arm[OFF_A].get(name)
        if first is None:
            continue
        result = compare(first, again)
        if not result.comparable and again.probe.cls not in TIMED:
            return _inconclusive(
                "Nondeterminism", f"two boots with islands off were served differently at {name}: {result.why}"
            )
        if result.index is not None:
            return _repeats_not(f"two boots with islands off differ at {name}", result)
    for name, references in case.seen.references.items():
        for again in references[1:]:
            result = pair(references[0], again, strict=case.rules.strict and case.rules.exact)
            if result.index is not None:
                return _repeats_not(f"{OFF_B} answers {name} differently when asked again", result)
    for again in case.seen.again.get(OFF_B, ()):
        result = pair(case.by_arm[OFF_A][again.probe.name], again, strict=_strict(case.rules, again.probe.cls))
        if not result.comparable and again.probe.cls not in TIMED:
            return _inconclusive(
                "Nondeterminism", f"{OFF_B} serves {again.probe.name} at another depth when asked again"
            )
        if result.index is not None:
            return _repeats_not(f"{OFF_B} answers {again.probe.name} differently when asked again", result)
    return None


def _strict(rules: Rules, cls: str) -> bool:
    return rules.strict and (rules.exact or cls not in TIMED)


def _repeats_not(where: str, found: Pair) -> Conclusion:
    return _inconclusive(
        "Nondeterminism",
        f"{where}, generated token {found.index}{' (its logprobs)' * (found.kind == 'logprob')}: {DETERMINISTIC}",
    )


def _divergence(case: _Case) -> Conclusion | None:
    for name, (expected, got, result) in case.pairs.items():
        if result.index is None:
            continue
        where = explain(expected, got, result, case.seen.geometry[OFF_A])
        what = (
            f"{where.expected} without, {where.got} with"
            if result.kind == "token"
            else "the same token, other logprobs"
        )
        said = (
            f"islands change the answer of {name} at generated token {where.index}: {what}, "
            f"{where.frontier_distance} tokens after the frontier"
        )
        if name not in case.by_arm[OFF_B]:
            said += "; the second boot with islands off did not get to confirm it"
            return Conclusion(Verdict.INCONCLUSIVE, "Unconfirmed", said, where)
        if not case.by_arm[ON_B]:
            said += "; islands were not booted again to confirm it"
            return Conclusion(Verdict.INCONCLUSIVE, "Unconfirmed", said, where)
        again = [case.by_arm[ON_B].get(name), *case.seen.again.get(ON_B, ())]
        same = sum(serve is not None and repeats(got, serve, result) for serve in again)
        if same < len(again):
            said += f"; but asked {len(again)} times more after another boot, they did so {same} times: {DETERMINISTIC}"
            return Conclusion(Verdict.INCONCLUSIVE, "Unrepeated", said, where)
        return Conclusion(Verdict.FAIL, "FirstDivergence", f"{said}, and after another boot again", where)
    return None


def confirmable(concluded: Conclusion, seen: Recording) -> str | None:
    """The probe that one more boot with islands on may make a FAIL of."""
    where = concluded.divergence
    if where is None or concluded.reason != "Unconfirmed":
        return None
    return where.probe if any(s.probe.name == where.probe for s in seen.serves.get(OFF_B, ())) else None


def _incomplete(case: _Case) -> Conclusion | None:
    for arm in ARMS:
        missing = [p.name for p in case.plan if p.name not in case.by_arm[arm]]
        if missing or not case.plan:
            return _inconclusive("Incomplete", f"{len(missing)} probes were never served in {arm}")
    return None


def _violated(case: _Case) -> Conclusion | None:
    for name, growth in case.seen.counters.get(ON, {}).items():
        if growth.get(VIOLATIONS):
            return _inconclusive(
                "FrontierViolation",
                f"every answer is equal, but the engine counted {growth[VIOLATIONS]:.0f} frontier violations "
                f"in class {name}",
            )
    return None


def _unpaired(case: _Case) -> Conclusion | None:
    for result in case.classes:
        if result.name in TIMED and not case.rules.invariant:
            continue
        wants_hits = any(p.cls == result.name and (p.expect == "hit" or p.reads) for p in case.plan)
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
    for result in case.classes:
        name = result.name
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
    return _not_pressed(case) or _not_speculated(case)


def _not_pressed(case: _Case) -> Conclusion | None:
    for arm in ARMS:
        served = [s for s in case.by_arm[arm].values() if s.probe.cls == "pressure"]
        retracted = sum(s.retractions for s in served)
        if served and retracted < LEAST_RETRACTIONS:
            return _inconclusive(
                "Vacuous",
                f"only {retracted} requests were retracted in class pressure of {arm}, so it proves nothing: "
                "set a larger --max-running-requests",
            )
    return None


def _not_speculated(case: _Case) -> Conclusion | None:
    for arm in ARMS if case.rules.speculates else ():
        # A prefill gives a token of its own, and so does the one after each retraction.
        served = case.by_arm[arm].values()
        if not any(s.steps and len(s.output) > s.steps + 1 + s.retractions for s in served):
            return _inconclusive(
                "Vacuous",
                f"no step of {arm} committed more than one token, though --speculative-algorithm asks for it: "
                "give texts that its drafts get right with --prompts",
            )
    return None


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


def _inconclusive(reason: str, message: str) -> Conclusion:
    return Conclusion(Verdict.INCONCLUSIVE, reason, message)
