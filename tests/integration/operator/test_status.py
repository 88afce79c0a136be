"""What users and GitOps controllers see of an InferenceService: applies that change nothing, status, scale, columns."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support import schema
from support.resources import ABSENT, DERIVED, resource

from island_operator.api.status import Status
from island_operator.core.revision import parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.control_plane import ControlPlane

    Object = dict[str, Any]

EVER = "2026-01-01T00:00:00Z"
STATUS = schema.root()["properties"]["status"]
RICH = {
    "accelerator": {"count": 8, "nodeSelector": {"gpu": "h100"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]},
    "engine/env": [{"name": "B", "value": "2"}, {"name": "A"}],
    "islands": {"enabled": False, "decodeInterval": 4096},
    "rollout": {"mode": "Replace", "steps": [{"weight": 10}, {"weight": 50, "pause": "1m"}]},
    "gate": {"profile": "quick"},
    "podTemplate": {
        "spec": {"containers": [{"name": "engine", "resources": {"limits": {"memory": "6Gi", "cpu": 0.5}}}]}
    },
    "replicas": 3,
}
FILES: dict[str, Object] = {
    "explicit": {},
    "derived": DERIVED,
    "emptied": DERIVED | {"partition": {}},
    "nulled": DERIVED | {"partition": {"islands": None, "stock": None}, "engine/args": [], "podTemplate": {}},
    "rich": RICH,
    "minimal": {"engine": {"image": "x"}},
}


@pytest.fixture
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane, without what the test made in it."""
    yield control_plane
    control_plane.kubectl("delete", "iisvc", "--all", "--wait")


def versions(plane: ControlPlane, name: str) -> tuple[Object, Object]:
    """What an apply moves, and the object."""
    found = plane.get("iisvc", name)
    meta = found["metadata"]
    return {"generation": meta["generation"], "resourceVersion": meta["resourceVersion"]}, found


