"""kubectl island beside what the story left: a kubelet's logs, a real gate's report, versions of real engines."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

from demo.environment import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from demo.kube import Kube
    from demo.story import Story


def island(kube: Kube, *args: str) -> subprocess.CompletedProcess[str]:
    """`kubectl island args...` as a person runs it."""
    program = str(ROOT / ".venv" / "bin" / "kubectl-island")
    return subprocess.run(
        [program, *args], env={**kube.env, "NO_COLOR": "1"}, text=True, capture_output=True, timeout=60, check=False
    )


def test_doctor_finds_nothing_wrong(kube: Kube, story: Story) -> None:
    end = time.monotonic() + 60
    while True:
        said = island(kube, "doctor")
        assert said.returncode == 0, said.stdout + said.stderr
        assert "FAIL" not in said.stdout
        engines = next(line for line in said.stdout.splitlines() if line.startswith("engines"))
        if "OK" in engines:  # the version that an engine reports is this plugin's
            break
        assert time.monotonic() < end, engines  # it waits 2 s for a log, and skips one that takes a kubelet longer
        time.sleep(1)


def test_status_shows_who_serves(kube: Kube, story: Story) -> None:
    said = island(kube, "status", story.name)
    assert said.returncode == 0, said.stderr
    for pod in story.outcome.serving["kill_switch"]:
        name = next(p.name for p in story.outcome.pods if p.uid == pod)
        assert name in said.stdout
    assert "islands off" in said.stdout


def test_the_report_of_the_gate_that_failed_is_a_page(kube: Kube, story: Story, tmp_path: Path) -> None:
    page = tmp_path / "gate.html"
    said = island(kube, "gate", story.name, "--report", "--output", str(page))
    assert said.returncode == 0, said.stderr
    text = page.read_text()
    assert text.lstrip().lower().startswith("<!doctype html>")
    assert "FAIL" in text
    assert story.outcome.statuses["plant"]["gate"]["divergence"]["probe"] in text


def test_the_log_of_a_gate_says_how_far_it_was(kube: Kube, story: Story) -> None:
    said = island(kube, "gate", story.name, "--logs")
    assert said.returncode == 0, said.stderr
    assert "boot 2 of" in said.stdout
