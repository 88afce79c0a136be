"""The same load on really booted engines, one after the other: SGLang's own bench_serving drives `island-engine serve`.

This is the bench for a machine with a GPU: one command gives the table of that machine. On a CPU the tiny model shows
that it works and nothing about speed. What an engine does meanwhile is read off its /metrics.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from island_engine import guards
from island_engine.bench import plot as picture
from island_engine.bench import report
from island_engine.bench.sim.setting import SWITCHES
from island_engine.gate import arguments
from island_engine.gate import arms as boots
from island_engine.gate.outcome import Conclude

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator

    from rich.progress import Progress
    from rich.table import Table

NAME = "serving"
HELP = "SGLang's own bench_serving on really booted engines, one arm after the other"
ARMS = ("lazy", "stock", "release", "unified", "islands", "islands-unified")
SAMPLE_SECONDS = 0.5
# What is read off /metrics, and under which name the result keeps it.
RUNNING, FULL, SWA = "sglang:num_running_reqs", "sglang:full_token_usage", "sglang:swa_token_usage"
RETRACTED = "sglang:num_retracted_requests_total"


@dataclass(frozen=True)
class Boot(boots.Arm):
    """One arm's process; where the gate knows on and off, this knows every arm."""

    def command(self, port: int, serve: tuple[str, ...] = boots.SERVE) -> tuple[str, ...]:
        """See gate.arms.Arm."""
        switch = SWITCHES[self.name]
        address = ("--host", "127.0.0.1", "--port", str(port))
        return (*serve, "--islands", switch.islands, *self.engine_args, *switch.flags, *address)


@dataclass
class Samples:
    """An engine's gauges while it is under load."""

    running: list[float] = field(default_factory=list)
    full: list[float] = field(default_factory=list)
    swa: list[float] = field(default_factory=list)
    retracted: float = 0.0

    def add(self, metrics: str) -> None:
        """Take one page of /metrics."""
        self.running.append(metric(metrics, RUNNING))
        self.full.append(metric(metrics, FULL))
        self.swa.append(metric(metrics, SWA))
        self.retracted = metric(metrics, RETRACTED)

    def report(self, load: dict[str, Any], *, simulated: bool) -> dict[str, Any]:
        """The result of an arm; `load`: what bench_serving wrote."""
        busy = [value for value in self.running if value] or [0.0]
        return {
            "running_mean": round(statistics.mean(busy), 2),
            "running_max": int(max(busy)),
            "retractions": int(self.retracted),
            "output_tokens_per_s": round(load["output_throughput"], 1),
            "latency_mean_s": round(load["mean_e2e_latency_ms"] / 1e3, 3),
            "ttft_mean_s": round(load["mean_ttft_ms"] / 1e3, 3),
            "full_peak": round(max(self.full, default=0.0), 4),
            "swa_peak": round(max(self.swa, default=0.0), 4),
            "completed": load["completed"],
            "duration_s": round(load["duration"], 1),
            "simulated": simulated,
        }


def metric(page: str, name: str) -> float:
    """The sum of a metric's samples on a Prometheus page; 0 without one."""
    found = re.findall(rf"^{re.escape(name)}(?:\{{.*\}})? (\S+)$", page, re.MULTILINE)
    return sum(float(value) for value in found)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The engine, the load, and what an arm has for itself."""
    parser.add_argument("--model-path", required=True, help="folder or hub name of the model")
    parser.add_argument("--pool", nargs=2, default=("0.17", "980000"), metavar=("RATIO", "TOKENS"), help=(
        "--swa-full-tokens-ratio and --max-total-tokens of every arm (default: 0.17 980000)"
    ))  # fmt: skip
    parser.add_argument("--pool-of", nargs=3, action="append", default=[], metavar=("ARM", "RATIO", "TOKENS"), help=(
        "other pools for one arm; may be repeated (the seed's arm A: lazy 0.32 740000)"
    ))  # fmt: skip
    parser.add_argument("--num-prompts", type=int, default=96, help="requests (default: 96)")
    parser.add_argument("--input-len", type=int, default=32_768, help="longest prompt, tokens (default: 32768)")
    parser.add_argument("--output-len", type=int, default=16_384, help="longest answer, tokens (default: 16384)")
    parser.add_argument("--range-ratio", type=float, default=0.0, help="shortest over longest (default: 0)")
    parser.add_argument("--max-concurrency", type=int, help="requests outstanding at a time (default: all at once)")
    parser.add_argument("--seed", type=int, default=1, help="of the lengths and prompts (default: 1)")
    parser.add_argument("--logs", type=Path, help="folder for the engines' logs (default: a temporary one)")
    parser.add_argument("engine", nargs="*", metavar="-- ENGINE FLAG", help="further flags of every engine, after --")


def engine_args(options: argparse.Namespace, arm: str) -> tuple[str, ...]:
    """The flags of one arm's engine, but for the switch."""
    ratio, tokens = next((pool for name, *pool in reversed(options.pool_of) if name == arm), options.pool)
    flags = ("--model-path", options.model_path, "--swa-full-tokens-ratio", ratio, "--max-total-tokens", tokens)
    return arguments.with_metrics((*flags, *options.engine))


def load_command(options: argparse.Namespace, port: int, output: Path) -> list[str]:
    """SGLang's bench_serving with this load; prompts are sent as ids, so that lengths are exact."""
    flags: dict[str, object] = {
        "--backend": "sglang",
        "--base-url": f"http://127.0.0.1:{port}",
        "--dataset-name": "random-ids",
        "--num-prompts": options.num_prompts,
        "--random-input-len": options.input_len,
        "--random-output-len": options.output_len,
        "--random-range-ratio": options.range_ratio,
        "--seed": options.seed,
        "--output-file": output,
    }
    if options.max_concurrency:
        flags["--max-concurrency"] = options.max_concurrency
    switches = ["--tokenize-prompt", "--disable-tqdm", "--flush-cache"]
    pairs = [str(part) for pair in flags.items() for part in pair]
    return [sys.executable, "-m", "island_engine.bench.load", *pairs, *switches]


