"""What is concluded: every rule, and that no tampering with a good recording still passes."""

from __future__ import annotations

import random
import zlib
from dataclasses import replace
from typing import Any

import pytest

from island_engine.gate.compare import ARMS, OFF_A, OFF_B, ON, ON_B, Recording, Rules, Serve, explain, pair
from island_engine.gate.counters import (
    DECODE_ISLANDS,
    MUST_HAPPEN,
    PREFILL_ISLANDS,
    RUNNING_HITS,
    TOMBSTONE_HITS,
    TOMBSTONED,
    VIOLATIONS,
)
from island_engine.gate.judge import confirmable, judge
from island_engine.gate.plan import plan
from island_engine.gate.probes import CLASSES, PROFILES, TIMED, Geometry, Probe
from island_engine.gate.record import AGAIN
from island_engine.gate.report import Verdict

GEOMETRY = Geometry(16, 4, 32, 8, 4_096, 1_024, 4_000, 512)
PLAN = plan(GEOMETRY, PROFILES["quick"], 0, ["a prompt of mine"])
GROWN = {
    PREFILL_ISLANDS: 3.0,
    DECODE_ISLANDS: 2.0,
    TOMBSTONE_HITS: 1.0,
    TOMBSTONED: 64.0,
    RUNNING_HITS: 32.0,
    VIOLATIONS: 0.0,
}


def serve(arm: str, probe: Probe) -> Serve:
    output = tuple(zlib.crc32(f"{probe.name} {i}".encode()) % 512 for i in range(probe.new_tokens))
    cached = 32 if probe.expect == "hit" or probe.reads else 0
    top = tuple(((-0.25, token), (-0.75, token + 1)) for token in output)
    return Serve(arm, probe, len(probe.tokens), f"hash of {probe.name}", output, cached, top, retractions=1)


def good() -> Recording:
    return Recording(
        serves={arm: [serve(arm, p) for p in PLAN] for arm in ARMS},
        counters={arm: {c: dict(GROWN) if arm == ON else {} for c in CLASSES} for arm in ARMS},
        geometry=dict.fromkeys(ARMS, GEOMETRY),
        enabled={arm: arm == ON for arm in ARMS},
    )


def changed(arm: str, name: str, **changes: Any) -> Recording:
    """A good recording with one serve changed."""
    seen = good()
    seen.serves[arm][:] = [replace(s, **changes) if s.probe.name == name else s for s in seen.serves[arm]]  # type: ignore[index]
    return seen


def confirmed(seen: Recording, name: str) -> Recording:
    """Another boot with islands on, and two further answers of both later boots to that probe: all the same again."""
    again = {
        arm: [s for s in seen.serves[like] if s.probe.name == name] * 2 for arm, like in ((OFF_B, OFF_B), (ON_B, ON))
    }
    return replace(seen, serves={**seen.serves, ON_B: list(seen.serves[ON])}, again=again)


def failing(name: str, **changes: Any) -> Recording:
    return confirmed(changed(ON, name, **changes), name)


def flipped(output: tuple[int, ...], index: int) -> tuple[int, ...]:
    return (*output[:index], (output[index] + 1) % 512, *output[index + 1 :])


def output_of(name: str) -> tuple[int, ...]:
    return next(serve(OFF_A, p).output for p in PLAN if p.name == name)


def test_a_good_recording_passes() -> None:
    conclusion = judge(PLAN, good())
    assert (conclusion.verdict, conclusion.reason) == (Verdict.PASS, "Equal")
    assert sum(c.compared for c in conclusion.classes) == len(PLAN)
    assert "running, concurrent, pressure" in conclusion.message
    assert sum(c.tokens for c in conclusion.classes) == sum(p.new_tokens for p in PLAN)
    assert conclusion.divergence is None


@pytest.mark.parametrize("name", [p.name for p in PLAN])
def test_one_flipped_token_anywhere_fails(name: str) -> None:
    output = output_of(name)
    index = len(output) - 1
    conclusion = judge(PLAN, failing(name, output=flipped(output, index)))
    assert (conclusion.verdict, conclusion.reason) == (Verdict.FAIL, "FirstDivergence")
    assert conclusion.divergence is not None
    assert (conclusion.divergence.probe, conclusion.divergence.index) == (name, index)


