"""What a platform engineer buys, live at production geometry: more requests at once, sooner answered, and watched.

Paced engines: SGLang's real server, scheduler and cache at the size of one H100, whose steps take modelled time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from demo.telling import SYSTEM, condition

if TYPE_CHECKING:
    from demo.kube import Kube
    from demo.scale import Scale


def test_islands_run_more_requests_at_once(scale: Scale) -> None:
    stock, islands = scale.measured("stock"), scale.measured("islands")
    assert islands.running > 1.1 * stock.running  # simulated: 72 against 55
    assert islands.queued < stock.queued


def test_islands_answer_sooner(scale: Scale) -> None:
    stock, islands = scale.measured("stock"), scale.measured("islands")
    assert islands.latency < stock.latency  # tokens/s of a minute are chance: which long answers end in it; see `bench`


def test_no_request_failed_through_any_rollout(scale: Scale) -> None:
    assert len(scale.outcome.requests) > 500
    ended = [f"{pod.name}: {how}" for pod in scale.outcome.pods for how in pod.restarts]
    assert not ended, "\n".join(ended)  # before what it cost: it tells why
    assert scale.outcome.failed == []


def test_replies_say_that_their_tokens_are_dummies(scale: Scale, kube: Kube) -> None:
    pod = next(p for p in kube.items("pods", scale.engines) if p["status"]["phase"] == "Running")["metadata"]["name"]
    assert "dummies" in kube.run("logs", pod)


def test_a_canary_was_judged_by_its_own_metrics(scale: Scale, kube: Kube) -> None:
    """The operator's own count of readings, from the moment it was there."""
    read: list[str] = []
    for pod in kube.get("pods", "--namespace", SYSTEM)["items"]:
        port = pod["spec"]["containers"][0]["ports"][0]["containerPort"]
        where = f"/api/v1/namespaces/{SYSTEM}/pods/{pod['metadata']['name']}:{port}/proxy/metrics"
        read += re.findall(r'island_operator_scrapes_total\{result="success"\} (\S+)', kube.run("get", "--raw", where))
    assert sum(map(float, read)) > 10
    assert "Canary" in [phase for _, phase in scale.outcome.phases]


def test_a_rebind_is_seen_and_rolled_back_to_the_stock_half(scale: Scale) -> None:
    told = condition(scale.outcome.statuses["force"], "RolledBack")
    assert told["reason"] == "AdmissionRebind"
    assert scale.by_hand in told["message"]
    assert scale.outcome.statuses["restore"]["islands"]["enabled"] is False


def test_only_the_pod_that_was_forced_mixed_two_halves(scale: Scale) -> None:
    assert [pod.name for pod in scale.outcome.mixed] == [scale.by_hand]