def run(options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """See cli.Bench."""
    for name, *_ in options.pool_of:
        if name not in ARMS:
            raise guards.RefusedError(f"--pool-of {name}: use an arm of {', '.join(ARMS)}")
    try:
        arguments.check(engine_args(options, "stock"))
    except arguments.BadArgumentsError as refused:
        raise guards.RefusedError(str(refused)) from None
    bar = progress.add_task("serving", total=len(options.arm))
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for arm in options.arm:
            progress.update(bar, description=f"serving, {arm}")
            try:
                found[arm] = measure(options, arm, options.logs or Path(folder))
            except Conclude as ended:
                raise guards.RefusedError(f"arm {arm}: {ended.message}") from None
            progress.advance(bar)
    geometry = {
        "model": options.model_path,
        "device": next(iter(found.values())).pop("device"),
        "pools": {arm: engine_args(options, arm)[3:6:2] for arm in options.arm},
        "num_prompts": options.num_prompts,
        "input_len": options.input_len,
        "output_len": options.output_len,
        "range_ratio": options.range_ratio,
        "max_concurrency": options.max_concurrency,
        "seed": options.seed,
        "engine": list(arguments.redacted(tuple(options.engine))),
    }
    for values in found.values():
        values.pop("device", None)
    return report.result(NAME, geometry, found)


def measure(options: argparse.Namespace, arm: str, folder: Path) -> dict[str, Any]:
    """Boot one arm, put it under load, read its gauges meanwhile. Conclude when the engine fails."""
    folder.mkdir(parents=True, exist_ok=True)
    boot = Boot(arm, engine_args(options, arm), env=SWITCHES[arm].env)
    output, log = folder / f"{arm}.jsonl", folder / f"load-{arm}.log"
    output.unlink(missing_ok=True)
    with log.open("wb") as said:
        engine = boots.Engine(boot, folder / f"engine-{arm}.log")
        failed, samples, device = asyncio.run(_drive(engine, options, output, said))
    if failed or not output.is_file():
        raise guards.RefusedError(f"bench_serving failed on arm {arm}: {boots.last_words(log.read_text())}")
    wrote = json.loads(output.read_text().splitlines()[-1])
    return {**samples.report(wrote, simulated=arguments.paced(boot.engine_args)), "device": device}


async def _drive(
    engine: boots.Engine, options: argparse.Namespace, output: Path, said: IO[bytes]
) -> tuple[int | None, Samples, str]:
    """bench_serving's exit code, the engine's gauges and its device."""
    samples = Samples()
    async with engine:
        info = await engine.alive(engine.client.server_info())
        load = await asyncio.create_subprocess_exec(
            *load_command(options, engine.port, output),
            stdout=said,
            stderr=said,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        try:
            async for page in pages(engine, load):
                samples.add(page)
        finally:
            if load.returncode is None:
                load.kill()
                await load.wait()
    return load.returncode, samples, str(info.get("device"))


async def pages(engine: boots.Engine, load: asyncio.subprocess.Process) -> AsyncIterator[str]:
    """/metrics of the engine until the load has ended."""
    ended = asyncio.create_task(load.wait())
    while not ended.done():
        yield await engine.alive(engine.client.metrics())
        await asyncio.wait({ended}, timeout=SAMPLE_SECONDS)
    yield await engine.alive(engine.client.metrics())


def table(result: dict[str, Any]) -> Table:
    """See cli.Bench."""
    geometry = result["geometry"]
    caption = (
        f"{geometry['num_prompts']} requests, U({geometry['range_ratio']:g}, 1) of {geometry['input_len']} tokens in "
        f"and {geometry['output_len']} out, on {geometry['device']}; model {geometry['model']}."
    )
    columns = ["arm", "pool", "running", "max", "retracted", "tokens/s", "E2E s", "TTFT s", "full", "SWA"]
    made = report.table("bench_serving on real engines", caption, columns)
    for arm, one in result["arms"].items():
        made.add_row(
            report.ARMS[arm].label,
            "r {}, {}".format(*geometry["pools"][arm]),
            report.number(one["running_mean"], 1),
            report.number(one["running_max"]),
            report.number(one["retractions"]),
            report.number(one["output_tokens_per_s"], 1),
            report.number(one["latency_mean_s"], 2),
            report.number(one["ttft_mean_s"], 2),
            f"{one['full_peak']:.0%}",
            f"{one['swa_peak']:.0%}",
        )
    return made


def plot(result: dict[str, Any], path: Path) -> None:
    """See cli.Bench: throughput, latency and running requests of each arm."""
    geometry, arms = result["geometry"], list(result["arms"])
    figure, panels = picture.figure(
        "bench_serving on real engines",
        f"{geometry['num_prompts']} requests of up to {geometry['input_len']} tokens in and {geometry['output_len']} "
        f"out, {Path(geometry['model']).name} on {geometry['device']}",
        columns=3,
        size=(13.2, 4.6),
    )
    shown = (("output_tokens_per_s", "output tokens/s", 0), ("latency_mean_s", "mean latency, s", 2))
    for axes, (key, label, digits) in zip(panels, (*shown, ("running_mean", "running requests, mean", 1)), strict=True):
        values = [float(result["arms"][arm][key]) for arm in arms]
        picture.bars(axes, arms, values, [report.number(value, digits) for value in values])
        axes.set_xlabel(label, color=picture.QUIET)
    for axes in panels[1:]:
        axes.set_yticklabels([])
    picture.save(figure, path)
