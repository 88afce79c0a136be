"""Every flag and every variable of SGLang's that the documentation or an example names exists in the pinned release."""

from __future__ import annotations

import argparse
import fnmatch
import re
from pathlib import Path

import yaml
from sglang.srt import environ
from sglang.srt.server_args import ServerArgs

from island_engine import cli
from island_operator.cli import main as operator
from island_operator.cli.kubectl import app

ROOT = Path(__file__).parents[3]
TEXT = {
    path.name: path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").glob("*.yaml"))]
}
# Of kubectl, helm, docker and git; `--flag` stands for any.
OTHERS = {
    *("--all", "--cascade", "--for", "--patch-file", "--recursive", "--server-side", "--type", "--wait"),
    *("--create-namespace", "--install", "--set", "--take-ownership", "--build-arg", "--target", "--flag"),
}


def flags(parser: argparse.ArgumentParser) -> set[str]:
    """Of a parser and of every command below it."""
    found = {*parser._option_string_actions}
    for action in parser._actions:
        for child in (action.choices or {}).values() if isinstance(action, argparse._SubParsersAction) else ():
            found |= flags(child)
    return found


def sglangs() -> set[str]:
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return flags(parser)


def test_every_flag_that_is_named_exists() -> None:
    known = sglangs() | flags(cli.parser()) | flags(operator.parser()) | flags(app.parser("plan")) | OTHERS
    seen, missing = set(), {}
    for page, text in TEXT.items():
        named = re.findall(r"(?<![\w-])--[a-z][\w*-]*", text)
        patterns = {
            name + "*" if name.endswith("-") else name for name in named
        }  # `--speculative-...` means all of them
        seen |= patterns
        if wrong := {one for one in patterns if not fnmatch.filter(known, one)}:
            missing[page] = wrong
    assert missing == {}
    assert len(seen) > 100


def test_every_argument_of_an_example_is_one_of_sglangs() -> None:
    known = sglangs() | flags(cli.parser("serve"))
    for path in sorted((ROOT / "examples").glob("*.yaml")):
        given = yaml.safe_load(path.read_text())["spec"].get("engine", {}).get("args", [])
        assert {word for word in given if word.startswith("--")} <= known, path.name


def test_every_variable_of_sglang_that_is_named_exists() -> None:
    named = set(re.findall(r"\bSGLANG_[A-Z_]+", "\n".join(TEXT.values())))
    assert len(named) > 1
    assert {name for name in named if not hasattr(environ.envs, name)} == set()
