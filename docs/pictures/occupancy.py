"""docs/img/occupancy.png: SWA slots that one request pins from its first token to its last, for each arm.

`make pictures` measures it on SGLang's own pools, trees and admission in process (bench.rig, no model) and draws
it. What was measured is docs/pictures/occupancy.json; a test compares it with the planner's formulas.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from island_engine import SGLANG_VERSION
from island_engine.bench import worker
from island_engine.bench.geometry import Geometry
from island_engine.picture import ARMS, GRID, INK, QUIET, figure, save

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).resolve().parents[1]
DATA, PICTURE = DOCS / "pictures/occupancy.json", DOCS / "img/occupancy.png"
SHOWN = ("lazy", "stock", "islands")
SIZE = Geometry(output=8192)  # two chunks of prompt, eight windows of output
EVERY = 16  # generated tokens between looks


def measure(arm: str, size: Geometry) -> Iterator[list[list[int]]]:
    """One request alone in a pool with room: [tokens computed, SWA tokens pinned]; overlap scheduling."""
    import numpy as np

    from island_engine.bench import workload

    room = size.prompt + size.output + 4 * size.chunk
    engine = workload.rig(arm, size, full=room, swa=room, rows=2, longest=size.output, overlap=True)
    [prompt] = workload.prompts(np.random.default_rng(1), 1, size.prompt)
    request = engine.add(prompt, size.output)
    points = []
    while not engine.finished:
        job = engine.step()
        if job is not None and request.kv.holds_kv and (not job.decode or len(request.output_ids) % EVERY == 0):
            points.append([int(request.kv.kv_allocated_len), int(engine.pinned_swa())])
    yield points


def draw(found: dict[str, Any], path: Path, tight: float) -> None:
    """Whole life on a log scale; the generation of stock and islands on a linear one. `tight`: when slots are short."""
    size, arms = found["geometry"], found["arms"]
    made, (left, right) = figure(
        f"A request pins one window with islands, two in stock {found['sglang']}, before 0.5.16 its last chunk",
        f"SWA tokens that one request of {size['prompt']:,} in and {size['output']:,} out pins, in a pool with room. "
        f"Window {size['window']:,}, page {size['page']}, chunk {size['chunk']:,}.",
        columns=2,
        size=(12.5, 5.2),
    )
    for axes, shown in ((left, SHOWN), (right, SHOWN[1:])):
        for arm in shown:
            xs, ys = zip(*([0, arms[arm][0][1]], *arms[arm]), strict=True)
            axes.plot(xs, ys, color=ARMS[arm].color, linewidth=2.2, drawstyle="steps-pre")
        axes.grid(axis="y", color=GRID, linewidth=0.8)
        axes.set_xlabel("tokens computed", fontsize=9.5, color=QUIET)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:.0f}k" if value else "0")
    end = size["prompt"] + size["output"]
    left.set_title("from the first token to the last (log scale)", fontsize=11.5, color=INK, loc="left", pad=10)
    left.set_yscale("log")
    left.set_ylim(700, 50_000)
    left.set_yticks([1024, 2048, 16384, 32768], ["window\n1,024", "twice", "chunk\n16,384", "prompt"])
    left.minorticks_off()
    left.axvspan(0, size["prompt"], color=GRID, alpha=0.35, linewidth=0)
    for middle, text in ((size["prompt"] / 2, "prefill"), ((size["prompt"] + end) / 2, "decode")):
        left.text(middle, 780, text, ha="center", color=QUIET, fontsize=9.5)
    right.set_title("while it generates, stock and islands", fontsize=11.5, color=INK, loc="left", pad=10)
    right.set_xlim(size["prompt"], end)
    right.set_ylim(0, 2600)
    right.set_yticks([0, 1024, 2048], ["0", "window\n1,024", "twice\n2,048"])
    right.axhline(tight, color=ARMS["islands"].color, linewidth=1.4, linestyle=(0, (2, 2)))
    left.text(600, 36_000, ARMS["lazy"].label, color=ARMS["lazy"].color, fontsize=11, fontweight="bold")
    for arm, at in (("stock", 2300), ("islands", 780)):
        generating = [held for tokens, held in arms[arm] if tokens > size["prompt"]]
        text = f"{ARMS[arm].label}: {sum(generating) / len(generating):,.0f} on average"
        right.text(end, at, text, color=ARMS[arm].color, fontsize=11, fontweight="bold", ha="right")
    more = (
        f"a second window while it moves off an island that it published;\nwhen slots are short, at most {tight:,.0f}"
    )
    right.text(end, 720, more, color=ARMS["islands"].color, fontsize=9.5, ha="right", va="top")
    save(
        made,
        path,
        note="make pictures: SGLang's pools, trees and admission in process, no model; docs/pictures/occupancy.json.",
    )


def main() -> None:
    """Measure, write what was measured, draw it."""
    arms = {}
    for arm in SHOWN:
        one = worker.Worker(arm, measure, SIZE)
        arms[arm] = one.next()
        one.close()
    found = {"bench": "occupancy", "sglang": SGLANG_VERSION, "geometry": SIZE.as_json(), "arms": arms}
    DATA.write_text(json.dumps(found) + "\n")
    tight = json.loads((DOCS / "bench/hold.json").read_text())["arms"]["islands"]["hold_max"]
    draw(found, PICTURE, tight)


if __name__ == "__main__":
    main()
