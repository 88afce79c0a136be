"""The demo's claims, each a test of its own over one telling on the real cluster."""

from __future__ import annotations

import itertools
import json
import time
from typing import TYPE_CHECKING

from demo.story import PLANT, Story
from demo.telling import condition

if TYPE_CHECKING:
    from demo.kube import Kube
    from demo.telling import Outcome


def test_no_request_failed(outcome: Outcome) -> None:
    assert len(outcome.requests) > 100
    assert outcome.failed == []


def test_the_client_never_stopped_asking(outcome: Outcome) -> None:
    rhythm = max(r.seconds for r in outcome.requests) + Story.load.pause  # a worker that lives asks anew this soon
    starts = [*(r.at for r in outcome.requests), outcome.ended]
    assert max(after - before for before, after in itertools.pairwise(starts)) < 5 * rhythm
    assert starts[0] < min(p.gone for p in outcome.pods if p.role == "gate" and p.gone)  # before anything was promoted


def test_no_pod_had_a_switch_and_a_ratio_of_different_halves(outcome: Outcome) -> None:
    assert outcome.mixed == []
    seen = {p.pair for p in outcome.pods if p.pair}
    assert seen == outcome.halves  # both halves really ran: the witness was not blind


def test_islands_serve_only_after_a_pass(outcome: Outcome) -> None:
    gates = [p for p in outcome.pods if p.role == "gate"]
    first = min(p.created for p in outcome.pods if p.pair and p.pair[0])
    passed = min(p.gone for p in gates if p.gone is not None)
    assert passed <= first + 1  # timestamps of the API server are whole seconds
    assert outcome.statuses["switch_on"]["gate"]["verdict"] == "PASS"


def test_switch_and_ratio_moved_together(outcome: Outcome) -> None:
    on, off = outcome.statuses["switch_on"]["islands"], outcome.statuses["kill_switch"]["islands"]
    assert (on["enabled"], on["ratio"], on["maxTotalTokens"]) in outcome.halves
    assert (off["enabled"], off["ratio"], off["maxTotalTokens"]) in outcome.halves
    assert on["enabled"] is True
    assert off["enabled"] is False


def test_phases_came_in_order(outcome: Outcome) -> None:
    phases = [p for _, p in outcome.phases]
    told = iter(phases)
    assert all(p in told for p in ("Gating", "Canary", "Promoting", "Stable", "Gating", "Stable")), phases


def test_planted_fault_is_rejected_with_its_first_divergence(outcome: Outcome) -> None:
    status = outcome.statuses["plant"]
    gate = status["gate"]
    assert gate["verdict"] == "FAIL"
    assert gate["divergence"]["expected"] != gate["divergence"]["got"]
    assert gate["divergence"]["probe"] in condition(status, "RolledBack")["message"]
    assert status["revisions"]["rejected"][-1]["revision"] == status["revisions"]["desired"]
    assert condition(status, "Available")["status"] == "True"


def test_stable_was_untouched_by_the_planted_fault(outcome: Outcome) -> None:
    assert outcome.serving["plant"] == outcome.serving["switch_on"] == outcome.serving["take_back"]
    rejected = outcome.statuses["plant"]["revisions"]["desired"]
    assert [p.name for p in outcome.pods if p.revision == rejected and p.role == "engine"] == []


def test_the_operator_never_edits_the_spec(outcome: Outcome) -> None:
    assert outcome.spec_before_rollback["engine"]["env"] == PLANT
    assert outcome.spec_before_rollback["islands"]["enabled"] is True


def test_kill_switch_is_ungated(outcome: Outcome) -> None:
    thrown = next(at for title, at in outcome.chapters if title == "Throw the kill switch")
    after = [
        p for p in outcome.pods if p.created - outcome.began > thrown - 1
    ]  # the API server's clock has no fractions
    assert after
    assert all(p.role == "engine" and p.pair and not p.pair[0] for p in after)


def test_every_gpu_but_the_serving_ones_is_free(story: Story, kube: Kube) -> None:
    end = time.monotonic() + 120  # the last that gave way may still drain
    while True:
        pods = kube.items("pods", f"radix-islands.dev/instance={story.name}")
        holding = [p["metadata"]["name"] for p in pods if p["status"]["phase"] in {"Pending", "Running"}]
        if len(holding) == story.manifest["spec"]["replicas"]:
            break
        assert time.monotonic() < end, holding
        time.sleep(0.5)


def test_children_are_owned_and_nothing_blocks_deletion(story: Story, kube: Kube) -> None:
    parent = kube.get("iisvc", story.name)
    assert "finalizers" not in parent["metadata"]
    for child in kube.get(
        "deployments,services,jobs,poddisruptionbudgets", "-l", f"radix-islands.dev/instance={story.name}"
    )["items"]:
        assert [o["uid"] for o in child["metadata"]["ownerReferences"]] == [parent["metadata"]["uid"]]


def test_events_tell_each_thing_once(story: Story, kube: Kube) -> None:
    uid = kube.get("iisvc", story.name)["metadata"]["uid"]  # others had this name before
    events = [e for e in kube.get("events")["items"] if e["involvedObject"].get("uid") == uid]
    told = [(e["reason"], e["message"]) for e in events]
    assert {"GateFailed", "RolledBack"} & {reason for reason, _ in told}
    assert len(told) == len(set(told)), f"an Event object per occurrence: {json.dumps(sorted(told))}"
