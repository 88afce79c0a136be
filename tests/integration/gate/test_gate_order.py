"""A scene reaches SGLang's scheduler in one order: a fault in who is admitted beside a prompt that waits between its
chunks repeats itself, and is a FAIL. Four real boots that ask the queue of class pressure alone, to be short.
tests/integration/engine/test_gate_queue.py sees the same scene from inside, and its answers equal without the fault.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from island_engine.gate import record
from island_engine.gate.plan import plan
from island_engine.gate.run import execute
from island_engine.gate.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from island_engine.gate.probes import Probe

FLAGS = (
    *("--dtype", "float32", "--page-size", "16", "--chunked-prefill-size", "1024", "--context-length", "4096"),
    *("--max-total-tokens", "19968", "--swa-full-tokens-ratio", "0.15", "--max-running-requests", "32"),
)
# Whoever fits is admitted, beside whom ever; the scheduler is a fork of this process.
FAULT = """
import sys
from island_engine.cli import main
from island_engine.islands.holds import Holds

Holds.parked = property(lambda _: False, lambda *_: None)
sys.exit(main())
"""


def queue(*args: Any) -> tuple[Probe, ...]:
    return tuple(probe for probe in plan(*args) if probe.scene == "pressure/queue")


def test_a_fault_beside_a_prompt_that_waits_repeats_itself_and_fails(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "plan", queue)
    arguments = ("--model-path", str(model), *FLAGS)
    ended = execute(Settings(arguments, tmp_path / "report", serve=(sys.executable, "-c", FAULT, "serve"), say=print))
    assert (ended.verdict.exit_code, ended.reason) == (10, "FirstDivergence"), ended.message
    assert ended.divergence
    assert ended.divergence.index == 0  # the token of the last chunk, which passes for one in the middle
