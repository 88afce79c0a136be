"""`bench overhead`: what islands cost the scheduler, in CPU time, paired with stock in one run.

Both arms run at once, each in its process, and take turns: a turn of one, the same turn of the other, so that what else
the machine does hits both. *Per step*: the same requests decode on both, and the difference of the arms' scheduler CPU
time per step is our code's, islands included. *Per operation*: while these decode, a prompt of one chunk is committed,
matched and evicted. Where slots lie idle islands cut such a chunk in four, each an insert, and evict as many nodes
more. That is no equal work, so rounds come in pairs: the chunk in one piece as in stock (insert, match, evict), then as
the arm does it (commit, evict all). A step of the model is a roofline model's, not measured.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

from island_engine.bench import geometry, report, worker
from island_engine.bench import plot as look
from island_engine.paced.profiles import PROFILES

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path

    from rich.progress import Progress
    from rich.table import Table

NAME = "overhead"
HELP = "scheduler CPU that islands cost, per step and per cache operation, paired with stock"
ARMS = ("stock", "islands")
PROFILE = PROFILES["gemma4-26b-h100-nospec"]
TURN = 32  # decode steps of a turn
OPERATIONS = ("insert_us", "match_us", "evict_us")  # of a chunk in one piece
CHUNK = ("commit_us", "evict_all_us")  # as the arm cuts it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Geometry and length."""
    geometry.add_arguments(parser)
    parser.add_argument(
        "--requests", type=geometry.positive, default=48, metavar="N", help="requests that decode (default 48)"
    )
    parser.add_argument("--ratio", type=float, default=0.17, metavar="R", help="SWA pool over full (default 0.17)")
    parser.add_argument(
        "--turns", type=geometry.positive, default=140, metavar="N", help=f"turns of {TURN} steps (default 140)"
    )
    parser.add_argument(
        "--rounds",
        type=geometry.positive,
        default=200,
        metavar="N",
        help="pairs of prompts committed and evicted (default 200)",
    )


