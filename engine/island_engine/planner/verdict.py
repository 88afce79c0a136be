"""Whether islands pay, in one sentence, and what the simulation gave on such a workload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from island_engine import SGLANG_VERSION

if TYPE_CHECKING:
    from island_engine.planner.plan import Plan
    from island_engine.planner.workload import Workload

Kind = Literal["no pool", "no workload", "little", "random", "sessions"]
# Output tokens/s of islands over stock, each at its best ratio with the same bytes, per cent: least and most of the
# workloads of a kind in docs/bench/best.json (a test compares).
SIMULATED: dict[Kind, tuple[int, int]] = {"little": (-1, 0), "random": (3, 7), "sessions": (19, 35)}


_LITTLE = "islands bring little here"
SMALL_POOL, SMALL_RUNNING = 0.10, 0.05  # gains below which islands bring little, of full pool and of requests at once


@dataclass(frozen=True)
class Verdict:
    """`simulated`: see SIMULATED; None where nothing like it was simulated."""

    kind: Kind
    text: str
    simulated: tuple[int, int] | None = None


def judge(plan: Plan) -> Verdict:
    """The honest answer, small gains included."""
    if not plan.model.pooled:
        return Verdict(
            "no pool",
            f"SGLang {SGLANG_VERSION} keeps all layers of {plan.model.name} in one pool, so islands bring nothing "
            "there: `serve --islands on` refuses it, and these figures are for a release that splits the pools.",
        )
    if plan.workload is None:
        return Verdict(
            "no workload", "Give --isl and --osl, or --requests FILE, to see which pool binds and if islands pay."
        )
    return _sessions(plan, plan.workload) if plan.workload.reuse > 0 else _independent(plan)


def _sessions(plan: Plan, work: Workload) -> Verdict:
    """What islands save in SWA becomes full pool, that is transcripts that stay cached."""
    on, off = plan.on.half.max_total_tokens, plan.off.half.max_total_tokens
    needed = work.shared + plan.most * work.own
    if needed <= off:
        return _simulated("little", f"All {plan.most} transcripts stay cached with the switch off too: {_LITTLE}")
    if on / off - 1 < SMALL_POOL:
        return Verdict(
            "little",
            "Prompts are reused and the full pool is the limit, but the SWA pool is small beside it with the switch "
            f"off too: islands make the full pool {on / off - 1:.0%} larger, which is little.",
        )
    kept = [min(1.0, pool / needed) for pool in (on, off)]
    return _simulated(
        "sessions",
        f"Prompts are reused and the full pool is the limit: it keeps {kept[0]:.0%} of {plan.most} transcripts with "
        f"islands, {kept[1]:.0%} without; this is where islands pay",
    )


def _independent(plan: Plan) -> Verdict:
    """What islands save becomes requests at once, and a larger batch takes longer."""
    on, off = plan.on, plan.off
    if off.binds == "cap":
        return _simulated("little", f"All {plan.most} requests run with the switch off too: {_LITTLE}")
    more = on.running / off.running - 1
    if more < SMALL_RUNNING:
        return Verdict("little", f"Independent prompts: islands run {more:.0%} more requests at once, which is little.")
    return _simulated(
        "random",
        f"Independent prompts: islands run {more:.0%} more requests at once, and throughput gains less than that, "
        "because larger batches take longer",
    )


def _simulated(kind: Kind, text: str) -> Verdict:
    low, high = SIMULATED[kind]
    return Verdict(kind, f"{text} (simulated: {low:+d} to {high:+d} % tokens/s).", (low, high))
