"""The termination message and the report's carriers: what fits, what parses, what is never half there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from island_engine.gate import artifacts
from island_engine.gate.report import SCHEMA, TERMINATION_BYTES, Divergence, Summary, Verdict, parse_termination

if TYPE_CHECKING:
    from pathlib import Path

DIVERGENCE = Divergence("extension/turn2", 3, 17, 99, 1_088, 215, 0.03)


@given(st.text(max_size=9_000), st.sampled_from(list(Verdict)), st.sampled_from([None, DIVERGENCE]))
def test_a_termination_message_always_fits_and_parses(
    message: str, verdict: Verdict, divergence: Divergence | None
) -> None:
    summary = Summary(verdict, "Reason", message, "sha256:" + "0" * 64, 67, 909, 124.5, divergence)
    text = summary.to_termination()
    assert len(text.encode()) <= TERMINATION_BYTES
    parsed = parse_termination(text)
    assert (parsed.verdict, parsed.reason, parsed.divergence) == (verdict, "Reason", divergence)


def test_only_a_whole_message_parses() -> None:
    text = Summary(Verdict.PASS, "Equal", "all equal").to_termination()
    for cut in range(len(text)):
        with pytest.raises(ValueError, match="not a gate report"):
            parse_termination(text[:cut])


def test_exit_codes() -> None:
    assert [v.exit_code for v in Verdict] == [0, 10, 11, 12]


def test_a_report_is_replaced_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifacts.write_report(tmp_path, {"schema": SCHEMA, "n": 1})

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("island_engine.gate.artifacts.os.fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        artifacts.write_report(tmp_path, {"schema": SCHEMA, "n": 2})
    assert json.loads((tmp_path / "report.json").read_text())["n"] == 1


def test_an_earlier_verdict_does_not_outlive_the_start_of_the_next_run(tmp_path: Path) -> None:
    artifacts.write_report(tmp_path, {"schema": SCHEMA})
    for name in (artifacts.PAGE, "engine-on.log"):
        (tmp_path / name).write_text("of an earlier run")
    artifacts.prepare(tmp_path).close()
    assert [path.name for path in tmp_path.iterdir()] == [artifacts.SERVES]


def test_a_termination_file_is_written_in_place(tmp_path: Path) -> None:
    path = tmp_path / "termination-log"
    path.write_text("x" * 8_000)
    inode = path.stat().st_ino
    summary = Summary(Verdict.ERROR, "EngineDied", "it died")
    artifacts.write_termination(path, summary)
    assert path.stat().st_ino == inode  # Kubernetes mounts this one file: another in its place would not be read
    assert parse_termination(path.read_text()) == summary
