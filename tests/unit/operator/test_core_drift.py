"""When is a live object what we want, and what cannot be mended by applying."""

import copy

import pytest
from support.world import World

from island_operator.core.drift import DIGEST, cleaned, covers, signed


@pytest.fixture
def pair():
    """A Deployment as it is, and as we want it; the API server has added what it adds."""
    world = World(engine__env=[{"name": "OURS", "value": "1"}]).settle()
    want = next(o for o in World(engine__env=[{"name": "OURS", "value": "1"}]).settle().of("Deployment"))
    want = {k: v for k, v in want.items() if k != "status"}
    want["metadata"] = {
        k: v for k, v in want["metadata"].items() if k not in {"uid", "creationTimestamp", "generation"}
    }
    live = copy.deepcopy(world.of("Deployment")[0])
    live["spec"]["template"]["spec"]["dnsPolicy"] = "ClusterFirst"
    live["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent"
    live["metadata"]["labels"]["team"] = "theirs"
    return live, want


def container(obj):
    return obj["spec"]["template"]["spec"]["containers"][0]


def test_defaults_and_foreign_labels_are_no_drift(pair):
    assert covers(*pair)


@pytest.mark.parametrize(
    "hand",
    [
        lambda d: container(d)["args"].append("--more"),
        lambda d: container(d)["args"].pop(),
        lambda d: container(d)["args"].__setitem__(2, "on"),
        lambda d: container(d).update(image="other"),
        lambda d: container(d)["env"][0].update(value="2"),
        lambda d: container(d)["env"].clear(),
        lambda d: d["spec"].update(replicas=9),
        lambda d: d["metadata"]["labels"].pop("radix-islands.dev/half"),
        lambda d: d["metadata"]["annotations"].pop(DIGEST),
        lambda d: d["metadata"]["ownerReferences"].clear(),
        lambda d: d["spec"]["template"]["spec"]["volumes"].pop(0),
        lambda d: d["spec"]["template"]["spec"].pop("containers"),
        lambda d: d["spec"]["template"].update(spec=None),
    ],
)
def test_a_hands_edit_is_drift(pair, hand):
    live, want = pair
    hand(live)
    assert not covers(live, want)


def test_a_foreign_variable_before_ours_is_no_drift(pair):
    live, want = pair
    container(live)["env"].insert(0, {"name": "PROXY", "value": "http://p"})
    assert covers(live, want)
    assert cleaned(live, want) is None


@pytest.mark.parametrize("ours", [True, False], ids=["beside ours", "alone"])
def test_a_coupled_variable_added_by_hand_is_found_and_can_be_put_right(pair, ours):
    live, want = pair
    if not ours:
        container(live).pop("env")
        container(want).pop("env")
    container(live).setdefault("env", []).insert(0, {"name": "SGLANG_OPT_RELEASE_PREFILL_SWA", "value": "1"})
    container(live)["env"].append({"name": "PROXY", "value": "http://p"})
    assert not covers(live, want)
    clean = cleaned(live, want)
    assert covers(clean, want)
    assert [e["name"] for e in container(clean)["env"]] == (["OURS", "PROXY"] if ours else ["PROXY"])
    assert container(live)["env"][0]["name"] == "SGLANG_OPT_RELEASE_PREFILL_SWA"  # the cache's object is not touched


def test_the_digest_tells_what_the_live_object_cannot():
    """A field that we stop sending stays in the live object: only the digest differs."""
    want = {"kind": "Service", "metadata": {"name": "x"}, "spec": {"a": 1}}
    live = signed({**want, "spec": {"a": 1, "b": 2}})
    assert not covers(live, signed(want))
    assert covers(signed(want), signed(want))


def test_a_repaired_world_comes_to_rest():
    world = World().settle()
    deployment = world.of("Deployment")[0]
    container(deployment).setdefault("env", []).append({"name": "SGLANG_PLUGINS", "value": "none"})
    container(deployment)["args"][2] = "on"
    world.settle()
    assert "env" not in container(deployment) or not container(world.of("Deployment")[0]).get("env")
    assert container(world.of("Deployment")[0])["args"][2] == "off"
    assert world.condition("Ready")["status"] == "True"
