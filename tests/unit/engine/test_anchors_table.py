"""docs/anchors.md: every anchor has its row, every row a test that exists or a reason why there is none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
TABLE = (TESTS.parent / "docs" / "anchors.md").read_text(encoding="utf-8")
ROWS = [line.strip("| ").split(" | ") for line in TABLE.splitlines() if re.match(r"\| [^-i]", line)]
FILES = {
    "S": "integration/engine/test_anchors_structure.py",
    "R": "integration/engine/test_anchors_reuse.py",
    "P": "integration/engine/test_anchors_pressure.py",
}
ANCHORS = """
    22470 29860 34823 34870 27789 27586 29351 29352 36909 30845 25091 8931 17061 31486 36458 26777 36131 37584 40283
    39159 35515 26615 26577 26907 35129 34729 16521 17220 32459 34683 23375 26957 29858 22679 27391 31771 27291 32373
    18970 6563 37560 48435 57610 27 1234
"""


def named(cell: str) -> list[tuple[str, str]]:
    """Files and functions of the tests in a cell."""
    return [(FILES.get(file, file), name) for file, name in re.findall(r"`([\w/.]+)::(\w+)`", cell)]


def test_every_anchor_has_its_row() -> None:
    numbers = [number for row in ROWS for number in re.findall(r"\b\d+\b", row[0])]
    assert sorted(number for number in numbers if number in ANCHORS.split()) == sorted(ANCHORS.split())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_its_test_exists_or_it_says_why_there_is_none(row: list[str]) -> None:
    issue, _, proof = row
    tests = named(proof)
    for file, name in tests:
        assert re.search(rf"^def {name}\(", (TESTS / file).read_text(encoding="utf-8"), re.MULTILINE), (
            f"{issue}: {name}"
        )
    assert tests or proof.startswith("not ")


@pytest.mark.parametrize("file", FILES.values())
def test_every_anchor_test_is_in_the_table(file: str) -> None:
    written = set(re.findall(r"^def (test_\w+)\(", (TESTS / file).read_text(encoding="utf-8"), re.MULTILINE))
    assert written == {name for row in ROWS for where, name in named(row[2]) if where == file}
