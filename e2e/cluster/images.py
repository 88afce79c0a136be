"""The node's images: built here, kept as archives in the cache, named by what they are made of. No registry."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import builder
from .errors import ClusterError
from .paths import content_key
from .progress import locked, say, step

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
        return builder.images_directory() / f"{self.repository.rsplit('/', 1)[1]}-{self.key}.tar"


def internal(binaries: Path) -> dict[str, Image]:
    """The images without which no pod runs (pause) and no name resolves (coredns)."""
    found = {}
    for name, arguments in {"pause": ["/pause"], "coredns": ["/coredns"]}.items():
        binary = binaries / name
        key = content_key([binaries.name, name])

        def build(image: Image, binary: Path = binary, arguments: list[str] = arguments) -> None:
            write_archive(image.archive, image.keyed, binary, arguments)

        found[name] = Image(f"{builder.INTERNAL}/{name}", key, key, build)
    return found


def ours() -> list[Image]:
    """The two images of this project, of this checkout's contents; IMAGE_PREFIX renames them."""
    prefix = os.environ.get("IMAGE_PREFIX") or builder.INTERNAL
    key = builder.source_key()
    return [Image(f"{prefix}/{name}", "dev", key, _build_from_dockerfile) for name in ("operator", "engine-cpu")]


def ensure(wanted: list[Image]) -> None:
    """Build the archives that are missing, one process on the machine at a time."""
    if all(image.archive.exists() for image in wanted):
        return
    with locked(builder.images_directory() / ".lock", "container images"):
        for image in wanted:
            if not image.archive.exists():
                image.build(image)
                _forget_archives_before(image)


# Another checkout may be about to import the archive that it has just built.
ARCHIVES_KEPT = 3


def _forget_archives_before(image: Image) -> None:
    """Drop all but the newest archives of this repository."""
    pattern = image.archive.name.replace(image.key, "*")
    archives = sorted(builder.images_directory().glob(pattern), key=lambda path: path.stat().st_mtime, reverse=True)
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


def _build_from_dockerfile(image: Image) -> None:
    target = image.repository.rsplit("/", 1)[1]
    with step(f"building image {image.ref}", "about 30 s"), builder.building() as build:
        # The stage that both images copy from is named too: only so is it still there for the next build to reuse.
        stage = f"{builder.INTERNAL}/build:{image.key}"
        build("build", stage, image.key)
        build(target, image.keyed, image.key)
        pack(image)
    builder.forget_builds_before(f"{builder.INTERNAL}/build", stage)
    builder.forget_builds_before(image.repository, image.keyed)
    say(f"built {image.ref}: {image.archive.stat().st_size / 2**20:.0f} MiB unpacked")


def pack(image: Image) -> None:
    """Write the archive of an image in buildah's storage."""
    fresh = image.archive.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    builder.run(builder.buildah("push", image.keyed, f"docker-archive:{fresh}:{image.keyed}"), f"packing {image.ref}")
    fresh.rename(image.archive)


def check() -> str:
    """Build the operator's image twice from nothing, and the engine's stages once, with the operator's lock in place of
    15 GB. Returns the image's id; ClusterError when the two differ.
    """
    again = [f"{builder.INTERNAL}/check:{name}" for name in ("first", "second", "engine")]
    with (
        step("building the operator's image twice, and the engine's stages", "about 2 min"),
        builder.building() as build,
    ):
        key = builder.source_key()
        for ref in again[:2]:
            build("operator", ref, key, "--no-cache")
        first, second = map(builder.image_id, again[:2])
        base_of_engine = f"--build-arg=ENGINE_BASE={builder.base()}"
        build("engine", again[2], key, base_of_engine, "--build-arg=ENGINE_LOCKS=locks/operator.txt")
    builder.run(builder.buildah("rmi", "--force", *again), "dropping what was built to compare")
    if first != second:
        raise ClusterError(f"two builds of the operator's image differ: {first} and {second}")
    return first
