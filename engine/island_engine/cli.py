"""island-engine: serve, gate, bench, tiny-model."""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from pathlib import Path

from island_engine import SGLANG_VERSION, guards, launch
from island_engine.bench import cli as bench
from island_engine.gate import cli as gate


def parser() -> argparse.ArgumentParser:
    """The whole command line. Imports neither torch nor sglang."""
    top = argparse.ArgumentParser(
        prog="island-engine",
        description="SGLang with islands: serve a model, prove that islands change no byte, measure what they bring.",
        epilog="example: island-engine serve --islands on --model-path DIR --swa-full-tokens-ratio 0.17 "
        "--max-total-tokens 980000",
        allow_abbrev=False,
    )
    version = f"radix-islands {importlib.metadata.version('radix-islands')} for sglang {SGLANG_VERSION}"
    top.add_argument("--version", action="version", version=version)
    subparsers = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    launch.add_parser(subparsers)
    gate.add_parser(subparsers)
    bench.add_parser(subparsers)
    tiny = subparsers.add_parser(
        "tiny-model",
        help="make a tiny random Gemma 4 for tests and demos",
        epilog="example: island-engine tiny-model build/tiny-gemma",
    )
    tiny.add_argument("directory", type=Path, help="folder to make; left alone when it already holds the model")
    return top


def main(argv: list[str] | None = None) -> int:
    """Run one command; 2 and one sentence on bad input."""
    given = sys.argv[1:] if argv is None else argv
    try:
        if given[:1] == ["serve"]:
            options, rest = parser().parse_known_args(given)
            return launch.run(options, rest)
        options = parser().parse_args(given)
        if options.command == "tiny-model":
            from island_engine import tiny_model

            return tiny_model.make(options.directory)
        if options.command == "bench":
            return bench.run(options)
        return gate.run(options)
    except guards.RefusedError as refused:
        return launch.fail(refused.sentence)
