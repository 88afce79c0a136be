"""The picture of `plan --plot`: capacity against ratio, what runs against prompt length, what one request holds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from island_engine.picture import ARMS, GRID, INK, QUIET, figure, save
from island_engine.planner import capacity
from island_engine.planner.request import occupancy

if TYPE_CHECKING:
    from pathlib import Path

    from island_engine.planner.plan import Plan, Side
    from island_engine.planner.request import Arm
    from island_engine.planner.workload import Workload

COLORS = {True: ARMS["islands"].color, False: ARMS["stock"].color}  # by the switch
NAMES = {True: "islands", False: "stock"}
RATIOS = [step / 1000 for step in range(2, 1001)]
CLEAR = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # a line that crosses a label stays behind it
SIZE = (15.5, 5.6)  # inches: fills a slide


def draw(plan: Plan, path: Path) -> None:
    """Write the PNG. The plan has a workload."""
    work = plan.workload
    if work is None:
        raise ValueError("a picture needs a workload")
    on, off = plan.on, plan.off
    made, (left, middle, right) = figure(
        f"{on.running:.0f} requests at once with islands, {off.running:.0f} without, in the same "
        f"{plan.budget / 1e9:.0f} GB",
        f"{plan.model.name}. Prompts of {work.isl:,.0f} and outputs of {work.osl:,.0f} tokens on average, window "
        f"{plan.model.cost.window:,}, chunk {plan.serving.chunk:,}, page {plan.serving.page}.",
        columns=3,
        size=SIZE,
    )
    _capacity(left, plan)
    _prompts(middle, plan, work)
    _request(right, plan, work)
    save(
        made,
        path,
        note="island-engine plan: formulas checked against SGLang 0.5.23's scheduler in virtual time; docs/plan.md.",
    )


def _capacity(axes: Any, plan: Plan) -> None:
    """Requests at once by ratio: both arms, the bound, the halves."""
    cost, budget, most = plan.model.cost, plan.budget, plan.most
    edge = min(1.0, max(0.25, 2.2 * plan.off.ratio))
    ratios = [ratio for ratio in RATIOS if ratio <= edge]
    bound = plan.bound or 0.0
    top = bound * 1.32
    axes.axhline(bound, color=QUIET, linewidth=1.2, linestyle=(0, (4, 3)))
    axes.text(
        edge, bound * 1.01, f"bound: {bound:.0f}, a window each", ha="right", va="bottom", fontsize=9, color=QUIET
    )
    for side, height in ((plan.off, 1.12), (plan.on, 1.22)):
        asked, color = plan.asked(islands=side.islands), COLORS[side.islands]
        if asked is None:
            continue
        runs = [capacity.at(asked, cost, budget, ratio, most) for ratio in ratios]
        axes.plot(ratios, runs, color=color, linewidth=2.4)
        _dot(axes, side.ratio, side.running, color)
        text = f"{NAMES[side.islands]}: {side.running:.0f} at r {side.half.ratio}"
        axes.text(edge, bound * height, text, color=color, fontsize=11, fontweight="bold", ha="right")
    for height, text in (
        (0.3, "left of the peak the SWA pool binds: steep"),
        (0.2, "right of it the full pool binds: flat"),
    ):
        axes.text(edge, bound * height, text, fontsize=9.5, color=INK, ha="right")
    _frame(axes, "Requests at once, by SWA ratio", "r = SWA pool / full pool, and tokens of the full pool", top)
    axes.set_xlim(0, edge)
    axes.xaxis.set_major_formatter(lambda ratio, _: f"{ratio:.2f}\n{cost.capacity(ratio, budget) / 1000:,.0f}k")


def _prompts(axes: Any, plan: Plan, work: Workload) -> None:
    """Requests at once by mean prompt, each switch on its half, and where the binding pool changes."""
    longest = 4 * work.isl
    steps = [longest * step / 400 for step in range(10, 401)]
    most = 0.0
    for side in (plan.off, plan.on):
        color = COLORS[side.islands]
        runs, binding = zip(*(_at_prompt(plan, side, work, isl) for isl in steps), strict=True)
        axes.plot(steps, runs, color=color, linewidth=2.4)
        text = f"{NAMES[side.islands]} on r {side.half.ratio}"
        at = next((i for i in range(1, len(steps)) if binding[i] == "full" != binding[i - 1]), None)
        if at is not None:
            _dot(axes, steps[at], runs[at], color)
            text += f": full pool binds from {steps[at] / 1000:.1f}k"
        most = max(most, *runs)
        axes.text(longest, 0, text, color=color, fontsize=11, fontweight="bold", ha="right", bbox=CLEAR)
    for text, height in zip(axes.texts, (1.12, 1.22), strict=True):
        text.set_y(most * height)
    lean = plan.side(plan.on.half, islands=False)
    left = [_at_prompt(plan, lean, work, isl)[0] for isl in steps]
    axes.plot(steps, left, color=COLORS[False], linewidth=1.8, linestyle=(0, (2, 2)))
    axes.text(
        steps[4], left[4] - 0.02 * most, "islands off, ratio left behind", color=COLORS[False], fontsize=9.5, va="top"
    )
    axes.axvline(work.isl, color=GRID, linewidth=5, zorder=0)
    axes.text(work.isl * 1.05, 0.02 * most, "this workload", color=QUIET, fontsize=9.5, va="bottom")
    _frame(axes, "Requests at once, by prompt length", "mean prompt, tokens", most * 1.32)
    axes.set_xlim(0, longest)
    axes.xaxis.set_major_formatter(_thousands)


def _at_prompt(plan: Plan, side: Side, work: Workload, isl: float) -> tuple[float, str]:
    """Requests at once, and what binds, were prompts that long on average."""
    other = replace(plan, workload=replace(work, isl=isl, shared=round(work.shared * isl / work.isl)))
    found = other.side(side.half, islands=side.islands)
    return found.running, found.binds


def _request(axes: Any, plan: Plan, work: Workload) -> None:
    """SWA tokens that one request of mean lengths pins, from its first token to its last."""
    cost, serving = plan.model.cost, plan.serving
    arms: tuple[Arm, ...] = ("lazy", "stock", "islands")
    longest = work.isl + work.osl
    for arm in arms:
        points = occupancy(
            arm, round(work.isl), round(work.osl), window=cost.window, page=serving.page, chunk=serving.chunk
        )
        times, held = zip(*points, strict=True)
        axes.plot(times, held, color=ARMS[arm].color, linewidth=2.4)
        text = f"{ARMS[arm].label}\n{held[-1]:,}"
        axes.text(longest * 1.02, held[-1], text, color=ARMS[arm].color, fontsize=10, fontweight="bold", va="center")
    axes.axvspan(0, work.isl, color=GRID, alpha=0.35, linewidth=0)
    for middle, text in ((work.isl / 2, "prefill"), (work.isl + work.osl / 2, "decode")):
        axes.text(middle, cost.window * 0.6, text, ha="center", color=QUIET, fontsize=9.5)
    in_flight = min(serving.chunk, work.isl)
    axes.text(0.02 * longest, in_flight * 0.93, "a chunk in flight", color=QUIET, fontsize=9.5, va="top")
    axes.set_yscale("log")
    _frame(axes, "SWA tokens that one request holds", "tokens committed", None)
    axes.set_xlim(0, longest * 1.36)
    axes.set_ylim(cost.window * 0.5, 3.2 * serving.chunk)
    marks = {cost.window: "window", 2 * cost.window: "twice", serving.chunk: "chunk"}
    axes.set_yticks(list(marks), [f"{name}\n{tokens:,}" for tokens, name in marks.items()])
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(_thousands)


def _dot(axes: Any, x: float, y: float, color: str) -> None:
    axes.plot([x], [y], "o", color=color, markersize=9, markeredgecolor="white", markeredgewidth=1.5, zorder=5)


def _thousands(value: float, _: object) -> str:
    return f"{value / 1000:.0f}k" if value else "0"


def _frame(axes: Any, title: str, below: str, top: float | None) -> None:
    axes.set_title(title, fontsize=11.5, color=INK, loc="left", pad=10)
    axes.set_xlabel(below, fontsize=9.5, color=QUIET)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    if top is not None:
        axes.set_ylim(0, top)
