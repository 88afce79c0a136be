"""The seed's engine, and the command line as a function."""

from collections.abc import Callable
from pathlib import Path

import pytest

from island_engine import cli, sizing
from island_engine.planner import plan, workload
from island_engine.planner.geometry import Model

EXAMPLES = Path(__file__).parents[3] / "examples" / "models"
SEED = str(EXAMPLES / "gemma-4-26b-a4b" / "seed.json")
BUDGET = 37_000_000_000
COST = sizing.Geometry(window=1024, full_bytes=9_500, swa_bytes=95_000, draft_bytes=10_240)
# The workloads of the bench `best` (docs/bench/best.json): lengths uniform from 0, and sessions of four turns.
LONG = workload.of_means(16_384, 8_192)
SESSION = workload.Workload(isl=20_307, osl=1_250, decoded=700, reuse=0.8, shared=8_192)

Run = Callable[..., tuple[int, str, str]]


def make(work=None, running=48, cost=COST, budget=BUDGET):
    return plan.Plan(Model("Gemma 4 26B-A4B", cost), sizing.Serving(64, 16_384, running), budget, work)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """`island-engine plan` with these arguments: exit code, stdout, stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli.main(["plan", *map(str, arguments)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call