@pytest.mark.parametrize("server_side", [True, False], ids=["server-side", "client-side"])
@pytest.mark.parametrize("edits", FILES.values(), ids=FILES)
def test_the_same_file_again_changes_nothing(plane: ControlPlane, edits: Object, *, server_side: bool) -> None:
    file = json.dumps(resource(edits, "same"))
    how = ["--server-side"] if server_side else []
    plane.kubectl("apply", *how, "-f", "-", stdin=file)
    first, made = versions(plane, "same")
    plane.kubectl("apply", *how, "-f", "-", stdin=file)
    assert versions(plane, "same")[0] == first
    # what the API server answers, applied by somebody else, says nothing new either: the defaults are at rest
    told = {key: made[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": {"name": "same"}}
    plane.kubectl("apply", "--server-side", "--field-manager=other", "-f", "-", stdin=json.dumps(told))
    assert versions(plane, "same")[0]["generation"] == first["generation"]
    assert versions(plane, "same")[1]["spec"] == made["spec"]


def test_halves_given_up_by_server_side_apply_become_derived_ones(plane: ControlPlane) -> None:
    """What is no longer said is removed: an absent partition goes, an emptied one is null first and {} from then on."""
    with_bytes = {"geometry": DERIVED["geometry"]}
    for partition, settled_after in ((ABSENT, 1), ({}, 2)):
        plane.apply(resource(with_bytes, "given-up"))
        assert set(plane.get("iisvc", "given-up")["spec"]["partition"]) == {"islands", "stock"}
        seen = []
        for _ in range(4):
            plane.apply(resource(with_bytes | {"partition": partition}, "given-up"))
            at, found = versions(plane, "given-up")
            assert not found["spec"].get("partition")
            seen.append((at, parts_of(found["spec"])))
        assert [at for at, _ in seen[settled_after:]] == [seen[settled_after - 1][0]] * (4 - settled_after)
        assert all(parts == seen[0][1] for _, parts in seen), "one revision, however nothing is spelled"


@pytest.mark.parametrize("items", [1, 64], ids=["one of each", "as many as fit"])
def test_status_holds_every_field_and_drops_nothing(plane: ControlPlane, items: int) -> None:
    told = schema.full(STATUS, items, "w" * 4096 if items > 1 else "Word")
    for condition in told["conditions"]:
        condition["type"] = condition["type"][:64]
    assert Status.model_validate(told).model_dump(mode="json", by_alias=True) == told, (
        "the operator's own model reads it"
    )
    plane.apply(resource(name="full"))
    before, made = versions(plane, "full")
    plane.merge("iisvc", "full", {"status": told}, subresource="status")
    after, found = versions(plane, "full")
    assert found["status"] == _without_nulls(told)
    assert after["generation"] == before["generation"], "a status is no edit"
    assert found["spec"] == made["spec"]
    plane.merge("iisvc", "full", {"status": told}, subresource="status")
    assert versions(plane, "full")[0] == after, "the same status again is no write"


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return value if not isinstance(value, list) else [_without_nulls(inner) for inner in value]


def test_status_that_is_no_status_is_refused(plane: ControlPlane) -> None:
    plane.apply(resource(name="strict"))
    for status, words in (
        ({"conditions": [{"type": "Ready"}]}, "status.conditions[0].status: Required value"),
        ({"replicas": -1}, "should be greater than or equal to 0"),
        ({"replica": 1}, 'unknown field "status.replica"'),
    ):
        done = plane.try_kubectl(
            "patch", "iisvc", "strict", "--subresource=status", "--type=merge", "-p", json.dumps({"status": status})
        )
        assert words in done.stderr


def test_a_user_s_apply_leaves_the_status_and_the_operator_s_status_leaves_the_spec(plane: ControlPlane) -> None:
    plane.apply(resource(name="apart"))
    plane.merge("iisvc", "apart", {"status": {"phase": "Stable"}, "spec": {"replicas": 9}}, subresource="status")
    plane.apply(resource({"replicas": 2}, "apart") | {"status": {"phase": "Forged"}})
    found = plane.get("iisvc", "apart")
    assert (found["status"], found["spec"]["replicas"]) == ({"phase": "Stable"}, 2)


def test_scale_reads_the_status_and_writes_the_spec(plane: ControlPlane) -> None:
    plane.apply(resource(name="scaled"))
    selector = "radix-islands.dev/instance=scaled,radix-islands.dev/role=engine"
    plane.merge("iisvc", "scaled", {"status": {"replicas": 1, "selector": selector}}, subresource="status")
    plane.kubectl("scale", "iisvc/scaled", "--replicas=4")
    path = "/apis/radix-islands.dev/v1alpha1/namespaces/default/inferenceservices/scaled/scale"
    scale = json.loads(plane.kubectl("get", "--raw", path))
    assert (scale["spec"], scale["status"]) == ({"replicas": 4}, {"replicas": 1, "selector": selector})
    assert plane.get("iisvc", "scaled")["spec"]["replicas"] == 4
    beyond = plane.try_kubectl("scale", "iisvc/scaled", "--replicas=1001")
    assert (
        "spec.replicas: Invalid value: 1001: spec.replicas in body should be less than or equal to 1000"
        in beyond.stderr
    )


def test_columns_tell_what_serves(plane: ControlPlane) -> None:
    plane.apply(resource(name="told"))
    ready = {"type": "Ready", "status": "False", "reason": "GateRunning", "message": "m", "lastTransitionTime": EVER}
    status = {
        "phase": "Gating",
        "readyReplicas": 2,
        "islands": {"enabled": False, "ratio": "0.32", "maxTotalTokens": 740_000},
        "gate": {"revision": "r", "attempt": 1, "job": "j", "startedAt": EVER, "verdict": "FAIL"},
        "gateVerdict": "PASS",
        "conditions": [ready],
    }
    plane.merge("iisvc", "told", {"status": status}, subresource="status")
    header, row = plane.kubectl("get", "iisvc", "told").splitlines()
    columns = ["NAME", "READY", "ISLANDS", "RATIO", "PHASE", "GATE", "REPLICAS", "REASON", "AGE"]
    assert header.split() == columns
    shown = dict(zip(columns, row.split(), strict=True))
    assert shown.pop("AGE")
    assert list(shown.values()) == ["told", "False", "false", "0.32", "Gating", "PASS", "2", "GateRunning"]


def test_kubectl_explains_every_field(plane: ControlPlane) -> None:
    listed = plane.kubectl("explain", "iisvc", "--recursive")
    described = [
        (path, node["description"])
        for path, node in schema.nodes(schema.root())
        if path and path[-1].isalpha() and "description" in node
    ]
    assert {path[-1] for path, _ in described} <= {line.split("\t")[0].strip() for line in listed.splitlines()}
    for field in ("spec.partition.islands.swaFullTokensRatio", "spec.islands.enabled", "status.run.phase"):
        want = next(text for path, text in described if ".".join(path) == field)
        assert want in " ".join(plane.kubectl("explain", f"iisvc.{field}").split())


def test_short_name_and_kind_find_it(plane: ControlPlane) -> None:
    plane.apply(resource(name="named"))
    for word in ("iisvc", "inferenceservice", "inferenceservices.radix-islands.dev"):
        assert plane.kubectl("get", word, "-o", "name") == "inferenceservice.radix-islands.dev/named\n"
