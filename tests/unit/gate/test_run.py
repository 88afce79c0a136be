"""Whole gates against fake engine processes: every way a gate can end, and what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from island_engine.gate import artifacts, run
from island_engine.gate.case import Conclusion
from island_engine.gate.record import AGAIN
from island_engine.gate.report import SETTLED, Verdict, parse_termination
from island_engine.islands.mutations import Mutation

if TYPE_CHECKING:
    from .conftest import FakeGate

SCHEMA: dict[str, Any] = json.loads(resources.files("island_engine.gate").joinpath("report.schema.json").read_text())


def engines(report: Path) -> list[int]:
    """Process ids that the fake engines of a gate wrote to their logs, first boot first."""
    logs = sorted(report.glob("engine-*.log"), key=lambda p: p.stat().st_mtime)
    return [int(line.split()[-1]) for log in logs for line in log.read_text().splitlines() if "fake engine" in line]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def eventually(condition: Any, seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return bool(condition())


def test_equal_engines_pass(passed: FakeGate) -> None:
    gate, summary = passed, passed.summary
    assert summary
    assert (summary.verdict, summary.reason) == (Verdict.PASS, "Equal"), summary.message
    report = gate.report()
    jsonschema.validate(report, SCHEMA)
    assert [arm["name"] for arm in report["arms"]] == ["off-A", "on", "off-B"]
    assert [arm["islands"] for arm in report["arms"]] == [False, True, False]
    assert all(c["compared"] and not c["unpaired"] for c in report["classes"])
    assert summary.probes == sum(c["compared"] for c in report["classes"])
    assert [c["name"] for c in report["times"]["classes"]] == ["running", "concurrent", "pressure"]
    assert parse_termination((gate.report_dir.parent / "termination-log").read_text()) == summary
    lines = (gate.report_dir / "serves.jsonl").read_text().splitlines()
    timed = sum(c["compared"] for c in report["times"]["classes"])
    assert len(lines) == 3 * (summary.probes + timed) + 2  # what a reader is compared with, and its prime
    assert {json.loads(line)["arm"] for line in lines} == {"off-A", "on", "off-B"}
    assert not any(alive(pid) for pid in engines(gate.report_dir))


def test_one_seed_gives_one_report(gate: FakeGate, tmp_path: Path) -> None:
    mine = tmp_path / "prompts.txt"
    mine.write_text('a prompt of mine\n\n"one of\\ntwo lines"\n')

    def timeless(seed: int) -> str:
        gate.run(seed=seed, prompts=mine)
        report = gate.report()
        assert report["classes"][-1]["name"] == "text"
        assert report["classes"][-1]["compared"] == 4  # two prompts, each twice
        del report["times"], report["summary"]["seconds"]
        return json.dumps(report)

    first = timeless(7)
    assert timeless(7) == first
    assert timeless(8) != first


def test_a_divergence_fails_and_is_explained(failed: FakeGate) -> None:
    gate, summary, said = failed, failed.summary, failed.said
    assert summary
    assert (summary.verdict, summary.reason) == (Verdict.FAIL, "FirstDivergence"), summary.message
    found = summary.divergence
    assert found is not None
    assert found.probe == "hit/0"
    assert found.index == 3
    assert found.got == (found.expected + 1) % 512
    assert found.cached_tokens > 0
    assert found.margin == 0.25
    assert found.frontier_distance is not None
    assert found.frontier_distance >= 16
    report = gate.report()
    jsonschema.validate(report, SCHEMA)
    served = {arm["name"]: arm["serves"] for arm in report["arms"]}
    assert served["on"] == served["off-B"] == served["on-B"] < served["off-A"]  # they stop where islands first differ
    assert sum("hit/0 again" in line for line in said) == 2 * AGAIN
    assert any("boot 4 of 4, arm on-B: starting" in line and "s left)" in line for line in said)
    assert parse_termination((gate.report_dir.parent / "termination-log").read_text()) == summary


@pytest.mark.parametrize(
    ("fault", "arm", "verdict", "reason", "says"),
    [
        ("random", "any", Verdict.INCONCLUSIVE, "Nondeterminism", "two boots with islands off differ at hit/"),
        ("vacuous", "on", Verdict.INCONCLUSIVE, "Vacuous", "island_published_total{phase=prefill} did not grow"),
        ("tainted", "off", Verdict.INCONCLUSIVE, "Vacuous", "of off-A, where islands are off"),
        ("ignored-switch", "on", Verdict.INCONCLUSIVE, "Vacuous", "islands are off in arm on"),
        ("shallow", "on", Verdict.INCONCLUSIVE, "Unpaired", "class hit: hit/0 has cached_tokens"),
        ("shared", "any", Verdict.INCONCLUSIVE, "CacheNotEmpty", "is another client"),
        ("violation", "on", Verdict.INCONCLUSIVE, "FrontierViolation", "frontier violations in class cold"),
        ("other-pool", "on", Verdict.INCONCLUSIVE, "ArmsDiffer", "--max-total-tokens"),
        ("no-swa", "any", Verdict.INCONCLUSIVE, "NotHybrid", "no sliding-window pool"),
        ("die-at-boot", "on", Verdict.ERROR, "EngineDied", "arm on ended with code 2: ValueError: --page-size 63"),
        ("die-while-serving", "on", Verdict.ERROR, "EngineDied", "RuntimeError: CUDA error: an illegal memory access"),
        ("port-taken", "any", Verdict.ERROR, "PortTaken", "address already in use"),
        ("garbage", "on", Verdict.ERROR, "BadAnswer", "/generate of arm on answered no JSON"),
        ("short", "on", Verdict.ERROR, "BadAnswer", "15 tokens instead of 16"),
        ("strange-index", "on", Verdict.ERROR, "BadAnswer", "/generate of arm on streamed b'"),
        ("unpressed", "on", Verdict.INCONCLUSIVE, "Vacuous", "retracted in class pressure of on"),
        ("hasty", "on", Verdict.INCONCLUSIVE, "Vacuous", "origin=running} did not grow in class running"),
        ("diverge-once", "on", Verdict.INCONCLUSIVE, "Unrepeated", "they did so 0 times"),
        ("refuses", "any", Verdict.ERROR, "BadAnswer", "answered 400"),
        ("bad-info", "any", Verdict.ERROR, "BadAnswer", "/server_info lacks"),
        ("no-metrics", "on", Verdict.ERROR, "BadAnswer", "/metrics/ of arm on answered 404"),
    ],
)
def test_nothing_unexpected_passes(
    gate: FakeGate, fault: str, arm: str, verdict: Verdict, reason: str, says: str
) -> None:
    summary = gate.run(fault, arm)
    assert (summary.verdict, summary.reason) == (verdict, reason), summary.message
    assert says in summary.message
    jsonschema.validate(gate.report(), SCHEMA)
    assert not any(alive(pid) for pid in engines(gate.report_dir))


def test_the_last_lines_of_a_dead_engine_are_said(gate: FakeGate) -> None:
    said: list[str] = []
    gate.run("die-at-boot", "any", say=said.append)
    assert said[-3:] == [
        "engine: loading",
        "engine: ValueError: --page-size 63: use a power of two",
        "engine: cleaning up",
    ]


def test_a_busy_engine_is_waited_for(gate: FakeGate) -> None:
    assert gate.run("busy-once", "any").verdict is Verdict.PASS


@pytest.mark.parametrize("arm", ["on", "off"])
def test_a_scene_that_came_too_late_is_asked_again(gate: FakeGate, arm: str) -> None:
    """A gate that gets no processor for a while hears of a running request when that is over."""
    summary = gate.run("hasty-once", arm)
    assert summary.verdict is Verdict.PASS, summary.message
    served = [json.loads(line) for line in (gate.report_dir / "serves.jsonl").read_text().splitlines()]
    times = Counter(serve["arm"] for serve in served if serve["probe"] == "running/0")
    late = {"on": ["on"], "off": ["off-A", "off-B"]}[arm]
    assert times == {name: 1 + (name in late) for name in ("off-A", "on", "off-B")}
    classes = gate.report()["times"]["classes"]
    assert {c["name"]: c["compared"] for c in classes}["running"] == 2


@pytest.mark.parametrize("fault", ["silent", "never-ready"])
def test_a_deadline_is_inconclusive(gate: FakeGate, fault: str) -> None:
    summary = gate.run(fault, "any", deadline=2.0)
    assert (summary.verdict, summary.reason) == (Verdict.INCONCLUSIVE, "Deadline")
    assert "arm off-A" in summary.message
    jsonschema.validate(gate.report(), SCHEMA)
    assert not any(alive(pid) for pid in engines(gate.report_dir))


def test_a_silent_engine_is_named_when_there_is_time(gate: FakeGate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("island_engine.gate.client.GENERATE_SECONDS", 0.2)
    monkeypatch.setattr("island_engine.gate.client.SECONDS_PER_TOKEN", 0.0)
    summary = gate.run("silent", "on")
    assert (summary.verdict, summary.reason) == (Verdict.ERROR, "EngineSilent")


def test_a_divergence_without_its_control_is_no_verdict(gate: FakeGate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "ARMS", ("off-A", "on"))
    summary = gate.run("diverge")
    assert (summary.verdict, summary.reason) == (Verdict.INCONCLUSIVE, "Unconfirmed")


def test_a_small_pool_is_said_before_anything_is_served(gate: FakeGate) -> None:
    summary = gate.run(decode_interval=4_000)
    assert (summary.verdict, summary.reason) == (Verdict.INCONCLUSIVE, "PoolTooSmall")
    assert "--max-total-tokens" in summary.message


def test_a_missing_model_is_said_before_anything_boots(gate: FakeGate) -> None:
    summary = gate.run(engine_args=("--model-path", "/nowhere/at/all"))
    assert (summary.verdict, summary.reason) == (Verdict.ERROR, "NoModel")
    assert "/nowhere/at/all" in summary.message
    assert not list(gate.report_dir.glob("engine-*.log"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "No such file"),
        (b"\xff\xfe", "one prompt a line"),
        (b"\n \n", "holds no prompt"),
        (b'fine\n"not closed\n', "line 2"),
    ],
)
def test_unreadable_probes_are_said_before_anything_boots(
    gate: FakeGate, tmp_path: Path, content: bytes | None, says: str
) -> None:
    path = tmp_path / "prompts.txt"
    if content is not None:
        path.write_bytes(content)
    summary = gate.run(prompts=path)
    assert (summary.verdict, summary.reason) == (Verdict.ERROR, "BadProbes")
    assert says in summary.message
    assert str(path) in summary.message
    assert not list(gate.report_dir.glob("engine-*.log"))


def test_a_paced_engine_is_refused_for_good(gate: FakeGate) -> None:
    summary = gate.run(engine_args=("--pace", "h200-gemma", "--device", "cpu"))
    assert (summary.verdict, summary.reason) == (Verdict.ERROR, "PacedEngine")
    assert summary.reason in SETTLED


@pytest.mark.parametrize(
    ("broken", "proved", "outcomes", "reason"),
    [
        ("diverge", "", ["caught", "harmless"], "SelfTestPassed"),
        ("die-while-serving", "", ["caught", "harmless"], "SelfTestPassed"),  # and booted again
        ("violation", "", ["caught", "harmless"], "SelfTestPassed"),
        ("", "", ["MISSED", "harmless"], "MutationMissed"),
        ("silent-fault", "", ["NEVER FIRED", "harmless"], "MutationMissed"),
        ("diverge", "diverge", ["caught", "NOT HARMLESS"], "MutationMissed"),
    ],
)
def test_every_planted_fault_must_be_seen(
    gate: FakeGate,
    monkeypatch: pytest.MonkeyPatch,
    broken: str,
    proved: str,
    outcomes: list[str],
    reason: str,
) -> None:
    table = {
        "one": Mutation("one", "a fault", caught_by="cold" if broken == "die-while-serving" else "hit"),
        "other": Mutation("other", "no fault", harmless="it changes no byte"),
    }
    monkeypatch.setattr("island_engine.gate.selftest.TABLE", table)
    monkeypatch.setenv("FAKE_MUTATIONS", f"one={broken},other={proved}")
    summary = gate.run(self_test=True)
    assert summary.reason == reason, summary.message
    assert summary.verdict is (Verdict.INCONCLUSIVE if reason == "SelfTestPassed" else Verdict.ERROR)
    report = gate.report()
    jsonschema.validate(report, SCHEMA)
    assert [row["outcome"] for row in report["mutations"]] == outcomes
    assert not any(alive(pid) for pid in engines(gate.report_dir))


def test_an_unwritable_report_is_no_pass(gate: FakeGate, monkeypatch: pytest.MonkeyPatch) -> None:
    async def passes(*_: object) -> Conclusion:
        return Conclusion(Verdict.PASS, "Equal", "all equal")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run, "_bounded", passes)
    monkeypatch.setattr("island_engine.gate.artifacts.write_report", full)
    summary = gate.run()
    assert (summary.verdict, summary.reason) == (Verdict.ERROR, "ReportUnwritable")
    assert parse_termination((gate.report_dir.parent / "termination-log").read_text()).verdict is Verdict.ERROR


# --- processes -------------------------------------------------------------------------------------------------------

DRIVER = """
import sys
from pathlib import Path
from island_engine.gate import run
from island_engine.gate.settings import Settings
model, report, *serve = sys.argv[1:]
settings = Settings(("--model-path", model, "--device", "cpu"), Path(report), decode_interval=8, serve=tuple(serve))
sys.exit(run.execute(settings).verdict.exit_code)
"""


def start(gate: FakeGate, fault: str) -> subprocess.Popen[bytes]:
    settings = gate.settings()
    engine = Path(run.__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(gate.model), str(gate.report_dir), *settings.serve],
        env={**os.environ, "FAKE_FAULT": fault, "FAKE_ARM": "any", "PYTHONPATH": str(engine)},
        stderr=subprocess.DEVNULL,
    )


def test_kill_9_leaves_no_engine_and_no_report(gate: FakeGate) -> None:
    gate.report_dir.mkdir()
    artifacts.write_report(gate.report_dir, {"earlier": "PASS"})  # must not survive into the next run
    process = start(gate, "silent")
    assert eventually(lambda: not (gate.report_dir / "report.json").exists())
    assert eventually(lambda: (gate.report_dir / "serves.jsonl").exists())
    assert eventually(lambda: (gate.report_dir / "serves.jsonl").read_text().count("\n") == 2)
    (pid,) = [p for p in engines(gate.report_dir) if alive(p)]
    process.kill()
    process.wait()
    assert eventually(lambda: not alive(pid))
    assert not (gate.report_dir / "report.json").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_inconclusive_and_leaves_no_engine(gate: FakeGate, number: signal.Signals) -> None:
    process = start(gate, "silent")
    assert eventually(lambda: (gate.report_dir / "serves.jsonl").exists())
    assert eventually(lambda: (gate.report_dir / "serves.jsonl").read_text().count("\n") == 2)
    (pid,) = engines(gate.report_dir)
    process.send_signal(number)
    process.send_signal(number)  # an impatient second one must not break the clean-up
    assert process.wait(30) == Verdict.INCONCLUSIVE.exit_code
    assert not alive(pid)
    assert gate.report()["summary"]["reason"] == "Interrupted"


def serving(model: Path) -> list[Path]:
    """Processes whose command names this model."""
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = command.read_bytes()
        except OSError:
            continue  # it ended while we looked
        if str(model).encode() in words:
            found.append(command)
    return found


def test_a_child_in_its_own_session_ends_with_its_engine(gate: FakeGate) -> None:
    assert gate.run("leave-a-child", "any").verdict is Verdict.PASS
    assert serving(gate.model) == []
