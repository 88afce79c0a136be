"""`bench gate` without an engine: goes on where it was stopped, counts what gates said; a failure is no run."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from island_engine import SGLANG_VERSION, guards
from island_engine.bench import cli, gate, report
from island_engine.gate import run as one_gate
from island_engine.gate.report import Summary, Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from island_engine.gate.settings import Settings

EQUAL = Summary(Verdict.INCONCLUSIVE, "Vacuous", "islands are off")
CLASS = {"compared": 2, "tokens": 16, "retractions": 3}


class Gates:
    """What each gate says in turn; the settings that they were asked with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: list[Summary] = []
        self.asked: list[Settings] = []
        monkeypatch.setattr(one_gate, "execute", self)
        real = importlib.metadata.version
        here = lambda name: SGLANG_VERSION if name == "sglang" else real(name)  # noqa: E731
        monkeypatch.setattr(importlib.metadata, "version", here)

    def __call__(self, settings: Settings) -> Summary:
        self.asked.append(settings)
        settings.report.mkdir(exist_ok=True)
        (settings.report / "report.json").write_text(json.dumps({"classes": [CLASS], "times": {"classes": [CLASS]}}))
        return self.said.pop(0) if self.said else EQUAL


@pytest.fixture
def gates(monkeypatch: pytest.MonkeyPatch) -> Gates:
    return Gates(monkeypatch)


def bench(model: Path, out: Path, *flags: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    cli.add_bench(parser.add_subparsers(), cli.load("gate"))
    files = ("--json", str(out / "gate.json"), "--plot", str(out / "gate.png"))
    cli.measure(cli.load("gate"), parser.parse_args(["gate", "--model-path", str(model), *files, *flags]))
    return report.read(out / "gate.json")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    return tmp_path / "model"


def test_every_arm_boots_stock_and_every_run_has_its_own_prompts(gates: Gates, model: Path, tmp_path: Path) -> None:
    found = bench(model, tmp_path, "--runs", "4")["arms"]["stock"]
    assert (found["runs"], found["fails"]) == (4, 0)
    assert [settings.seed for settings in gates.asked] == [0, 1, 2, 3]
    for settings in gates.asked:
        commands = [settings.arm(name).command(9, ("serve",)) for name in ("off-A", "on", "off-B", "on-B")]
        assert len(set(commands)) == 1
        assert commands[0][:3] == ("serve", "--islands", "off")
    kinds = [settings.engine_args[2:5] for settings in gates.asked]
    assert [("--enable-deterministic-inference" in kind, kind[1]) for kind in kinds] == [
        (False, "float32"),
        (False, "bfloat16"),
        (True, "bfloat16"),
        (False, "float32"),
    ]


def test_it_goes_on_where_it_was_stopped(gates: Gates, model: Path, tmp_path: Path) -> None:
    died = Summary(Verdict.ERROR, "EngineDied", "no memory")
    gates.said = [EQUAL, EQUAL, died]
    with pytest.raises(guards.RefusedError) as refused:
        bench(model, tmp_path, "--runs", "5")
    assert refused.value.sentence.startswith("run 3 of 5, bf16, deterministic: EngineDied: no memory; start it again")
    assert not (tmp_path / "gate.json").exists()
    with (tmp_path / "gate.runs.jsonl").open("a") as file:
        file.write('\n{"of": {"half a li')  # it was killed while it wrote
    found = bench(model, tmp_path, "--runs", "5")["arms"]["stock"]
    assert found["runs"] == 5
    assert [settings.seed for settings in gates.asked] == [0, 1, 2, 2, 3, 4]
    (model / "config.json").write_text('{"another": "model"}')
    bench(model, tmp_path, "--runs", "1")
    assert gates.asked[-1].seed == 0
    assert len(gates.asked) == 7


def test_what_gates_said_is_counted(
    gates: Gates, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gates.said = [
        replace(EQUAL, verdict=Verdict.FAIL, reason="FirstDivergence"),
        replace(EQUAL, reason="Nondeterminism"),
        EQUAL,
        replace(EQUAL, reason="Unpaired"),
    ]
    found = bench(model, tmp_path, "--runs", "4")["arms"]["stock"]
    assert found["fails"] == 1
    told = {name: [one[key] for key in gate.OUTCOMES] for name, one in found["engines"].items()}
    assert told == {"fp32": [0, 0, 1, 1], "bf16": [0, 1, 0, 0], "bf16, deterministic": [1, 0, 0, 0]}
    assert found["engines"]["fp32"]["tokens"] == 2 * 2 * 16
    assert (tmp_path / "gate.png").read_bytes().startswith(b"\x89PNG")
    assert "bf16, deterministic" in capsys.readouterr().out
