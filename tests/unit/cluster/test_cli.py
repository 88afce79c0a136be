"""The command line: what it takes, and how it refuses."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cluster import cli, guard, host
from cluster.errors import ClusterError
from cluster.paths import HERE
from cluster.state import Status, describe


def test_help_has_examples_and_hides_what_is_not_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["--help"])
    assert stop.value.code == 0
    said = capsys.readouterr().out
    assert "cluster up --tied-to $$" in said
    assert "guard" not in said


@pytest.mark.parametrize("arguments", [["up", "--gpus", "-1"], ["up", "--gpus", "two"], ["up", "--tied-to", "x"], []])
def test_bad_arguments_exit_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2


def test_a_bad_port_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["up", "--port", "80"]) == 2
    assert capsys.readouterr().err == "cluster: --port (or API_PORT) is '80'; use a number from 1024 to 65535\n"


def test_not_root_is_one_sentence(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert cli.main(["up"]) == 2
    assert "needs root" in capsys.readouterr().err
    with pytest.raises(ClusterError, match="needs root"):
        host.check_root()


def test_a_process_that_is_not_there_cannot_be_tied_to() -> None:
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True
    )
    with pytest.raises(ClusterError, match="no such process"):
        guard.open_process(int(gone.stdout))


def test_the_script_runs_with_the_systems_python_alone() -> None:
    done = subprocess.run(
        ["/usr/bin/python3", "-I", str(HERE / "cluster"), "--help"], capture_output=True, text=True, check=False, env={}
    )
    assert done.returncode == 0, done.stderr


def test_status_in_words() -> None:
    assert describe(Status(up=False)) == "cluster: down"
    ill = describe(
        Status(up=True, ready=False, checkout="/x", pods=["a/b Running", "c/d Pending"], trouble="no answer")
    )
    assert "NOT READY" in ill
    assert "a/b Running\n          c/d Pending" in ill
    assert "no answer" in ill