@pytest.mark.parametrize("name", [p.name for p in PLAN])
def test_an_engine_that_does_not_repeat_itself_is_never_failed(name: str) -> None:
    seen = changed(OFF_B, name, output=flipped(output_of(name), 0))
    seen.serves[ON][:] = [replace(s, output=flipped(s.output, 0)) for s in seen.serves[ON]]  # type: ignore[index]
    conclusion = judge(PLAN, seen)
    assert (conclusion.verdict, conclusion.reason) == (Verdict.INCONCLUSIVE, "Nondeterminism")
    assert name in conclusion.message


def test_a_control_at_another_depth_is_nondeterminism() -> None:
    conclusion = judge(PLAN, changed(OFF_B, "hit/1", cached_tokens=28))
    assert (conclusion.verdict, conclusion.reason) == (Verdict.INCONCLUSIVE, "Nondeterminism")
    assert "cached_tokens 32 in off-A and 28 in off-B" in conclusion.message


def test_a_divergence_that_the_control_did_not_reach_is_no_verdict() -> None:
    seen = changed(ON, "hit/1", output=flipped(output_of("hit/1"), 0))
    seen.serves[OFF_B][:] = [s for s in seen.serves[OFF_B] if s.probe.cls == "cold"]  # type: ignore[index]
    conclusion = judge(PLAN, seen)
    assert (conclusion.verdict, conclusion.reason) == (Verdict.INCONCLUSIVE, "Unconfirmed")


def test_a_divergence_that_another_boot_does_not_repeat_is_no_verdict() -> None:
    once = changed(ON, "hit/1", output=flipped(output_of("hit/1"), 0))
    alone = judge(PLAN, once)
    assert (alone.verdict, alone.reason) == (Verdict.INCONCLUSIVE, "Unconfirmed")
    assert confirmable(alone, once) == "hit/1"
    seen = confirmed(once, "hit/1")
    whole = judge(PLAN, seen)
    assert (whole.verdict, confirmable(whole, seen)) == (Verdict.FAIL, None)
    right = [s for s in seen.serves[OFF_A] if s.probe.name == "hit/1"]
    wrong = seen.again[ON_B]
    other = [replace(wrong[0], output=flipped(wrong[0].output, 0))]
    for arm, answers, reason in (
        (ON_B, [wrong[0], *right], "Unrepeated"),
        (ON_B, [wrong[0], *other], "Unrepeated"),
        (OFF_B, [right[0], *wrong], "Nondeterminism"),
        (OFF_B, [right[0], replace(right[0], cached_tokens=28)], "Nondeterminism"),
    ):
        told = judge(PLAN, replace(seen, again={**seen.again, arm: answers}))
        assert (told.verdict, told.reason) == (Verdict.INCONCLUSIVE, reason)
    ended_earlier = [s for s in seen.serves[ON] if s.probe.cls == "cold"]
    assert judge(PLAN, replace(seen, serves={**seen.serves, ON_B: ended_earlier})).reason == "Unrepeated"


@pytest.mark.parametrize("chance", [0.02, 0.5, 0.98])
def test_an_engine_that_decides_by_chance_does_not_fail(chance: float) -> None:
    """Near ties that fall either way, in every boot anew: where all is stock a FAIL would be a false alarm."""
    asked, base, said = [p for p in PLAN if p.cls == "cold"], good(), set()
    right = {p.name: serve(OFF_A, p) for p in asked}
    for draw in range(400):
        rng = random.Random(draw)  # noqa: S311 - reproducible on purpose

        def answers(arm: str, probes: list[Probe], rng: random.Random = rng) -> list[Serve]:
            served = [replace(right[p.name], arm=arm) for p in probes]
            return [replace(s, output=flipped(s.output, 0)) if rng.random() < chance else s for s in served]

        seen = replace(base, serves={arm: answers(arm, asked) for arm in ARMS})
        told = judge(asked, seen)
        if name := confirmable(told, seen):
            again = {arm: answers(arm, [p for p in asked if p.name == name] * AGAIN) for arm in (OFF_B, ON_B)}
            seen = replace(seen, serves={**seen.serves, ON_B: answers(ON_B, asked)}, again=again)
            told = judge(asked, seen)
        said.add((told.verdict, told.reason))
    assert {verdict for verdict, _ in said} == {Verdict.PASS, Verdict.INCONCLUSIVE}
    assert "Unrepeated" in {reason for _, reason in said}


