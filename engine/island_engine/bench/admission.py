"""`bench admission`: how many requests a pool sustains, on SGLang's own admission, pools and retraction, no model.

A burst of long prompts meets an SWA pool of each ratio; the full pool is made large, so that the SWA pool binds. Three
more cases: `churn` (requests finish and others come), `full-bound` (the full pool has its real size), `shared` (four
requests per prompt, short outputs). Counts, not times: a step costs the same whatever runs in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from island_engine.bench import geometry, report, worker
from island_engine.bench import plot as look
from island_engine.islands import ledger

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path

    from rich.progress import Progress
    from rich.table import Table

NAME = "admission"
HELP = "running requests that a pool sustains, retractions and recomputed tokens"
ARMS = ("lazy", "stock", "release", "islands")
SEED_OUTPUT = 16384  # of which the cases' outputs are parts


@dataclass(frozen=True)
class Case:
    """A load. `outputs`: shortest, longest generation, in parts of SEED_OUTPUT; `requests`, `steps`: of those given."""

    outputs: tuple[int, int] = (SEED_OUTPUT, SEED_OUTPUT)
    requests: float = 1.0
    steps: float = 1.0
    share: int = 1
    big: bool = True


BURST = Case()
MORE = {  # name: load, and which of the given ratios (first: roomiest)
    "churn": (Case(outputs=(500, 6000), requests=260 / 170, steps=0.75), 0),
    "full-bound": (Case(outputs=(500, 12000), big=False), 0),
    "shared": (Case(outputs=(500, 3000), share=4), -1),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Geometry and load."""
    geometry.add_arguments(parser)
    parser.add_argument(
        "--ratio", type=float, nargs="+", default=[0.17, 0.10, 0.05], metavar="R", help="SWA pool over full pool"
    )
    parser.add_argument(
        "--steps", type=geometry.positive, default=3000, metavar="N", help="scheduler steps of a burst (default 3000)"
    )
    parser.add_argument(
        "--requests", type=geometry.positive, default=170, metavar="N", help="requests in a burst (default 170)"
    )


def run(options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Every case on every arm."""
    size = geometry.given(options)
    cases = {f"{ratio:.2f}": (BURST, ratio) for ratio in options.ratio}
    cases |= {name: (case, options.ratio[which]) for name, (case, which) in MORE.items()}
    arms = worker.measure(
        options.arm, progress, NAME, measure, size, cases, options.requests, options.steps, not options.sync
    )
    least, chunk = size.window + size.page, ledger.smallest_chunk(size.chunk)
    for found in arms.values():
        for name, (_, ratio) in cases.items():
            found[name]["bound"] = max(0, size.swa(ratio) - chunk) // least
    more = {"requests": options.requests, "overlap": not options.sync, "cases": {k: r for k, (_, r) in cases.items()}}
    return report.result(NAME, size.as_json(**more), arms)


def measure(
    arm: str, size: geometry.Geometry, cases: dict[str, tuple[Case, float]], requests: int, steps: int, overlap: bool
) -> Iterator[float | dict[str, Any]]:
    """In the arm's process: one case after the other."""
    from island_engine.bench import workload

    found = {}
    for done, (name, (case, ratio)) in enumerate(cases.items()):
        shortest, longest = (max(1, size.output * part // SEED_OUTPUT) for part in case.outputs)
        burst = workload.Burst(
            int(requests * case.requests), int(steps * case.steps), shortest, longest, share=case.share
        )
        for item in workload.run(arm, size, burst, ratio, big=case.big, overlap=overlap):
            if isinstance(item, dict):
                found[name] = item
            else:
                yield (done + item) / len(cases)
    yield found


def table(result: dict[str, Any]) -> Table:
    """A row per case and arm."""
    size = result["geometry"]
    made = report.table(
        "Running requests that an SWA pool sustains",
        f"{size['requests']} requests of {size['prompt']:,} in, {size['output']:,} out at once; sustained: mean of the "
        "second half of the run. Bound: one window and a page each beside half a chunk in flight.",
        ["arm", "case", "r", "first", "sustained", "bound", "SWA retr.", "full retr.", "recomputed", "decoded/step"],
    )
    for name, ratio in size["cases"].items():
        for arm, found in result["arms"].items():
            one = found[name]
            share = one["recomputed"] / max(1, one["prefilled"])
            made.add_row(
                report.ARMS[arm].label,
                "burst" if name == f"{ratio:.2f}" else name,
                f"{ratio:.2f}",
                str(one["first"]),
                report.number(one["sustained"], 1),
                str(one["bound"]) if name != "full-bound" else "-",
                str(one["swa_retractions"]),
                str(one["full_retractions"]),
                f"{share:.1%}",
                report.number(one["decoded_per_step"], 1) + (" STUCK" if one["stuck"] else ""),
            )
        made.add_section()
    return made


def plot(result: dict[str, Any], path: Path) -> None:
    """Sustained requests per ratio, retractions written into the bars."""
    size, arms = result["geometry"], list(result["arms"])
    ratios = [name for name, ratio in size["cases"].items() if name == f"{ratio:.2f}"]
    title = "How many requests the SWA pool keeps running"
    if {"stock", "islands"} <= set(arms):
        ours, stock = (result["arms"][arm][ratios[0]]["sustained"] for arm in ("islands", "stock"))
        title = f"At r {ratios[0]}, {ours:.0f} requests keep running with islands, {stock:.0f} in stock"
    made, axes = look.figure(
        title,
        f"Burst of {size['requests']} requests ({size['prompt']:,} in, {size['output']:,} out), {size['tokens']:,} "
        "tokens at SWA ratio r; mean of the second half of the run.\nSGLang 0.5.23's admission, pools and retraction "
        "in process, no model, overlap scheduling. Full pool large: SWA binds.",
        columns=len(ratios),
        size=(11, 5.2),
    )
    for one, ratio in zip([axes] if len(ratios) == 1 else axes, ratios, strict=True):
        cells = [result["arms"][arm][ratio] for arm in arms]
        labels = [
            f"{cell['sustained']:.0f}" + (f"  ({cell['swa_retractions']} retracted)" if cell["swa_retractions"] else "")
            for cell in cells
        ]
        look.bars(one, arms, [cell["sustained"] for cell in cells], labels, room=0.75)
        one.axvline(cells[0]["bound"], color=look.INK, linewidth=1, linestyle=(0, (4, 3)), zorder=1.5)
        one.set_xlabel(f"running requests at r {ratio}", color=look.QUIET, fontsize=9)
        if one is not (axes if len(ratios) == 1 else axes[0]):
            one.set_yticklabels([])
    look.save(
        made, path, note="Dashed: what the pool holds at one window and a page each, beside half a chunk in flight."
    )
