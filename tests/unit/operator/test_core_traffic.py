"""Who gets the requests, on every way: a step's weight once its pods are Ready, and never where no pod is."""

import pytest
from support.world import REVISION, World, is_ready, leaving

from island_operator.core.model import Refusal

GATEWAY = {"name": "public", "namespace": "gateways", "hostnames": ["models.example"]}
STEPS = [{"weight": 10, "pause": "2s"}, {"weight": 50, "pause": "2s"}]
SERVED = {"Canary", "Promoting", "RollingBack", "Stable"}


def routed(gpus=6, **changes):
    return World(gpus, gatewayRef=dict(GATEWAY), **{"rollout__steps": STEPS, **changes}).settle()


def weights(world):
    """Per cent by Service, as the HTTPRoute says."""
    (rule,) = world.store["HTTPRoute", "x"]["spec"]["rules"]
    return {ref["name"]: ref["weight"] for ref in rule["backendRefs"]}


def selected(world, service):
    return world.store["Service", service]["spec"]["selector"][REVISION]


def never_to_nobody(world):
    """Where anything is Ready, whatever has a weight, and the stable Service, has a Ready pod when the operator rests.

    Between two of its writes a Service may be a moment late: pods end by seconds, and a pass takes none.
    """
    ready = {p["metadata"]["labels"][REVISION] for p in world.pods() if is_ready(p) and not leaving(p)}
    if not ready or ("Service", "x-stable") not in world.store:
        return
    assert selected(world, "x-stable") in ready
    if ("HTTPRoute", "x") in world.store:
        for service, weight in weights(world).items():
            assert not weight or selected(world, service) in ready, (world.phase, weights(world))


def watch(world, turns=150):
    """Turn by turn, the operator at rest before each look; the weights of the canary as they came."""
    seen = []
    for _ in range(turns):
        while (plan := world.operate()).requeue_after == 0:
            pass
        world.operate()
        never_to_nobody(world)
        share = weights(world)["x-canary"] if ("HTTPRoute", "x") in world.store else None
        if not seen or seen[-1] != share:
            seen.append(share)
        if plan.requeue_after is None and world.phase == "Stable":
            break
        world.tick(1)
    return seen


def test_a_rollout_takes_the_weights_of_its_steps_and_then_those_of_the_pods():
    world = routed(replicas=4)
    assert weights(world) == {"x-stable": 100, "x-canary": 0}
    world.edit(engine__image="good:2")
    seen = watch(world)
    assert seen[:3] == [0, 10, 50], "a step's weight once its pods are Ready"
    assert seen[-1] == 0
    assert selected(world, "x-stable") == selected(world, "x-canary") == world.status["revisions"]["active"]


def test_while_a_step_grows_the_weight_of_the_one_before_holds():
    world = routed(replicas=4)
    world.edit(engine__image="good:2")
    for _ in range(200):
        world.operate()
        run = world.status.get("run") or {}
        if run.get("step") == 1 and "heldSince" not in run:
            world.operate()
            assert weights(world)["x-canary"] == 10
            break
        world.tick(1)
    else:
        raise AssertionError("it never came to the second step")


def test_a_step_that_is_scaled_up_sends_no_pod_of_it_more_than_its_share():
    world = routed(gpus=20, replicas=4, rollout__steps=[{"weight": 50, "pause": "10m"}])
    world.edit(engine__image="good:2")
    world.until("Canary").go(12)
    assert weights(world)["x-canary"] == 50
    canary = world.status["run"]["revision"]
    world.edit(replicas=12)
    seen = []
    for _ in range(30):
        while world.operate().requeue_after == 0:
            pass
        world.operate()
        assert "heldSince" in world.status["run"]
        pods, of_them = world.ready(), world.ready(canary)
        seen.append(weights(world)["x-canary"])
        assert seen[-1] <= max(50 * (of_them >= 6), round(100 * of_them / (pods - 1))), (of_them, pods)  # one gives way
        world.tick(1)
    assert min(seen) < 50, "its pods come no sooner than those of the other"
    assert seen[-1] == 50


def test_a_step_that_ended_while_it_was_scaled_up_leaves_its_pods_no_more_than_their_share():
    world = routed(gpus=40, replicas=4, rollout__steps=[{"weight": 50, "pause": "60s"}, {"weight": 75, "pause": "60s"}])
    world.edit(engine__image="good:2")
    world.until("Canary").go(55)
    canary = world.status["run"]["revision"]
    world.edit(replicas=12)
    steps = set()
    while world.phase == "Canary":
        while world.operate().requeue_after == 0:
            pass
        world.operate()
        if run := world.status.get("run"):
            steps.add(run["step"])
            pods, of_them = world.ready(), world.ready(canary)
            share = round(100 * of_them / max(1, pods - 1))  # one gives way
            assert of_them >= 6 or weights(world)["x-canary"] <= share, (of_them, pods)
        world.tick(1)
    assert steps == {0, 1}


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("mode", ["Surge", "Replace", "Downtime"])
@pytest.mark.parametrize("image", ["good:2", "crash:2", "late:2"])
def test_nothing_is_ever_sent_where_no_pod_is_ready(mode, image, replicas):
    world = routed(replicas=replicas, rollout__mode=mode)
    world.edit(engine__image=image)
    watch(world)
    assert world.phase == "Stable"
    assert weights(world) == {"x-stable": 100, "x-canary": 0}


