"""A slip on a command line is answered with one sentence that says what was meant."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from island_engine import cli, guards, launch
from island_engine.commandline import UNREAD, piped
from island_operator.cli.kubectl import app
from island_operator.cli.main import main as operator

SERVE = ["serve", "--model-path", "m", "--swa-full-tokens-ratio", "0.1"]


@pytest.mark.parametrize(
    ("main", "words", "says"),
    [
        (cli.main, ["plna"], "island-engine: COMMAND: invalid choice: 'plna': did you mean plan?"),
        (cli.main, ["xyz"], "invalid choice: 'xyz': use serve, gate, bench, plan or tiny-model"),
        (cli.main, ["plan", "--concurency", "9"], "--concurency is not a flag: did you mean --concurrency?"),
        (cli.main, ["plan", "--concurency=9"], "--concurency is not a flag: did you mean --concurrency?"),
        (cli.main, ["plan", "--tp", "3"], "--tp is not a flag: did you mean --tp-size?"),
        (cli.main, ["plan", "--foo", "3"], "--foo 3; island-engine plan --help shows what it takes"),
        (
            cli.main,
            [*SERVE, "--island", "on", "--max-total-tokens", "9"],
            "are required: --islands; did you mean that by --island?",
        ),
        (
            cli.main,
            [*SERVE, "--islands", "on", "--max-running-requests", "9"],
            "are required: --max-total-tokens; island",
        ),
        (cli.main, [*SERVE, "--islands", "on"], "are required: --max-total-tokens; island-engine serve --help"),
        (cli.main, [*SERVE, "--max-total-tokens", "9k"], "--max-total-tokens: '9k' is not a whole number"),
        (cli.main, ["gate", "--report", "r", "--deadline", "10m"], "--deadline: '10m' is not a positive whole number"),
        (cli.main, ["gate", "--report", "r", "--page-size", "64"], "use island-engine gate [options] --report DIR -- "),
        (cli.main, ["gate", "--", "--reprot", "r"], "the following arguments are required: --report"),
        (cli.main, ["bench", "holt"], "island-engine bench: NAME: invalid choice: 'holt': did you mean hold?"),
        (app.main, ["rollbak", "gemma"], "kubectl island: COMMAND: invalid choice: 'rollbak': did you mean rollback?"),
        (app.main, ["status", "--wach"], "kubectl island: --wach is not a flag: did you mean --watch?"),
        (app.main, ["status", "gemma", "more"], "arguments: more; kubectl island status --help shows what it takes"),
        (operator, ["crds"], "island-operator: run|crd: invalid choice: 'crds': did you mean crd?"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_a_slip_is_named_in_one_sentence(main, words, says, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert says in told
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "namespace"),
    [
        (["-n", "a", "status"], "a"),
        (["status", "-n", "a"], "a"),
        (["-n", "b", "status", "-n", "a"], "a"),
        (["status"], None),
    ],
)
def test_a_namespace_may_come_before_the_command(words, namespace):
    read = app.parser().parse_args(words)
    assert (read.namespace, read.all_namespaces, read.kubeconfig) == (namespace, None, None)


def test_flag_and_value_in_one_item_are_told():
    with pytest.raises(guards.RefusedError) as refused:
        launch.check_flag("--dtype float32", on=True)
    assert refused.value.sentence.startswith("'--dtype float32' is one word: give the flag and its value as two")
    launch.check_flag('{"rope_scaling": null}', on=True)  # a value, in a word of its own


@pytest.mark.parametrize(
    ("module", "words", "code"),
    [
        ("island_engine.cli", ["plan", "--help"], UNREAD),
        (
            "island_engine.cli",
            ["plan", "--model", "examples/models/gpt-oss-20b", "--kv-bytes", "9e9", "--json"],
            UNREAD,
        ),
        ("island_engine.cli", ["plan", "--model", "examples/models/gpt-oss-20b", "--kv-bytes", "9e9"], 1),  # rich's own
        ("island_operator.cli.main", ["crd"], UNREAD),
        ("island_operator.cli.kubectl", ["--help"], UNREAD),
    ],
)
def test_a_reader_that_leaves_early_sees_no_traceback(module: str, words: list[str], code: int) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    program = f"import sys; from {module} import main; sys.exit(main({words!r}))"
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (code, "")


def test_another_broken_pipe_is_a_fault_like_others(capfd: pytest.CaptureFixture[str]) -> None:
    def command() -> int:
        raise BrokenPipeError("the engine hung up")

    with pytest.raises(BrokenPipeError, match="the engine hung up"):
        piped(command)
