"""Complaints about other operators (docs/operator-anchors.md) that one rule of ours answers, by row."""

import re
from pathlib import Path

import pytest
from support.world import REVISION, World, inference_service, spec, told

from island_operator.cluster.kinds import WATCHED
from island_operator.core import manifests
from island_operator.core.pod import engine_template, gate_template
from island_operator.core.revision import Revision, parts_of
from island_operator.core.traffic import Traffic

ROOT = Path(__file__).parents[3]
CHART = "\n".join(file.read_text() for file in sorted((ROOT / "charts/radix-islands/templates").iterdir()))


def of(**changes):
    return Revision(parts_of(spec(**changes)))


def children(**changes):
    parent, revision = inference_service(**changes), of(**changes)
    return [
        manifests.deployment(parent, revision, 1),
        *manifests.services(parent, 30000, revision, Traffic(revision.hash, revision.hash, 0)),
        manifests.disruption_budget(parent),
        manifests.gate_job(parent, revision, "x-gate-1", "quick", 300),
    ]


def test_row_18_consecutive_canaries_leak_nothing():
    world = World(gpus=6, rollout__historyLimit=2, rollout__steps=[{"weight": 33, "pause": "1h"}]).settle()
    for n in range(8):
        world.edit(engine__image=f"good:{n + 2}", islands__enabled=bool(n % 2))
        for _ in range(n + 2):
            world.operate()
            world.tick()
    world.edit(rollout__steps=[], engine__image="good:1", islands__enabled=False)
    world.settle()
    assert len(world.holding()) == len(world.pods()) == 2
    assert len({p["metadata"]["labels"][REVISION] for p in world.pods()}) == 1
    assert len(world.of("Deployment")) <= 1 + 2
    assert len(world.of("Job")) <= 2
    assert len(world.of("Service")) == 3


def test_row_23_children_go_with_their_owner_and_nothing_blocks():
    for child in children():
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == ("uid-x", True)
        assert "finalizers" not in child["metadata"]


def test_row_24_there_is_no_webhook_that_could_be_out():
    assert "Webhook" not in CHART


def test_row_25_secrets_are_neither_watched_nor_readable():
    assert "Secret" not in WATCHED
    assert "secrets" not in CHART


def test_row_27_a_status_and_a_spec_of_the_release_before_are_understood():
    """0.1.0 knew no verbs, no checks, no watch, no cap in the pair: a rollout that it began goes on, and the kill
    switch works, also where the operator was upgraded before the CRD.
    """
    world = World(islands__enabled=True).settle()
    world.edit(engine__image="good:2")
    world.until("Canary")
    world.go(3)
    for new in ("verbs", "unreadable"):
        world.status.pop(new, None)
    world.status["run"].pop("checks")
    world.status["islands"].pop("maxRunningRequests")
    for new in ("watch", "checks"):
        world.parent["spec"]["rollout"].pop(new)
    world.settle()
    assert world.condition("Ready")["status"] == "True"
    assert {p["spec"]["containers"][0]["image"] for p in world.pods()} == {"good:2"}
    world.edit(islands__enabled=False)
    world.settle()
    assert {told(p)[0] for p in world.pods()} == {"off"}


@pytest.mark.parametrize("change", [{"engine__image": "good:2"}, {"islands__enabled": True}, {"engine__port": 8000}])
def test_row_28_no_selector_ever_changes(change):
    """A Deployment's is immutable: each revision has its own. The main Service's and the budget's know no revision."""
    before, after = children(), children(**change)
    assert before[0]["metadata"]["name"] != after[0]["metadata"]["name"]
    main = [[c["spec"]["selector"] for c in some if c["metadata"]["name"] == "x"] for some in (before, after)]
    assert len(main[0]) == 2
    assert main[0] == main[1]


def test_row_30_a_load_of_twenty_minutes_is_not_killed():
    (container,) = engine_template("x", of())["spec"]["containers"]
    probe = container["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 1200
    assert manifests.deployment(inference_service(), of(), 1)["spec"]["progressDeadlineSeconds"] >= 1200


def test_row_31_canary_and_gate_share_one_read_only_volume():
    on = of(model__source={"pvc": "weights"}, islands__enabled=True)
    for template in (engine_template("x", on), gate_template("x", on, "quick", 300)):
        claims = [v["persistentVolumeClaim"] for v in template["spec"]["volumes"] if "persistentVolumeClaim" in v]
        assert claims == [{"claimName": "weights", "readOnly": True}]
        mounts = template["spec"]["containers"][0]["volumeMounts"]
        assert [m["readOnly"] for m in mounts if m["name"] == "model"] == [True]


def test_row_34_the_operator_never_writes_the_spec():
    """What it applies are children; of the user's object it writes the status, and takes verbs off."""
    world = World().settle()
    world.annotate("radix-islands.dev/rollback", "1")
    for image in ("wrong:1", "crash:1", "good:2"):
        world.edit(islands__enabled=True, engine__image=image)
        before = world.parent["spec"]
        world.settle()
        assert world.parent["spec"] == before
    assert {verb for verb, kind, _ in world.writes if kind == "InferenceService"} == {"status"}


def test_every_row_is_in_the_table_and_every_test_that_it_names_exists():
    table = (ROOT / "docs/operator-anchors.md").read_text(encoding="utf-8")
    rows = [int(n) for n in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)]
    assert rows == list(range(1, 36))
    tests = {
        name
        for file in [*ROOT.glob("tests/*/operator/test_*.py"), *ROOT.glob("e2e/scenarios/test_*.py")]
        for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    }
    named = set(re.findall(r"`(test_\w+)`", table))
    assert named <= tests
    assert {name for name in tests if re.search("_row_[0-9]", name)} <= named
