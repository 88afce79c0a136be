"""The documentation says what the code does: every reason, every field, no dead link."""

from __future__ import annotations

import ast
import logging
import re
from functools import cache
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from island_operator.api import crd, reference

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
OPERATIONS = (DOCS / "operations.md").read_text()
# Words of Kubernetes that the code looks for in what it reads, and never says itself.
KUBERNETES = {
    *(
        "CrashLoopBackOff",
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
    ),
    *("RegistryUnavailable", "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError"),
    *("ContainerCannotRun", "ContainerCreating", "PodInitializing", "PodScheduled", "PodReadyToStartContainers"),
    *("ReplicaFailure", "RollingUpdate", "PodDisruptionBudget", "ConfigMap", "FileOrCreate", "DirectoryOrCreate"),
    *(
        "FallbackToLogsOnError",
        "PathPrefix",
        "ResolvedRefs",
        "RuntimeDefault",
        "FailedScheduling",
        "FailureTarget",
        "DeadlineExceeded",
    ),
}


@cache
def spoken() -> set[str]:
    """CamelCase words in the operator's core: reasons of conditions and Events."""
    found: set[str] = set()
    for path in (ROOT / "operator/island_operator/core").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= {w for w in [node.value] if re.fullmatch(r"[A-Z][a-z]+(?:[A-Z][A-Za-z]+)+", w)}
    return found


def test_every_reason_that_the_operator_gives_is_explained():
    kinds = {"InferenceService", "ReplicaSet", "HTTPRoute"}
    assert len(spoken()) > 40
    assert {word for word in spoken() - KUBERNETES - kinds if f"`{word}`" not in OPERATIONS} == set()


def test_no_reason_is_explained_that_nobody_gives():
    places = (ROOT / "operator/island_operator", ROOT / "engine/island_engine/gate")
    source = "".join(path.read_text() for place in places for path in place.rglob("*.py"))
    told = set(
        re.findall(r"`([A-Z][a-z]+(?:[A-Z][A-Za-z]+)+)`", OPERATIONS.split("## Reasons")[1].split("## Day two")[0])
    )
    assert {word for word in told if f'"{word}"' not in source} == set()


def test_the_reference_is_the_crd():
    """island-operator crd --reference > docs/reference.md"""
    assert (DOCS / "reference.md").read_text() == reference.render(crd.definition())


def test_the_reference_names_every_field_and_says_what_it_is():
    rows = [line for line in reference.render(crd.definition()).splitlines() if line.startswith("| `")]
    assert len(rows) > 100
    assert [row for row in rows if row.split(" | ")[3].strip(" |") == ""] == []


def test_the_site_builds_offline_without_a_warning(tmp_path, caplog, monkeypatch):
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path), strict=True)
    with caplog.at_level(logging.WARNING, logger="mkdocs"):
        build(config)
    assert [record.getMessage() for record in caplog.records] == []
    pages = {path.name: path.read_text() for path in tmp_path.rglob("*.html")}
    fetched = r'<(?:script|img|iframe|source|link)\b[^>]*\b(?:src|href)=["\']?(?:https?:)?//[^>]*'
    assert {name: re.findall(fetched, text) for name, text in pages.items() if re.search(fetched, text)} == {}
    assert [
        name for name, text in pages.items() if 'class="mermaid"' in text
    ] == []  # the theme would fetch its renderer


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.md")), ids=lambda path: path.stem)
def test_every_page_is_in_the_menu(path):
    assert f"{path.name}" in (ROOT / "mkdocs.yml").read_text()
