"""Every example as a real API server takes it: nothing is refused, and pods can be made of it."""

from __future__ import annotations

import json

import pytest
import yaml
from support.control_plane import ROOT

from island_operator.core import intent, manifests
from island_operator.core.coupling import half_of

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_taken_and_makes_pods_of_both_halves(control_plane, path):
    made = yaml.safe_load(path.read_text())
    made["metadata"].update(namespace="default")
    text = control_plane.kubectl(
        "apply", "--server-side", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(made)
    )
    if made["kind"] != "InferenceService":
        return
    stored = json.loads(text)
    asked = intent.read(stored)
    assert asked.fault is None
    on = asked.revision.stock_twin.parts | {"islands": {"enabled": True}}
    for parts in (on, asked.revision.parts):
        assert half_of(parts).max_total_tokens or half_of(parts).ratio is None
    deployment = manifests.deployment(stored, asked.revision, 1)
    control_plane.kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", stdin=json.dumps(deployment)
    )


def test_an_example_starts_on_the_stock_half():
    for path in EXAMPLES:
        made = yaml.safe_load(path.read_text())
        if made["kind"] == "InferenceService":
            assert made["spec"]["islands"] == {"enabled": False}, path.name
