"""How a gate ends early: an exception that carries the verdict and the reason to report."""

from __future__ import annotations

from island_engine.gate.report import Verdict


class Conclude(Exception):  # noqa: N818 - not always an error: a deadline is a conclusion
    """Ends the gate with this verdict. `reason` is CamelCase, `message` one sentence for a person."""

    def __init__(self, verdict: Verdict, reason: str, message: str) -> None:
        super().__init__(message)
        self.verdict = verdict
        self.reason = reason
        self.message = message


def error(reason: str, message: str) -> Conclude:
    """The engine or its surroundings failed: nothing was learnt about islands."""
    return Conclude(Verdict.ERROR, reason, message)


def inconclusive(reason: str, message: str) -> Conclude:
    """Everything ran, but proves nothing."""
    return Conclude(Verdict.INCONCLUSIVE, reason, message)
