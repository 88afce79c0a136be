"""Fixtures of the gate's tests: a model directory and settings that boot the fake engine."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from island_engine.gate import run
from island_engine.gate.settings import Settings

HERE = Path(__file__).parent
FAKE = (sys.executable, str(HERE / "fake_engine.py"))


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"sliding_window": 16, "vocab_size": 512}))
    return path


@dataclass
class FakeGate:
    """Runs a whole gate against fake engines and reads what it left."""

    model: Path
    report_dir: Path
    monkeypatch: pytest.MonkeyPatch

    def settings(self, **changes: Any) -> Settings:
        known: dict[str, Any] = {
            "engine_args": ("--model-path", str(self.model), "--device", "cpu", "--dtype", "float32"),
            "report": self.report_dir,
            "deadline": 600.0,  # only those that give another meet it, however busy the machine
            "decode_interval": 8,
            "termination_log": self.report_dir.parent / "termination-log",
            "serve": FAKE,
        }
        return Settings(**{**known, **changes})

    def run(self, fault: str = "", arm: str = "on", **changes: Any) -> run.Summary:
        self.monkeypatch.setenv("FAKE_FAULT", fault)
        self.monkeypatch.setenv("FAKE_ARM", arm)
        return run.execute(self.settings(**changes))

    def report(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.report_dir / "report.json").read_text())
        return loaded


@pytest.fixture
def gate(model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGate:
    monkeypatch.setattr("island_engine.gate.arms.READY_POLL_SECONDS", 0.02)  # a fake boots in a moment
    return FakeGate(model_dir, tmp_path / "report", monkeypatch)
