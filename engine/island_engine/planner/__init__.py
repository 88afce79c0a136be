"""How to split the KV pools: `island-engine plan`, and what `kubectl island plan` calls. Standard library at import.

`geometry` what a token costs, `workload` what is asked for, `capacity` the formulas, `plan` the pair of halves and what
each runs, `verdict` whether islands pay, `check` against an engine, `render` and `plot` for people.
"""

from __future__ import annotations

from island_engine.planner.errors import PlanError
from island_engine.planner.plan import Plan, of_spec

__all__ = ["Plan", "PlanError", "of_spec"]
