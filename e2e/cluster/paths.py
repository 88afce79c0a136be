"""Where things are: this checkout, the machine's cache, and the one place of a running node's state."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterable

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
# One node per machine, whoever starts it: a directory that all checkouts see, and that a reboot clears.
RUN = Path("/run/radix-islands")


def cache() -> Path:
    """The directory outside every checkout that holds what is costly to make; RADIX_ISLANDS_CACHE moves it."""
    return Path(os.environ.get("RADIX_ISLANDS_CACHE") or Path.home() / ".cache" / "radix-islands").resolve()


def content_key(parts: Iterable[bytes | str | Path]) -> str:
    """16 hex digits over the given bytes, texts and file contents, in order; the parts' borders count."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, Path) else part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()[:16]


def need_space(where: Path, gib: float, what: str) -> None:
    """Raise ClusterError unless `where` (or its nearest parent that exists) has `gib` GiB free."""
    there = where
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free / 2**30
    if free < gib:
        raise ClusterError(
            f"{what} needs {gib:g} GiB free in {where}, but only {free:.1f} GiB are; "
            "free some, or set RADIX_ISLANDS_CACHE to a directory on a larger disk"
        )
