"""The node: namespaces of its own around tini, and the programs that run inside."""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import TYPE_CHECKING

from . import processes, render
from .errors import ClusterError
from .paths import HERE, RUN

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LOG = RUN / "log"
API_SOCKET = RUN / "api.sock"
# Nothing of the caller's environment reaches the node: a proxy variable alone would break it.
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}


def start(state: Path, binaries: Path, binds: dict[str, Path]) -> int:
    """Start the namespaces, wait until they are furnished, and return their init's pid.

    `state` is the node's directory on disk; `binds` are directories of the machine that the node sees read-only as
    /opt/radix-islands/<name>.
    """
    LOG.mkdir(exist_ok=True)
    for directory in (state / "var", state / "containerd"):
        directory.mkdir(parents=True, exist_ok=True)
    log = LOG / "init.log"
    namespaces = ["--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--propagation", "private"]
    processes.detach(
        ["unshare", *namespaces, "tini", "-s", "--", str(HERE / "node-init.sh"), processes.NODE_MARK],
        env={
            **ENVIRONMENT,
            "RUN": str(RUN),
            "STATE": str(state),
            "BIN": str(binaries),
            "BINDS": "\n".join(f"{name}={path}" for name, path in binds.items()),
            "NODE_NAME": render.NODE_NAME,
            "NODE_IP": render.NODE_IP,
        },
        log=log,
    )
    deadline = time.monotonic() + 20
    while not (RUN / "ready").exists():
        time.sleep(0.02)
        if time.monotonic() > deadline or (time.monotonic() > deadline - 15 and processes.node_init() is None):
            raise ClusterError(f"the node's namespaces could not be set up: {tail(log) or 'nothing in ' + str(log)}")
    init = processes.node_init()
    if init is None:
        raise ClusterError(f"the node's first process died at once: {tail(log)}")
    return init


def enter(init: int, *argv: str) -> list[str]:
    """The command line that runs `argv` inside the node."""
    return ["nsenter", "-t", str(init), "-m", "-n", "-p", "-u", "-i", "--", *argv]


def spawn(init: int, name: str, argv: Sequence[str]) -> None:
    """Run `argv` in the node, its output in LOG/<name>.log. It is nobody's child but the node's."""
    shell = ["/bin/sh", "-c", 'exec "$@" >>"$0" 2>&1', str(LOG / f"{name}.log"), *argv]
    _run(enter(init, "/usr/bin/setsid", "--fork", *shell))


def forward_api(init: int, port: int) -> None:
    """The API server on the machine's loopback: two socats, joined by a unix socket that both sides see. The outer one
    lives in the machine's network but in the node's process namespace, and so ends with the node.
    """
    spawn(init, "socat", ["/usr/bin/socat", f"UNIX-LISTEN:{API_SOCKET},fork,mode=600", "TCP:127.0.0.1:6443"])
    outer = ["socat", f"TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr,fork", f"UNIX-CONNECT:{API_SOCKET}"]
    _run(["nsenter", "-t", str(init), "-p", "--", "/usr/bin/setsid", "--fork", *outer])


def _run(argv: list[str]) -> None:
    done = subprocess.run(
        argv,
        env=ENVIRONMENT,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode:
        raise ClusterError(f"could not start {argv[-1]} in the node (exit {done.returncode}); is the node still alive?")


def write_config(name: str, content: str | render.Object) -> Path:
    """A file under CONFIG, readable by root alone."""
    path = render.CONFIG / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
    return path


def certificates(kubeall: Path, version: str) -> None:
    """Certificates and kubeconfigs, by kubeadm's own phases."""
    config = write_config("kubeadm.yaml", render.kubeadm(version))
    for phase in (["certs", "all"], ["kubeconfig", "all", "--kubeconfig-dir", str(render.CONFIG)]):
        done = subprocess.run(
            [str(kubeall), "kubeadm", "init", "phase", *phase, "--config", str(config)],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            reason = " ".join(done.stderr.strip().splitlines()[-1:])
            raise ClusterError(f"kubeadm could not make the cluster's {phase[0]}: {reason}")


def tail(log: Path, lines: int = 3) -> str:
    """The last lines of a log, joined; empty when there is none."""
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return ""
    return " | ".join(line.strip() for line in text.splitlines()[-lines:])


def in_node(argv: Sequence[str]) -> int:
    """Run a command inside the node with the caller's terminal; returns its exit code."""
    init = processes.node_init()
    if init is None:
        raise ClusterError("no node runs here; start it with `cluster up`")
    return subprocess.run(enter(init, *argv), env={**os.environ, **ENVIRONMENT}, check=False).returncode