def test_only_the_first_divergence_is_told() -> None:
    seen = changed(ON, "hit/1", output=flipped(output_of("hit/1"), 5))
    seen.serves[ON][:] = [  # type: ignore[index]
        replace(s, output=flipped(s.output, 1)) if s.probe.name == "hit/2" else s for s in seen.serves[ON]
    ]
    conclusion = judge(PLAN, confirmed(seen, "hit/1"))
    assert conclusion.divergence is not None
    assert (conclusion.divergence.probe, conclusion.divergence.index) == ("hit/1", 5)


def test_unequal_depths_are_reported_apart_and_never_compared() -> None:
    other = flipped(output_of("hit/1"), 0)
    conclusion = judge(PLAN, changed(ON, "hit/1", cached_tokens=28, output=other))
    assert conclusion.verdict is Verdict.PASS  # the class is not empty: hit/0 and hit/2 were compared
    hit = next(c for c in conclusion.classes if c.name == "hit")
    assert hit.unpaired == (("hit/1", "cached_tokens 32 in off-A and 28 in on"),)


def depth(seen: Recording, depth: int, answers: list[Serve]) -> Recording:
    """The readers of `on` found `depth` tokens, where off-A and off-B found other ones."""
    seen.serves[ON][:] = [replace(s, cached_tokens=depth) if s.probe.reads else s for s in seen.serves[ON]]  # type: ignore[index]
    return replace(seen, references={"running/0": answers})


def test_who_reads_a_running_request_is_compared_at_its_own_depth() -> None:
    reader = next(s for s in good().serves[OFF_B] if s.probe.reads)
    at, other = replace(reader, cached_tokens=44), flipped(reader.output, 2)
    assert judge(PLAN, depth(good(), 44, [at])).verdict is Verdict.PASS
    failed = judge(PLAN, confirmed(depth(good(), 44, [replace(at, output=other)] * 2), "running/0"))
    assert (failed.verdict, failed.divergence and failed.divergence.probe) == (Verdict.FAIL, "running/0")
    assert judge(PLAN, depth(good(), 44, [replace(at, output=other), at])).reason == "Nondeterminism"
    assert judge(PLAN, depth(good(), 44, [])).reason == "Unpaired"
    assert judge(PLAN, depth(good(), 44, [replace(at, cached_tokens=40)])).reason == "Unpaired"


def test_the_last_bit_counts_only_if_it_is_asked_for() -> None:
    top = list(good().serves[ON][0].top)
    top[3] = ((-0.25000001, 5), top[3][1])
    seen = failing("cold/0", top=tuple(top))
    assert judge(PLAN, seen).verdict is Verdict.PASS
    conclusion = judge(PLAN, seen, Rules(strict=True))
    assert conclusion.verdict is Verdict.FAIL
    assert conclusion.divergence is not None
    assert (conclusion.divergence.kind, conclusion.divergence.index) == ("logprob", 3)
    assert "the same token, other logprobs" in conclusion.message
    timed = failing("concurrent/0", top=tuple(top))
    assert judge(PLAN, timed, Rules(strict=True)).verdict is Verdict.PASS
    assert judge(PLAN, timed, Rules(strict=True, exact=True)).verdict is Verdict.FAIL


@pytest.mark.parametrize("name", [p.name for p in PLAN if p.cls in TIMED])
def test_where_answers_depend_on_the_batch_timing_is_no_verdict(name: str) -> None:
    other = flipped(output_of(name), 0)
    for arm in (ON, OFF_B):
        conclusion = judge(PLAN, changed(arm, name, output=other), Rules(invariant=False))
        assert conclusion.verdict is Verdict.PASS
        assert "served but not compared" in conclusion.message


