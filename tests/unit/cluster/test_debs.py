"""Programs out of Debian's packages: from PATH first, downloaded once, and a sentence when there is no way."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from cluster import debs
from cluster.errors import ClusterError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a PATH with nothing but what a test puts there."""
    path = tmp_path / "bin"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setenv("RADIX_ISLANDS_CACHE", str(tmp_path / "cache"))
    return path


def put(where: Path, name: str, script: str) -> Path:
    target = where / name
    target.write_text(f"#!/bin/sh\n{script}\n")
    target.chmod(0o755)
    return target


def test_a_program_on_path_is_taken_as_it_is(machine: Path) -> None:
    own = put(machine, "promtool", "")
    assert debs.program("promtool") == own


def test_two_programs_of_one_package_are_downloaded_once(machine: Path, tmp_path: Path) -> None:
    touch, mkdir = shutil.which("touch", path="/usr/bin:/bin"), shutil.which("mkdir", path="/usr/bin:/bin")
    put(machine, "apt-get", f'echo "$@" >> {tmp_path}/asked\n{touch} prometheus_1_amd64.deb')
    put(machine, "dpkg", f'{mkdir} -p "$3/usr/bin"\n{touch} "$3/usr/bin/promtool" "$3/usr/bin/prometheus"')
    assert debs.program("promtool").exists()
    assert debs.program("prometheus").exists()
    assert (tmp_path / "asked").read_text() == "-q download prometheus\n"


def test_without_apt_or_without_an_answer_there_is_a_sentence(machine: Path, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"no apt-get to take prometheus from; put its programs on PATH$"):
        debs.program("prometheus")
    put(machine, "apt-get", 'echo "E: Unable to locate package prometheus" >&2; exit 100')
    with pytest.raises(ClusterError, match=r"could not download prometheus: Unable to locate package prometheus; put"):
        debs.program("prometheus")
    assert [path.name for path in (tmp_path / "cache/debs").iterdir()] == [".lock"]
