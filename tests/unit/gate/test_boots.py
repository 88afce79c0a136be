"""Which boots run beside each other: as the accelerators allow, and never arms that differ in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from island_engine.gate import boots
from island_engine.gate.boots import VISIBLE, slots
from island_engine.gate.report import Verdict

if TYPE_CHECKING:
    from .conftest import FakeGate

H200 = "NVIDIA H200"


@pytest.mark.parametrize(
    ("args", "environment", "names", "expected"),
    [
        ((), {}, [], [{}]),  # a CPU
        ((), {}, [H200], [{}]),
        ((), {}, [H200] * 2, ["0", "1"]),
        ((), {}, [H200] * 8, ["0", "1", "2"]),
        (("--tp", "2"), {}, [H200] * 8, ["0,1", "2,3", "4,5"]),
        (("--tp-size=2", "--dp-size", "2"), {}, [H200] * 8, ["0,1,2,3", "4,5,6,7"]),
        (("--tensor-par", "2", "--tensor-parallel=4"), {}, [H200] * 8, ["0,1,2,3", "4,5,6,7"]),
        (("--tp", "2", "--pp-size", "2"), {}, [H200] * 8, ["0,1,2,3", "4,5,6,7"]),
        (("--tp", "2", "--dp", "2", "--enable-dp-attention"), {}, [H200] * 4, ["0,1", "2,3"]),
        (("--tp", "8"), {}, [H200] * 8, [{}]),
        ((), {VISIBLE: "4,GPU-7"}, [H200] * 8, ["4", "GPU-7"]),
        ((), {VISIBLE: "4"}, [H200] * 8, [{}]),
        ((), {}, [H200, "NVIDIA L4"], [{}]),  # the arms would differ in more than the switch
        (("--base-gpu-id", "4"), {}, [H200] * 8, [{}]),
        (("--base-gpu", "4"), {}, [H200] * 8, [{}]),
        (("--tp", "many"), {}, [H200] * 8, [{}]),
    ],
)
def test_places(args: tuple[str, ...], environment: dict[str, str], names: list[str], expected: list[object]) -> None:
    found = slots(("--model-path", "/m", *args), environment, names, 3)
    assert found == [one if isinstance(one, dict) else {VISIBLE: one} for one in expected]


def test_arms_boot_beside_each_other_where_they_may(gate: FakeGate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boots, "slots", lambda *_: [{"PLACE": "0"}, {"PLACE": "1"}])
    said: list[str] = []
    assert gate.run("die-at-boot", "on", say=said.append).verdict is Verdict.ERROR
    asked = next(i for i, line in enumerate(said) if "class cold" in line)
    starting = [line for line in said[:asked] if "starting" in line]
    assert ["boot 1 of 3, arm off-A" in starting[0], "boot 2 of 3, arm on" in starting[1]] == [True, True]
    assert len(starting) == 2  # off-B has no place yet
