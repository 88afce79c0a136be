"""InferenceService spec: the one source of the CRD's schema. Every string, list, map and integer is bounded (CEL costs)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from island_operator.api import halves, rules
from island_operator.api.rollout import Rollout
from island_operator.api.schema import (
    LABEL_VALUE,
    LIST_TYPE,
    MAP_KEYS,
    RESOURCE,
    SUBDOMAIN,
    Deadline,
    Model,
    Requests,
    Tokens,
    ruled,
)


class Source(Model):
    """Where the weights are. Exactly one."""

    model_config = ConfigDict(json_schema_extra=ruled(rules.SOURCE))
    pvc: Annotated[str, Field(max_length=253, pattern=SUBDOMAIN)] | None = Field(
        None,
        description="PersistentVolumeClaim in the same namespace, mounted read-only; its root is the model folder.",
    )
    host_path: Annotated[str, Field(max_length=1024, json_schema_extra=ruled(rules.HOST_PATH))] | None = Field(
        None, description="Model folder on every node, mounted read-only."
    )
    hugging_face: (
        Annotated[str, Field(max_length=256, pattern=r"^[A-Za-z0-9][-A-Za-z0-9._]*/[-A-Za-z0-9._]+$")] | None
    ) = Field(None, description="Repository on the Hugging Face hub, OWNER/NAME, that the engine downloads at boot.")


class ModelRef(Model):
    """The model that is served."""

    name: Annotated[
        str,
        Field(
            max_length=256,
            pattern=r"^[A-Za-z0-9][-A-Za-z0-9._/]*$",  # SGLang takes what follows a colon for the name of a LoRA adapter
            json_schema_extra=ruled(rules.immutable("model.name")),
        ),
    ] = Field(description="Name in the OpenAI API. Immutable: during a rollout both revisions answer to it.")
    source: Source = Field(description="Where the weights are: exactly one of pvc, hostPath and huggingFace.")


class EnvVar(Model):
    """One environment variable."""

    name: Annotated[
        str, Field(max_length=128, pattern="^[A-Za-z_][A-Za-z0-9_]*$", json_schema_extra=ruled(rules.ENVIRONMENT))
    ] = Field(description="Name; the variables that decide the switch or the pool are refused.")
    value: Annotated[str, Field(max_length=4096)] = Field(
        "", description="Value, as it is; for a Secret use podTemplate."
    )


class Engine(Model):
    """The SGLang engine."""

    model_config = ConfigDict(json_schema_extra=ruled(rules.CHUNK))
    image: Annotated[str, Field(max_length=512, pattern="^[!-~]+$")] = Field(  # Go and Rust differ in what \s is
        description="Image whose entry point is island-engine; the gate runs it too."
    )
    args: Annotated[
        list[Annotated[str, Field(max_length=1024, json_schema_extra=ruled(rules.ARGUMENT))]],
        Field(max_length=128, json_schema_extra={LIST_TYPE: "atomic"}),
    ] = Field(
        [],
        description="Further SGLang arguments, verbatim, one word an item. Flags that the operator sets are refused, "
        "also as --flag=value, abbreviated or by --config.",
    )
    env: Annotated[list[EnvVar], Field(max_length=128, json_schema_extra={LIST_TYPE: "map", MAP_KEYS: ["name"]})] = (
        Field([], description="Further environment variables.")
    )
    page_size: Annotated[int, Field(ge=1, le=1024)] = Field(64, description="Tokens per KV page (--page-size).")
    chunked_prefill_size: Annotated[int, Field(ge=rules.LEAST_CHUNK, le=1_048_576)] = Field(
        16384, description="Tokens per prefill chunk (--chunked-prefill-size), a multiple of pageSize."
    )
    max_running_requests: Requests = Field(
        48, description="Requests that run at once (--max-running-requests); both floors are derived from it."
    )
    port: Annotated[int, Field(ge=1, le=65535)] = Field(
        30000, description="Port of the engine's HTTP server and of the Services (--port)."
    )


class Islands(Model):
    """The switch."""

    enabled: bool = Field(
        True, description="true: islands and their half of the partition, after a gate. false: the stock half, at once."
    )
    decode_interval: Annotated[int, Field(ge=1, le=1_048_576)] | None = Field(
        None, description="Committed tokens between decode islands; absent: a quarter of the prefill chunk."
    )


class Half(Model):
    """One half of the pair."""

    swa_full_tokens_ratio: Annotated[str, Field(max_length=6, json_schema_extra=ruled(rules.RATIO_FIELD))] = Field(
        description='SWA pool over full pool, a quoted decimal such as "0.17".'
    )
    max_total_tokens: Tokens = Field(description="Tokens in the full pool (--max-total-tokens).")
    max_running_requests: Requests | None = Field(
        None, description="Requests that run at once with this half; absent: engine.maxRunningRequests."
    )


class Partition(Model):
    """The pair. Absent: both halves are derived from geometry."""

    model_config = ConfigDict(json_schema_extra=ruled(*rules.PARTITION))
    mode: Literal["halves", "unified"] | None = Field(
        None,
        description="halves (the default): two pools, and a half for each position of the switch. unified: SGLang's one "
        "shared pool (--enable-unified-memory), which has no ratio and no halves, so that the switch moves alone.",
    )
    islands: Half | None = Field(None, description="Used while islands.enabled is true.")
    stock: Half | None = Field(None, description="Used while islands.enabled is false.")


class Geometry(Model):
    """What a token of this model costs, for floors and for derived halves."""

    sliding_window: Annotated[int, Field(ge=1, le=1_048_576)] = Field(
        description="Sliding window of the model, tokens."
    )
    full_bytes_per_token: Annotated[int, Field(ge=1, le=10**9)] | None = Field(
        None, description="KV bytes of one token in all full-attention layers."
    )
    swa_bytes_per_token: Annotated[int, Field(ge=1, le=10**9)] | None = Field(
        None, description="KV bytes of one token in all sliding-window layers."
    )
    draft_bytes_per_token: Annotated[int, Field(ge=0, le=10**9)] = Field(
        0, description="KV bytes of one token in the draft model."
    )
    kv_budget_bytes: Annotated[int, Field(ge=1, le=10**15)] | None = Field(
        None, description="Bytes per GPU that are left for KV."
    )


class Toleration(Model):
    """A node's taint that a pod accepts, as in a pod's spec."""

    key: Annotated[str, Field(max_length=317)] | None = Field(None, description="Key of the taint; absent: any.")
    operator: Literal["Exists", "Equal"] | None = Field(None, description="Equal (the default) or Exists.")
    value: Annotated[str, Field(max_length=63)] | None = Field(None, description="Value of the taint, for Equal.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        None, description="Effect of the taint; absent: any."
    )
    toleration_seconds: Annotated[int, Field(ge=0, le=10**9)] | None = Field(
        None, description="For NoExecute: how long the pod stays; absent: for ever."
    )


class Accelerator(Model):
    """What one pod needs."""

    resource: Annotated[str, Field(max_length=317, pattern=RESOURCE)] = Field(
        "nvidia.com/gpu", description="Extended resource that a pod asks for."
    )
    count: Annotated[int, Field(ge=0, le=64)] = Field(1, description="How many of it per pod; 0 for none.")
    node_selector: Annotated[
        dict[str, Annotated[str, Field(max_length=63, pattern=LABEL_VALUE)]], Field(max_length=32)
    ] = Field({}, description="Labels that a node must have.")
    tolerations: Annotated[list[Toleration], Field(max_length=32, json_schema_extra={LIST_TYPE: "atomic"})] = Field(
        [], description="Taints that a pod accepts."
    )


Hostname = Annotated[
    str, Field(max_length=253, pattern=r"^([*][.])?[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
]


class GatewayRef(Model):
    """A Gateway (Gateway API v1) whose requests are split between the Services NAME-stable and NAME-canary."""

    name: Annotated[str, Field(max_length=253, pattern=SUBDOMAIN)] = Field(description="Name of the Gateway.")
    namespace: Annotated[str, Field(max_length=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] | None = Field(
        None, description="Its namespace; absent: this one."
    )
    section_name: Annotated[str, Field(max_length=253, pattern=SUBDOMAIN)] | None = Field(
        None, description="One of its listeners; absent: all that take the route."
    )
    hostnames: Annotated[list[Hostname], Field(max_length=16, json_schema_extra={LIST_TYPE: "atomic"})] = Field(
        [], description="Host names to answer to; none: all of the listeners'."
    )


class Gate(Model):
    """The two-boot equality gate before islands serve."""

    enabled: bool = Field(True, description="false: islands are rolled out by canary alone.")
    deadline: Deadline = Field(
        "30m", description="Time for the gate Job, Pending included; after it the gate is Inconclusive."
    )
    profile: Literal["quick", "standard"] = Field("standard", description="How much is probed.")
    schedule: Deadline | None = Field(
        None, description="How often islands that serve are gated again, on a spare GPU, such as 24h; absent: never."
    )
    on_drift: Literal["Report", "Rollback"] = Field(
        "Report", description="What a FAIL of a scheduled gate does: only tell, or go to the stock half."
    )


class Spec(Model):
    """One served model on one pool of identical pods."""

    model_config = ConfigDict(json_schema_extra=ruled(*halves.SPEC))
    model: ModelRef = Field(description="The model that is served.")
    engine: Engine = Field(description="The SGLang engine.")
    islands: Islands = Field(Islands(), description="The switch. It moves together with the partition.")  # type: ignore[call-arg]
    partition: Partition | None = Field(None, description="The pair of pool partitions; absent: derived from geometry.")
    geometry: Geometry = Field(description="What a token of this model costs.")
    accelerator: Accelerator = Field(Accelerator(), description="What one pod needs.")  # type: ignore[call-arg]
    replicas: Annotated[int, Field(ge=0, le=1000)] = Field(1, description="Pods that serve.")
    rollout: Rollout = Field(Rollout(), description="How a new revision replaces the one that serves.")  # type: ignore[call-arg]
    gate: Gate = Field(Gate(), description="The equality gate.")  # type: ignore[call-arg]
    gateway_ref: GatewayRef | None = Field(
        None, description="Gateway whose HTTPRoute weighs stable and canary; absent: requests are weighted by pods."
    )
    pod_template: dict[str, Any] = Field(
        {}, description="Merged into the pods that the operator builds, lists by name."
    )
