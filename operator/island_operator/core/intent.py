"""What the user asks for, read once from the InferenceService. Read as the API server has defaulted it, so that no
stricter schema of ours can stand between a user and the kill switch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from island_operator.core.arguments import refused, starved, ungateable
from island_operator.core.clock import seconds
from island_operator.core.coupling import cramped
from island_operator.core.merge import TemplateError, check_template
from island_operator.core.observe import Trouble
from island_operator.core.revision import SNAPSHOT_BYTES, Revision, parts_of
from island_operator.core.text import escaped

if TYPE_CHECKING:
    from island_operator.core.model import Object

PREFIX = "radix-islands.dev/"  # of the annotations that are verbs
DEFAULT_STEPS = ((1, 0),)  # one pod, no pause
WATCH = "1h"  # of an object that a CRD of the release before has defaulted


@dataclass(frozen=True)
class Intent:
    """`revision` is None when the spec cannot be turned into pods; `fault` then says why."""

    name: str
    uid: str
    revision: Revision | None
    fault: Trouble | None
    islands: bool
    replicas: int
    port: int
    mode: str
    steps: tuple[tuple[int, int], ...]
    checks: Object | None  # spec.rollout.checks without what is not said; None: disabled
    deadline: int  # seconds
    auto_rollback: bool
    watch: int  # seconds
    history_limit: int
    gated: bool
    gate_deadline: int  # seconds
    gate_profile: str
    gate_schedule: int | None  # seconds; None: never again
    act_on_drift: bool
    gateway: Object | None  # spec.gatewayRef
    verbs: tuple[tuple[str, str], ...]  # (verb, value), as annotated

    @property
    def desired(self) -> str | None:
        """The hash of the revision that the spec asks for."""
        return self.revision.hash if self.revision else None


def read(parent: Object) -> Intent:
    """The intent of one InferenceService."""
    meta, spec = parent["metadata"], parent["spec"]
    rollout, gate = spec["rollout"], spec["gate"]
    revision, fault = _revision(spec)
    steps = tuple((int(s["weight"]), seconds(s.get("pause", "0s"))) for s in rollout.get("steps") or ())
    return Intent(
        name=meta["name"],
        uid=meta["uid"],
        revision=revision,
        fault=fault,
        islands=bool(spec["islands"]["enabled"]),
        replicas=int(spec.get("replicas", 1)),
        port=int(spec["engine"]["port"]),
        mode=rollout["mode"],
        steps=steps or DEFAULT_STEPS,
        checks=_checks(rollout.get("checks") or {}),
        deadline=seconds(rollout["deadline"]),
        auto_rollback=bool(rollout["autoRollback"]),
        watch=seconds(rollout.get("watch") or WATCH),
        history_limit=int(rollout["historyLimit"]),
        gated=bool(gate["enabled"]),
        gate_deadline=seconds(gate["deadline"]),
        gate_profile=gate["profile"],
        gate_schedule=seconds(gate["schedule"]) if gate.get("schedule") else None,
        act_on_drift=gate.get("onDrift") == "Rollback",
        gateway=spec.get("gatewayRef"),
        verbs=_verbs(meta),
    )


def _checks(limits: Object) -> Object | None:
    if not limits.get("enabled"):
        return None
    return {name: limit for name, limit in limits.items() if limit is not None and name != "enabled"}


def _verbs(meta: Object) -> tuple[tuple[str, str], ...]:
    """Values tell one asking from the next, and nothing else."""
    notes = meta.get("annotations") or {}
    return tuple(
        (k.removeprefix(PREFIX), escaped(str(v), 64)) for k, v in sorted(notes.items()) if k.startswith(PREFIX)
    )


def _revision(spec: Object) -> tuple[Revision | None, Trouble | None]:
    try:
        check_template(spec.get("podTemplate") or {})
        revision = Revision(parts_of(spec))
    except TemplateError as error:
        return None, Trouble("PodTemplateInvalid", str(error))
    except ValueError as error:
        return None, Trouble("PartitionInvalid", str(error))
    if wrong := cramped(revision.parts, int(spec["geometry"]["slidingWindow"])):
        return None, Trouble("PartitionInvalid", wrong)
    if wrong := _wrong_arguments(revision, gated=bool(spec["gate"]["enabled"])):
        return None, Trouble("ArgumentRefused", wrong)
    if len(revision.text) > SNAPSHOT_BYTES:
        told = f"spec is {len(revision.text)} bytes of JSON, more than the {SNAPSHOT_BYTES} that a revision can keep"
        return None, Trouble("SpecTooLarge", f"{told}: shorten spec.engine.env, spec.engine.args or spec.podTemplate")
    return revision, None


def _wrong_arguments(revision: Revision, *, gated: bool) -> str | None:
    arguments = revision.parts["engine"].get("args", ())
    of_islands = refused(arguments) or (ungateable(arguments) if gated else None)
    return (of_islands if revision.half.islands else None) or starved(revision.parts)
