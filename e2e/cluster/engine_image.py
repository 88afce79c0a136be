"""The image `engine`: SGLang whole. Gigabytes, so only for whoever asks for it; the pods of tests mount SGLang."""

from __future__ import annotations

import os
import shutil
from functools import partial

from . import builder, images
from .paths import CHECKOUT, content_key, need_space
from .progress import locked, say, step

# What it is for -> the locks that the Dockerfile's ENGINE_LOCKS names, in order.
LOCKS = {"gpu": ("locks/engine-gpu.txt",), "cpu": ("locks/engine-cpu.txt", "locks/sglang.txt")}
# GiB on the way: wheels, and the large layer four times, as buildah commits it. Measured for gpu, with a reserve.
SPACE = {"gpu": 52, "cpu": 32}


def engine(kind: str) -> images.Image:
    """`engine:dev` for GPUs, `engine:dev-cpu` without CUDA."""
    prefix = os.environ.get("IMAGE_PREFIX") or builder.INTERNAL
    tag = "dev" if kind == "gpu" else f"dev-{kind}"
    key = content_key([builder.source_key(), *(CHECKOUT / lock for lock in LOCKS[kind])])
    return images.Image(f"{prefix}/engine", tag, key, partial(_build, LOCKS[kind]))


def ensure(kind: str) -> images.Image:
    """The image, built when its archive is missing. Archives of older contents go: each is as large as the image."""
    image = engine(kind)
    with locked(builder.images_directory() / ".lock", "container images"):
        if not image.archive.exists():
            need_space(builder.images_directory(), SPACE[kind], f"building {image.ref}")
            image.build(image)
            for old in builder.images_directory().glob("engine-[0-9a-f]*.tar"):
                if old != image.archive:
                    old.unlink()
    return image


def _build(locks: tuple[str, ...], image: images.Image) -> None:
    paths = [CHECKOUT / lock for lock in locks]
    wheels = builder.images_directory() / f"wheels-{content_key(paths)}"
    with step(f"downloading the wheels of {' '.join(locks)}", "minutes"):
        builder.download(paths, wheels)
    with step(f"building image {image.ref}", "about 15 min"), builder.building(paths) as build:
        build(
            "engine",
            image.keyed,
            image.key,
            f"--build-arg=ENGINE_BASE={builder.base()}",
            f"--build-arg=ENGINE_LOCKS={' '.join(locks)}",
            "--build-arg=PIP_FIND_LINKS=/wheels /engine-wheels",
            f"--volume={wheels}:/engine-wheels:ro",
        )
        images.pack(image)
    shutil.rmtree(wheels)
    builder.forget_builds_before(image.repository, image.keyed)
    say(f"built {image.ref}: {image.archive.stat().st_size / 2**30:.1f} GiB unpacked")