@pytest.mark.parametrize("mode", ["Surge", "Replace"])
@pytest.mark.parametrize("islands", [True, False])
def test_requests_leave_in_the_same_pass_as_the_pods(mode, islands):
    """Not when the pods are seen to end: until then a Gateway would send them to a Service without endpoints."""
    world = routed(replicas=3, rollout__mode=mode, islands__enabled=islands)
    world.edit(**({"islands__enabled": False} if islands else {"engine__image": "good:2"}))
    for _ in range(60):
        plan = world.operate()
        asked = {d["metadata"]["labels"][REVISION]: d["spec"]["replicas"] for d in world.of("Deployment")}
        for service, weight in weights(world).items():
            assert not weight or asked[selected(world, service)], (world.phase, weights(world))
        if plan.requeue_after != 0:
            world.tick()
    assert world.condition("Ready")["status"] == "True"


def test_the_kill_switch_moves_the_requests_with_the_pods():
    world = routed(gpus=4, replicas=3, islands__enabled=True)
    world.edit(islands__enabled=False)
    seen = watch(world)
    assert seen[0] == 0
    assert len(seen) >= 3, seen
    assert selected(world, "x-stable") == world.status["revisions"]["active"]


def test_during_a_fallback_the_stable_service_selects_what_still_has_pods():
    world = routed()
    before = world.status["revisions"]["active"]
    world.edit(engine__image="good:2")
    world.until("Stable").settle()
    left = world.status["revisions"]["active"]
    world.annotate("radix-islands.dev/rollback", "1")
    world.until("RollingBack")
    world.operate()
    assert world.status["revisions"]["active"] == before
    assert world.ready(before) == 0
    assert selected(world, "x-stable") == left
    assert weights(world) == {"x-stable": 100, "x-canary": 0}
    watch(world)
    assert selected(world, "x-stable") == before


def test_the_route_says_gateway_hosts_and_ports_and_is_ours():
    world = routed()
    route = world.store["HTTPRoute", "x"]
    assert route["spec"]["hostnames"] == ["models.example"]
    assert route["spec"]["parentRefs"] == [
        {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "public", "namespace": "gateways"}
    ]
    assert {ref["port"] for ref in route["spec"]["rules"][0]["backendRefs"]} == {30000}
    assert route["metadata"]["ownerReferences"][0]["uid"] == "uid-x"


def test_without_a_gateway_there_is_no_route_and_one_of_ours_goes():
    world = routed()
    world.edit(gatewayRef=None)
    world.settle()
    assert world.of("HTTPRoute") == []
    assert not any(want["kind"] == "HTTPRoute" for want in world.operate().desired)


def test_another_gateway_is_no_new_revision():
    world = routed()
    before = world.status["revisions"]
    world.edit(gatewayRef={"name": "other"})
    world.settle()
    assert world.status["revisions"] == before
    assert world.store["HTTPRoute", "x"]["spec"]["parentRefs"][0]["name"] == "other"


def test_where_the_gateway_api_is_missing_the_status_says_what_to_install_and_the_rollout_goes_on():
    world = World(gatewayRef=dict(GATEWAY))
    world.refuse = lambda want: "404 page not found" if want["kind"] == "HTTPRoute" else None
    world.edit(engine__image="good:2")
    for _ in range(60):
        world.operate()
        world.refused = {slot: Refusal(404, told.message) for slot, told in world.refused.items()}
        world.tick()
    assert world.condition("Ready")["status"] == "True"
    degraded = world.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "GatewayApiMissing")
    assert "install its standard CRDs (gateway.networking.k8s.io/v1), or remove spec.gatewayRef" in degraded["message"]


def test_a_route_that_the_gateway_does_not_take_is_told_and_forgotten():
    world = routed()
    told = {"type": "Accepted", "status": "False", "reason": "NotAllowedByListeners", "message": "no\x1b listener"}
    world.store["HTTPRoute", "x"]["status"] = {"parents": [{"conditions": [told]}]}
    world.settle()
    degraded = world.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "RouteNotAccepted")
    assert "NotAllowedByListeners: no\\x1b listener" in degraded["message"]
    told |= {"status": "True", "reason": "Accepted"}
    world.settle()
    assert world.condition("Degraded")["status"] == "False"
