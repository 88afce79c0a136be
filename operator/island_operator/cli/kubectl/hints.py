"""What one may do about an InferenceService now. A verb is offered only where the operator would carry it out. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from island_engine.gate.report import SETTLED, Verdict
from island_operator.cli.kubectl.model import Hint
from island_operator.core.transitions import CANARY, GATING, STABLE
from island_operator.core.verbs import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from island_operator.core.state import Rejected, Run, State
    from island_operator.core.view import Pass

# Reasons (docs/operations.md). No pods can be made of the spec; pods of a new revision cannot come up; nothing that
# another revision would mend.
UNMAKEABLE = frozenset({"InvalidSpec", "PartitionInvalid", "PodTemplateInvalid", "ArgumentRefused", "SpecTooLarge"})
UNSTARTED = frozenset(
    {"ImagePullFailed", "VolumesNotReady", "StartFailed", "EngineDied", "OOMKilled", "PodsRefused", "ApplyRefused"}
)
OUTSIDE = frozenset(
    {
        "ApplyRefused",
        "GatewayApiMissing",
        "InsufficientGPU",
        "PodsRefused",
        "ReconcileFailed",
        "RevisionLost",
        "RouteNotAccepted",
        "Unschedulable",
    }
)


def hints(known: State, here: Pass, causes: frozenset[str], *, ill: bool) -> tuple[Hint, ...]:
    """Of an object that the operator has seen. `causes`: the reasons of Degraded and Progressing, where True; `ill`: it
    is degraded or down.
    """
    return tuple(_Offer(known, here, causes).made(ill=ill))


class _Offer:
    def __init__(self, known: State, here: Pass, causes: frozenset[str]) -> None:
        self.known, self.here, self.causes = known, here, causes
        self.name = here.intent.name

    def made(self, *, ill: bool) -> Iterator[Hint]:
        known, run = self.known, self.known.run
        rejected = known.rejection(self.here.intent.desired)
        if self.causes & UNMAKEABLE:
            yield self._edit("mends the field that the message names; what serves goes on")
            if run and not run.fast and "InvalidSpec" not in self.causes:  # of that the operator reads nothing
                yield from self._under_way(run)
        elif run and not run.fast:
            yield from self._under_way(run)
        elif rejected:
            yield from self._refused(rejected)
        elif run and self.causes & UNSTARTED:
            yield self._edit("mends what keeps its pods from starting")
        elif ill and known.phase == STABLE and not self.causes & OUTSIDE:
            back = [*self._verb("rollback", "leaves what serves for the revision before it, or for its stock half")]
            yield from back or [self._edit("mends what serves: there is no earlier revision to go back to")]

    def _under_way(self, run: Run) -> Iterator[Hint]:
        unstarted = bool(self.causes & UNSTARTED)
        if unstarted:
            yield self._edit("mends what keeps its pods from starting, as a new revision")
        if run.phase == GATING:
            yield Hint(f"kubectl island gate {self.name} --logs --follow", "shows what the gate does")
        if run.paused_at:
            yield from self._verb("resume", "goes on")
        if (run.paused_at or run.phase == CANARY) and not unstarted:
            yield from self._verb("promote", "skips the rest of the steps")
        if run.phase == CANARY and not unstarted:
            yield from self._verb("pause", "holds it here")
        if run.paused_at or unstarted or run.phase in {GATING, CANARY}:
            yield from self._verb("abort", _aborts(run))

    def _refused(self, rejected: Rejected) -> Iterator[Hint]:
        gate = self.known.gate
        if gate and gate.revision == rejected.revision and gate.verdict not in {None, Verdict.PASS}:
            yield Hint(f"kubectl island gate {self.name} --report", "shows what the gate found")
        if rejected.reason in SETTLED:
            yield self._edit("only another spec ends otherwise")
        else:
            yield from self._verb("retry", "tries the same revision again; so does any change of the spec")

    def _verb(self, verb: str, effect: str) -> Iterator[Hint]:
        if refusal(verb, self.known, self.here) is None:
            yield Hint(f"kubectl island {verb} {self.name}", effect)

    def _edit(self, effect: str) -> Hint:
        return Hint(f"kubectl edit iisvc {self.name}", effect)


def _aborts(run: Run) -> str:
    if run.paused_at:
        return "rejects the revision and rolls back"
    return "ends it and rejects the revision" if run.phase == GATING else "rolls back"
