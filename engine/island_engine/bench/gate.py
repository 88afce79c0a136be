"""`bench gate`: does the gate cry wolf? Whole gates whose three boots are all stock, so that a FAIL is always wrong.

Each run boots its own three engines and draws its own prompts. Engines in turn: fp32, bf16 as it comes, bf16 with
--enable-deterministic-inference. Logprobs are compared too, bit for bit, so that the least difference is seen. With
islands off everywhere the best that a gate may say is INCONCLUSIVE Vacuous: every answer equal, which proves nothing.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from island_engine import gate, guards
from island_engine.bench import geometry, report
from island_engine.bench import plot as look
from island_engine.gate import arguments, model
from island_engine.gate import run as one_gate
from island_engine.gate.arms import SERVE, Arm
from island_engine.gate.probes import PROFILES
from island_engine.gate.report import Verdict
from island_engine.gate.settings import Settings

if TYPE_CHECKING:
    import argparse

    from rich.progress import Progress
    from rich.table import Table

NAME = "gate"
HELP = "whole gates on stock engines alone, which must never be FAIL"
ARMS = ("stock",)
ENGINES = {
    "fp32": ("--dtype", "float32"),
    "bf16": ("--dtype", "bfloat16"),
    "bf16, deterministic": ("--dtype", "bfloat16", "--enable-deterministic-inference"),
}
FLAGS = (
    *("--page-size", "64", "--chunked-prefill-size", "256", "--context-length", "4096", "--max-running-requests", "4"),
    *("--max-total-tokens", "8192", "--swa-full-tokens-ratio", "0.25"),
)
# Every class of `quick`, each with less of it: most of a run is its boots.
SHORT = replace(PROFILES["quick"], name="short", prompts=1, new_tokens=8, chunks=2, cuts=1, turns=1, churn=1)
EQUAL, DIFFERS, FAIL, ERROR = "every answer equal", "Nondeterminism", "FAIL", "other"
OUTCOMES = {EQUAL: "#2b7a4b", DIFFERS: "#b7791f", ERROR: "#59636e", FAIL: "#c1121f"}


class Stock(Arm):
    """An arm with islands off, whatever its name."""

    def command(self, port: int, serve: tuple[str, ...] = SERVE) -> tuple[str, ...]:
        """The process arguments, serving on loopback."""
        return replace(Arm(**vars(self)), name="off-A").command(port, serve)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How many, and of which model."""
    parser.add_argument("--model-path", required=True, help="folder of a hybrid model (`island-engine tiny-model`)")
    parser.add_argument("--runs", type=geometry.positive, default=50, metavar="N", help="whole gates (default 50)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the first run's prompts (default 0)")


