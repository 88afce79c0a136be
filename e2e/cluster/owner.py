"""Whose node runs on this machine. One record at a fixed place, written before the machine is changed, so that whoever
comes next knows what to undo, also after a kill half-way.
"""

from __future__ import annotations

import contextlib
import enum
import fcntl
import json
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .paths import RUN
from .progress import say

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORD = RUN / "owner.json"
TOOL = Path("e2e/cluster/cluster")


@dataclass(frozen=True)
class Owner:
    """What was changed on this machine, and for whom."""

    checkout: str
    state: str  # the node's directory on disk: its /var and containerd's store
    boot: str  # the kernel's boot id: a record of an earlier boot describes nothing that is left
    since: str
    port: int
    binaries: str  # the directory whose programs run
    binds: dict[str, str]  # name -> directory of the machine that the node sees read-only
    sysctls: dict[str, str] = field(default_factory=dict)  # path under /proc/sys -> value before
    cgroups: list[str] = field(default_factory=list)  # directories that we made, or that containerd will make
    subtree: dict[str, str] = field(default_factory=dict)  # cgroup v2: subtree_control file -> controllers before

    @property
    def take_down(self) -> str:
        """The command that ends it."""
        return f"{Path(self.checkout) / TOOL} down"


class Claim(enum.Enum):
    """How this checkout stands to the machine's node."""

    FREE = "free"  # nothing is recorded and nothing runs
    OURS = "ours"  # it runs, for this checkout
    THEIRS = "theirs"  # it runs, for another checkout
    STALE = "stale"  # something is left of a node that is no more: anyone may clean up


def decide(owner: Owner | None, *, checkout: Path, alive: bool, their_tool_exists: bool) -> Claim:
    """Judge the record. `alive`: the node's init runs. A node whose checkout was deleted is anyone's to end."""
    if owner is None:
        return Claim.STALE if alive else Claim.FREE
    if not alive:
        return Claim.STALE
    if owner.checkout == str(checkout):
        return Claim.OURS
    return Claim.THEIRS if their_tool_exists else Claim.STALE


def load() -> Owner | None:
    """The record, or None where there is none (or only the beginning of one)."""
    try:
        return Owner(**json.loads(RECORD.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def save(owner: Owner) -> None:
    """Write the record in one step: a reader sees the old one or the new one."""
    RUN.mkdir(mode=0o755, exist_ok=True)
    fresh = RECORD.with_suffix(".new")
    fresh.write_text(json.dumps(asdict(owner), indent=1))
    fresh.rename(RECORD)


def boot_id() -> str:
    """The kernel's name for this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@contextlib.contextmanager
def machine_lock() -> Iterator[None]:
    """One `up` or `down` at a time on this machine, over all checkouts. It locks the directory /run itself: a lock
    file would be one thing more to leave behind.
    """
    handle = os.open("/run", os.O_RDONLY | os.O_DIRECTORY)
    try:
        told = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    say("waiting: another `cluster up` or `cluster down` is at work on this machine")
                    told = True
                time.sleep(0.1)
        yield
    finally:
        os.close(handle)
