"""What builds images: buildah, its storage, a Debian base, wheels, and the sources that images are named by."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from . import apt
from .errors import ClusterError
from .paths import CHECKOUT, cache, content_key, need_space
from .progress import say, step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

INTERNAL = "localhost/radix-islands"
SUITE = "bookworm"
# libnuma: SGLang's CPU kernels; python3-venv: the Dockerfile makes virtual environments, as python:3.11 could too.
BASE_PACKAGES = ("python3", "python3-venv", "libnuma1", "ca-certificates")
BASE_EXCLUDES = ("doc", "man", "locale", "info")
LOCKS = tuple(CHECKOUT / "locks" / name for name in ("build.txt", "operator.txt"))
SOURCES = ("operator/island_operator", "engine/island_engine")
DOCKERFILE = CHECKOUT / "Dockerfile"


def images_directory() -> Path:
    """Archives, the base and buildah's storage."""
    return cache() / "images"


def source_files() -> list[Path]:
    """What the Dockerfile copies, in a fixed order."""
    files = [CHECKOUT / name for name in ("pyproject.toml", "README.md", "LICENSE")]
    for directory in SOURCES:
        found = (CHECKOUT / directory).rglob("*")
        files += sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts)
    return [DOCKERFILE, *LOCKS, *files]


def source_key() -> str:
    """The content key of both images: every file that goes in, by name and bytes, and the base."""
    parts: list[str | Path] = [base_key()]
    for path in source_files():
        parts += [str(path.relative_to(CHECKOUT)), path]
    return content_key(parts)


def base_key() -> str:
    """The content key of the Debian base."""
    return content_key([SUITE, *BASE_PACKAGES, *BASE_EXCLUDES])


def run(command: list[str], what: str, **environment: str) -> None:
    """Run a command; ClusterError with its last line when it fails."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        say(said[-4000:])
        raise ClusterError(f"{what} failed: {said.splitlines()[-1] if said else f'exit {done.returncode}'}")


def buildah(*args: str) -> list[str]:
    """The command, on a storage of our own."""
    home = images_directory()
    storage = ["--root", str(home / "store"), "--runroot", str(home / "run"), "--storage-driver", "overlay"]
    return ["buildah", *storage, *args]


def base() -> str:
    """The reference, in buildah's storage, of a Debian base made from packages; made when missing."""
    ref = f"{INTERNAL}/base:{base_key()}"
    tar = images_directory() / f"debian-{base_key()}.tar"
    if not tar.exists():
        need_space(tar, 2, "a Debian base for the images")
        sources = [
            str(path)
            for path in (Path("/etc/apt/sources.list"), Path("/etc/apt/sources.list.d/debian.sources"))
            if path.exists() and SUITE in path.read_text()
        ]
        fresh = tar.with_suffix(".new.tar")
        options = [f"--include={','.join(BASE_PACKAGES)}"]
        options += [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in BASE_EXCLUDES]
        with step(f"making a Debian {SUITE} base from packages", "about 1 min, once per machine"):
            run(
                ["mmdebstrap", "--quiet", "--variant=minbase", *options, SUITE, str(fresh), *sources],
                "mmdebstrap",
            )
        fresh.rename(tar)
    if subprocess.run(buildah("inspect", "--type", "image", ref), capture_output=True, check=False).returncode:
        with step("unpacking the Debian base"), tempfile.TemporaryDirectory(dir=images_directory()) as scratch:
            (Path(scratch) / "base.tar").hardlink_to(tar)
            (Path(scratch) / "Dockerfile").write_text("FROM scratch\nADD base.tar /\n")
            command = buildah("bud", "--isolation", "chroot", "--timestamp", "0", "-t", ref, scratch)
            run(command, "unpacking the Debian base")
    return ref


def wheelhouse() -> Path:
    """The operator's wheels, kept as long as its locks stay."""
    target = cache() / "wheels" / content_key(LOCKS)
    if not target.exists():
        with step("downloading the operator's Python packages", "about 20 s, once per lock"):
            download(LOCKS, target)
        for old in target.parent.iterdir():
            if old != target:
                shutil.rmtree(old)
    return target


def download(locks: Iterable[Path], target: Path) -> None:
    """The wheels that the locks name, with this machine's own pip settings, where `target` is missing; their hashes are
    verified, and again where they are installed.
    """
    if target.exists():
        return
    fresh = target.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)  # pip unpacks there too: /tmp may be small
    pip = cache() / "tools" / "pip"
    if not (pip / "bin" / "pip").exists():
        run([sys.executable, "-m", "venv", str(pip)], "python3 -m venv")
    options = ["--only-binary=:all:", "--python-version", "3.11", "--no-deps", "--require-hashes"]
    for lock in locks:
        command = [str(pip / "bin" / "pip"), "download", "-q", "--disable-pip-version-check", *options]
        run([*command, "-d", str(fresh), "-r", str(lock)], f"pip download -r {lock.name}", TMPDIR=str(fresh))
    fresh.rename(target)


def forget_builds_before(repository: str, keep: str) -> None:
    """Drop the images of older contents from buildah's storage; layers that the kept one uses stay."""
    command = buildah("images", "--format", "{{.Name}}:{{.Tag}}")
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    old = [ref for ref in listed if ref.startswith(f"{repository}:") and ref != keep]
    if old:
        run(buildah("rmi", *old), f"dropping older builds of {repository}")
    run(buildah("rmi", "--prune"), "dropping builds that nothing names")


@contextlib.contextmanager
def building(more: Iterable[Path] = ()) -> Iterator[Callable[..., None]]:
    """`build(target, ref, key, *options)` runs buildah on a copy of the sources, and of `more` files of the checkout,
    which may change meanwhile.
    """
    apt.ensure(apt.IMAGES)
    need_space(images_directory(), 3, "building container images")
    for left in images_directory().glob("context.*"):  # of a build that was killed
        shutil.rmtree(left, ignore_errors=True)
    fixed = [f"--build-arg={setting}" for setting in (f"BASE={base()}", "PIP_NO_INDEX=1", "PIP_FIND_LINKS=/wheels")]
    # oci: the docker format's configuration names the host and the container of the build, so no two are equal
    fixed += ["--isolation=chroot", "--pull-never", "--network=host", "--layers", "--format=oci", "--timestamp=0"]
    fixed += [f"--volume={wheelhouse()}:/wheels:ro"]
    with tempfile.TemporaryDirectory(dir=images_directory(), prefix="context.") as scratch:
        context, temporary = (Path(scratch) / name for name in ("context", "tmp"))
        temporary.mkdir()  # layers pass through here: /var/tmp may be small
        for path in (*source_files(), *more):
            copy = context / path.relative_to(CHECKOUT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)

        def build(target: str, ref: str, key: str, *options: str) -> None:
            made = [f"--target={target}", f"--tag={ref}", f"--build-arg=REVISION={key}"]  # a working tree is no commit
            command = buildah("bud", *fixed, *made, *options, str(context))
            run(command, f"building {ref}", TMPDIR=str(temporary))

        yield build


def image_id(ref: str) -> str:
    """Of an image in buildah's storage: the digest of its configuration, and so of all that is in it."""
    command = buildah("images", "--no-trunc", "--quiet", ref)
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
