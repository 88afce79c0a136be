"""What the gate concludes: from recorded serves and counters to a verdict. Pure.

Rules, first that holds (only the last is PASS):
ArmsDiffer, CacheNotEmpty, Nondeterminism, FirstDivergence (FAIL) or Unconfirmed or Unrepeated, Incomplete,
FrontierViolation, Unpaired, Vacuous, Equal (PASS).
FAIL needs controls, so that an engine that does not repeat itself is never blamed on islands: off-B must have repeated
what off-A answered up to the probe that diverged, on-B what `on` answered there, and both boots again when asked again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from island_engine.gate import coverage
from island_engine.gate.case import Case, Conclusion, proves_nothing
from island_engine.gate.compare import ARMS, OFF_A, OFF_B, ON_B, Comparison, Rules, explain, pair, repeats
from island_engine.gate.probes import TIMED
from island_engine.gate.report import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from island_engine.gate.compare import Pair, Recording
    from island_engine.gate.probes import Probe

DETERMINISTIC = "make the engine deterministic (on a CPU --dtype float32, on a GPU --enable-deterministic-inference)"


def judge(plan: Sequence[Probe], seen: Recording, rules: Rules | None = None) -> Conclusion:
    """The verdict over a recording, by these rules and those of coverage.py, first that holds."""
    rules = rules or Rules()
    case = Case.of(plan, seen, rules)
    for rule in (
        *(_arms_differ, _cache_not_empty, _nondeterminism, _divergence),
        *(coverage.incomplete, coverage.violated, coverage.unpaired, coverage.vacuous),
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


def _arms_differ(case: Case) -> Conclusion | None:
    first = case.seen.geometry.get(OFF_A)
    for arm, geometry in case.seen.geometry.items():
        if geometry != first:
            return proves_nothing(
                "ArmsDiffer",
                f"{arm} booted as {geometry} and {OFF_A} as {first}: "
                "set --max-total-tokens, so that the pools do not depend on free memory",
            )
    return None


def _cache_not_empty(case: Case) -> Conclusion | None:
    for arm in ARMS:
        for serve in case.seen.serves.get(arm, ()):
            if serve.probe.expect == "cold" and serve.cached_tokens:
                return proves_nothing(
                    "CacheNotEmpty",
                    f"{serve.probe.name} found {serve.cached_tokens} cached tokens in {arm} right after a flush: "
                    "is another client using this engine?",
                )
    return None


def _nondeterminism(case: Case) -> Conclusion | None:
    compare = Comparison(case.rules)
    for name, again in case.by_arm[OFF_B].items():
        first = case.by_arm[OFF_A].get(name)
        if first is None:
            continue
        result = compare(first, again)
        if not result.comparable and again.probe.cls not in TIMED:
            return proves_nothing(
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
            return proves_nothing(
                "Nondeterminism", f"{OFF_B} serves {again.probe.name} at another depth when asked again"
            )
        if result.index is not None:
            return _repeats_not(f"{OFF_B} answers {again.probe.name} differently when asked again", result)
    return None


def _strict(rules: Rules, cls: str) -> bool:
    return rules.strict and (rules.exact or cls not in TIMED)


def _repeats_not(where: str, found: Pair) -> Conclusion:
    return proves_nothing(
        "Nondeterminism",
        f"{where}, generated token {found.index}{' (its logprobs)' * (found.kind == 'logprob')}: {DETERMINISTIC}",
    )


def _divergence(case: Case) -> Conclusion | None:
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
