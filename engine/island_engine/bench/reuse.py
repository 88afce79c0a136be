"""`bench reuse`: what of a generation that still runs others find in the cache, and what a retraction costs.

One request decodes in pools of plenty. Every now and then the tree is asked what a request that extends the transcript
so far would hit; at the end the request is retracted, without pressure, and admitted again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from island_engine.bench import geometry, report, worker
from island_engine.bench import plot as look

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path

    from rich.progress import Progress
    from rich.table import Table

NAME = "reuse"
HELP = "tokens of a running generation that others hit, and what a retraction recomputes"
ARMS = ("lazy", "stock", "release", "islands")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Geometry, and how far into the generation."""
    geometry.add_arguments(parser)
    parser.add_argument(
        "--decoded", type=geometry.positive, default=9000, metavar="N", help="tokens into the generation (default 9000)"
    )


def run(options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """On every arm."""
    size = geometry.given(options)
    arms = worker.measure(options.arm, progress, NAME, measure, size, options.decoded, not options.sync)
    return report.result(NAME, size.as_json(overlap=not options.sync), arms)


def measure(
    arm: str, size: geometry.Geometry, decoded: int, overlap: bool, looks: int = 90
) -> Iterator[float | dict[str, Any]]:
    """In the arm's process."""
    import numpy as np

    from island_engine.bench import workload

    room = 2 * (size.prompt + decoded) + 4 * size.chunk
    engine = workload.rig(arm, size, full=room, swa=room, rows=4, longest=2 * decoded, overlap=overlap)
    prompt = workload.prompts(np.random.default_rng(3), 1, size.prompt)[0]
    writer = engine.add(prompt, 2 * decoded)
    every = max(1, decoded // looks)
    curve = []
    while len(writer.output_ids) < decoded:
        engine.step()
        done = len(writer.output_ids)
        if done and done % every == 0:
            curve.append((done, engine.hit(engine.ids(writer))))
            yield done / decoded
    hit = engine.hit(engine.ids(writer))
    engine.retract(writer)
    before = engine.prefilled
    while writer not in engine.running:
        engine.step()
    recompute = engine.prefilled - before
    reader = engine.add(engine.ids(writer)[: size.prompt + decoded], 2, seed=2)  # both go on with the right books
    while not reader.finished():
        engine.step()
    engine.drain()
    yield {
        "hit_tokens": hit,
        "decoded_tokens": decoded,
        "recompute_after_retraction": recompute,
        "prompt_tokens": size.prompt,
        "curve": curve,
        "leaks": engine.leaks(),
    }


def table(result: dict[str, Any]) -> Table:
    """A row per arm."""
    size = result["geometry"]
    made = report.table(
        "Reuse of a generation that still runs",
        f"One request, {size['prompt']:,} in. Hit: what a request that extends the transcript so far finds in the "
        "cache. Recomputed: when the request is retracted there, without pressure, and admitted again.",
        ["arm", "generated", "hit", "of it generated", "recomputed after retraction"],
    )
    for arm, found in result["arms"].items():
        made.add_row(
            report.ARMS[arm].label,
            report.number(found["decoded_tokens"]),
            report.number(found["hit_tokens"]),
            report.number(max(0, found["hit_tokens"] - found["prompt_tokens"])),
            report.number(found["recompute_after_retraction"]),
        )
    return made


def plot(result: dict[str, Any], path: Path) -> None:
    """Hit over generated tokens; equal curves are drawn once."""
    size = result["geometry"]
    title = "What others find of a generation that still runs"
    if "islands" in result["arms"]:
        one = result["arms"]["islands"]
        reused = one["hit_tokens"] - one["prompt_tokens"]
        title = f"{one['decoded_tokens']:,} tokens into a generation, {reused:,} of them can be reused with islands"
    made, axes = look.figure(
        title,
        f"Tokens of a running generation that an extending request finds in the cache (prompt {size['prompt']:,}, "
        f"chunk {size['chunk']:,}).\nSGLang 0.5.23's pools and trees in process, no model, pools of plenty.",
    )
    curves: dict[tuple[Any, ...], list[str]] = {}
    for arm, found in result["arms"].items():
        curves.setdefault(tuple(map(tuple, found["curve"])), []).append(arm)
    for curve, arms in curves.items():
        made_of = [hit - size["prompt"] for _, hit in curve]
        done = [at for at, _ in curve]
        color = report.ARMS[arms[-1] if "stock" not in arms else "stock"].color
        axes.step(done, made_of, where="post", color=color, linewidth=2.2)
        axes.annotate(
            ", ".join(arms), (done[-1], made_of[-1]), (-4, 6), textcoords="offset points", ha="right", color=color,
            fontsize=11,
        )  # fmt: skip
    axes.plot(done, done, color=look.QUIET, linewidth=1, linestyle=(0, (4, 3)))
    axes.set_xlabel("tokens generated so far", color=look.QUIET, fontsize=9)
    axes.set_ylabel("generated tokens that an extension hits", color=look.QUIET, fontsize=9)
    axes.grid(color=look.GRID, linewidth=0.8)
    axes.set_xlim(0, done[-1] * 1.02)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    recomputed = ", ".join(
        f"{arm} {report.number(found['recompute_after_retraction'])}" for arm, found in result["arms"].items()
    )
    look.save(made, path, note=f"Dashed: everything generated. Recomputed after a retraction at the end: {recomputed}.")
