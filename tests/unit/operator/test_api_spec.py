"""The models as Python sees them: strict, camelCase outside, and every example reads."""

import pytest
import yaml
from pydantic import ValidationError
from support import schema
from support.control_plane import ROOT
from support.resources import BASE, DERIVED, resource

from island_engine import sizing
from island_engine.planner import plan
from island_operator.api.spec import Spec
from island_operator.api.status import Status
from island_operator.core.revision import parts_of

EXAMPLES = [
    pytest.param(obj["spec"], id=f"{file.stem}-{obj['metadata']['name']}")
    for file in sorted((ROOT / "examples").glob("*.yaml"))
    for obj in yaml.safe_load_all(file.read_text(encoding="utf-8"))
    if obj["kind"] == "InferenceService"
]


@pytest.mark.parametrize("spec", EXAMPLES)
def test_an_example_reads_and_both_its_halves_are_above_their_floors(spec):
    read = Spec.model_validate(spec)
    engine, geometry = read.engine, read.geometry
    cost = sizing.Geometry(
        geometry.sliding_window,
        geometry.full_bytes_per_token,
        geometry.swa_bytes_per_token,
        geometry.draft_bytes_per_token,
    )
    partition = parts_of(read.model_dump(by_alias=True, mode="json"))["partition"]  # derived where it is absent
    for name, islands in (("islands", True), ("stock", False)):
        half = partition[name]
        pool = sizing.Half(half["swaFullTokensRatio"], half["maxTotalTokens"])
        most = half.get("maxRunningRequests") or engine.max_running_requests
        serving = sizing.Serving(engine.page_size, engine.chunked_prefill_size, most)
        assert pool.swa_tokens >= sizing.floor(geometry.sliding_window, serving, islands=islands)
        bytes_used = half["maxTotalTokens"] * cost.bytes_per_token(float(half["swaFullTokensRatio"]))
        assert bytes_used <= geometry.kv_budget_bytes


def test_what_is_not_said_has_the_safe_default():
    spec = Spec.model_validate(resource(DERIVED)["spec"])
    assert (spec.islands.enabled, spec.gate.enabled, spec.rollout.auto_rollback) == (True, True, True)
    assert (spec.partition, spec.replicas, spec.engine.page_size) == (None, 1, 64)


@pytest.mark.parametrize(
    ("edits", "at"),
    [
        ({"unknown": 1}, ("unknown",)),
        ({"partition/on": {}}, ("partition", "on")),
        ({"partition/islands/swaFullTokensRatio": 0.17}, ("partition", "islands", "swaFullTokensRatio")),
        ({"rollout": {"mode": "BlueGreen"}}, ("rollout", "mode")),
        ({"engine/port": 65_536}, ("engine", "port")),
        ({"gate": {"deadline": "soon"}}, ("gate", "deadline")),
        ({"engine/args": ["x"] * 129}, ("engine", "args")),
    ],
)
def test_a_fault_names_its_field(edits, at):
    with pytest.raises(ValidationError) as caught:
        Spec.model_validate(resource(edits)["spec"])
    assert [error["loc"] for error in caught.value.errors()] == [at]


def test_reading_changes_nothing_in_what_was_read():
    before = resource()
    Spec.model_validate(before["spec"])
    assert before == BASE


def test_a_full_status_goes_through_the_model_unchanged():
    told = schema.full(schema.root()["properties"]["status"], items=3)
    assert Status.model_validate(told).model_dump(mode="json", by_alias=True) == told


def test_a_status_of_nothing_says_nothing():
    assert Status().model_dump(mode="json", by_alias=True, exclude_none=True) == {}


def test_the_planner_knows_the_most_that_the_api_server_takes():
    kinds = Spec.model_json_schema()["$defs"]
    engine, half = kinds["Engine"]["properties"], kinds["Half"]["properties"]
    assert engine["maxRunningRequests"]["maximum"] == plan.MOST_RUNNING
    assert half["maxTotalTokens"]["maximum"] == plan.MOST_TOKENS
