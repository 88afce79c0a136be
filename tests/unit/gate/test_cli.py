"""The command line: what it refuses, what it prints, what it returns."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

import pytest

from island_engine.gate import cli
from island_engine.gate import run as one_gate
from island_engine.gate.report import Summary, Verdict, parse_termination

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import FakeGate


def options(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers())
    return parser.parse_args(["gate", *argv])


def test_everything_after_the_dashes_is_verbatim(tmp_path: Path) -> None:
    parsed = options("--report", str(tmp_path), "--seed", "3", "--", "--model-path", "/m", "--seed", "9", "--x=--")
    assert parsed.seed == 3
    assert parsed.engine_args == ["--model-path", "/m", "--seed", "9", "--x=--"]


@pytest.mark.parametrize("bad", [("--deadline", "0"), ("--island-decode-interval", "-1"), ("--profile", "abyss"), ()])
def test_bad_flags_exit_2(bad: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        options(*bad)
    assert ended.value.code == 2
    assert (bad[0] if bad else "--report") in capsys.readouterr().err


def test_refused_arguments_are_one_sentence_and_no_earlier_verdict_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    log.write_text(Summary(Verdict.PASS, "Equal", "of an earlier run").to_termination())
    given = options(
        "--report", str(tmp_path / "r"), "--termination-log", str(log), "--", "--model-path", "/m", "--port", "1"
    )
    assert cli.run(given) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "--port is not allowed" in said
    assert log.read_text() == ""


def test_a_report_that_cannot_be_written_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert cli.run(options("--report", str(tmp_path / "file" / "r"), "--", "--model-path", "/m")) == 2
    assert "--report" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("verdict", "reason", "code"),
    [
        (Verdict.PASS, "Equal", 0),
        (Verdict.FAIL, "FirstDivergence", 10),
        (Verdict.INCONCLUSIVE, "Vacuous", 11),
        (Verdict.ERROR, "EngineDied", 12),
        (Verdict.INCONCLUSIVE, one_gate.SELF_TESTED, 0),
        (Verdict.ERROR, "MutationMissed", 12),
    ],
)
def test_exit_codes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    verdict: Verdict,
    reason: str,
    code: int,
) -> None:
    monkeypatch.setattr(one_gate, "execute", lambda _: Summary(verdict, reason, "because"))
    assert cli.run(options("--report", str(tmp_path), "--", "--model-path", "/m")) == code
    assert f"{verdict} {reason}: because" in capsys.readouterr().out


def test_the_self_test_prints_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = Summary(Verdict.INCONCLUSIVE, one_gate.SELF_TESTED, "because")
    monkeypatch.setattr(one_gate, "execute", lambda _: summary)
    rows = [
        {
            "mutation": "a",
            "outcome": "caught",
            "caught_by": "hit",
            "how": "hit/0 differs at token 3",
            "expected": "hit",
        },
        {"mutation": "long-name", "outcome": "harmless", "caught_by": "", "how": "", "expected": "it only frees less"},
    ]
    (tmp_path / "report.json").write_text(json.dumps({"mutations": rows}))
    assert cli.run(options("--self-test", "--report", str(tmp_path), "--", "--model-path", "/m")) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[-2] == "a          caught            hit: hit/0 differs at token 3"
    assert out[-1] == "long-name  harmless          it only frees less"


def test_json_is_the_summary(
    gate: FakeGate, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = gate.run()
    monkeypatch.setattr(one_gate, "execute", lambda _: summary)
    capsys.readouterr()
    cli.run(options("--json", "--report", str(gate.report_dir), "--", "--model-path", "/m"))
    assert parse_termination(json.dumps(json.loads(capsys.readouterr().out))) == summary


def test_in_a_pod_the_log_ends_with_the_whole_report_as_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = Summary(Verdict.PASS, "Equal", "all equal")
    body = {"schema": summary.schema, "classes": [1, 2]}

    def execute(settings: Any) -> Summary:
        settings.report.mkdir()
        (settings.report / "report.json").write_text(json.dumps(body, indent=1))
        return summary

    monkeypatch.setattr(one_gate, "execute", execute)
    engine = ("--", "--model-path", "/m")
    assert cli.run(options("--report", str(tmp_path / "a"), "--termination-log", str(tmp_path / "t"), *engine)) == 0
    assert capsys.readouterr().out.splitlines()[-1] == '{"schema":"radix-islands.dev/gate/v1","classes":[1,2]}'
