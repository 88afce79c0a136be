"""Fixtures of the gate's tests: a model directory and settings that boot the fake engine."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from island_engine.gate import run
from island_engine.gate.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
FAKE = (sys.executable, "-I", "-S", str(HERE / "fake_engine.py"))  # standard library only


def make_model(folder: Path) -> Path:
    path = folder / "model"
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"sliding_window": 16, "vocab_size": 512}))
    return path


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    return make_model(tmp_path)


@dataclass
class FakeGate:
    """Runs a whole gate against fake engines and reads what it left."""

    model: Path
    report_dir: Path
    monkeypatch: pytest.MonkeyPatch
    summary: run.Summary | None = None  # of the last run
    said: list[str] = field(default_factory=list)  # in all runs, where nobody else listens

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
        self.summary = run.execute(self.settings(**{"say": self.said.append, **changes}))
        return self.summary

    def report(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.report_dir / "report.json").read_text())
        return loaded


@pytest.fixture
def gate(model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGate:
    return make_gate(model_dir, tmp_path, monkeypatch)


def make_gate(model: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGate:
    monkeypatch.setattr("island_engine.gate.arms.READY_POLL_SECONDS", 0.02)  # a fake boots in a moment
    return FakeGate(model, folder / "report", monkeypatch)


def _ran(factory: pytest.TempPathFactory, fault: str) -> Iterator[FakeGate]:
    """A gate that was run once, for whoever reads what it left."""
    folder = factory.mktemp("ran")
    with pytest.MonkeyPatch.context() as patch:
        gate = make_gate(make_model(folder), folder, patch)
        gate.run(fault)
        yield gate


@pytest.fixture(scope="session")
def passed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeGate]:
    yield from _ran(tmp_path_factory, "")


@pytest.fixture(scope="session")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeGate]:
    yield from _ran(tmp_path_factory, "diverge")
