"""The phases of a rollout and every way from one to another. The machine takes its next phase from here alone, and the
picture in docs/rollouts.md is drawn from here (docs/pictures/phases.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

PENDING, GATING, CANARY, PROMOTING, ROLLING_BACK, STABLE = (
    "Pending",
    "Gating",
    "Canary",
    "Promoting",
    "RollingBack",
    "Stable",
)
PHASES = (PENDING, GATING, CANARY, PROMOTING, ROLLING_BACK, STABLE)


class Cause(StrEnum):
    """Why a phase ends, as the picture says it."""

    CREATED = "a first revision"
    UNPROVED = "a revision whose islands have no PASS"
    PROVED = "a revision that needs no gate"
    FIRST = "no gate needed, nothing serves yet"
    LOST = "the attempt was lost"
    PASSED = "PASS"
    PASSED_FIRST = "PASS, nothing serves yet"
    HELD = "last step held, or promote"
    KILL_SWITCH = "kill switch"
    REVERTED = "the spec asks for what serves"
    FAILED = "no PASS, failure, check, deadline or abort"
    GIVEN_UP = "the same, and nothing to go back to"
    FAULT = "fault of what serves, or rollback"
    SERVES = "all pods Ready, the others gone"


@dataclass(frozen=True)
class Row:
    """From any of `sources`, for `cause`, to `target`."""

    sources: tuple[str, ...]
    cause: Cause
    target: str


_UNDER_WAY = (GATING, CANARY, PROMOTING, ROLLING_BACK)
TABLE = (
    Row((PENDING, GATING, PROMOTING), Cause.CREATED, PENDING),
    Row(PHASES, Cause.UNPROVED, GATING),
    Row((*_UNDER_WAY, STABLE), Cause.PROVED, CANARY),
    Row((PENDING,), Cause.FIRST, PROMOTING),
    Row((GATING,), Cause.LOST, GATING),
    Row((GATING,), Cause.PASSED, CANARY),
    Row((GATING,), Cause.PASSED_FIRST, PROMOTING),
    Row((CANARY,), Cause.HELD, PROMOTING),
    Row(PHASES, Cause.KILL_SWITCH, PROMOTING),
    Row(_UNDER_WAY, Cause.REVERTED, PROMOTING),
    Row((GATING, CANARY, PROMOTING), Cause.FAILED, ROLLING_BACK),
    Row((PENDING, GATING, PROMOTING), Cause.GIVEN_UP, PENDING),
    Row((*_UNDER_WAY, STABLE), Cause.FAULT, ROLLING_BACK),
    Row((PROMOTING, ROLLING_BACK), Cause.SERVES, STABLE),
)
_NEXT = {(source, row.cause): row.target for row in TABLE for source in row.sources}


def to(source: str, cause: Cause) -> str:
    """The next phase. KeyError: no such transition, a fault of ours."""
    return _NEXT[source, cause]
