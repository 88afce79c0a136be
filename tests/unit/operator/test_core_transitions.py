"""The table of transitions."""

from island_operator.core.transitions import PENDING, PHASES, STABLE, TABLE, Cause, to


def test_every_cause_has_one_row_and_every_phase_a_way_in_and_out():
    assert sorted(row.cause for row in TABLE) == sorted(Cause)
    assert {row.target for row in TABLE} == set(PHASES)
    assert {source for row in TABLE for source in row.sources} == set(PHASES)


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
