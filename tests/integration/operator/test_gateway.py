"""spec.gatewayRef on a real API server with the Gateway API's own CRD: missing, installed, weighted, repaired, gone."""

from support import gateway_api
from support.live import REVISION, Story

GATEWAY = {"name": "public", "namespace": "gateways", "hostnames": ["models.example"]}


def weights(story):
    route = story.get("route", story.name)
    return [ref["weight"] for ref in route["spec"]["rules"][0]["backendRefs"]]


def test_a_gateway_before_and_after_the_gateway_api_is_installed(live):
    """One story, because a kind that was installed once stays known to the API server."""
    story = Story(
        live, gatewayRef=GATEWAY, rollout__steps=[{"weight": 10, "pause": "0s"}, {"weight": 25, "pause": "1h"}]
    )
    story.serve()
    degraded = story.until("it is told", lambda: (d := story.condition("Degraded"))["status"] == "True" and d)
    assert degraded["reason"] == "GatewayApiMissing"
    assert "install its standard CRDs (gateway.networking.k8s.io/v1), or remove spec.gatewayRef" in degraded["message"]
    story.edit(engine__image="good:2")
    story.until(
        "the canary runs all the same", lambda: story.status["run"]["heldSince"] and story.status["run"]["step"]
    )

    live.plane.kubectl("apply", "--server-side", "-f", gateway_api.crd())
    story.patch("iisvc", "x", {"metadata": {"labels": {"any": "event"}}})  # else tried again with growing pauses
    story.until("the step's weights", lambda: weights(story) == [75, 25])
    story.until("all is well", lambda: story.told("Degraded")[0] == "False")
    route = story.get("route", "x")
    (owner,) = route["metadata"]["ownerReferences"]
    assert owner["uid"] == story.parent["metadata"]["uid"]
    assert route["spec"]["hostnames"] == ["models.example"]
    services = [ref["name"] for ref in route["spec"]["rules"][0]["backendRefs"]]
    chosen = [story.get("service", name)["spec"]["selector"][REVISION] for name in services]
    assert chosen == [story.active, story.status["run"]["revision"]]

    mark = live.plane.mark()
    story.patch("route", "x", {"spec": {"rules": None}})
    story.until("a hand's change is undone", lambda: weights(story) == [75, 25])
    story.until("it is logged", lambda: ("patch", "httproutes", 200) in live.plane.writes(since=mark))
    story.annotate("promote")
    story.serve()
    story.until("stable has it all", lambda: weights(story) == [100, 0])
    story.edit(gatewayRef=None)
    story.until("it goes with the field", lambda: story.get("route", "x") is None)
