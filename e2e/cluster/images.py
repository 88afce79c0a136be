"""The node's images: built here, kept as archives in the cache, named by what they are made of. No registry."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from . import apt
from .errors import ClusterError
from .paths import CHECKOUT, cache, content_key, need_space
from .progress import locked, say, step

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
GO_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Image:
    """One image that the node holds."""

    repository: str
    tag: str  # what pods name
    key: str  # of its contents
    build: Callable[[Image], None]  # writes `archive`

    @property
    def ref(self) -> str:
        """The reference that pods name."""
        return f"{self.repository}:{self.tag}"

    @property
    def keyed(self) -> str:
        """The reference that no other content has."""
        return f"{self.repository}:{self.key}"

    @property
    def archive(self) -> Path:
        """The image as a docker-archive."""
        return images_directory() / f"{self.repository.rsplit('/', 1)[1]}-{self.key}.tar"


def images_directory() -> Path:
    """Archives, the base and buildah's storage."""
    return cache() / "images"


def internal(binaries: Path) -> dict[str, Image]:
    """The images without which no pod runs (pause) and no name resolves (coredns)."""
    found = {}
    for name, arguments in {"pause": ["/pause"], "coredns": ["/coredns"]}.items():
        binary = binaries / name
        key = content_key([binaries.name, name])

        def build(image: Image, binary: Path = binary, arguments: list[str] = arguments) -> None:
            write_archive(image.archive, image.keyed, binary, arguments)

        found[name] = Image(f"{INTERNAL}/{name}", key, key, build)
    return found


def ours() -> list[Image]:
    """The two images of this project, of this checkout's contents; IMAGE_PREFIX renames them."""
    prefix = os.environ.get("IMAGE_PREFIX") or INTERNAL
    key = source_key()
    return [Image(f"{prefix}/{name}", "dev", key, _build_from_dockerfile) for name in ("operator", "engine-cpu")]


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


def ensure(wanted: list[Image]) -> None:
    """Build the archives that are missing, one process on the machine at a time."""
    if all(image.archive.exists() for image in wanted):
        return
    with locked(images_directory() / ".lock", "container images"):
        for image in wanted:
            if not image.archive.exists():
                image.build(image)
                _forget_archives_before(image)


# Another checkout may be about to import the archive that it has just built.
ARCHIVES_KEPT = 3


def _forget_archives_before(image: Image) -> None:
    """Drop all but the newest archives of this repository."""
    pattern = image.archive.name.replace(image.key, "*")
    archives = sorted(images_directory().glob(pattern), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in archives[ARCHIVES_KEPT:]:
        old.unlink()


def write_archive(target: Path, ref: str, program: Path, entrypoint: list[str]) -> None:
    """A docker-archive of one layer that holds one static program, at the path that `entrypoint` begins with."""
    target.parent.mkdir(parents=True, exist_ok=True)
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        entry = tarfile.TarInfo(entrypoint[0].lstrip("/"))
        entry.size, entry.mode = program.stat().st_size, 0o755
        with program.open("rb") as data:
            tar.addfile(entry, data)
    diff = hashlib.sha256(layer.getbuffer()).hexdigest()
    config = json.dumps(
        {
            "architecture": GO_ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Entrypoint": entrypoint},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{diff}"]},
        }
    ).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": name, "RepoTags": [ref], "Layers": ["layer.tar"]}]).encode()
    fresh = target.with_suffix(".new")
    with tarfile.open(fresh, "w") as tar:
        for member, content in ((name, config), ("manifest.json", manifest), ("layer.tar", layer.getvalue())):
            entry = tarfile.TarInfo(member)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    fresh.rename(target)


def _run(command: list[str], what: str, **environment: str) -> None:
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


