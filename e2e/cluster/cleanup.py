"""`cluster down`: undo everything that `up` did to this machine, whatever state it is in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from . import guard, host, owner, processes
from .errors import ClusterError
from .paths import RUN, cache
from .progress import step

if TYPE_CHECKING:
    from .owner import Owner


def tear_down(record: Owner | None, *, keep_guard: bool = False) -> None:
    """End the node and undo what the record names; ClusterError lists what would not go. Never touches what outlives
    a node on purpose: the cache.
    """
    if not keep_guard:
        guard.stop()
    left = []
    init = processes.node_init()
    # unshare, outside, ends with its child; all else is inside the process namespace and dies with its first process
    pids = [*([init] if init else []), *processes.marked(processes.NODE_MARK, "unshare")]
    if not processes.kill(pids):
        left.append(f"processes {pids}")
    if record and record.boot == owner.boot_id():
        left += host.remove_cgroups(record.cgroups)
        left += host.restore_subtree_controls(record.subtree)
        left += host.restore_sysctls(record.sysctls)
    if record:
        host.remove_tree(Path(record.state) / "var")
    host.remove_tree(RUN)
    left += [str(path) for path in (RUN, *([Path(record.state) / "var"] if record else [])) if path.exists()]
    if left:
        raise ClusterError(f"the node is down, but this would not go: {', '.join(left)}; try `cluster down` again")


def purge() -> None:
    """Also drop what later nodes would reuse: containerd's store, built images and buildah's storage."""
    with step("dropping the image store and built images"):
        for directory in (cache() / "node", cache() / "images"):
            host.remove_tree(directory)
