"""docs/gate.md says what the gate does: every fault with its outcome, every class, every verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from island_engine.gate import table
from island_engine.gate.probes import CLASSES
from island_engine.gate.report import Verdict
from island_engine.islands.mutations import TABLE

GUIDE = (Path(__file__).parents[3] / table.DOCUMENT).read_text()


def rows() -> list[dict[str, Any]]:
    return [
        {
            "mutation": m.name,
            "what": m.what,
            "fired": 3,
            "outcome": "caught" if m.caught_by else "harmless",
            "caught_by": m.caught_by,
            "how": "x differs at token 1" if m.caught_by else "",
            "expected": m.caught_by or m.harmless,
        }
        for m in TABLE.values()
    ]


def test_every_fault_is_in_the_guide_with_its_outcome() -> None:
    told = GUIDE.split(table.BEGIN)[1].split(table.END)[0].splitlines()
    found = {line.split("`")[1]: [cell.strip() for cell in line.split("|")] for line in told if "`" in line}
    assert list(found) == list(TABLE)
    assert len(TABLE) >= 20
    for mutation, cells in zip(TABLE.values(), found.values(), strict=True):
        assert cells[2] == mutation.what
        assert int(cells[3]) > 0
        if mutation.caught_by:
            assert cells[4] == "caught"
            assert cells[5].startswith(f"{mutation.caught_by}: ")
        else:
            assert cells[4:6] == ["harmless", mutation.harmless]


def test_only_a_whole_good_self_test_gets_into_the_guide() -> None:
    assert table.markdown(rows()).count("\n") == len(TABLE) + 2
    with pytest.raises(ValueError, match="whole self-test"):
        table.markdown(rows()[:-1])
    for outcome in ("MISSED", "NEVER FIRED", "caught elsewhere"):
        with pytest.raises(ValueError, match=rows()[0]["mutation"]):
            table.markdown([{**rows()[0], "outcome": outcome}, *rows()[1:]])


def test_the_guide_knows_every_class_and_verdict() -> None:
    assert [name for name in CLASSES if f"\n| {name} | " not in GUIDE] == []
    assert [verdict for verdict in Verdict if f"| {verdict} | {verdict.exit_code} |" not in GUIDE] == []