def run(options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """See cli.Bench. Every run that ended is kept beside --json, so that an interrupted bench goes on there."""
    what = {
        "model": model.revision(Path(options.model_path)),
        "flags": FLAGS,
        "profile": asdict(SHORT),
        "code": _code(),
    }
    named = options.json is not None and options.json != Path("-")
    with tempfile.TemporaryDirectory() as folder:
        kept = options.json.with_suffix(".runs.jsonl") if named else Path(folder) / "runs.jsonl"
        kept.parent.mkdir(parents=True, exist_ok=True)
        done = _read(kept, what)
        bar = progress.add_task(NAME, total=options.runs)
        for index in range(options.runs):
            seed, engine = options.seed + index, list(ENGINES)[index % len(ENGINES)]
            label = f"run {index + 1} of {options.runs}, {engine}"
            if (seed, engine) not in done:
                done[seed, engine] = _one(options.model_path, engine, seed, Path(folder), label, progress)
                with kept.open("a", encoding="utf-8") as file:
                    file.write("\n" + json.dumps({"of": what, **done[seed, engine]}))  # after a half line, if need be
            progress.update(bar, description=label, completed=index + 1)
    wanted = [done[options.seed + i, list(ENGINES)[i % len(ENGINES)]] for i in range(options.runs)]
    shown = {"device": "cpu", "flags": list(FLAGS), "profile": asdict(SHORT), "seed": options.seed, "strict": True}
    return report.result(NAME, shown, {"stock": _counted(wanted)})


def _code() -> str:
    """A hash of the gate's own source: runs of another gate say nothing about this one."""
    sha = hashlib.sha256()
    for file in sorted(Path(gate.__file__).parent.glob("*.py")):
        sha.update(file.read_bytes())
    return sha.hexdigest()[:16]


def _read(kept: Path, what: dict[str, Any]) -> dict[tuple[int, str], dict[str, Any]]:
    """Runs of the same gate, model and flags that ended before. The last line may be half there: then it is no run."""
    found: dict[tuple[int, str], dict[str, Any]] = {}
    for line in kept.read_text(encoding="utf-8").splitlines() if kept.exists() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if row.pop("of") == json.loads(json.dumps(what)):
            found[row["seed"], row["engine"]] = row
    return found


def _one(path: str, engine: str, seed: int, folder: Path, label: str, progress: Progress) -> dict[str, Any]:
    """One gate. RefusedError when an engine failed: that is no run, and says nothing about the gate."""
    settings = Settings(
        engine_args=("--model-path", path, *ENGINES[engine], *FLAGS),
        report=folder / "report",
        profile=SHORT,
        seed=seed,
        decode_interval=64,
        strict=True,
        boot=Stock,
        say=lambda line: progress.console.print(f"{label}: {line}", highlight=False, soft_wrap=True),
    )
    arguments.check(settings.engine_args)
    summary = one_gate.execute(settings)
    if summary.verdict is Verdict.ERROR or summary.reason in ("Interrupted", "Deadline"):
        raise guards.RefusedError(f"{label}: {summary.reason}: {summary.message}; start it again to go on from here")
    told = json.loads((settings.report / "report.json").read_text())
    classes = [*told["classes"], *told["times"]["classes"]]
    return {
        "engine": engine,
        "seed": seed,
        "verdict": summary.verdict,
        "reason": summary.reason,
        "message": summary.message,
        "serves": sum(one["compared"] for one in classes),
        "tokens": sum(one["tokens"] for one in classes),
        "retractions": sum(one["retractions"] for one in classes),
        "seconds": summary.seconds,
    }


def outcome(row: dict[str, Any]) -> str:
    """What a run came to. Vacuous is the gate's last rule: who gets there has differed nowhere."""
    if row["verdict"] == Verdict.FAIL:
        return FAIL
    return {"Vacuous": EQUAL, DIFFERS: DIFFERS}.get(row["reason"], ERROR)


def _counted(rows: list[dict[str, Any]]) -> dict[str, Any]:
    engines = {}
    for engine in ENGINES:
        mine = [row for row in rows if row["engine"] == engine]
        came = Counter(outcome(row) for row in mine)
        sums = {key: sum(row[key] for row in mine) for key in ("serves", "tokens", "retractions")}
        engines[engine] = {"runs": len(mine), **sums, **{name: came[name] for name in OUTCOMES}}
    return {
        "runs": len(rows),
        "fails": sum(one[FAIL] for one in engines.values()),
        "passes": sum(row["verdict"] == Verdict.PASS for row in rows),
        "engines": engines,
        "each": rows,
    }


def table(result: dict[str, Any]) -> Table:
    """A row per engine."""
    found = result["arms"]["stock"]
    made = report.table(
        "Gates whose three boots are all stock, by what they said",
        "Any FAIL would be wrong. Every answer equal: no token and no bit of a logprob differed, which with islands\n"
        "off proves nothing and is told as INCONCLUSIVE Vacuous. Nondeterminism: two stock boots differed.",
        ["engine", "runs", "serves compared", "tokens", "retractions", *OUTCOMES],
    )
    for engine, one in found["engines"].items():
        counts = [one[key] for key in ("runs", "serves", "tokens", "retractions", *OUTCOMES)]
        made.add_row(engine, *(report.number(count) for count in counts))
    return made


def plot(result: dict[str, Any], path: Path) -> None:
    """Runs by engine, coloured by what they came to."""
    found = result["arms"]["stock"]
    made, axes = look.figure(
        f"{found['runs']} gates on stock engines: {found['fails']} FAIL",
        "Off, off and off again, each run with three boots and prompts of its own, tokens and logprobs compared.\n"
        "Islands change nothing here, so FAIL would be a false alarm.",
    )
    engines, left = list(found["engines"]), [0] * len(found["engines"])
    for name, color in OUTCOMES.items():
        counts = [one[name] for one in found["engines"].values()]
        drawn = axes.barh(engines, counts, left=left, color=color, height=0.62, label=f"{name} ({sum(counts)})")
        axes.bar_label(drawn, [str(count or "") for count in counts], label_type="center", color="white")
        left = [before + count for before, count in zip(left, counts, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("runs", color=look.QUIET, fontsize=9)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, -0.32), ncols=len(OUTCOMES), frameon=False, fontsize=9)
    look.save(made, path, note="SGLang 0.5.23 on the CPU, a tiny random Gemma 4.")
