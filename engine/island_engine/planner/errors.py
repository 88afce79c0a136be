"""The one error of the planner."""

from __future__ import annotations


class PlanError(ValueError):
    """Bad input: one sentence that names the flag and the value to use."""
