"""Debian packages that the node and its images need: found by what they provide, installed only when missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from .errors import ClusterError
from .progress import step

# What we use -> the Debian 12 package that brings it. A name without a slash is looked for on PATH.
NODE = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "iptables": "iptables",
    "ip": "iproute2",
    "tini": "tini",
    "socat": "socat",
    "conntrack": "conntrack",
    "modprobe": "kmod",
    "/etc/ssl/certs/ca-certificates.crt": "ca-certificates",
    "/usr/share/python-wheels": "python3-venv",
}
# What integration tests look at pages with, and what SGLang compiles NGRAM's corpus with at its first start.
TESTING = {
    "chromium": "chromium",
    "/usr/share/fonts/truetype/dejavu": "fonts-dejavu-core",
    "g++": "g++",
    "ninja": "ninja-build",
}
IMAGES = {"buildah": "buildah", "mmdebstrap": "mmdebstrap"}


def provided(thing: str) -> bool:
    """Is the program on PATH, or the path there?"""
    return Path(thing).exists() if "/" in thing else shutil.which(thing) is not None


def missing(wanted: dict[str, str]) -> list[str]:
    """The packages, sorted and once each, whose things are not provided."""
    return sorted({package for thing, package in wanted.items() if not provided(thing)})


def ensure(wanted: dict[str, str]) -> None:
    """Install what is missing; ClusterError names the packages that apt could not bring."""
    packages = missing(wanted)
    if not packages:
        return
    if not shutil.which("apt-get"):
        raise ClusterError(
            f"there is no apt-get to install these Debian packages with: {' '.join(packages)}; install them"
        )
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with step(f"apt-get install {' '.join(packages)}", "about 1 min"):
        said = ""
        for command in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
            done = subprocess.run(
                ["apt-get", "-q", *command], env=environment, capture_output=True, text=True, check=False
            )
            said += done.stdout + done.stderr
    left = missing(wanted)
    if left:
        raise ClusterError(
            f"apt could not install {' '.join(left)}: {complaint(said)}; install them, then run this again"
        )


def complaint(said: str) -> str:
    """The first line that apt called an error ("E: ..."), else its last line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return next((line[3:] for line in lines if line.startswith("E: ")), lines[-1] if lines else "it said nothing")
