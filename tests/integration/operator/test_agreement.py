"""What the API server lets in, the operator can read: at the edge of every field, at every floor, in every example."""

from __future__ import annotations

import copy
import json
import math
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from support import schema
from support.control_plane import ROOT
from support.resources import ABSENT, DERIVED, resource

from island_engine import sizing
from island_operator.api.spec import Spec
from island_operator.core import intent

if TYPE_CHECKING:
    from support.control_plane import ControlPlane

    Object = dict[str, Any]

WIDE = {"swaFullTokensRatio": "1", "maxTotalTokens": 1_000_000_000}  # above every floor that one edit can ask for
ROOMY = {"partition": {"islands": WIDE, "stock": WIDE}, "geometry/kvBudgetBytes": 10**15, "gatewayRef": {"name": "g"}}
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
SHAPES = [  # window, page, chunk, running
    (1024, 64, 16_384, 48),
    (1, 1, 64, 1),
    (128, 64, 512, 8),
    (512, 16, 2_048, 4_096),
    (4_096, 1_024, 1_048_576, 3),
    (1_000, 7, 7_000, 333),
]
BYTES = [(9_500, 95_000, 10_240), (128, 1_280, 0), (95_000, 9_500, 0), (4_000, 200_000, 0)]  # full, SWA, draft


def answers(plane: ControlPlane, objects: list[Object]) -> dict[str, Object]:
    """The objects that the API server lets in, by name and as it would store them, in one dry run.

    kubectl's own validation is off: it ends the whole list at the first wrong type.
    """
    everything = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    done = plane.try_kubectl(
        "create", "--validate=false", "--dry-run=server", "-o", "json", "-f", "-", stdin=everything
    )
    found, text, at = {}, done.stdout, 0
    while text[at:].strip():  # one JSON document after another, or a List when several went in
        at += len(text[at:]) - len(text[at:].lstrip())
        value, at = json.JSONDecoder().raw_decode(text, at)
        for item in value.get("items", [value]):
            found[item["metadata"]["name"]] = item
    return found


def readable(obj: Object) -> None:
    """The models agree with the API server on every value and default, and the core makes a revision of it."""
    spec = obj["spec"]
    read = Spec.model_validate(spec).model_dump(mode="json", by_alias=True)
    assert _without_nulls(read) == _without_nulls(spec)
    obj["metadata"].setdefault("uid", "0")
    wanted = intent.read(obj)
    assert wanted.fault is None
    assert wanted.revision is not None


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def edges() -> list[tuple[str, Any, bool]]:
    """(path in spec, value, legal by the schema alone) at both ends of every bound and for every word of every enum."""
    found: list[tuple[str, Any, bool]] = []
    for path, node in schema.nodes(schema.root()["properties"]["spec"]):
        at = "/".join(path)
        if "[]" in path or "{}" in path:
            continue
        if node["type"] == "integer":
            low, high = node["minimum"], node["maximum"]
            found += [
                (at, low, True),
                (at, high, True),
                (at, float(high), True),
                (at, low - 1, False),
                (at, high + 1, False),
            ]
        elif "enum" in node:
            found += [(at, word, True) for word in node["enum"]] + [
                (at, "", False),
                (at, node["enum"][0].upper(), False),
            ]
        elif node["type"] == "boolean":
            found += [(at, True, True), (at, False, True), (at, "true", False), (at, 1, False)]
        elif node.get("nullable") or "default" in node:
            found.append((at, None, True))
    return found


def test_at_the_edge_of_every_field(control_plane: ControlPlane) -> None:
    tried = [(f"edge-{i}", *edge) for i, edge in enumerate(edges())]
    objects = []
    for name, path, value, _ in tried:
        objects.append(resource(DERIVED | ROOMY | {path: value}, name))
    let_in = answers(control_plane, objects)
    for obj in let_in.values():
        readable(obj)
    refused = {(path, value) for name, path, value, legal in tried if legal and name not in let_in}
    # A rule refuses these, not a bound: no source, a pool of one token, one half, halves of one unified pool, pools
    # that the bytes do not hold.
    assert refused == {
        ("model/source/pvc", None),
        ("partition/islands/maxTotalTokens", 1),
        ("partition/stock/maxTotalTokens", 1),
        ("partition/islands", None),
        ("partition/stock", None),
        ("partition/mode", "unified"),
        ("geometry/kvBudgetBytes", 1),
        *((f"geometry/{name}BytesPerToken", 10**9) for name in ("full", "swa", "draft")),
    }
    assert [edge for edge in tried if not edge[3] and edge[0] in let_in] == []
    assert len(let_in) >= 60


