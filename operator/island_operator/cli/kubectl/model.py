"""What a person is shown, as plain values. Stamps are RFC 3339 UTC."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from island_operator.core.text import camel


@dataclass(frozen=True)
class Pair:
    """The coupled unit of a revision; ratio and tokens are None with a unified pool, the cap where it is not known."""

    islands: bool
    ratio: str | None
    max_total_tokens: int | None
    max_running_requests: int | None


@dataclass(frozen=True)
class Pod:
    """A pod. `status` as kubectl's column of that name; `trouble` is a reason in one word."""

    name: str
    status: str
    ready: bool
    restarts: int
    node: str | None
    created: str
    trouble: str | None


@dataclass(frozen=True)
class Gate:
    """A gate Job. `progress`: the last line that it printed, where it runs and may be read."""

    job: str
    attempt: int
    verdict: str | None
    reason: str | None
    message: str | None
    started_at: str
    finished_at: str | None
    probes: int | None
    tokens: int | None
    seconds: float | None
    progress: str | None
    pods: tuple[Pod, ...]


@dataclass(frozen=True)
class Revision:
    """One revision. `roles`: of stable, canary (or another phase that it is in), leaving, desired and rejected."""

    name: str
    roles: tuple[str, ...]
    image: str | None
    pair: Pair | None
    replicas: int
    ready: int
    created: str | None
    verdict: str | None
    rejected: str | None
    promoted_at: str | None
    gate: Gate | None
    pods: tuple[Pod, ...]


@dataclass(frozen=True)
class Step:
    """The canary step. `left`: seconds until it ends, None until its pods are Ready or while it is paused."""

    number: int
    of: int
    weight: int
    pause: int
    left: int | None


@dataclass(frozen=True)
class Hint:
    """A command that makes sense now, and what it does."""

    command: str
    effect: str


@dataclass(frozen=True)
class View:
    """One InferenceService. `health`: Healthy, Progressing, Waiting, Paused, Degraded or Down."""

    name: str
    namespace: str
    created: str
    phase: str
    health: str
    reason: str
    messages: tuple[str, ...]
    kind: str | None  # of the run
    mode: str | None
    pair: Pair | None  # what serves
    replicas: int
    ready: int
    step: Step | None
    revisions: tuple[Revision, ...]
    unreadable: tuple[str, ...]
    hints: tuple[Hint, ...]


def plain(value: Any) -> Any:
    """A view as JSON: keys in camel case, tuples as lists."""
    if is_dataclass(value):
        return {camel(f.name): plain(getattr(value, f.name)) for f in fields(value)}
    return [plain(v) for v in value] if isinstance(value, tuple) else value
