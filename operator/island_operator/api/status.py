"""InferenceService status: what the operator decided and saw. No defaults: the API server would add them, and a status
that never compares equal is a write per event (measured).
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from island_operator.api.schema import LIST_TYPE, MAP_KEYS, Model


def _stamp(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("a time without a zone")
    return text


Name = Annotated[str, Field(max_length=253)]
Text = Annotated[str, Field(max_length=4096)]
Time = Annotated[str, Field(max_length=40, json_schema_extra={"format": "date-time"}), AfterValidator(_stamp)]
Count = Annotated[int, Field(ge=0)]


class Condition(Model):
    """A standard condition (Kubernetes API conventions)."""

    type: Annotated[str, Field(max_length=64)] = Field(
        description="Ready, Available, Progressing, Degraded, GatePassed or RolledBack."
    )
    status: Literal["True", "False", "Unknown"] = Field(description="True, False or Unknown.")
    reason: Annotated[str, Field(max_length=128, pattern=r"^[A-Za-z][A-Za-z0-9_]*$")] = Field(
        description="Why, in one CamelCase word."
    )
    message: Text = Field(description="Why, for a person, with what to do.")
    observed_generation: Count | None = Field(None, description="metadata.generation that this was decided for.")
    last_transition_time: Time = Field(description="When status last flipped.")


class Rejected(Model):
    """A revision that only a spec change or the annotation radix-islands.dev/retry brings back."""

    revision: Name = Field(description="Its hash.")
    reason: Name = Field(description="Why.")
    message: Text = Field(description="Why, for a person.")
    at: Time = Field(description="When.")


class Known(Model):
    """A revision that passed its gate or was promoted."""

    revision: Name = Field(description="Its hash.")
    islands: bool = Field(description="Its switch.")
    ratio: Name | None = Field(None, description="Its SWA ratio; absent with a unified pool.")
    max_total_tokens: Count | None = Field(None, description="Its full pool, tokens.")
    verdict: Name | None = Field(None, description="Verdict of its gate; a PASS is reused.")
    fingerprint: Name | None = Field(None, description="What the verdict was about.")
    promoted_at: Time | None = Field(None, description="When it was promoted last.")


class Revisions(Model):
    """Which revision is which."""

    desired: Name | None = Field(None, description="What the spec asks for.")
    active: Name | None = Field(None, description="What serves, and what a rollback returns to.")
    canary: Name | None = Field(None, description="What is being rolled out.")
    rejected: Annotated[list[Rejected], Field(max_length=50, json_schema_extra={LIST_TYPE: "atomic"})] | None = Field(
        None, description="Revisions that failed, newest last; they are not tried again by themselves."
    )
    history: Annotated[list[Known], Field(max_length=64, json_schema_extra={LIST_TYPE: "atomic"})] | None = Field(
        None, description="Revisions that were proved or promoted, newest last."
    )


class Step(Model):
    """A canary step of the run, as it was pinned."""

    weight: Count = Field(description="Per cent of the pods.")
    pause_seconds: Count = Field(description="Seconds to hold.")


class Query(Model):
    """A question to Prometheus, as it was pinned."""

    name: Name = Field(description="Its name.")
    query: Text = Field(description="PromQL.")
    max: Name | None = Field(None, description="Most that it may be.")
    min: Name | None = Field(None, description="Least that it may be.")


class Prometheus(Model):
    """A Prometheus, as it was pinned."""

    address: Text = Field(description="Its URL.")
    queries: Annotated[list[Query], Field(max_length=16, json_schema_extra={LIST_TYPE: "atomic"})] = Field(
        description="What it is asked."
    )


class Checks(Model):
    """Limits of the run, as they were pinned."""

    min_requests: Count | None = Field(None, description="Fewer are not judged.")
    max_error_rate: Name | None = Field(None, description="HTTP 5xx over all responses.")
    max_retraction_rate: Name | None = Field(None, description="Retracted over all requests.")
    max_ttft_ratio: Name | None = Field(None, description="p99 time to first token over that of what serves.")
    max_swa_usage: Name | None = Field(None, description="Share of the SWA pool.")
    max_queued: Count | None = Field(None, description="Requests in one queue.")
    prometheus: Prometheus | None = Field(None, description="Queries whose answers must be within limits.")


class Run(Model):
    """The rollout in progress, pinned at its start."""

    revision: Name = Field(description="Its hash.")
    kind: Name = Field(description="Rollout, KillSwitch, Rollback or Revert.")
    phase: Name = Field(description="Gating, Canary, Promoting or RollingBack.")
    mode: Name = Field(description="Surge, Replace or Downtime.")
    started_at: Time = Field(description="When it began.")
    deadline: Count = Field(description="Seconds without progress until it fails.")
    progress_at: Time = Field(description="When it last made progress.")
    previous: Name | None = Field(
        None, description="What served before; on a way back: what is left, absent where that had no pods."
    )
    steps: Annotated[list[Step], Field(max_length=20, json_schema_extra={LIST_TYPE: "atomic"})] | None = Field(
        None, description="Canary steps."
    )
    checks: Checks | None = Field(None, description="What its metrics must say; absent: anything.")
    step: Count | None = Field(None, description="Canary step it is in, from 0.")
    ready: Count | None = Field(None, description="How many of its pods were Ready at its last progress.")
    paused_at: Time | None = Field(None, description="Since when it is paused by the verb.")
    held_since: Time | None = Field(None, description="Since when the step's pods are all Ready.")
    starved_since: Time | None = Field(None, description="Since when its pods find no GPU.")


class Gate(Model):
    """The newest gate."""

    revision: Name = Field(description="What it is about.")
    attempt: Count = Field(description="Which gate Job of this object, from 1.")
    job: Name = Field(description="Its Job.")
    job_uid: Name | None = Field(None, description="UID of the Job, once seen.")
    started_at: Time = Field(description="When it began.")
    finished_at: Time | None = Field(None, description="When its verdict was read.")
    verdict: Name | None = Field(None, description="PASS, FAIL, INCONCLUSIVE or ERROR; absent while it runs.")
    reason: Name | None = Field(None, description="Why.")
    message: Text | None = Field(None, description="Why, for a person.")
    fingerprint: Name | None = Field(None, description="Digest over image, model, arguments, device and versions.")
    divergence: dict[str, Any] | None = Field(
        None, description="Where the first byte differed: probe, index, expected and got tokens."
    )
    probes: Count | None = Field(None, description="Serves compared.")
    tokens: Count | None = Field(None, description="Tokens compared.")
    seconds: Annotated[float, Field(ge=0)] | None = Field(None, description="How long it took.")
    report: Name | None = Field(
        None, description="ConfigMap that keeps verdict and log, for as long as its Job is kept."
    )


class Unreadable(Model):
    """An engine whose /metrics cannot be read."""

    pod: Name = Field(description="Its pod.")
    reason: Name = Field(description="Why.")


class Unanswered(Model):
    """A query of the rollout in progress that came to no number."""

    query: Name = Field(description="Its name.")
    reason: Name = Field(description="Why.")


class Verb(Model):
    """A verb (pause, resume, abort, promote, retry or rollback) that was annotated, and what came of it."""

    name: Name = Field(description="pause, resume, abort, promote, retry or rollback.")
    value: Name = Field(description="The annotation's value.")
    at: Time = Field(description="When.")
    outcome: Text = Field(description="What came of it, in one sentence.")
    open: bool | None = Field(None, description="true until the annotation is off the object.")


class Pair(Model):
    """The pair that serves."""

    enabled: bool = Field(description="The switch.")
    ratio: Name | None = Field(None, description="SWA pool over full pool; absent with a unified pool.")
    max_total_tokens: Count | None = Field(None, description="Tokens in the full pool.")
    max_running_requests: Count | None = Field(None, description="Requests that run at once.")


class Status(Model):
    """What the operator decided and saw."""

    observed_generation: Count | None = Field(None, description="metadata.generation that this is about.")
    phase: Name | None = Field(None, description="Pending, Gating, Canary, Promoting, Stable or RollingBack.")
    replicas: Count | None = Field(None, description="Engine pods.")
    ready_replicas: Count | None = Field(None, description="Engine pods that are Ready.")
    selector: Annotated[str, Field(max_length=512)] | None = Field(
        None, description="Selects the engine pods, for the scale subresource."
    )
    revisions: Revisions | None = Field(None, description="Which revision is which.")
    run: Run | None = Field(None, description="The rollout in progress.")
    islands: Pair | None = Field(None, description="The pair that serves.")
    gate: Gate | None = Field(None, description="The newest gate, whatever revision it was about.")
    gate_verdict: Name | None = Field(
        None, description="Verdict about the revision that the spec asks for; absent: it has none, or needs none."
    )
    regate: Gate | None = Field(None, description="The newest gate by spec.gate.schedule, of what serves.")
    unreadable: Annotated[list[Unreadable], Field(max_length=16, json_schema_extra={LIST_TYPE: "atomic"})] | None = (
        Field(None, description="Engines whose /metrics cannot be read, so that nothing of theirs is judged.")
    )
    unanswered: Annotated[list[Unanswered], Field(max_length=16, json_schema_extra={LIST_TYPE: "atomic"})] | None = (
        Field(None, description="Queries of rollout.checks.prometheus that hold the canary, and why.")
    )
    verbs: Annotated[list[Verb], Field(max_length=16, json_schema_extra={LIST_TYPE: "atomic"})] | None = Field(
        None,
        description="The last verbs (annotations radix-islands.dev/VERB: pause, resume, abort, promote, retry, rollback) "
        "and what came of them, newest last.",
    )
    conditions: (
        Annotated[list[Condition], Field(max_length=16, json_schema_extra={LIST_TYPE: "map", MAP_KEYS: ["type"]})]
        | None
    ) = Field(None, description="Ready, Available, Progressing, Degraded, GatePassed and RolledBack.")
