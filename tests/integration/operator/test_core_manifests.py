"""The manifests as a real API server spells them: once applied they cover what is stored, so idle means no write."""

from __future__ import annotations

import copy
import json

import pytest
import yaml
from support.control_plane import ROOT, until

from island_operator.core import manifests
from island_operator.core.drift import cleaned, covers
from island_operator.core.revision import Revision, parts_of
from island_operator.core.traffic import Traffic

APPLY = ("apply", "--server-side", "--force-conflicts", "--field-manager", "radix-islands", "-f", "-")
FULL = {
    "engine": {"env": [{"name": "EMPTY", "value": ""}, {"name": "A", "value": "1"}], "port": 8000},
    "islands": {"enabled": True, "decodeInterval": 320},
    "accelerator": {"nodeSelector": {"gpu": "h200"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]},
}


@pytest.fixture(params=[{}, FULL], ids=["example", "everything said"])
def parent(control_plane, request):
    """The example in the cluster, defaulted by the API server; its children live as long as it does."""
    obj = yaml.safe_load((ROOT / "examples/tiny-gemma.yaml").read_text())
    obj["metadata"].update(name=f"spelling-{len(request.param)}", namespace="default")
    for key, value in request.param.items():
        obj["spec"][key] = {**obj["spec"].get(key, {}), **value}
    control_plane.apply(obj)
    stored = control_plane.get("iisvc", obj["metadata"]["name"])
    yield stored
    control_plane.kubectl("delete", "iisvc", obj["metadata"]["name"], "--cascade=foreground")


def children(parent):
    revision = Revision(parts_of(parent["spec"]))
    port = parent["spec"]["engine"]["port"]
    return [
        manifests.deployment(parent, revision, 2),
        *manifests.services(parent, port, revision, Traffic(revision.hash, revision.hash, 0)),
        manifests.disruption_budget(parent),
        manifests.gate_job(parent, revision, f"{parent['metadata']['name']}-gate-1", "quick", 300),
    ]


def stored(control_plane, want):
    return control_plane.get(want["kind"].lower(), want["metadata"]["name"])


def test_what_is_applied_is_what_is_stored(control_plane, parent):
    for want in children(parent):
        control_plane.kubectl(*APPLY, stdin=json.dumps(want))
        live = stored(control_plane, want)
        assert covers(live, want), want["kind"]
        control_plane.kubectl(*APPLY, stdin=json.dumps(want))
        again = stored(control_plane, want)
        assert again["metadata"].get("generation") == live["metadata"].get("generation"), want["kind"]


def test_a_coupled_variable_set_by_hand_is_taken_out_by_a_replace(control_plane, parent):
    want = children(parent)[0]
    control_plane.kubectl(*APPLY, stdin=json.dumps(want))
    name = want["metadata"]["name"]
    control_plane.kubectl("set", "env", f"deployment/{name}", "SGLANG_OPT_RELEASE_PREFILL_SWA=1", "TEAM=theirs")
    control_plane.kubectl(*APPLY, stdin=json.dumps(want))

    def replaced():
        live = stored(control_plane, want)
        assert not covers(live, want), "applying cannot remove what another manager owns"
        before = copy.deepcopy(live)
        clean = cleaned(live, want)
        assert live == before
        done = control_plane.try_kubectl("replace", "-f", "-", stdin=json.dumps(clean))
        assert done.returncode == 0 or "Conflict" in done.stderr, done.stderr  # with the Deployment's own controller
        return done.returncode == 0

    until("it is replaced", replaced)
    live = stored(control_plane, want)
    assert covers(live, want)
    assert "TEAM" in {e["name"] for e in live["spec"]["template"]["spec"]["containers"][0]["env"]}
