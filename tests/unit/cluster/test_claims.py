"""Who may do what with the machine's one node, and what a record survives."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster import owner
from cluster.owner import Claim, Owner

HERE = Path("/home/a/radix-islands")


def record(checkout: str = str(HERE)) -> Owner:
    return Owner(
        checkout=checkout,
        state="/cache/node",
        boot="b",
        since="2026-01-01 00:00:00",
        port=16443,
        binaries="/cache/bin/k",
        binds={},
    )


@pytest.mark.parametrize(
    ("known", "alive", "tool", "claim"),
    [
        (None, False, False, Claim.FREE),
        (None, True, False, Claim.STALE),  # a node whose record was deleted must still be removable
        (record(), True, True, Claim.OURS),
        (record(), False, True, Claim.STALE),
        (record("/home/b/radix-islands"), True, True, Claim.THEIRS),
        (record("/home/b/radix-islands"), False, True, Claim.STALE),  # a dead init holds nothing
        (record("/home/b/radix-islands"), True, False, Claim.STALE),  # nobody else is left who could end it
    ],
)
def test_claim(known: Owner | None, alive: bool, tool: bool, claim: Claim) -> None:
    assert owner.decide(known, checkout=HERE, alive=alive, their_tool_exists=tool) is claim


def test_a_record_names_the_command_that_ends_it() -> None:
    assert record("/home/b/ri").take_down == "/home/b/ri/e2e/cluster/cluster down"


def test_records_survive_a_round_trip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "RUN", tmp_path)
    monkeypatch.setattr(owner, "RECORD", tmp_path / "owner.json")
    assert owner.load() is None
    owner.save(record())
    assert owner.load() == record()


@pytest.mark.parametrize("text", ["", '{"checkout": "/x"', '{"checkout": "/x"}', '{"unknown": 1}'])
def test_a_broken_record_counts_as_none(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "RECORD", tmp_path / "owner.json")
    (tmp_path / "owner.json").write_text(text)
    assert owner.load() is None
