"""The gate's report: what `island-engine gate` writes and the operator reads. Standard library only.

Three carriers of the same facts: `report.json` (the whole), the container's termination message (at most
4 KiB, what Kubernetes keeps of it) and the exit code. Schema name: `radix-islands.dev/gate/v1`.
"""

from __future__ import annotations

import enum
import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = "radix-islands.dev/gate/v1"
T = TypeVar("T")
# Reasons that model and arguments alone decide. Every other one comes of boots, of timing, or of what is asked, so that
# another attempt may end otherwise.
SETTLED = frozenset({"PacedEngine", "NoChunks", "NotHybrid"})
TERMINATION_BYTES = 4096  # Kubernetes cuts a termination message here


class Verdict(enum.StrEnum):
    """What the gate concluded. Only PASS promotes."""

    PASS = "PASS"  # noqa: S105 - a verdict, not a password
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    ERROR = "ERROR"

    @property
    def exit_code(self) -> int:
        """The process exit code of this verdict (design: Interfaces, gate exit codes)."""
        return {"PASS": 0, "FAIL": 10, "INCONCLUSIVE": 11, "ERROR": 12}[self.value]


@dataclass(frozen=True)
class Divergence:
    """The first byte that differed between an off arm and the on arm."""

    probe: str  # e.g. "hit/w+1"
    index: int  # generated-token index, 0-based
    expected: int  # token id of the off arm
    got: int  # token id of the on arm
    cached_tokens: int  # prefix hit of both serves
    frontier_distance: int | None = None  # tokens from the last tombstone frontier to the diverging position
    margin: float | None = None  # top-2 logprob margin of the off arm at index, nats
    kind: str = "token"  # or logprob: the same token by other logprobs (--strict)
    margin_on: float | None = None  # the on arm's margin at index, nats
    island_distance: int | None = None  # tokens from the last commit (hit, chunk or decode island) to the position
    page_offset: int | None = None  # of the position in its page
    chunk_offset: int | None = None  # tokens from the start of its prefill chunk
    batch: int = 1  # requests in flight in the on arm


@dataclass(frozen=True)
class Summary:
    """What fits in a termination message, and what a status needs."""

    verdict: Verdict
    reason: str  # CamelCase, e.g. "Equal", "FirstDivergence", "Nondeterminism", "Vacuous", "Deadline", "EngineDied"
    message: str  # one sentence for a person
    fingerprint: str = ""  # "sha256:..." over image, model revision, arguments, device, driver, versions
    probes: int = 0  # serves compared
    tokens: int = 0  # generated tokens compared
    seconds: float = 0.0
    divergence: Divergence | None = None
    schema: str = field(default=SCHEMA)

    def to_termination(self) -> str:
        """JSON of at most TERMINATION_BYTES; the message is shortened until it fits."""
        message = self.message
        while True:
            text = json.dumps({**asdict(self), "message": message}, separators=(",", ":"), ensure_ascii=True)
            if len(text) <= TERMINATION_BYTES or not message:
                return text[:TERMINATION_BYTES]
            message = message[: max(0, len(message) - (len(text) - TERMINATION_BYTES) - 3)].rstrip()
            message = message + "..." if message else ""


def parse_termination(text: str) -> Summary:
    """The Summary in a termination message. ValueError (one sentence) when it is not one of ours."""
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise ValueError(f"not a gate report: {error}") from error
    if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
        raise ValueError(f"not a gate report: schema is not {SCHEMA}")
    try:
        return Summary(
            verdict=Verdict(raw["verdict"]),
            reason=_text(raw["reason"], 64),
            message=_text(raw["message"], 2048),
            fingerprint=_text(raw.get("fingerprint", ""), 128),
            probes=_count(raw.get("probes", 0)),
            tokens=_count(raw.get("tokens", 0)),
            seconds=float(raw.get("seconds", 0.0)),
            divergence=_divergence(raw.get("divergence")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a gate report: {type(error).__name__} {error}") from error


def _divergence(raw: Any) -> Divergence | None:
    if raw is None:
        return None
    return Divergence(
        probe=_text(raw["probe"], 128),
        index=_count(raw["index"]),
        expected=int(raw["expected"]),
        got=int(raw["got"]),
        cached_tokens=_count(raw["cached_tokens"]),
        frontier_distance=_maybe(int, raw.get("frontier_distance")),
        margin=_maybe(float, raw.get("margin")),
        kind=_text(raw.get("kind", "token"), 16),
        margin_on=_maybe(float, raw.get("margin_on")),
        island_distance=_maybe(int, raw.get("island_distance")),
        page_offset=_maybe(int, raw.get("page_offset")),
        chunk_offset=_maybe(int, raw.get("chunk_offset")),
        batch=_count(raw.get("batch", 1)),
    )


def _maybe(kind: Callable[[Any], T], value: Any) -> T | None:
    return None if value is None else kind(value)


def _text(value: Any, limit: int) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, not {type(value).__name__}")
    return value[:limit]


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"expected a count, not {value!r}")
    return value
