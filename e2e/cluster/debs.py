"""Programs that tests run and nobody should have to install, taken out of Debian's packages into the cache."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from .apt import complaint
from .errors import ClusterError
from .paths import cache, content_key
from .progress import locked, step

# Program -> the Debian 12 package that brings it.
PACKAGES = {"prometheus": "prometheus", "promtool": "prometheus"}


def program(name: str) -> Path:
    """The program from PATH, else out of its package, which is downloaded (apt checks it) and unpacked when missing.

    Raises ClusterError (one sentence) when it cannot be had. Root is not needed where apt has its lists.
    """
    if on_path := shutil.which(name):
        return Path(on_path)
    package = PACKAGES[name]
    target = cache() / "debs" / content_key(["bookworm", package])
    if not target.exists():
        with locked(cache() / "debs" / ".lock", f"Debian's {package}"):
            if not target.exists():
                with step(f"taking {name} out of Debian's package {package}", "a few seconds, once per machine"):
                    _unpack(package, target)
    return target / "usr" / "bin" / name


def _unpack(package: str, target: Path) -> None:
    if not shutil.which("apt-get"):
        raise ClusterError(f"there is no apt-get to take {package} from; put its programs on PATH")
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        if said := _download(package, scratch):
            subprocess.run(["apt-get", "-q", "update"], capture_output=True, check=False)
            said = _download(package, scratch)
        if said:
            raise ClusterError(f"apt could not download {package}: {said}; put its programs on PATH")
        (deb,) = Path(scratch).glob("*.deb")
        subprocess.run(["dpkg", "-x", str(deb), f"{scratch}/root"], capture_output=True, check=True)
        Path(scratch, "root").rename(target)


def _download(package: str, where: str) -> str:
    """Empty, or what apt complained of."""
    command = ["apt-get", "-q", "download", package]
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
    return complaint(done.stdout + done.stderr) if done.returncode else ""