ODD: dict[str, Object] = {
    "only what is required": {"engine": {"image": "x"}},
    "derived": DERIVED,
    "derived from an empty partition": DERIVED | {"partition": {}},
    "derived from null halves": DERIVED | {"partition": {"islands": None, "stock": None}},
    "empty where there are defaults": {
        "islands": {}, "rollout": {}, "gate": {}, "accelerator": {}, "podTemplate": {},
        "engine/args": [], "engine/env": [],
    },
    "null where there are defaults": {
        "islands": None, "rollout": None, "gate": None, "accelerator": None, "podTemplate": None, "replicas": None,
        "engine/args": None, "engine/env": None, "engine/port": None,
    },
    "null inside where there are defaults": {
        "islands": {"enabled": None, "decodeInterval": None}, "gate": {"deadline": None}, "rollout": {"steps": None},
        "accelerator": {"tolerations": None, "nodeSelector": None},
    },
    "every word that is not ASCII": {
        "engine/args": ["--chat-template", "模型 \U0001f600"], "engine/env": [{"name": "A", "value": "ß" * 4096}],
        "model/source": {"hostPath": "/modèles/" + "模" * 1000},
    },
    "a value-less variable": {"engine/env": [{"name": "A"}, {"name": "B", "value": None}]},
    "durations of many parts": {
        "rollout": {"deadline": "1h1m1s1h", "steps": [{"weight": 1, "pause": "0h0m0s"}, {"weight": 1}]},
        "gate": {"deadline": "604800s"},
    },
    "labels": {"accelerator": {"nodeSelector": {"a": "", "b.c/d": "E_f.g"}}},
    "tolerations of anything": {"accelerator": {"tolerations": [{}, {"operator": "Exists", "key": None}]}},
    "numbers with a point": {"replicas": 2.0, "engine/maxRunningRequests": 48.0, "geometry/slidingWindow": 1024.0},
    "an exponent": {"replicas": 1e2},
    "a pod template with nulls": {"podTemplate": {"spec": {"tolerations": None}, "metadata": {"labels": {"a": "b"}}}},
}  # fmt: skip


@pytest.mark.parametrize("edits", ODD.values(), ids=ODD)
def test_odd_but_legal(control_plane: ControlPlane, edits: Object) -> None:
    let_in = answers(control_plane, [resource(edits)])
    assert let_in
    readable(let_in["gemma"])


def half(geometry: sizing.Geometry, serving: sizing.Serving, ratio: str, *, islands: bool, short: int = 0) -> Object:
    """A half whose pool is the floor, or `short` tokens of the full pool below it."""
    needed = sizing.floor(geometry.window, serving, islands=islands)
    tokens = math.ceil(needed * sizing.SCALE / round(float(ratio) * sizing.SCALE))
    return {"swaFullTokensRatio": ratio, "maxTotalTokens": tokens - short}


@pytest.mark.parametrize("shape", SHAPES)
def test_floors_are_those_of_the_sizing(control_plane: ControlPlane, shape: tuple[int, int, int, int]) -> None:
    window, page, chunk, running = shape
    serving = sizing.Serving(page, chunk, running)
    geometry = sizing.Geometry(window, 1, 1)
    engine = {"image": "x", "pageSize": page, "chunkedPrefillSize": chunk, "maxRunningRequests": running}
    objects, legal = [], set()
    for i, ratio in enumerate(("0.0701", "0.17", "0.29", "0.57", "0.9999", "1")):
        for short in (0, 1):
            for lean in (True, False):
                name = f"r{i}-{'islands' if lean else 'stock'}-{short}"
                pair = {
                    "islands": half(geometry, serving, ratio, islands=True, short=short if lean else 0),
                    "stock": half(geometry, serving, ratio, islands=False, short=0 if lean else short),
                }
                objects.append(resource({"partition": pair, "engine": engine, "geometry/slidingWindow": window}, name))
                legal |= set() if short else {name}
    assert set(answers(control_plane, objects)) == legal


