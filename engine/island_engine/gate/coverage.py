"""Whether a gate whose answers are all equal has proved anything: it must have asked everything, compared something of
every class, and seen the islands and retractions that each class is about. Pure.

Each rule returns a Conclusion where something is missing, else None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from island_engine.gate.case import proves_nothing
from island_engine.gate.compare import ARMS, OFF_A, OFF_B, ON
from island_engine.gate.counters import MUST_HAPPEN, VIOLATIONS
from island_engine.gate.probes import LEAST_RETRACTIONS, TIMED

if TYPE_CHECKING:
    from island_engine.gate.case import Case, Conclusion


def incomplete(case: Case) -> Conclusion | None:
    """Every probe was served in every arm."""
    for arm in ARMS:
        missing = [p.name for p in case.plan if p.name not in case.by_arm[arm]]
        if missing or not case.plan:
            return proves_nothing("Incomplete", f"{len(missing)} probes were never served in {arm}")
    return None


def violated(case: Case) -> Conclusion | None:
    """No slot was freed that a token could still read."""
    for name, growth in case.seen.counters.get(ON, {}).items():
        if growth.get(VIOLATIONS):
            return proves_nothing(
                "FrontierViolation",
                f"every answer is equal, but the engine counted {growth[VIOLATIONS]:.0f} frontier violations "
                f"in class {name}",
            )
    return None


def unpaired(case: Case) -> Conclusion | None:
    """Of every class something was compared, a hit where the class is about hits."""
    for result in case.classes:
        if result.name in TIMED and not case.rules.invariant:
            continue
        wants_hits = any(p.cls == result.name and (p.expect == "hit" or p.reads) for p in case.plan)
        if result.compared and (result.hits or not wants_hits):
            continue
        why = f": {result.unpaired[0][0]} has {result.unpaired[0][1]}" if result.unpaired else ""
        return proves_nothing(
            "Unpaired",
            f"no {'hit of equal depth' if wants_hits else 'serve'} could be compared in class {result.name}{why}; "
            "set a larger --max-total-tokens or --swa-full-tokens-ratio",
        )
    return None


def vacuous(case: Case) -> Conclusion | None:
    """Islands were on where they should be, and did what each class is about."""
    for arm in ARMS:
        if case.seen.enabled.get(arm) != (arm == ON):
            return proves_nothing(
                "Vacuous",
                f"islands are {'off' if arm == ON else 'on'} in arm {arm} by its own /metrics (island_enabled)",
            )
    for result in case.classes:
        name = result.name
        for arm in (OFF_A, OFF_B):
            moved = [c for c, value in case.seen.counters.get(arm, {}).get(name, {}).items() if value]
            if moved:
                return proves_nothing("Vacuous", f"{moved[0]} grew in class {name} of {arm}, where islands are off")
        grown = case.seen.counters.get(ON, {}).get(name, {})
        for counter, advice in MUST_HAPPEN[name].items():
            if not grown.get(counter):
                return proves_nothing(
                    "Vacuous", f"{counter} did not grow in class {name}, so it proves nothing: set {advice}"
                )
    return _not_pressed(case) or _not_speculated(case)


def _not_pressed(case: Case) -> Conclusion | None:
    for arm in ARMS:
        served = [s for s in case.by_arm[arm].values() if s.probe.cls == "pressure"]
        retracted = sum(s.retractions for s in served)
        if served and retracted < LEAST_RETRACTIONS:
            return proves_nothing(
                "Vacuous",
                f"only {retracted} requests were retracted in class pressure of {arm}, so it proves nothing: "
                "set a larger --max-running-requests",
            )
    return None


def _not_speculated(case: Case) -> Conclusion | None:
    for arm in ARMS if case.rules.speculates else ():
        # A prefill gives a token of its own, and so does the one after each retraction.
        served = case.by_arm[arm].values()
        if not any(s.steps and len(s.output) > s.steps + 1 + s.retractions for s in served):
            return proves_nothing(
                "Vacuous",
                f"no step of {arm} committed more than one token, though --speculative-algorithm asks for it: "
                "give texts that its drafts get right with --prompts",
            )
    return None
