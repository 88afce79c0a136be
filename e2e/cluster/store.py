"""containerd in the node, and what its image store holds."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING

from . import node, processes, render
from .errors import ClusterError
from .progress import step

if TYPE_CHECKING:
    from pathlib import Path

    from .images import Image


def start(init: int, pause: str, *, cri: bool) -> None:
    """Start containerd in the node and wait until it answers."""
    config = _config(pause, cri=cri)
    node.spawn(init, "containerd", ["/usr/bin/containerd", "-c", str(config)])
    deadline = time.monotonic() + 20
    while not _answers():
        if time.monotonic() > deadline:
            raise ClusterError(f"containerd did not come up in 20 s: {node.tail(node.LOG / 'containerd.log')}")
        time.sleep(0.02)


def _config(pause: str, *, cri: bool) -> Path:
    return node.write_config("containerd.toml" if cri else "store.toml", render.containerd(pause, cri=cri))


def _answers() -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(render.CONTAINERD_SOCKET))
        except OSError:
            return False
    return True


def stop_store() -> None:
    """End the containerd that was started without CRI."""
    pids = processes.marked(str(render.CONFIG / "store.toml"), "containerd")
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + 10
    while any(processes.arguments(pid) for pid in pids):
        if time.monotonic() > deadline:
            raise ClusterError("containerd did not stop in 10 s; run `cluster down`, then `cluster up`")
        time.sleep(0.01)
    render.CONTAINERD_SOCKET.unlink(missing_ok=True)


def ctr(*args: str) -> str:
    """Standard output of `ctr` on the node's containerd, in Kubernetes' namespace."""
    command = ["ctr", "--address", str(render.CONTAINERD_SOCKET), "--namespace", "k8s.io", *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"ctr {' '.join(args[:2])} failed: {done.stderr.strip()}")
    return done.stdout


def parse_images(listing: str) -> dict[str, str]:
    """Reference -> digest, from what `ctr images ls` prints."""
    rows = [line.split() for line in listing.splitlines()[1:]]
    return {row[0]: row[2] for row in rows if len(row) > 2}


def held() -> dict[str, str]:
    """Reference -> digest of the images in the store."""
    return parse_images(ctr("images", "ls"))


def forget_containers() -> None:
    """Drop the containers of a node that was killed; their images and layers stay."""
    containers = ctr("containers", "ls", "-q").split()
    if containers:
        ctr("containers", "rm", *containers)


def is_current(image: Image, images: dict[str, str]) -> bool:
    """Does the store hold this very content under the image's reference?"""
    return image.keyed in images and images.get(image.ref) == images[image.keyed]


def bring(wanted: list[Image]) -> None:
    """Import what the store does not hold, point the references at it, and drop what they pointed at before."""
    images = held()
    for image in wanted:
        if is_current(image, images):
            continue
        if image.keyed not in images:
            with step(f"importing {image.ref} into containerd", "a few seconds"):
                ctr("images", "import", "--digests=false", str(image.archive))
        if image.ref != image.keyed:
            ctr("images", "tag", "--force", image.keyed, image.ref)
    keep = {ref for image in wanted for ref in (image.ref, image.keyed)}
    repositories = {image.repository for image in wanted}
    old = [ref for ref in images if ref not in keep and ref.rsplit(":", 1)[0] in repositories]
    if old:
        ctr("images", "rm", *old)
