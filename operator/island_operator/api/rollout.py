"""spec.rollout: how a new revision replaces the one that serves. Every string, list and integer is bounded (CEL costs)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from island_operator.api import rules
from island_operator.api.schema import LIST_TYPE, MAP_KEYS, Deadline, Model, Pause, ruled


class Step(Model):
    """One canary step."""

    weight: Annotated[int, Field(ge=1, le=100)] = Field(
        description="Per cent of the pods that run the canary, at least one pod."
    )
    pause: Pause = Field("0s", description="How long the step holds once its pods are Ready, such as 30s or 5m.")


Share = Annotated[str, Field(max_length=6, pattern=rules.SHARE)]
Factor = Annotated[str, Field(max_length=9, pattern=rules.FACTOR)]


Limit = Annotated[str, Field(max_length=20, pattern="^-?[0-9]{1,12}([.][0-9]{1,6})?$")]


class Query(Model):
    """One question to Prometheus. It must come to one number: no answer holds the canary until rollout.deadline."""

    model_config = ConfigDict(json_schema_extra=ruled(rules.LIMITED))
    name: Annotated[str, Field(max_length=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] = Field(
        description="What status and Events call it."
    )
    query: Annotated[str, Field(min_length=1, max_length=2048)] = Field(
        description="PromQL; $canary and $stable stand for the two revisions, $name and $namespace for this object."
    )
    max: Limit | None = Field(None, description='Most that it may be, a quoted decimal such as "0.05".')
    min: Limit | None = Field(None, description="Least that it may be.")


class Prometheus(Model):
    """A Prometheus whose answers a canary must meet."""

    address: Annotated[str, Field(max_length=512, pattern=r"^https?://[A-Za-z0-9.:-]+(/[A-Za-z0-9._~/-]*)?$")] = Field(
        description="URL without /api, such as http://prometheus.monitoring:9090; the operator asks it, without credentials."
    )
    queries: Annotated[
        list[Query], Field(min_length=1, max_length=16, json_schema_extra={LIST_TYPE: "map", MAP_KEYS: ["name"]})
    ] = Field(description="What to ask, every 10 s while a canary runs and is promoted.")


class Checks(Model):
    """What a canary's own metrics must say, from its first step until it is promoted. An absent limit is not checked."""

    enabled: bool = Field(True, description="false: the numbers of a canary are not looked at.")
    min_requests: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        50, description="Fewer requests than this are not judged; a canary without traffic goes on by its pauses."
    )
    max_error_rate: Share = Field("0.05", description="HTTP 5xx over all responses; 1 lets all of them be.")
    max_retraction_rate: Share | None = Field(None, description="Retracted requests over all requests.")
    max_ttft_ratio: Factor | None = Field(
        None, description="p99 time to first token of the canary over that of what serves, such as 1.5."
    )
    max_swa_usage: Share | None = Field(None, description="Share of the SWA pool in use.")
    max_queued: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(None, description="Requests in one queue.")
    prometheus: Prometheus | None = Field(None, description="Queries whose answers must be within limits.")


class Rollout(Model):
    """How a new revision replaces the one that serves."""

    mode: Literal["Surge", "Replace", "Downtime"] = Field(
        "Surge",
        description="Surge: gate and canary run on a spare GPU. Replace: one of several serving pods gives its GPU up "
        "first. Downtime: as Replace, and with one replica that one too, so that nothing serves meanwhile.",
    )
    steps: Annotated[
        list[Step], Field(max_length=20, json_schema_extra=ruled(rules.STEPS, **{LIST_TYPE: "atomic"}))
    ] = Field([], description="Canary steps; none: one pod, no pause.")
    checks: Checks = Field(Checks(), description="What the metrics of a canary must say.")  # type: ignore[call-arg]
    deadline: Deadline = Field(
        "30m", description="Longest time without progress in canary and promotion, Pending included."
    )
    auto_rollback: bool = Field(
        True, description="Roll back by itself when a canary, or what it became, fails; false: hold and report."
    )
    watch: Deadline = Field(
        "1h", description="How long after its promotion a crash loop of a revision still rolls it back."
    )
    history_limit: Annotated[int, Field(ge=1, le=50)] = Field(5, description="Old revisions to keep, scaled to zero.")