def test_what_follows_another_depth_is_not_compared_where_shapes_matter() -> None:
    seen = changed(ON, "extension/turn1", cached_tokens=28)
    seen.serves[ON][:] = [  # type: ignore[index]
        replace(s, output=flipped(s.output, 0)) if s.probe.name == "extension/turn2" else s for s in seen.serves[ON]
    ]
    assert judge(PLAN, confirmed(seen, "extension/turn2")).verdict is Verdict.FAIL
    apart = judge(PLAN, seen, Rules(invariant=False))
    assert (apart.verdict, apart.reason) == (Verdict.INCONCLUSIVE, "Unpaired")  # the class has no other hit


def test_too_few_retractions_are_vacuous() -> None:
    seen = good()
    for arm in ARMS:
        seen.serves[arm][:] = [replace(s, retractions=0) for s in seen.serves[arm]]  # type: ignore[index]
    conclusion = judge(PLAN, seen)
    assert (conclusion.verdict, conclusion.reason) == (Verdict.INCONCLUSIVE, "Vacuous")
    assert "--max-running-requests" in conclusion.message


def test_unequal_depths_may_not_empty_a_class() -> None:
    seen = good()
    seen.serves[ON][:] = [  # type: ignore[index]
        replace(s, cached_tokens=28) if s.probe.expect == "hit" and s.probe.cls == "extension" else s
        for s in seen.serves[ON]
    ]
    conclusion = judge(PLAN, seen)
    assert (conclusion.verdict, conclusion.reason) == (Verdict.INCONCLUSIVE, "Unpaired")
    assert "class extension" in conclusion.message


def test_hits_that_miss_everywhere_empty_their_class_too() -> None:
    seen = good()
    for arm in ARMS:
        seen.serves[arm][:] = [replace(s, cached_tokens=0) for s in seen.serves[arm]]  # type: ignore[index]
    conclusion = judge(PLAN, seen)
    assert (conclusion.verdict, conclusion.reason) == (Verdict.INCONCLUSIVE, "Unpaired")


def test_an_answer_to_another_input_is_not_compared() -> None:
    seen = changed(ON, "extension/turn2", input_hash="another", output=flipped(output_of("extension/turn2"), 0))
    conclusion = judge(PLAN, seen)
    assert conclusion.verdict is Verdict.PASS
    extension = next(c for c in conclusion.classes if c.name == "extension")
    assert extension.unpaired[0][0] == "extension/turn2"


@pytest.mark.parametrize("arm", ARMS)
def test_a_cold_serve_that_hits_is_no_cold_serve(arm: str) -> None:
    conclusion = judge(PLAN, changed(arm, "cold/1", cached_tokens=4))
    assert (conclusion.verdict, conclusion.reason) == (Verdict.INCONCLUSIVE, "CacheNotEmpty")


@pytest.mark.parametrize("arm", ARMS)
def test_a_missing_serve_is_incomplete(arm: str) -> None:
    seen = good()
    seen.serves[arm].pop()  # type: ignore[attr-defined]
    conclusion = judge(PLAN, seen)
    assert (conclusion.verdict, conclusion.reason) == (Verdict.INCONCLUSIVE, "Incomplete")
    assert arm in conclusion.message


def test_nothing_at_all_is_incomplete() -> None:
    conclusion = judge((), Recording({}, {}, {}, {}))
    assert (conclusion.verdict, conclusion.reason) == (Verdict.INCONCLUSIVE, "Incomplete")


@pytest.mark.parametrize("arm", [ON, OFF_B])
def test_arms_that_differ_in_more_than_the_switch_are_not_compared(arm: str) -> None:
    seen = changed(ON, "cold/0", output=flipped(output_of("cold/0"), 0))
    seen.geometry[arm] = replace(GEOMETRY, full_tokens=4_000)  # type: ignore[index]
    conclusion = judge(PLAN, seen)
    assert (conclusion.verdict, conclusion.reason) == (Verdict.INCONCLUSIVE, "ArmsDiffer")


@pytest.mark.parametrize(("name", "counter"), [(n, c) for n in CLASSES for c in MUST_HAPPEN[n]])
@pytest.mark.parametrize("value", [0.0, None])
def test_a_class_without_its_islands_is_vacuous(name: str, counter: str, value: float | None) -> None:
    seen = good()
    growth: dict[str, float] = seen.counters[ON][name]  # type: ignore[assignment]
    growth.pop(counter)
    if value is not None:
        growth[counter] = value
    conclusion = judge(PLAN, seen)
    assert (conclusion.verdict, conclusion.reason) == (Verdict.INCONCLUSIVE, "Vacuous")
    assert counter in conclusion.message
    assert "set a" in conclusion.message


