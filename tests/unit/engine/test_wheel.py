"""What `pip install radix-islands[engine]` puts in place: the wheel, built here without a network, as pip reads it."""

from __future__ import annotations

import ast
from importlib.metadata import Distribution, distributions
from pathlib import Path
from zipfile import ZipFile

import pytest
from hatchling.build import build_wheel

from island_engine import SGLANG_VERSION

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as pip leaves it: the wheel unpacked."""
    wheels, site = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        name = build_wheel(str(wheels))
    with ZipFile(wheels / name) as wheel:
        wheel.extractall(site)
    return site


@pytest.fixture(scope="module")
def installed(site: Path) -> Distribution:
    (found,) = distributions(path=[str(site)])
    return found


def test_the_engine_extra_is_the_pinned_sglang_and_the_package_alone_needs_nothing(installed: Distribution) -> None:
    needs = installed.requires or []
    assert installed.metadata["Name"] == "radix-islands"
    assert [need for need in needs if "extra == 'engine'" in need] == [f"sglang=={SGLANG_VERSION}; extra == 'engine'"]
    assert all("extra == " in need for need in needs)


@pytest.mark.parametrize(
    ("group", "name", "value"),
    [
        ("sglang.srt.plugins", "islands", "island_engine.plugin:load"),
        ("sglang.srt.platforms", "island-cpu", "island_engine.platform:activate"),
        ("console_scripts", "island-engine", "island_engine.cli:main"),
        ("console_scripts", "island-operator", "island_operator.cli.main:main"),
        ("console_scripts", "kubectl-island", "island_operator.cli.kubectl:main"),
    ],
)
def test_entry_points_are_registered_and_lead_to_a_function(
    site: Path, installed: Distribution, group: str, name: str, value: str
) -> None:
    (point,) = installed.entry_points.select(group=group, name=name)
    assert point.value == value
    module = site / point.module.replace(".", "/")
    file = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
    names = {
        alias.asname or alias.name if isinstance(node, ast.ImportFrom) else node.name
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, (ast.FunctionDef, ast.ImportFrom))
        for alias in (node.names if isinstance(node, ast.ImportFrom) else [ast.alias(node.name)])
    }
    assert point.attr in names


def test_every_file_of_both_packages_is_in_it(site: Path) -> None:
    for folder, package in (("engine", "island_engine"), ("operator", "island_operator")):
        source = ROOT / folder / package
        mine = {path.relative_to(source) for path in source.rglob("*") if path.is_file() and path.suffix != ".pyc"}
        assert mine <= {path.relative_to(site / package) for path in (site / package).rglob("*")}
    assert (site / "island_engine" / "gate" / "report.schema.json").is_file()
