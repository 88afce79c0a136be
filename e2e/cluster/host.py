"""What a node needs from the machine's kernel, what it changes there, and how that is undone."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .errors import ClusterError
from .render import CGROUP

if TYPE_CHECKING:
    from collections.abc import Callable

PROC_SYS = Path("/proc/sys")
# Kernel-wide settings that kubelet or we raise; saved before, restored by `down`.
SYSCTLS = (
    "fs/inotify/max_user_instances",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
INOTIFY_INSTANCES = 8192
CONTROLLERS = frozenset({"cpu", "cpuset", "memory", "pids"})


class Hierarchy(NamedTuple):
    """One mounted cgroup hierarchy; on version 1 there are several."""

    path: Path
    version: int
    options: frozenset[str]


def hierarchies(mountinfo: str) -> list[Hierarchy]:
    """The cgroup mounts in the text of /proc/self/mountinfo."""
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ")[:3]
        path = Path(before.split(" ")[4])
        if kind in {"cgroup", "cgroup2"} and path.is_relative_to("/sys/fs/cgroup"):
            found.append(Hierarchy(path, 2 if kind == "cgroup2" else 1, frozenset(options.split(","))))
    return found


def mounted_hierarchies() -> list[Hierarchy]:
    """The cgroup mounts of this machine."""
    return hierarchies(Path("/proc/self/mountinfo").read_text())


def is_unified(mounted: list[Hierarchy]) -> bool:
    """Pure cgroup version 2, as opposed to version 1 with or without an idle version 2 beside it."""
    return any(hierarchy.version == 2 and hierarchy.path == Path("/sys/fs/cgroup") for hierarchy in mounted)


def check_root() -> None:
    """Raise ClusterError unless this is root."""
    if os.geteuid() != 0:
        raise ClusterError("a node needs root (namespaces, mounts, cgroups): run this as root, for example with sudo")


def check(port: int) -> None:
    """Raise ClusterError for the first thing that this machine lacks."""
    for name in ("mnt", "net", "pid", "uts", "ipc"):
        if not Path(f"/proc/self/ns/{name}").exists():
            raise ClusterError(f"this kernel has no {name} namespaces; use one built with CONFIG_NAMESPACES")
    need_feature("overlay", lambda: "\toverlay\n" in Path("/proc/filesystems").read_text(), "CONFIG_OVERLAY_FS")
    bridge = PROC_SYS / "net/bridge/bridge-nf-call-iptables"
    need_feature("br_netfilter", bridge.exists, "CONFIG_BRIDGE_NETFILTER")
    mounted = mounted_hierarchies()
    if is_unified(mounted):
        offered = set(Path("/sys/fs/cgroup/cgroup.controllers").read_text().split())
    else:
        offered = {option for hierarchy in mounted for option in hierarchy.options}
    if not offered >= CONTROLLERS:
        raise ClusterError(
            f"no cgroup controller {' '.join(sorted(CONTROLLERS - offered))} under /sys/fs/cgroup; "
            "mount it, or boot with cgroup_enable= on the kernel's command line"
        )
    check_port(port)


def need_feature(module: str, test: Callable[[], bool], config: str) -> None:
    """Raise ClusterError unless `test` holds, before or after loading the kernel module."""
    if not test():
        with contextlib.suppress(OSError):
            subprocess.run(["modprobe", module], capture_output=True, check=False)
        if not test():
            raise ClusterError(f"this kernel lacks {module}: load the module, or use a kernel with {config}")


def parse_port(text: str) -> int:
    """A TCP port an ordinary service may use; ClusterError says which numbers those are."""
    if not text.isdecimal() or not 1024 <= int(text) <= 65535:
        raise ClusterError(f"--port (or API_PORT) is {text!r}; use a number from 1024 to 65535")
    return int(text)


def check_port(port: int) -> None:
    """Raise ClusterError when something listens on the machine's loopback at `port`."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ClusterError(
                f"port {port} on 127.0.0.1 is taken ({error.strerror}); choose another with --port or API_PORT"
            ) from None


def read_sysctls() -> dict[str, str]:
    """The settings in SYSCTLS that this kernel has."""
    return {name: (PROC_SYS / name).read_text().strip() for name in SYSCTLS if (PROC_SYS / name).exists()}


def raise_sysctls() -> None:
    """Kubelet and the containers' shims watch many files; the usual 128 instances per user are not enough."""
    instances = PROC_SYS / "fs/inotify/max_user_instances"
    if int(instances.read_text()) < INOTIFY_INSTANCES:
        instances.write_text(str(INOTIFY_INSTANCES))


def restore_sysctls(saved: dict[str, str]) -> list[str]:
    """Write back what differs; returns what could not be."""
    failed = []
    for name, value in saved.items():
        path = PROC_SYS / name
        try:
            if path.read_text().strip() != value:
                path.write_text(value)
        except OSError as error:
            failed.append(f"{path}: {error.strerror}")
    return failed


def planned_cgroups(mounted: list[Hierarchy]) -> list[str]:
    """The directories that a node brings into being and that are not there yet; the second one is containerd's."""
    paths = [hierarchy.path / name for hierarchy in mounted for name in (CGROUP, "k8s.io")]
    return [str(path) for path in paths if path.name == CGROUP or not path.exists()]


def subtree_controls(mounted: list[Hierarchy]) -> dict[str, str]:
    """Which, on cgroup version 2, controllers the root passes on now; kubelet will add to them."""
    files = [h.path / "cgroup.subtree_control" for h in mounted if h.version == 2]
    return {str(path): path.read_text().strip() for path in files if path.exists()}


def make_cgroups(mounted: list[Hierarchy]) -> None:
    """Our own subtree in every hierarchy, under which kubelet puts the pods."""
    for hierarchy in mounted:
        ours = hierarchy.path / CGROUP
        ours.mkdir(exist_ok=True)
        if "cpuset" in hierarchy.options:  # version 1: a new set is empty, and takes no process until it is filled
            for name in ("cpuset.cpus", "cpuset.mems"):
                (ours / name).write_text((hierarchy.path / name).read_text())


def remove_cgroups(directories: list[str], patience: float = 5.0) -> list[str]:
    """Remove the trees bottom-up, waiting for the kernel to let go of the last processes; returns what is left."""
    deadline = time.monotonic() + patience
    while True:
        for top in directories:
            for path, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):
                    Path(path).rmdir()
        left = [top for top in directories if Path(top).exists()]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


def restore_subtree_controls(saved: dict[str, str]) -> list[str]:
    """Take back the controllers that were added since; returns what could not be."""
    failed = []
    for file, before in saved.items():
        path = Path(file)
        with contextlib.suppress(FileNotFoundError):
            added = set(path.read_text().split()) - set(before.split())
            try:
                if added:
                    path.write_text(" ".join(f"-{name}" for name in sorted(added)))
            except OSError as error:
                failed.append(f"{path}: {error.strerror}")
    return failed


def remove_tree(path: Path, patience: float = 5.0) -> None:
    """Remove it all, giving the kernel time to drop the mounts of namespaces that are ending."""
    deadline = time.monotonic() + patience
    while path.exists():
        shutil.rmtree(path, ignore_errors=True)
        if time.monotonic() > deadline:
            return
        if path.exists():
            time.sleep(0.05)
