"""Archives that containerd takes, and what its store is asked to hold."""

from __future__ import annotations

import hashlib
import json
import tarfile
from typing import TYPE_CHECKING

from cluster import store
from cluster.images import Image, write_archive

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

LISTING = """\
REF                                     TYPE                                                 DIGEST        SIZE      PLATFORMS   LABELS
localhost/radix-islands/operator:0123   application/vnd.docker.distribution.manifest.v2+json sha256:aa     325.4 MiB linux/amd64 x=y
localhost/radix-islands/operator:dev    application/vnd.docker.distribution.manifest.v2+json sha256:aa     325.4 MiB linux/amd64 x=y
localhost/radix-islands/engine-cpu:dev  application/vnd.docker.distribution.manifest.v2+json sha256:bb     169.1 MiB linux/amd64 -
"""  # noqa: E501 (as ctr prints it)


def image(name: str, key: str, tag: str = "dev") -> Image:
    return Image(f"localhost/radix-islands/{name}", tag, key, lambda _: None)


def test_the_store_is_current_only_when_the_tag_has_this_content() -> None:
    held = store.parse_images(LISTING)
    assert store.is_current(image("operator", "0123"), held)
    assert not store.is_current(image("operator", "4567"), held)
    assert not store.is_current(image("engine-cpu", "0123"), held)
    assert not store.is_current(image("operator", "0123"), held | {"localhost/radix-islands/operator:dev": "sha256:bb"})


def test_only_what_is_missing_is_imported_and_old_contents_go(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, ...]] = []

    def ctr(*args: str) -> str:
        calls.append(args)
        return LISTING if args == ("images", "ls") else ""

    monkeypatch.setattr(store, "ctr", ctr)
    fresh = image("operator", "4567")
    store.bring([fresh])
    assert calls[1:] == [
        ("images", "import", "--digests=false", str(fresh.archive)),
        ("images", "tag", "--force", fresh.keyed, fresh.ref),
        ("images", "rm", "localhost/radix-islands/operator:0123"),
    ]
    calls.clear()
    store.bring([image("operator", "0123")])
    assert calls == [("images", "ls")]


def test_an_archive_holds_the_program_and_says_how_to_start_it(tmp_path: Path) -> None:
    program = tmp_path / "pause"
    program.write_bytes(b"\x7fELF")
    target = tmp_path / "out" / "pause.tar"
    write_archive(target, "localhost/x/pause:1", program, ["/pause", "-v"])
    with tarfile.open(target) as tar:
        read = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    (manifest,) = json.loads(read["manifest.json"])
    assert manifest["RepoTags"] == ["localhost/x/pause:1"]
    config = json.loads(read[manifest["Config"]])
    assert config["config"]["Entrypoint"] == ["/pause", "-v"]
    layer = read[manifest["Layers"][0]]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    (tmp_path / "layer.tar").write_bytes(layer)
    with tarfile.open(tmp_path / "layer.tar") as tar:
        (member,) = tar.getmembers()
        assert (member.name, member.mode) == ("pause", 0o755)
    assert [path.name for path in target.parent.iterdir()] == ["pause.tar"]