@pytest.mark.parametrize("shape", SHAPES)
def test_derived_halves_exist_whenever_they_are_let_in_and_are_legal_themselves(
    control_plane: ControlPlane, shape: tuple[int, int, int, int]
) -> None:
    window, page, chunk, running = shape
    serving = sizing.Serving(page, chunk, running)
    engine = {"image": "x", "pageSize": page, "chunkedPrefillSize": chunk, "maxRunningRequests": running}
    least_pool = sizing.floor(window, serving, islands=False) + page
    derived, explicit, legal = [], [], set()
    for i, (full, swa, draft) in enumerate(BYTES):
        least = least_pool * (full + swa + draft)
        for name, budget in (
            (f"b{i}-short", least - 1),
            (f"b{i}-least", least),
            (f"b{i}-ample", min(3 * least, 10**15)),
        ):
            if budget > 10**15:
                continue
            costs = {"fullBytesPerToken": full, "swaBytesPerToken": swa, "draftBytesPerToken": draft}
            geometry = {"slidingWindow": window, "kvBudgetBytes": budget} | costs
            common: Object = {"engine": engine, "geometry": geometry}
            derived.append(resource(common | {"partition": ABSENT}, name))
            if name.endswith("short"):
                continue
            legal.add(name)
            halves = sizing.derive_halves(sizing.Geometry(window, full, swa, draft), serving, budget)
            pair = {
                which: {"swaFullTokensRatio": one.ratio, "maxTotalTokens": one.max_total_tokens}
                for which, one in (("islands", halves.islands), ("stock", halves.stock))
            }
            explicit.append(resource(common | {"partition": pair}, name))
    let_in = answers(control_plane, derived)
    assert set(let_in) == legal
    for obj in let_in.values():
        readable(obj)
    assert set(answers(control_plane, explicit)) == legal


KNOWN = {"geometry": DERIVED["geometry"]}  # with explicit halves beside it
SMALL = {"swaFullTokensRatio": "0.05", "maxTotalTokens": 740_000}
PROPOSAL = re.compile(r'\b(?:use|or) (?:at least )?([a-z]\w+ )?("[0-9.]+"|[0-9]+)')
REMEDIES: dict[str, tuple[Object, str]] = {  # edits, and where the proposed value goes
    "islands": ({"partition/islands": SMALL}, "partition/islands/"),
    "islands, no ratio helps": ({"partition/islands/maxTotalTokens": 50_000}, "partition/islands/"),
    "islands, the ratio would be above stock's": ({"partition/islands/maxTotalTokens": 200_000}, "partition/islands/"),
    "stock": (
        {"partition/islands": SMALL | {"maxTotalTokens": 2_000_000}, "partition/stock": SMALL},
        "partition/stock/",
    ),
    "stock, by requests": ({"engine/maxRunningRequests": 102}, "partition/stock/"),
    "budget": (DERIVED | {"geometry/kvBudgetBytes": 1}, "geometry/kvBudgetBytes"),
    "chunk": ({"engine/chunkedPrefillSize": 1000}, "engine/chunkedPrefillSize"),
    "islands, beyond the bytes": (
        KNOWN | {"partition/islands/maxTotalTokens": 2_000_000},
        "partition/islands/",
    ),
    "stock, beyond the bytes": (KNOWN | {"partition/stock/maxTotalTokens": 900_000}, "partition/stock/"),
}


@pytest.mark.parametrize(("edits", "field"), REMEDIES.values(), ids=REMEDIES)
def test_every_value_that_a_refusal_proposes_is_let_in(control_plane: ControlPlane, edits: Object, field: str) -> None:
    file = json.dumps(resource(edits))
    told = control_plane.try_kubectl("create", "--dry-run=server", "-f", "-", stdin=file).stderr
    proposed = PROPOSAL.findall(told)
    assert proposed, told
    for name, value in proposed:
        better = edits | {field + name.strip(): json.loads(value)}
        assert answers(control_plane, [resource(better)]), f"{told} but {name}{value} is refused"


@pytest.mark.parametrize(
    "edits",
    [
        {
            "engine/maxRunningRequests": 96,
            "partition/islands": {"swaFullTokensRatio": "0.0001", "maxTotalTokens": 1000},
        },
        KNOWN | {"partition/islands/swaFullTokensRatio": "0.01"},
        KNOWN | {"geometry/kvBudgetBytes": 14_000_000_000},
    ],
    ids=["no bytes known", "a ratio far too small", "too few bytes"],
)
def test_what_no_single_value_can_mend_names_all_of_them(control_plane: ControlPlane, edits: Object) -> None:
    told = control_plane.try_kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(resource(edits))).stderr
    pairs = re.findall(r'partition\.(\w+).*use swaFullTokensRatio "([0-9.]+)" and maxTotalTokens (\d+)', told)
    assert pairs, told
    better = {f"partition/{half}": {"swaFullTokensRatio": r, "maxTotalTokens": int(t)} for half, r, t in pairs}
    assert answers(control_plane, [resource(edits | better)]), f"{told} but {better} is refused"


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_is_let_in_as_it_stands(control_plane: ControlPlane, file: Any) -> None:
    control_plane.kubectl("apply", "--server-side", "--dry-run=server", "-f", file)
    for obj in yaml.safe_load_all(file.read_text(encoding="utf-8")):
        if obj["kind"] == "InferenceService":
            readable(copy.deepcopy(answers(control_plane, [obj])[obj["metadata"]["name"]]))