def _buildah(*args: str) -> list[str]:
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
            _run(
                ["mmdebstrap", "--quiet", "--variant=minbase", *options, SUITE, str(fresh), *sources],
                "mmdebstrap",
            )
        fresh.rename(tar)
    if subprocess.run(_buildah("inspect", "--type", "image", ref), capture_output=True, check=False).returncode:
        with step("unpacking the Debian base"), tempfile.TemporaryDirectory(dir=images_directory()) as scratch:
            (Path(scratch) / "base.tar").hardlink_to(tar)
            (Path(scratch) / "Dockerfile").write_text("FROM scratch\nADD base.tar /\n")
            command = _buildah("bud", "--isolation", "chroot", "--timestamp", "0", "-t", ref, scratch)
            _run(command, "unpacking the Debian base")
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
        _run([sys.executable, "-m", "venv", str(pip)], "python3 -m venv")
    options = ["--only-binary=:all:", "--python-version", "3.11", "--no-deps", "--require-hashes"]
    for lock in locks:
        command = [str(pip / "bin" / "pip"), "download", "-q", "--disable-pip-version-check", *options]
        _run([*command, "-d", str(fresh), "-r", str(lock)], f"pip download -r {lock.name}", TMPDIR=str(fresh))
    fresh.rename(target)


def forget_builds_before(repository: str, keep: str) -> None:
    """Drop the images of older contents from buildah's storage; layers that the kept one uses stay."""
    command = _buildah("images", "--format", "{{.Name}}:{{.Tag}}")
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    old = [ref for ref in listed if ref.startswith(f"{repository}:") and ref != keep]
    if old:
        _run(_buildah("rmi", *old), f"dropping older builds of {repository}")
    _run(_buildah("rmi", "--prune"), "dropping builds that nothing names")


@contextlib.contextmanager
def builder(more: Iterable[Path] = ()) -> Iterator[Callable[..., None]]:
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
            command = _buildah("bud", *fixed, *made, *options, str(context))
            _run(command, f"building {ref}", TMPDIR=str(temporary))

        yield build


def image_id(ref: str) -> str:
    """Of an image in buildah's storage: the digest of its configuration, and so of all that is in it."""
    command = _buildah("images", "--no-trunc", "--quiet", ref)
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _build_from_dockerfile(image: Image) -> None:
    target = image.repository.rsplit("/", 1)[1]
    with step(f"building image {image.ref}", "about 30 s"), builder() as build:
        # The stage that both images copy from is named too: only so is it still there for the next build to reuse.
        stage = f"{INTERNAL}/build:{image.key}"
        build("build", stage, image.key)
        build(target, image.keyed, image.key)
        pack(image)
    forget_builds_before(f"{INTERNAL}/build", stage)
    forget_builds_before(image.repository, image.keyed)
    say(f"built {image.ref}: {image.archive.stat().st_size / 2**20:.0f} MiB unpacked")


def pack(image: Image) -> None:
    """Write the archive of an image in buildah's storage."""
    fresh = image.archive.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    _run(_buildah("push", image.keyed, f"docker-archive:{fresh}:{image.keyed}"), f"packing {image.ref}")
    fresh.rename(image.archive)


def check() -> str:
    """Build the operator's image twice from nothing, and the engine's stages once, with the operator's lock in place of
    15 GB. Returns the image's id; ClusterError when the two differ.
    """
    again = [f"{INTERNAL}/check:{name}" for name in ("first", "second", "engine")]
    with step("building the operator's image twice, and the engine's stages", "about 2 min"), builder() as build:
        key = source_key()
        for ref in again[:2]:
            build("operator", ref, key, "--no-cache")
        first, second = map(image_id, again[:2])
        base_of_engine = f"--build-arg=ENGINE_BASE={base()}"
        build("engine", again[2], key, base_of_engine, "--build-arg=ENGINE_LOCKS=locks/operator.txt")
    _run(_buildah("rmi", "--force", *again), "dropping what was built to compare")
    if first != second:
        raise ClusterError(f"two builds of the operator's image differ: {first} and {second}")
    return first
