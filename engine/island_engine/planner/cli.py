"""`island-engine plan`: what a model, a GPU's bytes and a workload make of the two pools. No cluster, no GPU."""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from island_engine import drafts
from island_engine.planner import check, geometry, render, workload
from island_engine.planner.errors import PlanError
from island_engine.planner.plan import Plan
from island_engine.sizing import Serving

if TYPE_CHECKING:
    from collections.abc import Callable

    from island_engine.planner.geometry import Model
    from island_engine.planner.workload import Workload

HELP = "how to split the KV pools for a model and a workload, and what islands bring"
EXAMPLE = """example:
  island-engine plan --model ~/models/gemma-4-26B-A4B-it --kv-dtype fp8_e4m3 --kv-bytes 37e9 --isl 16384 --osl 8192

The bytes for KV are what is left on the GPU beside weights and graphs: boot SGLang once with your flags, give its log:
  island-engine plan --model DIR --check boot.log"""
WIDTH = 120  # of text that does not go to a terminal
_UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_ENGINE = {"page_size": 64, "chunked_prefill_size": 16384, "running": 48}
_SPECULATION = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `plan` to the command line."""
    parser = commands.add_parser(
        "plan",
        help=HELP,
        description=HELP[0].upper() + HELP[1:] + ".",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    model = parser.add_argument_group("model").add_argument
    model("--model", metavar="DIR", help="folder of a Hugging Face model, or its config.json")
    model("--geometry", metavar="FILE", help="instead: `geometry` of an InferenceService as JSON")
    model(
        "--kv-dtype",
        default="auto",
        metavar="TYPE",
        help=f"of {', '.join(geometry.DTYPES)} (default: auto, the model's)",
    )
    model("--tp-size", default="1", metavar="N", help="GPUs that share the KV heads (default: 1)")
    model(
        "--draft-bytes-per-token", default="0", metavar="N", help="KV bytes of a speculative draft model (default: 0)"
    )
    model("--kv-bytes", metavar="N", help="bytes for KV on one GPU, such as 37e9 or 34.5GiB")
    add_workload(parser)
    engine = parser.add_argument_group("engine").add_argument
    engine("--running", metavar="N", help="--max-running-requests of the engine (default: 48)")
    engine("--chunked-prefill-size", metavar="N", help="tokens per prefill chunk (default: 16384)")
    engine("--page-size", metavar="N", help="tokens per KV page (default: 64)")
    engine(
        "--speculative-algorithm", metavar="NAME", help="as you give it to SGLang, with what follows (default: none)"
    )
    engine("--speculative-num-steps", metavar="N", help="draft steps")
    engine("--speculative-eagle-topk", metavar="N", help="branches; above 1 each reserves whole pages of every request")
    engine("--speculative-num-draft-tokens", metavar="N", help="drafts that are verified at once")
    shown = parser.add_argument_group("what to show").add_argument
    shown("--ratio", metavar="R", help="also what this SWA ratio would run, above 0 and at most 1")
    shown(
        "--check",
        metavar="LOG|URL",
        help="compare with the log of a boot, or a running engine; exit code 1 if they differ",
    )
    shown("--json", nargs="?", const="-", metavar="FILE", help="the plan as JSON: printed, or written to a file")
    shown("--plot", metavar="FILE.png", help="draw capacity, the binding pool, and what a request holds")


def add_workload(parser: argparse.ArgumentParser) -> None:
    """The flags that describe who asks what; `kubectl island plan` has them too."""
    asked = parser.add_argument_group("workload").add_argument
    asked("--isl", metavar="N", help="mean prompt, tokens")
    asked("--osl", metavar="N", help="mean output, tokens")
    asked("--requests", metavar="FILE", help="instead of both: a request log, one JSON object a line")
    asked("--concurrency", metavar="N", help="most requests outstanding at a time (default: always one more)")
    asked(
        "--prefix-reuse",
        metavar="SHARE",
        help="share of the prompts' tokens that were sent before, 0 to 1 (default: 0)",
    )
    asked("--shared-prefix", default="0", metavar="N", help="tokens of a prefix that all requests share (default: 0)")


def run(options: argparse.Namespace, program: str = "island-engine") -> int:
    """Plan, then print, write and draw; the exit code. `program` is who refuses."""
    try:
        return _run(options)
    except PlanError as refused:
        print(f"{program}: {refused}", file=sys.stderr)
        return 2


def read_workload(options: argparse.Namespace) -> Workload | None:
    """The workload of the flags; None when they name none. PlanError names the flag and the value to use."""
    reuse = _number(options, "prefix_reuse", _share, "a share from 0 to 1, such as 0.8")
    shared = int(_number(options, "shared_prefix", _whole(0), "a number of tokens") or 0)
    concurrency = _number(options, "concurrency", _whole(1), "a positive number of requests")
    more = {"shared": shared, "concurrency": int(concurrency) if concurrency else None}
    isl, osl = (_number(options, flag, _positive, "a positive number of tokens") for flag in ("isl", "osl"))
    if options.requests:
        if isl or osl:
            raise PlanError(f"--{'isl' if isl else 'osl'} with --requests: drop one, the log has lengths of its own")
        found = workload.of_log(Path(options.requests), reuse, **more)
    elif isl and osl:
        found = workload.of_means(isl, osl, reuse=reuse or 0.0, **more)
    elif isl or osl:
        raise PlanError(f"--{'isl' if isl else 'osl'} alone says too little: give --{'osl' if isl else 'isl'} too")
    elif given := [flag for flag in ("--prefix-reuse", "--shared-prefix", "--concurrency") if _given(options, flag)]:
        raise PlanError(f"{given[0]} describes a workload: give its --isl and --osl, or --requests")
    else:
        return None
    if shared >= found.isl:
        raise PlanError(f"--shared-prefix {shared} is not below the mean prompt of {found.isl:,.0f}: use less")
    return found


def _given(options: argparse.Namespace, flag: str) -> bool:
    return getattr(options, flag[2:].replace("-", "_")) not in {None, "0"}


def _run(options: argparse.Namespace) -> int:
    _check_outputs(options)
    ratio = _number(options, "ratio", _ratio, "a ratio above 0 and at most 1, such as 0.17")
    model = _model(options)
    asked = read_workload(options)
    if options.plot and asked is None:
        raise PlanError("--plot draws what a workload runs: give --isl and --osl, or --requests")
    said = {flag: _number(options, flag, _whole(1), "a positive whole number") for flag in _ENGINE}
    budget = _number(options, "kv_bytes", _bytes, "a number of bytes, such as 37e9 or 34.5GiB")
    engine = check.read(options.check) if options.check else None
    own = (
        {"page_size": engine.page, "chunked_prefill_size": engine.chunk, "running": engine.running}
        if engine
        else _ENGINE
    )
    page, chunk, running = (int(said[flag] or own[flag]) for flag in _ENGINE)
    ahead = (_drafts(options) or (engine.drafts if engine else drafts.NONE)).ahead(page)
    if chunk % page:
        raise PlanError(
            f"--chunked-prefill-size {chunk} is not a multiple of --page-size {page}: use {-(-chunk // page) * page}"
        )
    known = budget or model.budget
    budget = known or (engine.budget(model.cost) if engine else None)
    if budget is None:
        raise PlanError("--kv-bytes is missing: give the bytes for KV, such as 37e9, or --check with the log of a boot")
    plan = Plan(model, Serving(page, chunk, running, ahead), int(budget), asked)
    rows = check.compare(plan, engine, own_budget=known is None) if engine else []
    _output(plan, options, ratio, rows)
    return 0 if all(row.agrees for row in rows) else 1


def _drafts(options: argparse.Namespace) -> drafts.Drafts | None:
    """What the flags say of speculation; None where they say nothing."""
    numbers = {flag: _number(options, flag, _whole(1), "a positive whole number") for flag in _SPECULATION}
    if options.speculative_algorithm:
        return drafts.of_fields({"speculative_algorithm": options.speculative_algorithm, **numbers})
    if given := [flag for flag, value in numbers.items() if value]:
        raise PlanError(f"--{given[0].replace('_', '-')} needs --speculative-algorithm, such as EAGLE: give both")
    return None


def _output(plan: Plan, options: argparse.Namespace, ratio: float | None, rows: list[check.Row]) -> None:
    said = render.as_json(plan, ratio) | ({"check": [vars(row) for row in rows]} if rows else {})
    if options.json == "-":
        print(json.dumps(said, indent=1))
    else:
        from rich.console import Console

        render.show(plan, Console(width=None if sys.stdout.isatty() else WIDTH), ratio, rows)
    if options.plot:
        from island_engine.planner import plot

        plot.draw(plan, Path(options.plot))
    if options.json and options.json != "-":
        Path(options.json).write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")


def _check_outputs(options: argparse.Namespace) -> None:
    needed = [] if options.json == "-" else ["rich"]
    for name in [*needed, *(["matplotlib"] if options.plot else [])]:
        if importlib.util.find_spec(name) is None:
            raise PlanError(f"{name} is not installed: install radix-islands[report], or use --json alone")
    if options.plot and not options.plot.endswith(".png"):
        raise PlanError(f"--plot {options.plot}: give a file that ends in .png")
    for flag, path in (("--json", options.json), ("--plot", options.plot)):
        if path and path != "-" and not Path(path).parent.is_dir():
            raise PlanError(f"{flag} {path}: its folder does not exist; make it first")
        if path and path != "-" and Path(path).is_dir():
            raise PlanError(f"{flag} {path}: is a folder; give a file in it")


def _model(options: argparse.Namespace) -> Model:
    if bool(options.model) == bool(options.geometry):
        both = "both are given" if options.model else "neither is given"
        raise PlanError(f"--model or --geometry: {both}; use one of them")
    draft = int(_number(options, "draft_bytes_per_token", _whole(0), "a number of bytes, 0 without a draft model") or 0)
    tp = int(_number(options, "tp_size", _whole(1), "a positive number of GPUs") or 1)
    if options.model:
        return geometry.from_config(Path(options.model).expanduser(), options.kv_dtype, tp, draft)
    for flag in ("kv_dtype", "tp_size", "draft_bytes_per_token"):
        if getattr(options, flag) not in {"auto", "0", "1"}:
            raise PlanError(f"--{flag.replace('_', '-')} with --geometry: drop it, the file says what a token costs")
    return geometry.from_file(Path(options.geometry).expanduser())


def _number(options: argparse.Namespace, name: str, read: Callable[[str], float | None], use: str) -> float | None:
    """A flag's value; None when it is not given. PlanError when it cannot be read."""
    text = getattr(options, name)
    if text is None:
        return None
    try:
        value = read(text)
    except ValueError:
        value = None
    if value is None:
        raise PlanError(f"--{name.replace('_', '-')} {text}: use {use}")
    return value


def _whole(least: int) -> Callable[[str], float | None]:
    return lambda text: value if (value := int(text.replace(",", "").replace("_", ""))) >= least else None


def _positive(text: str) -> float | None:
    return value if 0 < (value := float(text.replace(",", ""))) < 1e9 else None


def _share(text: str) -> float | None:
    return value if 0 <= (value := float(text)) <= 1 else None


def _ratio(text: str) -> float | None:
    return value if 0 < (value := float(text)) <= 1 else None


def _bytes(text: str) -> float | None:
    """37e9, 37GB, 34.5GiB."""
    match = re.fullmatch(r"([\d.,_]+(?:e\d+)?) ?([kmgt]?i?)b?", text.strip().lower())
    if match is None or match[2] not in _UNITS:
        return None
    return value if (value := float(re.sub("[,_]", "", match[1])) * _UNITS[match[2]]) >= 1 else None
