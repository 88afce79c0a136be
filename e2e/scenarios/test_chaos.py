"""What happens beside a rollout: the operator dies at every phase, a node is drained. Real kubelets, a real gate.

The client's requests are the judge: none fails, whatever dies beside the engines that serve.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import pytest

from demo.kube import KubectlError
from demo.story import Story
from demo.telling import SYSTEM, condition, settled
from demo.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from demo.kube import Kube

INSTANCE = "radix-islands.dev/instance"
ENGINES = "radix-islands.dev/role=engine"


@pytest.fixture(scope="module")
def traffic(kube: Kube, story: Story) -> Iterator[Traffic]:
    """A client of its own, while two engines serve on the stock half."""
    kube.run("patch", "iisvc", story.name, "--type", "merge", "-p", '{"spec":{"replicas":2}}')
    follow(kube, story.name, 180)
    asking = Traffic(kube, Story.load, "traffic-chaos")
    asking.start(story.image, story.url)
    yield asking
    asking.stop()


def follow(kube: Kube, name: str, seconds: float, *, kill: bool = False) -> list[str]:
    """Until the object is settled; the phases that it went through. `kill`: the operator, at each one's beginning."""
    phases: list[str] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        obj = kube.get("iisvc", name)
        if (phase := obj["status"]["phase"]) != (phases[-1] if phases else ""):
            phases.append(phase)
            if kill:
                kill_operator(kube)
        if settled(obj) and phase == "Stable":
            return phases
        time.sleep(0.3)
    raise AssertionError(f"not settled after {seconds} s, {phases}: {obj['status']}")


def kill_operator(kube: Kube) -> None:
    """SIGKILL, both replicas: no time to let go of the Lease."""
    kube.run("delete", "pods", "--namespace", SYSTEM, "--all", "--grace-period=0", "--force", timeout=60)


def test_operator_killed_at_every_phase_of_a_gated_rollout(kube: Kube, story: Story, traffic: Traffic) -> None:
    body = '{"spec":{"islands":{"enabled":true},"engine":{"env":[{"name":"CHAOS","value":"1"}]}}}'
    kube.run("patch", "iisvc", story.name, "--type", "merge", "-p", body)
    phases = follow(kube, story.name, 600, kill=True)
    assert {"Gating", "Canary", "Promoting"} <= set(phases)
    status = kube.get("iisvc", story.name)["status"]
    assert status["islands"]["enabled"] is True
    assert condition(status, "GatePassed")["status"] == "True"
    revision = status["revisions"]["desired"]
    jobs = kube.items("jobs", f"{INSTANCE}={story.name},radix-islands.dev/revision={revision}")
    assert len(jobs) == 1, "one gate Job, however often the operator began anew"
    assert len(traffic.requests) > 20
    assert traffic.failed == []


def test_node_drained_in_a_rollout_loses_nothing(kube: Kube, story: Story, traffic: Traffic) -> None:
    node = kube.get("nodes")["items"][0]["metadata"]["name"]
    kube.run("patch", "iisvc", story.name, "--type", "merge", "-p", '{"spec":{"islands":{"enabled":false}}}')
    end = time.monotonic() + 60
    while (phase := kube.get("iisvc", story.name)["status"]["phase"]) != "Promoting":
        assert time.monotonic() < end, phase
        time.sleep(0.3)
    with contextlib.suppress(KubectlError):  # the disruption budget keeps the last engine from being evicted
        kube.run("drain", node, "--pod-selector", ENGINES, "--ignore-daemonsets", "--timeout=20s", timeout=60)
    serving = [p for p in kube.items("pods", f"{INSTANCE}={story.name},{ENGINES}") if p["status"]["phase"] == "Running"]
    assert serving, "the budget left somebody to serve"
    kube.run("uncordon", node)
    follow(kube, story.name, 300)
    status = kube.get("iisvc", story.name)["status"]
    assert status["islands"]["enabled"] is False
    assert traffic.failed == []