@pytest.mark.parametrize("arm", [OFF_A, OFF_B])
@pytest.mark.parametrize("name", CLASSES)
def test_islands_in_an_off_arm_are_vacuous(arm: str, name: str) -> None:
    seen = good()
    seen.counters[arm][name][PREFILL_ISLANDS] = 1.0  # type: ignore[index]
    assert judge(PLAN, seen).reason == "Vacuous"


@pytest.mark.parametrize("arm", ARMS)
def test_a_switch_that_did_not_take_is_vacuous(arm: str) -> None:
    seen = good()
    seen.enabled[arm] = not seen.enabled[arm]  # type: ignore[index]
    assert judge(PLAN, seen).reason == "Vacuous"


def test_a_frontier_violation_is_no_pass() -> None:
    seen = good()
    seen.counters[ON]["hit"][VIOLATIONS] = 2.0  # type: ignore[index]
    conclusion = judge(PLAN, seen)
    assert (conclusion.verdict, conclusion.reason) == (Verdict.INCONCLUSIVE, "FrontierViolation")


def test_a_shorter_answer_differs_where_it_ends() -> None:
    probe = PLAN[0]
    whole = serve(OFF_A, probe)
    assert pair(whole, replace(whole, output=whole.output[:5])).index == 5
    assert pair(whole, whole).index is None


@pytest.mark.parametrize(
    ("length", "cached", "index", "distance"),
    [
        (100, 0, 0, 100 - 76),  # three chunks of 32 committed: 96, frontier (96 - 20) / 4 * 4 = 76
        (20, 0, 0, 20),  # nothing committed before: no frontier, so the whole input
        (100, 96, 0, 100 - 76),  # a hit at 96
        (100, 0, 9, 109 - 88),  # a decode island at 108
    ],
)
def test_distance_to_the_frontier(length: int, cached: int, index: int, distance: int) -> None:
    probe = Probe("cold", "x", "cold", (1,) * length, 12)
    answer = Serve(OFF_A, probe, length, "", tuple(range(12)), cached, (((-0.25, 1), (-0.5, 2)),) * 12)
    other = replace(answer, output=flipped(answer.output, index), batch=3)
    found = explain(answer, other, pair(answer, other), GEOMETRY)
    assert (found.margin_on, found.batch, found.page_offset) == (0.25, 3, (length + index) % 4)
    assert found.island_distance is not None
    assert found.frontier_distance is not None
    assert 0 <= found.island_distance <= found.frontier_distance
    assert found.frontier_distance == distance
    assert (found.expected, found.got, found.margin) == (index, index + 1, 0.25)


# --- speculation --------------------------------------------------------------------------------------------------


def verified(seen: Recording, tokens_a_step: int, arms: tuple[str, ...] = ARMS) -> Recording:
    """After a first token from the prefill, and one more from the prefill after the retraction that `serve` counts."""
    serves = {
        arm: [replace(s, steps=max(1, (len(s.output) - 2) // (tokens_a_step if arm in arms else 1))) for s in all_of]
        for arm, all_of in seen.serves.items()
    }
    return replace(seen, serves=serves)


def test_where_speculation_is_asked_for_it_must_have_happened() -> None:
    asked = Rules(speculates=True)
    assert judge(PLAN, verified(good(), 3), asked).verdict is Verdict.PASS
    for seen, arm in (
        (good(), OFF_A),  # no step at all
        (verified(good(), 1), OFF_A),  # none of them committed more than a token
        (verified(good(), 3, (OFF_A, OFF_B)), ON),
    ):
        conclusion = judge(PLAN, seen, asked)
        assert (conclusion.verdict, conclusion.reason) == (Verdict.INCONCLUSIVE, "Vacuous")
        assert conclusion.message.startswith(f"no step of {arm} committed more than one token")
    assert judge(PLAN, good()).verdict is Verdict.PASS
