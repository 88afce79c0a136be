"""The table of transitions, and the picture of it in docs/rollouts.md."""

import re
from pathlib import Path

from island_operator.core.transitions import PENDING, PHASES, STABLE, TABLE, Cause, picture, to

DOCS = Path(__file__).parents[3] / "docs" / "rollouts.md"


def test_the_picture_in_the_docs_is_the_table():
    """If not: put there what `python -m island_operator.core.transitions` prints."""
    (drawn,) = re.findall(r"```mermaid\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert drawn == picture()


def test_every_cause_has_one_row_and_every_phase_a_way_in_and_out():
    assert sorted(row.cause for row in TABLE) == sorted(Cause)
    assert {row.target for row in TABLE} == set(PHASES)
    assert {source for row in TABLE for source in row.sources} == set(PHASES)


def test_every_arrow_is_drawn():
    drawn = picture()
    for row in TABLE:
        for source in row.sources:
            lines = [line for line in drawn.splitlines() if f"--> {row.target}: " in line and row.cause in line]
            assert any(line.split()[0] in {source, "Any"} for line in lines), (source, row)


def test_from_every_phase_there_is_a_way_to_stable():
    reached = {STABLE}
    for _ in PHASES:
        reached |= {source for row in TABLE for source in row.sources if to(source, row.cause) in reached}
    assert reached == set(PHASES)


def test_nothing_but_a_new_start_leaves_pending_for_pods():
    assert {row.cause for row in TABLE if PENDING in row.sources and row.target != PENDING} == {
        Cause.UNPROVED,
        Cause.FIRST,
        Cause.KILL_SWITCH,
    }
