"""island-engine: serve, gate, bench, plan, tiny-model."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from island_engine import SGLANG_VERSION
from island_engine.commandline import Parser, piped

if TYPE_CHECKING:
    import argparse

# Only the module of the command that is asked for is imported: `plan` answers in a fifth of the time of all of them.
MODULES = {
    "serve": "island_engine.launch",
    "gate": "island_engine.gate.cli",
    "bench": "island_engine.bench.cli",
    "plan": "island_engine.planner.cli",
}


def parser(command: str | None = None) -> argparse.ArgumentParser:
    """The command line, whole or of one command. Imports neither torch nor sglang."""
    top = Parser(
        prog="island-engine",
        description="SGLang with islands: plan its pools, serve a model, prove that islands change no byte, measure "
        "what they bring.",
        epilog="example: island-engine serve --islands on --model-path DIR --swa-full-tokens-ratio 0.17 "
        "--max-total-tokens 980000",
        allow_abbrev=False,
    )
    version = f"radix-islands {importlib.metadata.version('radix-islands')} for sglang {SGLANG_VERSION}"
    top.add_argument("--version", action="version", version=version)
    subparsers = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in MODULES.items():
        if command in {name, None}:
            importlib.import_module(module).add_parser(subparsers)
    tiny = subparsers.add_parser(
        "tiny-model",
        help="make a tiny random Gemma 4 for tests and demos",
        epilog="example: island-engine tiny-model build/tiny-gemma",
    )
    tiny.add_argument("directory", type=Path, help="folder to make; left alone when it already holds the model")
    return top


def main(argv: list[str] | None = None) -> int:
    """Run one command; 2 and one sentence on bad input."""
    return piped(lambda: _main(sys.argv[1:] if argv is None else argv))


def _main(given: list[str]) -> int:
    command = given[0] if given and given[0] in MODULES else None
    read = parser(command)
    if command == "plan":  # it refuses by itself and has nothing of the engine in its way
        from island_engine.planner import cli as planner

        return planner.run(read.parse_args(given))
    from island_engine import guards, launch

    try:
        return _run(read, given)
    except guards.RefusedError as refused:
        return launch.fail(refused.sentence)


def _run(read: argparse.ArgumentParser, given: list[str]) -> int:
    if given[:1] == ["serve"]:
        from island_engine import launch

        options, rest = read.parse_known_args(given)
        return launch.run(options, rest)
    options = read.parse_args(given)
    if options.command == "tiny-model":
        from island_engine import tiny_model

        return tiny_model.make(options.directory)
    module: Any = importlib.import_module(MODULES[options.command])
    code: int = module.run(options)
    return code
