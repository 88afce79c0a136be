"""The front end of `island-engine bench`: flags, refusals, table, JSON and picture; the bench measures nothing."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from island_engine import SGLANG_VERSION, guards
from island_engine.bench import cli, plot, report

if TYPE_CHECKING:
    from pathlib import Path

FOUND = {"stock": {"hold_mean": 2144, "hold_max": 2176, "evictable_dead": 1152}}
FOUND["islands"] = {"hold_mean": 1100, "hold_max": 1200, "evictable_dead": 0}


def show(found: dict[str, Any]) -> Any:
    made = report.table("Hold", "tokens", ["arm", "mean"])
    for arm, values in found["arms"].items():
        made.add_row(report.ARMS[arm].label, report.number(values["hold_mean"]))
    return made


def draw(found: dict[str, Any], path: Path) -> None:
    made, axes = plot.figure("Hold", "tokens per running request")
    values = [one["hold_mean"] for one in found["arms"].values()]
    plot.bars(axes, list(found["arms"]), values, [report.number(one) for one in values])
    plot.save(made, path, note="a note")


def bench(**changes: Any) -> Any:
    fake = {
        "NAME": "hold",
        "HELP": "tokens held",
        "ARMS": ("stock", "islands"),
        "add_arguments": lambda parser: parser.add_argument("--tokens", type=int, default=5),
        "run": lambda options, _progress: report.result(
            "hold", {"tokens": options.tokens}, {arm: FOUND[arm] for arm in options.arm}
        ),
        "table": show,
        "plot": draw,
    }
    return SimpleNamespace(**(fake | changes))


def measure(*flags: str, **changes: Any) -> int:
    parser = argparse.ArgumentParser()
    cli.add_bench(parser.add_subparsers(), bench(**changes))
    return cli.measure(bench(**changes), parser.parse_args(["hold", *flags]))


@pytest.fixture(autouse=True)
def _sglang_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: SGLANG_VERSION if name == "sglang" else real(name))


def test_table_json_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = tmp_path / "new" / "hold.json", tmp_path / "other" / "hold.png"
    assert measure("--json", str(where[0]), "--plot", str(where[1])) == 0
    found = report.read(where[0])
    assert list(found) == ["bench", "sglang", "plugin", "geometry", "arms"]
    assert (found["sglang"], found["geometry"], found["arms"]) == (SGLANG_VERSION, {"tokens": 5}, FOUND)
    assert where[1].read_bytes().startswith(b"\x89PNG")
    assert "2,144" in capsys.readouterr().out
    assert [path.name for path in where[0].parent.iterdir()] == ["hold.json"]  # nothing half-written stays


def test_json_alone_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert measure("--json", "-", "--arm", "islands") == 0
    assert list(json.loads(capsys.readouterr().out)["arms"]) == ["islands"]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--plot", "hold.svg"), "--plot hold.svg: give a file that ends in .png"),
        (("--json", "/"), "--json /: is a folder"),
        (("--json", "/proc/nowhere/hold.json"), "--json /proc/nowhere/hold.json: /proc/nowhere: no such file"),
        (
            ("--plot", "/dev/null/hold.png"),
            "--plot /dev/null/hold.png: /dev/null: file exists; give a file in a folder",
        ),
    ],
)
def test_refused_before_anything_is_measured(flags: tuple[str, ...], says: str) -> None:
    with pytest.raises(guards.RefusedError) as refused:
        measure(*flags, run=lambda *_: pytest.fail("measured"))
    assert refused.value.sentence.startswith(says)
    assert refused.value.code == 2


@pytest.mark.parametrize("missing", ["rich", "matplotlib"])
def test_a_library_that_is_not_there(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else object())
    with pytest.raises(guards.RefusedError) as refused:
        measure("--plot", "hold.png")
    assert refused.value.sentence == f"{missing} is not installed: install radix-islands[report]"


def test_unknown_arm(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        measure("--arm", "island")
    assert ended.value.code == 2
    assert "invalid choice: 'island'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arms", "wrong"),
    [
        ({}, "no arm was measured"),
        ({"other": FOUND["stock"]}, "arm other: not one of lazy, stock"),
        ({"stock": {"hold_mean": 1, "hold_max": 1}}, "arm stock: no evictable_dead"),
    ],
)
def test_a_wrong_result_is_not_written(arms: dict[str, Any], wrong: str, tmp_path: Path) -> None:
    path = tmp_path / "hold.json"
    with pytest.raises(AssertionError, match=wrong):
        measure("--json", str(path), run=lambda *_: report.result("hold", {}, arms))
    assert not path.exists()
    path.write_text(json.dumps(report.result("hold", {}, arms)))
    with pytest.raises(ValueError, match="measure it again"):
        report.read(path)


def test_inner_objects_are_checked() -> None:
    ratio = dict.fromkeys(("sustained", "bound", "swa_retractions", "recomputed", "prefilled", "decoded_per_step"), 1)
    assert report.problems(report.result("admission", {}, {"stock": {"0.17": ratio}})) == []
    del ratio["bound"]
    assert report.problems(report.result("admission", {}, {"stock": {"0.17": ratio}})) == ["arm stock: no bound"]
    assert "no sustained" in report.problems(report.result("admission", {}, {"stock": {}}))[0]
