"""What the API server lets in and what it refuses, in the words that a user reads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from support.control_plane import ROOT
from support.resources import ABSENT, DERIVED, resource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.control_plane import ControlPlane

    Object = dict[str, Any]

HALF = {"swaFullTokensRatio": "0.17", "maxTotalTokens": 980_000}
QUERY = {"name": "errors", "query": 'sum(rate(x{pod=~"$name-$canary-.*"}[5m]))', "max": "0.05", "min": "-1"}
PROMETHEUS: Object = {"address": "https://prometheus.monitoring:9090/base", "queries": [QUERY]}
GOOD: dict[str, Object] = {
    "seed": {},
    "created with islands off": {"islands/enabled": False},
    "derived": DERIVED,
    "derived, partition an empty object": DERIVED | {"partition": {}},
    "derived, halves null": DERIVED | {"partition": {"islands": None, "stock": None}},
    "derived, the smallest budget": DERIVED | {"geometry/kvBudgetBytes": (120_832 + 64) * (9_500 + 95_000 + 10_240)},
    "islands exactly at the floor": {"partition/islands": {"swaFullTokensRatio": "0.07", "maxTotalTokens": 980_115}},
    "stock exactly at the floor": {"partition/stock": {"swaFullTokensRatio": "0.32", "maxTotalTokens": 377_600}},
    "ratio 1": {
        "partition/islands": {"swaFullTokensRatio": "1", "maxTotalTokens": 68_608},
        "partition/stock": {"swaFullTokensRatio": "1", "maxTotalTokens": 120_832},
    },
    "a ratio of four decimals": {"partition/islands/swaFullTokensRatio": "0.1234"},
    "flags that are nobody's": {
        "engine/args": ["--mem-fraction-static", "0.8", "--context-length=131072", "--max-prefill-tokens", "1",
                        "--model-impl", "auto", "--enable-metrics-for-all-schedulers"],
    },
    "values that look like names of flags": {"engine/args": ["--chat-template", "page-size", "--log-level", "config"]},
    "mutation switch of the gate": {
        "engine/env": [{"name": "ISLAND_MUTATE", "value": "frontier"}, {"name": "ISLAND_ALLOW_MUTATION", "value": "1"}]
    },
    "environment": {"engine/env": [{"name": "OMP_NUM_THREADS", "value": "1"}, {"name": "EMPTY"}]},
    "pod template of anything": {"podTemplate": {"spec": {"priorityClassName": "x", "containers": []}}},
    "host path": {"model/source": {"hostPath": "/srv/models/gemma..4"}},
    "hub": {"model/source": {"huggingFace": "google/gemma-4-26b-a4b-it"}},
    "no accelerator": {"accelerator": {"count": 0}},
    "accelerator": {
        "accelerator": {
            "resource": "amd.com/gpu", "count": 8, "nodeSelector": {"gpu": "mi300", "example.com/empty": ""},
            "tolerations": [{"key": "amd.com/gpu", "operator": "Exists", "effect": "NoSchedule"}, {"value": "x"}],
        }
    },
    "rollout": {
        "rollout": {"mode": "Replace", "steps": [{"weight": 10}, {"weight": 50, "pause": "1m30s"}], "deadline": "1h"}
    },
    "no gate": {"gate": {"enabled": False}},
    "decode interval": {"islands": {"enabled": True, "decodeInterval": 4096}},
    "scaled to zero": {"replicas": 0},
    "one GPU in all": {"rollout": {"mode": "Downtime", "watch": "2h"}},
    "unified": {"partition": {"mode": "unified"}},
    "pools within the bytes": {"geometry": DERIVED["geometry"]},
    "a gateway": {"gatewayRef": {"name": "public", "namespace": "gateways", "sectionName": "https",
                                 "hostnames": ["*.models.example", "models.example"]}},
    "queries": {"rollout": {"checks": {"prometheus": PROMETHEUS}}},
    "a cap of its own that lowers the floor": {
        "partition/stock": {"swaFullTokensRatio": "0.32", "maxTotalTokens": 376_000, "maxRunningRequests": 47}
    },
}  # fmt: skip
FLAG = 'engine.args: "{}" sets {}, which the operator sets itself: use {}'
RATIO = "a ratio is a quoted decimal above 0 and at most 1, with at most four places and no trailing zero"
BAD: dict[str, tuple[Object, str]] = {
    "islands one token below the floor": (
        {"partition/islands": {"swaFullTokensRatio": "0.07", "maxTotalTokens": 980_114}},
        'spec.partition: Invalid value: "object": '
        "partition.islands: SWA pool of 68607 tokens is below its floor of 68608 "
        "(chunkedPrefillSize + maxRunningRequests * (slidingWindow + pageSize)): use maxTotalTokens 980115 at this "
        'swaFullTokensRatio, or swaFullTokensRatio "0.0701" at this maxTotalTokens',
    ),
    "islands below the floor at any ratio": (
        {"partition/islands/maxTotalTokens": 60_000},
        "partition.islands: SWA pool of 10200 tokens is below its floor of 68608 (chunkedPrefillSize + "
        "maxRunningRequests * (slidingWindow + pageSize)): use maxTotalTokens 403577 at this swaFullTokensRatio",
    ),
    "islands in which a lone prompt could wait for ever": (
        {
            "engine/chunkedPrefillSize": 256,
            "engine/maxRunningRequests": 1,
            "partition/islands": {"swaFullTokensRatio": "0.17", "maxTotalTokens": 19_600},
        },
        "partition.islands: SWA pool of 3332 tokens is below its floor of 3456 (3 * (slidingWindow + 2 * pageSize), "
        "which a prompt of several chunks needs): use maxTotalTokens 20330 at this swaFullTokensRatio",
    ),
    "stock one token below the floor": (
        {"partition/stock": {"swaFullTokensRatio": "0.32", "maxTotalTokens": 377_599}},
        "partition.stock: SWA pool of 120831 tokens is below its floor of 120832 (chunkedPrefillSize + "
        "maxRunningRequests * 2 * (slidingWindow + pageSize)): use maxTotalTokens 377600 at this swaFullTokensRatio, "
        'or swaFullTokensRatio "0.3201" at this maxTotalTokens',
    ),
    "the lean half in the place of stock": (
        {"partition/stock": {"swaFullTokensRatio": "0.17", "maxTotalTokens": 600_000}},
        "partition.stock: SWA pool of 102000 tokens is below its floor of 120832",
    ),
    "more requests than the pool holds": (
        {"engine/maxRunningRequests": 256},
        "partition.islands: SWA pool of 166600 tokens is below its floor of 294912",
    ),
    "a wider window than the pool holds": (
        {"geometry/slidingWindow": 4096},
        "partition.stock: SWA pool of 236800 tokens is below its floor of 415744",
    ),
    "ratio without its tokens": (
        {"partition/islands/maxTotalTokens": ABSENT},
        "spec.partition.islands.maxTotalTokens: Required value",
    ),
    "tokens without their ratio": (
        {"partition/stock/swaFullTokensRatio": ABSENT},
        "spec.partition.stock.swaFullTokensRatio: Required value",
    ),
    "one half": (
        {"partition/stock": ABSENT},
        "partition: give both halves, islands and stock, or leave partition out to derive both from geometry",
    ),
    "swapped halves": (
        {"partition": {"islands": {"swaFullTokensRatio": "0.32", "maxTotalTokens": 740_000}, "stock": HALF}},
        "partition: islands.swaFullTokensRatio is larger than stock.swaFullTokensRatio, so the halves look swapped: "
        "exchange them",
    ),
    "ratio of five places": ({"partition/islands/swaFullTokensRatio": "0.17001"}, "Too long: may not be more than 6"),
    "ratio with a trailing zero": (
        {"partition/islands/swaFullTokensRatio": "0.170"},
        f'spec.partition.islands.swaFullTokensRatio: Invalid value: "string": swaFullTokensRatio "0.170": {RATIO}',
    ),
    "ratio in per cent": ({"partition/islands/swaFullTokensRatio": "17%"}, f'swaFullTokensRatio "17%": {RATIO}'),
    "ratio 0": ({"partition/islands/swaFullTokensRatio": "0"}, f'swaFullTokensRatio "0": {RATIO}'),
    "ratio above 1": ({"partition/islands/swaFullTokensRatio": "1.5"}, f'swaFullTokensRatio "1.5": {RATIO}'),
    "a ratio that is a number": ({"partition/islands/swaFullTokensRatio": 0.17}, "expected string, got"),
    "derived without bytes": (
        {"partition": ABSENT},
        'spec.geometry: Invalid value: "object": partition is absent, so both halves are derived: give '
        "geometry.fullBytesPerToken, geometry.swaBytesPerToken and geometry.kvBudgetBytes, or both halves of partition",
    ),
    "derived from too few bytes": (
        DERIVED | {"geometry/kvBudgetBytes": (120_832 + 64) * (9_500 + 95_000 + 10_240) - 1},
        "geometry.kvBudgetBytes 13871607039 is too small for the stock half at engine.maxRunningRequests 48: use at "
        "least 13871607040, or engine.maxRunningRequests 47",
    ),
    "coupled flag": (
        {"engine/args": ["--tp", "1", "--swa-full-tokens-ratio", "0.1"]},
        'spec.engine.args[2]: Invalid value: "string": '
        + FLAG.format("--swa-full-tokens-ratio", "--swa-full-tokens-ratio", "spec.partition"),
    ),
    "coupled flag with =": (
        {"engine/args": ["--max-total-tokens=5"]},
        FLAG.format("--max-total-tokens=5", "--max-total-tokens", "spec.partition"),
    ),
    "coupled flag and value in one item": (
        {"engine/args": ["--page-size 1"]},
        FLAG.format("--page-size 1", "--page-size", "spec.engine.pageSize"),
    ),
    "coupled flag, abbreviated": (
        {"engine/args": ["--swa-full", "0.1"]},
        FLAG.format("--swa-full", "--swa-full-tokens-ratio", "spec.partition"),
    ),
    "coupled flag, abbreviated, with =": (
        {"engine/args": ["--max-r=5"]},
        FLAG.format("--max-r=5", "--max-running-requests", "spec.engine.maxRunningRequests"),
    ),
    "coupled flag in a file": (
        {"engine/args": ["--config=x.yaml"]},
        FLAG.format("--config=x.yaml", "--config", "spec.engine.args, flag by flag"),
    ),
    "the switch": ({"engine/args": ["--islands", "on"]}, FLAG.format("--islands", "--islands", "spec.islands.enabled")),
    "the model by its alias": (
        {"engine/args": ["--model", "/other"]},
        FLAG.format("--model", "--model-path", "spec.model.source"),
    ),
    "the port": ({"engine/args": ["--port=1"]}, FLAG.format("--port=1", "--port", "spec.engine.port")),
    "no pool partition at all": (
        {"engine/args": ["--disable-hybrid-swa-memory"]},
        FLAG.format("--disable-hybrid-swa-memory", "--disable-hybrid-swa-memory", "spec.islands.enabled"),
    ),
    "end of flags": ({"engine/args": ["--", "x"]}, 'engine.args: "--" sets --islands'),
    "coupled variable": (
        {"engine/env": [{"name": "SGLANG_OPT_RELEASE_PREFILL_SWA", "value": "1"}]},
        "engine.env: SGLANG_OPT_RELEASE_PREFILL_SWA decides the switch or the pool: use spec.islands and "
        "spec.partition instead",
    ),
    "coupled variable, older name": (
        {"engine/env": [{"name": "SGLANG_OPT_SWA_RELEASE_LEAF_LOCK_AFTER_WINDOW", "value": "1"}]},
        "engine.env: SGLANG_OPT_SWA_RELEASE_LEAF_LOCK_AFTER_WINDOW decides the switch or the pool",
    ),
    "coupled variable of ours": (
        {"engine/env": [{"name": "ISLAND_DECODE_INTERVAL", "value": "1"}]},
        "engine.env: ISLAND_DECODE_INTERVAL decides the switch or the pool",
    ),
    "a variable twice": (
        {"engine/env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
        'duplicate entries for key [name="A"]',
    ),
    "no source": ({"model/source": {}}, "model.source: give exactly one of pvc, hostPath and huggingFace"),
    "two sources": (
        {"model/source": {"pvc": "x", "hostPath": "/x"}},
        "model.source: give exactly one of pvc, hostPath and huggingFace",
    ),
    "relative host path": (
        {"model/source": {"hostPath": "models"}},
        "model.source.hostPath must be absolute and without '..', such as /srv/models/gemma",
    ),
    "host path that climbs": ({"model/source": {"hostPath": "/srv/../etc"}}, "must be absolute and without '..'"),
    "a name with a LoRA adapter": ({"model/name": "gemma:adapter"}, "spec.model.name: Invalid value"),
    "chunk of broken pages": (
        {"engine/chunkedPrefillSize": 1000},
        "engine.chunkedPrefillSize 1000 is not a multiple of engine.pageSize 64: use 960",
    ),
    "unknown field": ({"partition/islands/ratio": "0.2"}, ".spec.partition.islands.ratio: field not declared"),
    "a half called on": ({"partition": {"on": HALF, "stock": HALF}}, ".spec.partition.on: field not declared"),
    "unified with a half": (
        {"partition/mode": "unified"},
        "partition.mode unified is one pool without halves: remove partition.islands and partition.stock, or use hal",
    ),
    "a cap of its own that raises the floor": (
        {"partition/islands": {"swaFullTokensRatio": "0.07", "maxTotalTokens": 980_115, "maxRunningRequests": 49}},
        "partition.islands: SWA pool of 68608 tokens is below its floor of 69696",
    ),
    "no such mode": (
        {"rollout": {"mode": "BlueGreen"}},
        'spec.rollout.mode: Unsupported value: "BlueGreen": supported values: "Surge", "Replace", "Downtime"',
    ),
    "islands beyond the bytes": (
        {"geometry": DERIVED["geometry"], "partition/islands/maxTotalTokens": 2_000_000},
        "partition.islands.maxTotalTokens 2000000: its pools take 71780000000 bytes, more than geometry.kvBudgetBytes "
        "37000000000: use maxTotalTokens 1030927 at this swaFullTokensRatio",
    ),
    "stock beyond the bytes": (
        {"geometry": DERIVED["geometry"], "partition/stock/maxTotalTokens": 900_000},
        "partition.stock.maxTotalTokens 900000: its pools take 45126000000 bytes, more than geometry.kvBudgetBytes "
        "37000000000: use maxTotalTokens 737933 at this swaFullTokensRatio",
    ),
    "a ratio far too small for the bytes": (
        {"geometry": DERIVED["geometry"], "partition/islands/swaFullTokensRatio": "0.01"},
        'use swaFullTokensRatio "0.0445" and maxTotalTokens 1543757',
    ),
    "islands need a larger ratio than stock has": (
        {
            "geometry": DERIVED["geometry"],
            "partition/islands": {"swaFullTokensRatio": "0.01", "maxTotalTokens": 980_000, "maxRunningRequests": 96},
            "partition/stock": {"swaFullTokensRatio": "0.07", "maxTotalTokens": 1_000_000, "maxRunningRequests": 24},
        },
        'use swaFullTokensRatio "0.0935" and maxTotalTokens 1292689, with partition.stock.swaFullTokensRatio "0.0935" '
        "and partition.stock.maxTotalTokens 1292689",
    ),
    "bytes that hold no such pools": (
        {"geometry": DERIVED["geometry"] | {"kvBudgetBytes": 3_000_000_000}},
        "use maxTotalTokens 59832 and maxRunningRequests 1 at this swaFullTokensRatio",
    ),
    "more requests than any pool holds": (
        {
            "engine/maxRunningRequests": 4096,
            "partition/islands": {"swaFullTokensRatio": "0.001", "maxTotalTokens": 999},
        },
        'use swaFullTokensRatio "0.32" and maxTotalTokens 13977600',
    ),
    "a query without a limit": (
        {"rollout": {"checks": {"prometheus": {**PROMETHEUS, "queries": [{"name": "errors", "query": "x"}]}}}},
        "rollout.checks.prometheus.queries: errors has neither max nor min, so it checks nothing: give one of them",
    ),
    "a query twice": (
        {"rollout": {"checks": {"prometheus": {**PROMETHEUS, "queries": [QUERY, QUERY]}}}},
        'duplicate entries for key [name="errors"]',
    ),
    "no query": (
        {"rollout": {"checks": {"prometheus": {**PROMETHEUS, "queries": []}}}},
        "spec.rollout.checks.prometheus.queries in body should have at least 1 items",
    ),
    "an address with a password": (
        {"rollout": {"checks": {"prometheus": {**PROMETHEUS, "address": "http://me:secret@prometheus"}}}},
        "spec.rollout.checks.prometheus.address: Invalid value",
    ),
    "a gateway without a name": ({"gatewayRef": {"namespace": "x"}}, "spec.gatewayRef.name: Required value"),
    "a host name that is none": (
        {"gatewayRef": {"name": "public", "hostnames": ["http://x"]}},
        "spec.gatewayRef.hostnames[0]: Invalid value",
    ),
    "falling weights": (
        {"rollout": {"steps": [{"weight": 50}, {"weight": 20}]}},
        "rollout.steps: a weight is smaller than the one before it: let them grow",
    ),
    "no deadline": ({"gate": {"deadline": "0s"}}, "a deadline is at least 1s and at most 168h, such as 30m"),
    "endless deadline": ({"rollout": {"deadline": "999h"}}, "a deadline is at least 1s and at most 168h, such as 30m"),
    "deadline without a unit": ({"gate": {"deadline": "300"}}, "spec.gate.deadline: Invalid value"),
    "not an extended resource": ({"accelerator": {"resource": "gpu"}}, "spec.accelerator.resource: Invalid value"),
}  # fmt: skip


def admit(plane: ControlPlane, obj: Object) -> str:
    """What the API server says of an object in a dry run; empty when it lets it in."""
    done = plane.try_kubectl("apply", "--server-side", "--dry-run=server", "-f", "-", stdin=json.dumps(obj))
    return done.stderr if done.returncode else ""


@pytest.mark.parametrize("edits", GOOD.values(), ids=GOOD)
def test_let_in(control_plane: ControlPlane, edits: Object) -> None:
    assert admit(control_plane, resource(edits)) == ""


@pytest.mark.parametrize(("edits", "words"), BAD.values(), ids=BAD)
def test_refused(control_plane: ControlPlane, edits: Object, words: str) -> None:
    assert words in admit(control_plane, resource(edits))


def test_example_is_let_in(control_plane: ControlPlane) -> None:
    assert admit(control_plane, yaml.safe_load((ROOT / "examples/tiny-gemma.yaml").read_text())) == ""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("1st", "metadata.name must begin with a letter and hold only a-z, 0-9 and '-', because Services are named"),
        ("gemma.4", "metadata.name must begin with a letter"),
        ("g" * 45, "Too long: may not be more than 44 bytes"),
        ("g" * 44, ""),
    ],
)
def test_names_fit_the_children_s(control_plane: ControlPlane, name: str, words: str) -> None:
    told = admit(control_plane, resource(name=name))
    assert words in told if words else told == ""


def test_largest_legal_object_is_within_the_cost_of_a_request(control_plane: ControlPlane) -> None:
    largest = resource(
        {
            "engine/args": [f"--{'x' * 1022}"] * 128,
            "engine/env": [{"name": f"V{i:03}{'x' * 124}", "value": "v" * 4096} for i in range(128)],
            "rollout": {
                "steps": [{"weight": i + 1, "pause": "1h1h1h1h1h1h1h1h"} for i in range(20)],
                "checks": {
                    "prometheus": {
                        "address": f"https://{'p' * 500}",
                        "queries": [{"name": f"{'n' * 61}{i:02}", "query": "q" * 2048, "max": "1"} for i in range(16)],
                    }
                },
            },
            "gatewayRef": {"name": "g" * 253, "hostnames": [f"{'h' * 250}{i:02}" for i in range(16)]},
            "model/source": {"hostPath": "/a" * 512},
        }
    )
    assert admit(control_plane, largest) == ""


@pytest.fixture
def live(control_plane: ControlPlane) -> Iterator[str]:
    """A resource that is there."""
    control_plane.apply(resource(name="live"))
    yield "live"
    control_plane.kubectl("delete", "iisvc", "live")


UPDATES: dict[str, tuple[Object, str]] = {
    "kill switch": ({"islands": {"enabled": False}}, ""),
    "scale": ({"replicas": 5}, ""),
    "another port": ({"engine": {"port": 8000}}, ""),
    "both halves given up for derived ones": (DERIVED | {"partition": None}, ""),
    "another model name": (
        {"model": {"name": "other"}},
        "model.name is immutable: make a new InferenceService with the value you want",
    ),
    "a half below its floor": (
        {"partition": {"islands": {"swaFullTokensRatio": "0.06"}}},
        'use maxTotalTokens 1143467 at this swaFullTokensRatio, or swaFullTokensRatio "0.0701" at this maxTotalTokens',
    ),
    "one half taken away": ({"partition": {"islands": None}}, "partition: give both halves, islands and stock"),
    "more requests than the pools hold": (
        {"engine": {"maxRunningRequests": 102}},
        "partition.stock: SWA pool of 236800 tokens is below its floor of 238336",
    ),
    "derived without bytes": ({"partition": None}, "partition is absent, so both halves are derived"),
}


@pytest.mark.parametrize(("spec", "words"), UPDATES.values(), ids=UPDATES)
def test_updates(control_plane: ControlPlane, live: str, spec: Object, words: str) -> None:
    patch = json.dumps({"spec": spec})
    done = control_plane.try_kubectl("patch", "iisvc", live, "--type", "merge", "--dry-run=server", "-p", patch)
    assert (done.returncode == 0) == (words == ""), done.stderr
    assert words in done.stderr
