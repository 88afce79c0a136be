"""Where the demo runs: our own cluster of e2e/cluster, tied to this process, or the one of KUBECONFIG_DEMO."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from demo.kube import Kube

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "e2e" / "cluster" / "cluster"
GPUS = 3  # two that serve and the spare one that gate and canary need in mode Surge


class ClusterError(RuntimeError):
    """The cluster could not be had; the text says why in one sentence."""


def binaries() -> Path:
    """The folder of kubeall and helm, built when missing (minutes, once per machine)."""
    return Path(_last_line([str(CLUSTER), "binaries"]))


def foreign() -> Path | None:
    """The kubeconfig of another cluster to run on, if the caller named one."""
    named = os.environ.get("KUBECONFIG_DEMO")
    if not named:
        return None
    path = Path(named)
    if not path.is_file():
        raise ClusterError(f"KUBECONFIG_DEMO names {named}, which is not a file: give the path of a kubeconfig")
    return path


def must_be_free() -> None:
    """ClusterError where a cluster of ours is up: somebody uses it, and the demo would take it down when it ends."""
    if foreign() is not None:
        return
    done = subprocess.run([str(CLUSTER), "status", "--json"], text=True, stdout=subprocess.PIPE, check=False)
    found = json.loads(done.stdout) if done.stdout else {}
    if found.get("up"):
        raise ClusterError(
            f"a cluster is up since {found['since']}, and the demo takes down what it runs on when it is interrupted: "
            "end that one with `make cluster-down`, then run the demo again"
        )


def up() -> Kube:
    """A running cluster that dies with this process until `keep` is called."""
    if (path := foreign()) is not None:
        return Kube(path, binaries())
    line = _last_line([str(CLUSTER), "up", "--gpus", str(GPUS), "--tied-to", str(os.getpid())])
    return Kube(Path(line.removeprefix("export KUBECONFIG=")), binaries())


def keep() -> None:
    """Let our cluster outlive this process, for a person who wants to look around."""
    if foreign() is None:
        subprocess.run([str(CLUSTER), "untie"], check=True, stdout=subprocess.DEVNULL)


def down() -> None:
    """Take our cluster down; a foreign one keeps what was installed."""
    if foreign() is None:
        subprocess.run([str(CLUSTER), "down"], check=False)


def _last_line(argv: list[str]) -> str:
    """Run, its progress on our stderr, and return the last line of its answer."""
    done = subprocess.run(argv, text=True, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise ClusterError(f"{' '.join(Path(a).name if a.startswith('/') else a for a in argv)} failed, see above")
    return done.stdout.splitlines()[-1]
