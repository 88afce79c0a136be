"""kill -9 at every moment at which the gate touches a file: what is left is nothing, or the whole verdict."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from island_engine.gate import artifacts, cli
from island_engine.gate import run as one_gate
from island_engine.gate.case import Conclusion
from island_engine.gate.report import Summary, Verdict, parse_termination

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

TOUCHES = ("open", "os.rename", "os.remove", "os.truncate", "os.mkdir")


def gate(directory: Path, model: Path, moment: int, monkeypatch: pytest.MonkeyPatch) -> tuple[bool, int]:
    """Run a gate that would PASS in a fork, killed right before its `moment`th touch; whether it was, its exit code."""
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers())
    log = directory / "termination-log"
    given = ("--report", str(directory), "--termination-log", str(log), "--json")
    options = parser.parse_args(["gate", *given, "--", "--model-path", str(model), "--device", "cpu"])

    async def passes(*_: object) -> Conclusion:
        return Conclusion(Verdict.PASS, "Equal", "all equal " * 900)  # more than one write takes

    monkeypatch.setattr(one_gate, "_bounded", passes)
    child = os.fork()
    if child == 0:
        seen = 0

        def hook(event: str, args: Any) -> None:
            nonlocal seen
            if event in TOUCHES and any(str(directory) in str(arg) for arg in args[:2]):
                seen += 1
                if seen == moment:
                    os.kill(os.getpid(), signal.SIGKILL)

        code = 99
        try:
            sys.addaudithook(hook)  # stays for good: hence the fork
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            code = cli.run(options)
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    return os.WIFSIGNALED(status), os.waitstatus_to_exitcode(status)


def test_a_killed_gate_leaves_no_half_verdict(model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole: set[tuple[bool, bool]] = set()
    for moment in range(1, 60):
        directory = tmp_path / f"killed-{moment}"
        directory.mkdir()
        # What an earlier run said must not be read as this one's.
        artifacts.write_termination(directory / "termination-log", Summary(Verdict.PASS, "Earlier", "of another run"))
        artifacts.write_report(directory, {"earlier": True})
        killed, code = gate(directory, model_dir, moment, monkeypatch)
        report, log = read_report(directory), read_log(directory)
        if not killed:
            break
        assert code == -signal.SIGKILL  # Kubernetes sees that: no exit 0 without a whole report
        if moment > 1:
            assert log is None or log.reason == "Equal"
        if moment > 3:
            assert report is None or report["summary"]["reason"] == "Equal"
        if log:
            assert report  # the log is the last thing that is written
        whole.add((report is not None, log is not None))
    assert code == 0
    assert report
    assert log
    assert moment > 8
    assert (False, False) in whole
    assert (True, False) in whole


def read_report(directory: Path) -> dict[str, Any] | None:
    path = directory / artifacts.REPORT
    if not path.exists():
        return None
    report: dict[str, Any] = json.loads(path.read_text())  # a half one would not parse
    return report


def read_log(directory: Path) -> Summary | None:
    try:
        return parse_termination((directory / "termination-log").read_text())
    except ValueError:
        return None
