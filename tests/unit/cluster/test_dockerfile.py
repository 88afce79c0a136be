"""The Dockerfile: who runs, what an image says of itself, what goes in, and that the key of the images covers it."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

import pytest

from cluster import builder, engine_image
from cluster.paths import CHECKOUT

if TYPE_CHECKING:
    from pathlib import Path

TEXT = (CHECKOUT / "Dockerfile").read_text().replace("\\\n", " ")
LINES = [line.strip() for line in TEXT.splitlines() if line.strip() and not line.lstrip().startswith("#")]
TARGETS = ("operator", "engine-cpu", "engine")
LABELS = {
    f"org.opencontainers.image.{name}" for name in ["title", "description", "licenses", "version", "revision", "source"]
}


def stage(name: str) -> list[str]:
    """The instructions of one stage."""
    starts = [number for number, line in enumerate(LINES) if line.startswith("FROM ")]
    first = next(number for number in starts if LINES[number].endswith(f" AS {name}"))
    return LINES[first : next((number for number in starts if number > first), None)]


def project() -> dict[str, str]:
    """The table [project]."""
    table: dict[str, str] = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    return table


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_runs_as_nobody_and_says_what_it_is(target: str) -> None:
    lines = stage(target)
    assert [line for line in lines if line.startswith("USER")] == ["USER 65532:65532"]
    (label,) = [line for line in lines if line.startswith("LABEL")]
    assert set(re.findall(r"([\w.]+)=", label)) == LABELS
    for name in ("VERSION", "REVISION", "SOURCE"):
        assert f"ARG {name}" in lines, "an ARG before the first FROM is empty in a stage that does not name it"


def test_the_version_is_the_projects() -> None:
    assert f"ARG VERSION={project()['version']}" in LINES


def copied() -> set[str]:
    """Paths of the checkout that any stage copies."""
    found: set[str] = set()
    for line in LINES:
        if line.startswith(("COPY", "ADD")) and "--from=" not in line:
            found |= set(line.split()[1:-1])
    return found


def test_only_named_parts_of_a_checkout_go_in_and_the_key_covers_them() -> None:
    assert copied() == {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "operator",
        "engine",
        "locks/build.txt",
        "locks/operator.txt",
    }
    covered = {str(path.relative_to(CHECKOUT)) for path in builder.source_files()}
    for path in copied():
        assert path in covered or any(name.startswith(f"{path}/") for name in covered), path
    first, *allowed = (CHECKOUT / ".dockerignore").read_text().split()
    assert first == "*", "an environment, a key or a build output would go to the builder"
    wanted = {path.split("/")[0] for path in copied()}
    assert {rule[1:] for rule in allowed if rule.startswith("!")} == wanted


def test_nothing_secret_is_asked_for() -> None:
    asked = [line for line in LINES if line.startswith(("ARG", "ENV"))]  # an ENV names several
    arguments = {name for line in asked for name in re.findall(r"(?<= )\w+(?==|$)", line)}
    assert {"PIP_FIND_LINKS", "REVISION", "PYTHONUNBUFFERED"} <= arguments
    assert not [name for name in arguments if re.search("TOKEN|PASSWORD|SECRET|KEY|INDEX_URL", name)]


def test_what_is_installed_is_named_by_hash_and_its_byte_code_by_content() -> None:
    for line in LINES:
        for command in re.findall(r"pip [^&|;]*install [^&|;]*", line):
            assert "--require-hashes" in command or ("--no-deps" in command and "/dist/" in command), command
            assert "locks/build.txt" in command or "--no-compile" in command, command
    assert TEXT.count("--invalidation-mode unchecked-hash") == 3


def test_the_engine_has_what_sglang_compiles_with_where_it_runs() -> None:
    (packages,) = [line for line in stage("engine") if "apt-get install" in line]
    assert {"g++", "ninja-build", "libnuma1", "python3-dev"} <= set(re.findall(r"[\w+-]+", packages))
    assert any("/usr/local/cuda" in line for line in stage("engine") if line.startswith("RUN"))
    assert any("CUDA_HOME=/usr/local/cuda" in line for line in stage("engine") if line.startswith("ENV"))


def test_the_gpu_engines_compiler_is_of_the_cuda_whose_headers_torch_pins() -> None:
    """CUDA's headers refuse another release's compiler, and nothing would compile where the engine runs."""
    locked = dict(re.findall(r"^([\w.-]+)==(\S+)", (CHECKOUT / "locks" / "engine-gpu.txt").read_text(), re.MULTILINE))
    toolkit = locked["cuda-toolkit"].split(".")[:2]
    for part in ("cuda-runtime", "cuda-nvcc", "cuda-crt", "nvvm", "cuda-cccl"):
        assert locked[f"nvidia-{part}"].split(".")[:2] == toolkit, part


@pytest.mark.parametrize("kind", engine_image.LOCKS)
def test_an_engines_key_covers_its_locks(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RADIX_ISLANDS_CACHE", str(tmp_path))
    before = engine_image.engine(kind)
    assert before.archive.name == f"engine-{before.key}.tar"
    assert before.key != builder.source_key()
    assert {image.key for image in map(engine_image.engine, engine_image.LOCKS)} > {before.key}
    for lock in engine_image.LOCKS[kind]:
        assert (CHECKOUT / lock).exists()
