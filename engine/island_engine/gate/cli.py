"""`island-engine gate`: prove that islands change no answer before they serve."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from island_engine.gate import arguments, artifacts, table
from island_engine.gate import run as one_gate
from island_engine.gate.probes import PROFILES
from island_engine.gate.settings import Settings
from island_engine.islands.mutations import TABLE

if TYPE_CHECKING:
    from island_engine.gate.report import Summary

KUBERNETES_LOG = Path("/dev/termination-log")  # the kubelet mounts it; nobody else has it

DESCRIPTION = """Boots the same engine arguments three times (islands off, on, off) and demands equal answers at
temperature 0 from cold serves, cache hits, boundary lengths and extensions of generated text."""
EPILOG = """exit codes: 0 PASS, 10 FAIL, 11 INCONCLUSIVE, 12 ERROR, 2 bad arguments; with --self-test 0 means that
every planted fault was caught or is proved harmless.

example:
  island-engine gate --profile quick --report build/gate -- --model-path /models/tiny-gemma --dtype float32 \\
    --page-size 64 --chunked-prefill-size 512 --max-total-tokens 19968 --swa-full-tokens-ratio 0.15"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add the gate's command line to `island-engine`."""
    parser = commands.add_parser(
        "gate",
        help="prove that islands change no answer: off, on, off again, equal byte for byte",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        usage="island-engine gate [options] --report DIR -- ENGINE_ARGUMENTS...",
    )
    parser.add_argument(
        "--profile", choices=sorted(PROFILES), default="quick", help="how much is asked (default quick)"
    )
    parser.add_argument("--report", type=Path, required=True, metavar="DIR", help="where report.json and logs go")
    parser.add_argument(
        "--self-test", action="store_true", help="plant every known fault in turn and demand that each is seen"
    )
    parser.add_argument(
        "--mutation",
        action="append",
        choices=TABLE,
        metavar="NAME",
        help="only this fault of the self-test; repeatable",
    )
    parser.add_argument(
        "--island-decode-interval", type=_positive, metavar="N", help="tokens between decode islands, as in serve"
    )
    parser.add_argument("--deadline", type=_positive, default=1_800, metavar="SECONDS", help="give up (default 1800)")
    parser.add_argument(
        "--termination-log", type=Path, metavar="PATH", help=f"short JSON verdict (default {KUBERNETES_LOG} in a pod)"
    )
    parser.add_argument("--strict", action="store_true", help="compare the 8 likeliest logprobs too, bit for bit")
    parser.add_argument("--prompts", type=Path, metavar="FILE", help="your own prompts, one a line, asked as well")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the prompts (default 0)")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")
    parser.add_argument("engine_args", nargs="*", metavar="ENGINE_ARGUMENTS", help="after --: verbatim, without switch")
    return parser


def run(options: argparse.Namespace) -> int:
    """Run the gate that the command line asks for; the exit code."""
    engine_args = tuple(options.engine_args)
    log = options.termination_log or (KUBERNETES_LOG if KUBERNETES_LOG.exists() else None)
    settings = Settings(
        engine_args=engine_args,
        report=options.report,
        profile=PROFILES[options.profile],
        seed=options.seed,
        deadline=float(options.deadline),
        decode_interval=options.island_decode_interval,
        self_test=options.self_test,
        mutations=tuple(options.mutation or ()),
        strict=options.strict,
        prompts=options.prompts,
        termination_log=log,
    )
    try:
        if log is not None:
            log.write_text("")  # no earlier verdict may be read as this one's, however this one ends
        arguments.check(engine_args)
        summary = one_gate.execute(settings)
    except arguments.BadArgumentsError as refused:
        return _refuse(str(refused))
    except OSError as fault:
        return _refuse(f"--report or --termination-log: {fault}")
    _tell(summary, settings, as_json=options.json)
    if log is not None and not options.json:
        _repeat(settings.report / artifacts.REPORT)
    return 0 if summary.reason == one_gate.SELF_TESTED else summary.verdict.exit_code


def _refuse(sentence: str) -> int:
    """Exit 2 goes without a report; in a pod the kubelet then keeps this last line instead."""
    print(f"island-engine gate: {sentence}", file=sys.stderr)
    return 2


def _tell(summary: Summary, settings: Settings, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(asdict(summary)))
        return
    print(f"{summary.verdict} {summary.reason}: {summary.message}")
    print(f"{summary.probes} serves, {summary.tokens} tokens compared in {summary.seconds:.0f} s")
    print(f"{settings.report / artifacts.REPORT}  {summary.fingerprint}")
    if settings.self_test and (settings.report / artifacts.REPORT).exists():
        rows = json.loads((settings.report / artifacts.REPORT).read_text())["mutations"]
        print("\n".join(table.lines(rows)))


def _repeat(report: Path) -> None:
    """The whole report as one line: of a pod nothing but its log outlives it, and the operator keeps that."""
    if report.exists():
        print(json.dumps(json.loads(report.read_text()), separators=(",", ":")))


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)
