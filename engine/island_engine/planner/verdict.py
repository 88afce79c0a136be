"""Whether islands pay, in one sentence, and what was measured on such a workload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from island_engine import SGLANG_VERSION

if TYPE_CHECKING:
    from island_engine.planner.plan import Plan

Kind = Literal["no pool", "no workload", "little", "random", "sessions"]
# Output tokens/s of islands over stock, each at its best ratio with the same bytes, per cent: least and most of the
# workloads of a kind in docs/bench/best.json (a test compares).
MEASURED: dict[Kind, tuple[int, int]] = {"little": (-1, 0), "random": (3, 7), "sessions": (19, 37)}


@dataclass(frozen=True)
class Verdict:
    """`measured`: see MEASURED."""

    kind: Kind
    text: str

    @property
    def measured(self) -> tuple[int, int] | None:
        """Least and most gain, per cent."""
        return MEASURED.get(self.kind)


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
    on, off = plan.on, plan.off
    pool = on.half.max_total_tokens / off.half.max_total_tokens - 1
    if plan.workload.reuse > 0:
        needed = plan.workload.shared + plan.most * plan.workload.own
        if needed <= off.half.max_total_tokens:
            text = f"All {plan.most} transcripts stay cached with the switch off too: islands bring little here"
            return Verdict("little", f"{text}{_measured('little')}.")
        kept = [min(1.0, side.half.max_total_tokens / needed) for side in (on, off)]
        return Verdict(
            "sessions",
            f"Prompts are reused and the full pool is the limit: it keeps {kept[0]:.0%} of {plan.most} transcripts "
            f"with islands, {kept[1]:.0%} without; this is where islands pay{_measured('sessions')}.",
        )
    if off.binds == "cap":
        return Verdict(
            "little",
            f"All {plan.most} requests run with the switch off too: islands bring little here{_measured('little')}; "
            f"what they free is {pool:.0%} more full pool.",
        )
    return Verdict(
        "random",
        f"Independent prompts: islands run {on.running / off.running - 1:.0%} more requests at once, and throughput "
        f"gains less than that, because larger batches take longer{_measured('random')}.",
    )


def _measured(kind: Kind) -> str:
    low, high = MEASURED[kind]
    return f" (measured: {low:+d} to {high:+d} % tokens/s)"
