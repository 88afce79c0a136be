"""The gate on real engines: SGLang on the CPU with the tiny model. Minutes; run with .venv-engine."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support.browser import DESK, PHONE, Browser

from island_engine.gate import guard
from island_engine.gate.report import parse_termination

SHOTS = Path(__file__).parents[3] / "build" / "shots"
# A decode interval beyond window + page, so that a decode island leaves tombstones behind it as in production.
FLAGS = (
    *("--dtype", "float32", "--page-size", "64", "--chunked-prefill-size", "512", "--context-length", "16384"),
    *("--max-total-tokens", "19968", "--swa-full-tokens-ratio", "0.15", "--max-running-requests", "8"),
)
# Of the self-test: what a minute allows, one for each class that sees what none before it does.
CAUGHT_BY = {
    "frontier-page": "lengths",
    "tail-page-decode": "running",
    "double-credit": "hit",
    "branch-window": "branch",
    "lock-early": "pressure",
}
ENGINE = (sys.executable, "-m", "island_engine")


@dataclass
class Ended:
    code: int
    out: str
    err: str
    report: dict[str, Any]
    directory: Path


def command(model: Path, directory: Path, *flags: str, interval: int = 320) -> list[str]:
    own = ["--report", str(directory), "--termination-log", str(directory / "termination-log"), "--deadline", "900"]
    chosen = ["--island-decode-interval", str(interval)]
    return [*ENGINE, "gate", *own, *chosen, *flags, "--", "--model-path", str(model), *FLAGS]


def gate(model: Path, directory: Path, *flags: str, interval: int = 320, **environment: str) -> Ended:
    """Run a whole gate; its report must be valid and agree with its termination message."""
    directory.mkdir()
    done = subprocess.run(
        command(model, directory, *flags, interval=interval),
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=900,
    )
    report = json.loads((directory / "report.json").read_text())
    jsonschema.validate(
        report, json.loads(resources.files("island_engine.gate").joinpath("report.schema.json").read_text())
    )
    summary = parse_termination((directory / "termination-log").read_text())
    assert summary.verdict == report["summary"]["verdict"]
    assert not something_is_left()
    return Ended(done.returncode, done.stdout, done.stderr, report, directory)


@pytest.fixture(scope="session")
def passed(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return gate(model, tmp_path_factory.mktemp("gate") / "passed")


@pytest.fixture(scope="session")
def failed(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    planted = {"ISLAND_MUTATE": "frontier", "ISLAND_ALLOW_MUTATION": "1"}
    return gate(model, tmp_path_factory.mktemp("gate") / "failed", **planted)


@pytest.fixture(scope="session")
def tested(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    flags = ("--self-test", *(f"--mutation={name}" for name in CAUGHT_BY))
    return gate(model, tmp_path_factory.mktemp("gate") / "tested", *flags, interval=128)


def descendants(pid: int) -> list[int]:
    """Process ids of everything that descends from `pid`."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it ended while we looked
        parents.setdefault(parent, []).append(int(stat.parent.name))
    found = parents.get(pid, [])
    for child in found:
        found += parents.get(child, [])
    return found


@pytest.fixture(scope="session", autouse=True)
def orphans_come_to_us() -> None:
    """Whatever a gate leaves behind becomes our child, so that no process of a test can hide."""
    ctypes.CDLL(None).prctl(guard.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def something_is_left() -> bool:
    """Whether any descendant of this test run is alive. Only called when no subprocess is meant to be."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def test_islands_pass_and_every_class_saw_them(passed: Ended) -> None:
    ended = passed
    assert ended.code == 0, ended.out + ended.err
    assert (ended.report["summary"]["verdict"], ended.report["summary"]["reason"]) == ("PASS", "Equal")
    assert all(not c["unpaired"] for c in ended.report["classes"])
    off_a, on, off_b = ended.report["arms"]
    assert (off_a["islands"], on["islands"], off_b["islands"]) == (False, True, False)
    published = {cls: growth["island_published_total{phase=decode}"] for cls, growth in on["counters"].items()}
    assert published["extension"] >= 2
    assert published["cold"] == published["hit"] == published["lengths"] == 0
    timed = {c["name"]: c for c in ended.report["times"]["classes"]}
    assert timed["running"]["hits"] == 1  # the reader, at the depth of a decode island
    assert timed["pressure"]["retractions"] >= 10
    times = ended.report["times"]
    boots = sum(arm["boot"] for arm in times["arms"].values())
    probing = sum(arm["probing"] for arm in times["arms"].values())
    print(f"gate {times['seconds']:.0f} s: three boots {boots:.0f} s, probing {probing:.0f} s")


def test_a_planted_frontier_fails_and_is_explained(failed: Ended) -> None:
    ended = failed
    assert ended.code == 10, ended.out + ended.err
    assert ended.report["summary"]["reason"] == "FirstDivergence"
    found = ended.report["summary"]["divergence"]
    assert found["expected"] != found["got"]
    assert found["margin"] > 0
    assert found["frontier_distance"] >= 128 + 64


def test_planted_faults_are_seen_by_the_class_that_should(tested: Ended) -> None:
    ended = tested
    assert ended.code == 0, ended.out + ended.err
    assert ended.report["summary"]["verdict"] == "INCONCLUSIVE"  # never PASS
    assert {row["mutation"]: row["caught_by"] for row in ended.report["mutations"]} == CAUGHT_BY
    assert all(row["fired"] for row in ended.report["mutations"])


@pytest.mark.parametrize(
    ("run", "says"),
    [
        ("passed", ["PASS: Equal", "They may serve", "extension", "off-B", "of probing", "--chunked-prefill-size 512"]),
        (
            "failed",
            ["FAIL: FirstDivergence", "after another boot again", "Where the answers part", "frontier, ", "on-B"],
        ),
        ("tested", ["INCONCLUSIVE: SelfTestPassed", "Planted faults", *CAUGHT_BY, "with planted faults"]),
    ],
)
async def test_a_person_can_read_the_report(run: str, says: list[str], request: pytest.FixtureRequest) -> None:
    ended: Ended = request.getfixturevalue(run)
    async with Browser() as browser:
        page = await browser.open((ended.directory / "report.html").as_uri())
        for width in (DESK, PHONE):
            await page.resize(width)
            await page.screenshot(SHOTS / f"gate-{run}-{width}.png")
            assert await page.faults() == []
            text = await page.text()
            assert [words for words in says if words not in text] == []
        assert (
            await page.evaluate("document.querySelector('h1').getBoundingClientRect().bottom") < 200
        )  # at first sight


def test_an_engine_that_dies_says_why(model: Path, tmp_path: Path) -> None:
    broken = tmp_path / "model"
    broken.mkdir()
    for file in model.glob("*.json"):
        (broken / file.name).write_bytes(file.read_bytes())
    ended = gate(broken, tmp_path / "report")
    assert ended.code == 12
    assert ended.report["summary"]["reason"] == "EngineDied"
    assert "Cannot find any model weights" in ended.report["summary"]["message"]


def test_kill_9_leaves_no_engine(model: Path, tmp_path: Path) -> None:
    directory = tmp_path / "report"
    directory.mkdir()  # the termination log goes there too, and the gate refuses one that it cannot write
    with subprocess.Popen(command(model, directory), stderr=subprocess.DEVNULL) as process:
        # The launcher, the scheduler and the detokenizer: killed before they could ask to die with their parent.
        until(lambda: len(descendants(process.pid)) >= 4)
        process.send_signal(signal.SIGKILL)
    until(lambda: not something_is_left())
    assert not (directory / "report.json").exists()


def until(condition: Any, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.1)
