"""What the README tells a person to type under "Use it" works as it stands there."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from demo.environment import ROOT
from demo.telling import SYSTEM, settled

if TYPE_CHECKING:
    from demo.kube import Kube


def commands() -> str:
    """The shell block of the section."""
    section = (ROOT / "README.md").read_text().split("\n## Use it\n")[1].split("\n## ")[0]
    return section.split("```sh\n")[1].split("```")[0]


def test_its_commands_work_as_typed(kube: Kube) -> None:
    block = commands()
    assert block.count("kubectl patch iisvc tiny-gemma") == 2
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=420,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    kube.run("wait", "iisvc/tiny-gemma", "--for=condition=Ready", "--timeout=120s", timeout=130)
    served = kube.get("iisvc", "tiny-gemma")
    assert settled(served)
    assert served["status"]["islands"]["enabled"] is False  # the last command was the kill switch
    kube.run("delete", "iisvc", "tiny-gemma", "--cascade=foreground", "--timeout=150s", timeout=160)
    kube.helm("uninstall", "radix-islands", "--namespace", SYSTEM, "--wait")