def run(options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Both arms in turns."""
    size = geometry.given(options)
    bar = progress.add_task(NAME, total=options.turns + options.rounds)
    setting = (size, options.requests, options.ratio, options.turns, not options.sync)
    seen: dict[str, list[dict[str, float]]] = {arm: [] for arm in options.arm}
    with worker.workers(options.arm, measure, *setting) as started:
        for turn in range(options.turns + options.rounds):
            for arm in options.arm if turn % 2 else options.arm[::-1]:
                seen[arm].append(started[arm].next())
            progress.update(bar, advance=1)
    lengths = [size.prompt + options.turns * TURN // 2] * options.requests
    arms = {arm: _sum_up(found, 1e3 * PROFILE.roofline.decode(lengths)) for arm, found in seen.items()}
    for found in arms.values():
        found["ours_ms"] = round(max(0.0, found["cpu_ms"] - arms["stock"]["cpu_ms"]), 4) if "stock" in arms else None
    more = {"requests": options.requests, "ratio": options.ratio, "step_model": PROFILE.what}
    return report.result(NAME, size.as_json(overlap=not options.sync, **more), arms)


def _sum_up(found: list[dict[str, float]], step_ms: float) -> dict[str, Any]:
    """`step_ms`: a decode step of the model; `cpu_ms`: mean CPU time of the scheduler's part of a step."""
    steps = [one["step"] for one in found if "step" in one]
    times = {name: statistics.median(one[name] for one in found if name in one) for name in (*OPERATIONS, *CHUNK)}
    return {
        "step_ms": round(step_ms, 3),
        "cpu_ms": round(1e3 * statistics.fmean(steps), 4),
        **{name: round(1e6 * seconds, 1) for name, seconds in times.items()},
        "inserts_per_commit": statistics.fmean(one["inserts"] for one in found if "inserts" in one),
    }


def measure(
    arm: str, size: geometry.Geometry, requests: int, ratio: float, turns: int, overlap: bool
) -> Iterator[dict[str, float]]:
    """In the arm's process: turns of decode steps, then rounds of operations for as long as somebody asks."""
    import numpy as np

    from island_engine.bench import workload

    new = (turns + 2) * TURN + 2 * size.window
    full = requests * (size.prompt + new) + 8 * size.chunk
    engine = workload.rig(
        arm, size, full=full, swa=size.swa(ratio), rows=requests + 2, longest=new + size.prompt, overlap=overlap
    )
    rng = np.random.default_rng(7)
    for index, prompt in enumerate(workload.prompts(rng, requests, size.prompt)):
        engine.add(prompt, 2 * new, seed=index)
    while engine.waiting or engine.chunked:
        engine.step()
    for _ in range(2 * size.window):  # until the prompts' tails are left behind
        engine.step()
    for _ in range(turns):
        start = time.thread_time()
        for _ in range(TURN):
            engine.step()
        yield {"step": (time.thread_time() - start) / TURN}
    if len(engine.running) != requests:
        raise AssertionError(f"{arm}: {len(engine.running)} of {requests} run; --ratio {ratio} is too small for them")
    engine.evict_all()  # the only thing to evict is then the prompt of a round
    while True:
        whole = operations(engine, workload.prompts(rng, 1, size.chunk)[0], whole=True)
        usual = operations(engine, workload.prompts(rng, 1, size.chunk)[0], whole=False)
        yield {
            "insert_us": whole["commit"] / whole["inserts"],
            "match_us": whole["match"],
            "evict_us": whole["evict"],
            "commit_us": usual["commit"],
            "evict_all_us": usual["evict"],
            "inserts": usual["inserts"],
        }


def operations(engine: Any, prompt: Any, *, whole: bool) -> dict[str, float]:
    """A prompt of one chunk is committed, matched and evicted; seconds of CPU each. `whole`: without islands in it."""
    from sglang.srt.mem_cache.base_prefix_cache import EvictParams

    cache, spent, inserts, all_inserts = engine.cache, 0.0, 0, 0
    commit, insert, interval = cache.checkpoint, cache.insert, getattr(cache, "interval", None)
    req = engine.add(prompt, 2)

    def timed(one: Any, **kwargs: Any) -> None:
        nonlocal spent, inserts
        if one is not req:
            commit(one, **kwargs)
            return
        if whole and interval:
            cache.interval = len(prompt)
        before, start = all_inserts, time.thread_time()
        commit(one, **kwargs)
        spent += time.thread_time() - start
        inserts += all_inserts - before
        if interval:
            cache.interval = interval

    def counted(params: Any) -> Any:
        nonlocal all_inserts
        all_inserts += 1
        return insert(params)

    cache.checkpoint, cache.insert = timed, counted
    try:
        while not req.output_ids:
            engine.step()
    finally:
        del cache.checkpoint, cache.insert
    while not req.finished():
        engine.step()
    ids, unlocked = list(prompt), cache.full_evictable_size()
    start = time.thread_time()
    engine.hit(ids)
    match = time.thread_time() - start
    start = time.thread_time()
    cache.evict(EvictParams(num_tokens=unlocked, swa_num_tokens=0))
    evict = time.thread_time() - start
    if engine.hit(ids):
        raise AssertionError(f"a prompt of {len(ids)} tokens was evicted, and is still there")
    return {"commit": spent, "inserts": float(inserts), "match": match, "evict": evict}


def table(result: dict[str, Any]) -> Table:
    """A row per arm."""
    size = result["geometry"]
    made = report.table(
        "Scheduler CPU, both arms in turns",
        f"{size['requests']} requests decode at r {size['ratio']}. Ours: CPU per step beyond stock's. A model step "
        f"({size['step_model']}) is a roofline's. Insert, match, evict: a chunk of {size['chunk']:,} in one piece, "
        "equal work; commit, evict all: as the arm cuts it, with so many inserts.",
        [
            "arm",
            "CPU per step, ms",
            "ours, ms",
            "of a model step",
            "insert, us",
            "match, us",
            "evict, us",
            "commit, us",
            "evict all, us",
            "inserts",
        ],
    )
    for arm, found in result["arms"].items():
        ours = found["ours_ms"]
        made.add_row(
            report.ARMS[arm].label,
            report.number(found["cpu_ms"], 3),
            "-" if ours is None else report.number(ours, 3),
            "-" if ours is None else f"{ours / found['step_ms']:.2%}",
            *(report.number(found[name], 1) for name in (*OPERATIONS, *CHUNK)),
            report.number(found["inserts_per_commit"], 1),
        )
    return made


def plot(result: dict[str, Any], path: Path) -> None:
    """A step of the model with our part in it, and the operations."""
    size, arms = result["geometry"], result["arms"]
    ours = arms.get("islands", {}).get("ours_ms")
    step = next(iter(arms.values()))["step_ms"]
    title = "What islands cost the scheduler"
    if ours is not None:
        title = f"Islands cost {ours:.2f} ms of scheduler CPU in a {step:.0f} ms step ({ours / step:.1%})"
    made, axes = look.figure(
        title,
        f"{size['requests']} requests decode, stock 0.5.23 and islands in turns. A model step is a roofline model's "
        "(H100, no speculation).\nOperations: insert, match and eviction of a chunk in one piece, CPU time, median.",
        columns=2,
        size=(11, 4.8),
    )
    names = list(arms)
    cpu = [arms[arm]["cpu_ms"] for arm in names]
    look.bars(axes[0], names, cpu, [f"{value:.2f} ms" for value in cpu], room=0.35)
    axes[0].xaxis.set_major_formatter("{x:.1f}")
    axes[0].set_xlabel("scheduler CPU per decode step, ms", color=look.QUIET, fontsize=9)
    height = 0.8 / len(names)
    for index, arm in enumerate(names):
        values = [arms[arm][name] for name in OPERATIONS]
        at = [row + index * height for row in range(len(OPERATIONS))]
        drawn = axes[1].barh(at, values, height=height * 0.9, color=report.ARMS[arm].color)
        axes[1].bar_label(drawn, [f"{report.number(value)} us" for value in values], padding=4, fontsize=9)
    axes[1].set_yticks([row + 0.4 - height / 2 for row in range(len(OPERATIONS))], ["insert", "match", "evict"])
    axes[1].invert_yaxis()
    axes[1].grid(axis="x", color=look.GRID, linewidth=0.8)
    axes[1].margins(x=0.2)
    axes[1].set_xlabel("CPU time, us", color=look.QUIET, fontsize=9)
    look.save(made, path)
