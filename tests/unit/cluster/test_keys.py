"""Content keys, disk space, apt's list and Go's version: what decides whether something is made anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster import apt, binaries, builder, engine, images, paths
from cluster.errors import ClusterError

if TYPE_CHECKING:
    from pathlib import Path


@given(st.lists(st.text()), st.lists(st.text()))
def test_keys_differ_where_parts_differ(one: list[str], other: list[str]) -> None:
    assert (paths.content_key(one) == paths.content_key(other)) == (one == other)


def test_a_key_is_of_contents_not_of_names(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("same")
    assert paths.content_key([tmp_path / "a"]) == paths.content_key([tmp_path / "b"]) == paths.content_key(["same"])


def test_the_cache_moves_by_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RADIX_ISLANDS_CACHE", str(tmp_path))
    assert binaries.directory() == tmp_path / "bin" / binaries.key()


def test_too_little_space_says_how_much_and_where(tmp_path: Path) -> None:
    where = tmp_path / "not" / "there" / "yet"
    paths.need_space(where, 0.0, "nothing")
    with pytest.raises(ClusterError, match=rf"the moon needs 1e\+09 GiB free in {where}.*RADIX_ISLANDS_CACHE"):
        paths.need_space(where, 1e9, "the moon")


def test_apt_installs_only_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "tini").write_text("")
    (tmp_path / "tini").chmod(0o755)
    (tmp_path / "file").write_text("")
    wanted = {"tini": "tini", "ctr": "containerd", "containerd": "containerd", str(tmp_path / "file"): "a", "/no": "b"}
    assert apt.missing(wanted) == ["b", "containerd"]


def test_without_apt_the_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match=r"no apt-get.*socat tini"):
        apt.ensure({"tini": "tini", "socat": "socat"})


def test_an_apt_failure_names_package_and_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    fake = tmp_path / "apt-get"
    fake.write_text("#!/bin/sh\necho Reading package lists\necho 'E: Unable to locate package tini' >&2\nexit 100\n")
    fake.chmod(0o755)
    with pytest.raises(ClusterError, match="apt could not install tini: Unable to locate package tini"):
        apt.ensure({"tini": "tini"})


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26)),
        ("go version go1.19 linux/amd64", (1, 19)),
        ("go version devel go1.27-abc linux/amd64", (1, 27)),
        ("bash: go: not found", None),
    ],
)
def test_go_version(text: str, version: tuple[int, int] | None) -> None:
    assert binaries.parse_go_version(text) == version


def test_the_images_key_covers_what_the_dockerfile_copies() -> None:
    names = {str(path.relative_to(paths.CHECKOUT)) for path in builder.source_files()}
    assert {"Dockerfile", "pyproject.toml", "locks/operator.txt", "locks/build.txt"} <= names
    assert "engine/island_engine/gate/report.py" in names
    assert not any("__pycache__" in name for name in names)
    assert len(builder.source_files()) == len(names)


def test_prefix_renames_our_images(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [image.ref for image in images.ours()][1] == "localhost/radix-islands/engine-cpu:dev"
    monkeypatch.setenv("IMAGE_PREFIX", "registry.example/x")
    operator = images.ours()[0]
    assert operator.ref == "registry.example/x/operator:dev"
    assert operator.keyed == f"registry.example/x/operator:{builder.source_key()}"


def test_the_engine_venv_is_where_make_puts_it() -> None:
    makefile = (paths.CHECKOUT / "Makefile").read_text()
    assert "cat locks/engine-cpu.txt locks/sglang.txt | sha256sum | cut -c1-16" in makefile
    assert [lock.name for lock in engine.ENGINE_LOCKS] == ["engine-cpu.txt", "sglang.txt"]
