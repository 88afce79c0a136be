"""The rows of docs/operator-anchors.md on a real API server, with the operator's process; the tests play the kubelet.

Rows 13, 26, 27, 29 and 32 have their tests on the API server elsewhere.
"""

import pytest
import yaml
from support.control_plane import ROOT, until
from support.live import DIVERGENCE, HALF, READY, REVISION, ROLE, Placed, Story, is_ready, owner, started

from island_operator.core.gate import job_name

OFF, LEAN = ("off", "0.4", "9984", "8"), ("on", "0.15", "19968", "8")
ON = {"islands__enabled": True}


def uids(pods):
    return {pod["metadata"]["uid"] for pod in pods}


def jobs(story):
    return [job["metadata"]["name"] for job in story.list("job")]


def loading(story, revision):
    return [pod for pod in story.pods(**{REVISION: revision}) if started(pod) and not is_ready(pod)]


def rejected(story):
    return [r["reason"] for r in story.status["revisions"].get("rejected", ())]


@pytest.fixture(scope="module")
def without_a_gpu(live):
    """Begun before the other tests, because a gate's own 30 s are added to its deadline."""
    story = Story(live, gpus=2, gate__deadline="1s").serve()
    story.edit(**ON)
    story.until("the gate's pod is there", lambda: story.pods("gate"))
    story.play()
    return story


@pytest.fixture(autouse=True)
def _begun(without_a_gpu):
    pass


def test_row_1_one_gpu_in_all_the_blocker_is_named_with_the_field_and_that_field_finishes_the_update(live):
    story = Story(live, gpus=1, replicas=1).serve()
    story.edit(engine__image="good:2")
    ready = story.until("it is blocked", lambda: (c := story.condition("Ready"))["reason"] == "InsufficientGPU" and c)
    for words in (
        "asks for 1 nvidia.com/gpu, which 0 of 1 nodes have free (1 Insufficient nvidia.com/gpu); ",
        "set spec.rollout.mode to Downtime, which stops the serving pod meanwhile",
    ):
        assert words in ready["message"]
    assert len(story.ready()) == 1
    story.edit(rollout__mode="Downtime")
    story.annotate("retry")  # a rollout is pinned: with the mode as it is now
    story.serve()
    assert len(story.pods()) == 1


def test_row_2_replace_needs_no_spare_gpu(live):
    story = Story(live, gpus=2, rollout__mode="Replace").serve()
    story.fewest = None
    story.edit(engine__image="good:2")
    story.serve()
    assert story.fewest == 1


def test_row_3_a_canary_that_is_never_ready_meets_its_deadline_and_row_4_frees_its_gpu(live):
    story = Story(live, rollout__deadline="2s").serve()
    before = uids(story.pods())
    story.edit(engine__image="never:1")
    story.rest()
    assert rejected(story) == ["DeadlineExceeded"]
    story.until("only what served is left", lambda: uids(story.pods()) == before)


def test_row_4_a_failed_gate_gives_its_gpu_back_and_row_8_no_verdict_but_pass_promotes(live):
    """One after another in one namespace: exit codes and reports that are anything but PASS."""
    story = Story(live, gpus=2, rollout__mode="Replace").serve()
    before = story.active
    for image, reason in (("wrong:1", "GateFailed"), ("noise:1", "Nondeterminism"), ("gatedies:1", "EngineDied"),
                          ("silent:1", "NoReport"), ("liar:1", "ReportMismatch")):  # fmt: skip
        story.edit(engine__image=image, **ON)
        story.until(image, lambda: rejected(story)[-1] == reason)  # noqa: B023 - called at once
        story.rest()
        assert story.active == before
        story.until("both pods serve again", lambda: len(story.ready()) == 2)
    assert {key: story.status["gate"].get(key) for key in ("verdict", "attempt")} == {
        "verdict": "INCONCLUSIVE",
        "attempt": 5,
    }
    assert story.pairs == {OFF}


def test_row_5_scaling_after_an_abort_brings_no_canary_back(live):
    story = Story(live, rollout__steps=[{"weight": 33, "pause": "1h"}]).serve()
    story.edit(engine__image="good:2")
    story.until_phase("Canary")
    story.annotate("abort")
    story.rest()
    story.scale(3)
    story.until("scaled", lambda: len(story.ready()) == 3)
    assert {pod["metadata"]["labels"][REVISION] for pod in story.pods()} == {story.active}
    assert rejected(story) == ["Aborted"]


def test_row_6_a_broken_stable_does_not_stop_a_good_canary(live):
    story = Story(live, engine__image="crash:1")
    story.until("it is told", lambda: story.condition("Degraded")["reason"] == "EngineDied")
    story.edit(engine__image="good:2")
    story.serve()


def test_row_9_a_retry_is_a_new_job_and_row_10_what_is_rejected_stays_so_across_restart_and_replace(live):
    story = Story(live).serve()
    story.edit(engine__image="wrong:1", **ON)
    story.rest()
    (first,) = jobs(story)
    live.restart()
    story.scale(3)
    story.until("it is served on", lambda: len(story.ready()) == 3)
    story.until("replaced", story.replace)
    story.until("told", lambda: story.told("RolledBack") == ("True", "GateFailed"))
    assert jobs(story) == [first]
    story.annotate("retry")
    story.until("a second one", lambda: len(jobs(story)) == 2)


@pytest.mark.parametrize("labelled", [True, False])
def test_row_9_a_job_of_the_gates_name_that_is_not_ours_is_named_and_left_alone(live, labelled):
    story = Story(live, engine__image="hangs:1", replicas=1).serve()
    story.edit(**ON)
    (ours,) = story.until("the first attempt", lambda: story.list("job"))
    attempt = story.until("which is told", lambda: story.status["gate"]["attempt"])
    revision = story.status["run"]["revision"]
    story.annotate("abort")
    story.rest()
    name = job_name(story.name, story.parent["metadata"]["uid"], revision, attempt + 1)
    template = ours["spec"]["template"]  # as ours but for a command that proves nothing: applying would adopt it
    template["spec"]["containers"][0]["command"] = ["true"]
    for key in ("controller-uid", "job-name"):
        template["metadata"]["labels"].pop(key, None)
        template["metadata"]["labels"].pop(f"batch.kubernetes.io/{key}")
    meta = {
        "name": name,
        "labels": template["metadata"]["labels"] if labelled else {"team": "other"},
    }  # none: the template's
    story.create("job", {"metadata": meta, "spec": {"suspend": True, "backoffLimit": 0, "template": template}})
    theirs = story.get("job", name)
    story.annotate("retry")
    story.until("it is named", lambda: story.told("RolledBack") == ("True", "ForeignGateJob"))
    story.rest()
    assert name in story.condition("Degraded")["message"]
    left = story.get("job", name)
    for part in ("uid", "labels", "ownerReferences"):
        assert left["metadata"].get(part) == theirs["metadata"].get(part)
    assert left["spec"] == theirs["spec"]
    assert story.pairs == {OFF}


def test_row_11_one_job_per_attempt_and_none_for_what_is_no_revision(live):
    story = Story(live, **ON).serve()
    assert len(jobs(story)) == 1
    story.scale(1)
    story.edit(rollout__historyLimit=3, gate__deadline="6m")
    story.patch("iisvc", "x", {"metadata": {"labels": {"team": "one"}}})
    story.serve()
    assert len(jobs(story)) == 1
    assert story.told("GatePassed") == ("True", "Passed")


def test_row_12_abort_beats_promote(live):
    story = Story(live, rollout__steps=[{"weight": 33, "pause": "1h"}]).serve()
    before = story.active
    story.edit(engine__image="good:2")
    story.until_phase("Canary")
    story.annotate("promote", "abort")
    story.rest()
    assert (story.active, rejected(story)) == (before, ["Aborted"])
    outcomes = {verb["name"]: verb["outcome"] for verb in story.status["verbs"]}
    assert "abort was asked for at the same time and beats it" in outcomes["promote"]


def test_row_13_a_crash_loop_after_promotion_rolls_switch_and_ratio_back_as_one(live):
    story = Story(live, **ON).serve()
    assert story.status["islands"]["ratio"] == "0.15"
    image = story.spec["engine"]["image"]
    for pod in story.pods():
        story.tell(pod, story.crashed(image))
    story.until("the stock half serves", lambda: story.status["islands"]["ratio"] == "0.4" and len(story.ready()) == 2)
    story.until("told", lambda: story.told("RolledBack") == ("True", "CrashLoop"))
    assert story.pairs == {OFF, LEAN}
    story.until("no other pod is left", lambda: {p["metadata"]["labels"][HALF] for p in story.pods()} == {"stock"})


def test_row_14_a_failure_in_promotion_keeps_what_serves(live):
    story = Story(live, gpus=6, replicas=3, rollout__steps=[]).serve()
    before = story.active
    story.loading = True
    story.edit(engine__image="good:2")
    story.until_phase("Canary")
    revision = story.status["run"]["revision"]
    (new,) = story.until("a pod loads", lambda: loading(story, revision))
    story.tell(new, {"conditions": READY})
    story.until_phase("Promoting")
    story.until("a second one loads", lambda: loading(story, revision))
    story.fewest, story.loading = None, False
    story.tell(new, story.crashed("good:2"))
    story.rest()
    assert (story.active, rejected(story)) == (before, ["EngineDied"])
    assert story.fewest >= 2
    story.until("all of it again", lambda: len(story.ready(**{REVISION: before})) == 3)


def test_row_15_back_to_the_living_pods(live):
    story = Story(live, rollout__steps=[{"weight": 33, "pause": "1h"}]).serve()
    before = uids(story.pods())
    story.edit(engine__image="good:2")
    story.until_phase("Canary")
    story.edit(engine__image="good:1")
    story.serve()
    story.until("only those", lambda: uids(story.pods()) == before)


def test_row_16_a_replaced_object_keeps_its_rollout_and_orphans_nothing(live):
    story = Story(live, rollout__steps=[{"weight": 33, "pause": "1h"}]).serve()
    story.edit(engine__image="good:2")
    story.until("the canary holds", lambda: story.status["run"]["heldSince"])
    run, pods = story.status["run"], uids(story.pods())
    story.until("replaced", story.replace)
    story.annotate("promote")
    story.serve()
    assert story.active == run["revision"]
    assert uids(story.pods()) & pods, "the canary's own pod serves on"


def test_row_17_whatever_a_proxy_may_choose_answers_through_every_rollout(live):
    """By the EndpointSlices; real requests to real engines are in e2e/scenarios."""
    story = Placed(live, gpus=3, rollout__steps=[]).serve()
    story.until("a proxy knows of it", lambda: story.asked)
    for change in ({"engine__image": "good:2"}, ON, {"islands__enabled": False}):
        story.edit(**change)
        story.serve()
        story.until("what is left has gone", lambda: len(story.list("pod", **{ROLE: "engine"})) == 2)
        story.until("both are asked", lambda: {pod["metadata"]["name"] for pod in story.ready()} <= story.asked)
    assert story.failed == []
    assert len(story.asked) >= 8, "two of each revision that served"
    dead = {"addresses": ["240.0.9.9"], "conditions": {"ready": True}, "targetRef": {"kind": "Pod", "name": "dead"}}
    meta = {"name": "stray", "labels": {"kubernetes.io/service-name": story.name}}
    story.create("slice", {"addressType": "IPv4", "metadata": meta, "endpoints": [dead]})
    story.play()
    assert story.failed == ["dead"], "what no pod answers for is told"


def test_row_18_consecutive_canaries_leak_nothing_and_row_28_no_selector_ever_changes(live):
    story = Story(live, rollout__historyLimit=1).serve()
    selectors = {}
    for change in (
        {"engine__image": "good:2"},
        {"engine__args": ["--tp", "1"]},
        {"model__source": {"hostPath": "/other"}},
    ):
        story.edit(**change)
        story.serve()
        for deployment in story.list("deployment"):
            chosen = deployment["spec"]["selector"]["matchLabels"]
            assert selectors.setdefault(deployment["metadata"]["uid"], chosen) == chosen
            assert set(chosen) == {"radix-islands.dev/instance", REVISION, ROLE}
    story.until("what is history goes", lambda: len(story.list("deployment")) == 2)
    assert len(story.pods()) == 2
    assert [len(story.list(kind)) for kind in ("service", "pdb", "job")] == [3, 1, 0]


def test_row_19_wait_right_after_an_edit_is_not_told_of_the_past(live):
    story = Story(live).serve()
    edited = story.edit(engine__image="never:1")
    stale = {c["observedGeneration"] for c in edited["status"]["conditions"]}
    assert stale == {edited["metadata"]["generation"] - 1}, "kubectl wait compares exactly this"
    story.until("it is decided on", lambda: story.told("Ready")[0] == "False")


def test_row_20_no_early_success_and_row_21_available_stays_true_while_updating(live):
    story = Story(live, gpus=6, replicas=3).serve()
    told = []

    def look():
        ready, available = story.told("Ready"), story.told("Available")
        told.append((ready[0], available[0], len(story.ready(**{REVISION: story.status["revisions"]["desired"]}))))
        return ready[0] == "True"

    story.edit(engine__image="good:2")
    story.until("it serves", look)
    assert {available for _, available, _ in told} == {"True"}
    assert {pods for ready, _, pods in told if ready == "True"} == {3}
    assert any(ready == "False" for ready, _, _ in told)


def test_row_22_a_crash_and_the_recovery_propagate(live):
    story = Story(live).serve()
    (pod, other) = story.pods()
    story.tell(pod, story.crashed("good:1", restarts=1))
    story.until("it is seen", lambda: story.told("Ready") == ("False", "EngineDied"))
    assert "RuntimeError: no luck" in story.condition("Degraded")["message"]
    assert story.told("Available")[0] == "True"
    story.tell(
        pod,
        {
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": other["status"]["containerStatuses"],
        },
    )
    story.until("and the recovery", lambda: story.told("Ready") == ("True", "Serving"))
    assert story.told("Degraded")[0] == "False"


def test_row_24_applying_works_while_the_operator_is_down_because_there_is_no_webhook(live):
    story = Story(live).serve()
    with live.operator:  # stops it
        pass
    story.edit(engine__image="good:2")
    for kind in ("validating", "mutating"):
        path = f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations"
        assert live.api("GET", path)[1]["items"] == []
    live.restart()
    story.serve()


def test_row_25_no_secret_is_read_nor_may_be(live):
    """By an account with the chart's own rights, of which none is about Secrets; row 26 runs the operator with them."""
    text = (ROOT / "charts/radix-islands/templates/rbac.yaml").read_text()
    plain = "\n".join(line for line in text.splitlines() if "{{" not in line)
    rules = [rule for document in yaml.safe_load_all(plain) for rule in document.get("rules", ())]
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "as-charted"},
        "rules": rules,
    }
    live.plane.apply(role)
    live.plane.kubectl("create", "clusterrolebinding", "as-charted", "--clusterrole=as-charted", "--user=as-charted")

    def may(verb, kind):
        return live.plane.try_kubectl("auth", "can-i", verb, kind, "-A", "--as", "as-charted").stdout.strip()

    until("the rights are known", lambda: may("list", "pods") == "yes")
    for verb in ("get", "list", "watch"):
        assert may(verb, "secrets") == "no"


def test_row_30_a_load_of_twenty_minutes_is_not_killed_by_probes_deployment_or_deadline(live):
    """With every default; twenty minutes go by in the status, which is all that the operator knows of time."""
    story = Story(live, rollout={})
    for image, phase in (("good:1", "Promoting"), ("good:2", "Canary")):
        story.loading = True
        story.edit(engine__image=image)
        story.until_phase(phase)
        revision = story.status["run"]["revision"]
        (pod, *_) = story.until("it loads", lambda: loading(story, revision))  # noqa: B023 - called at once
        (container,) = pod["spec"]["containers"]
        probe = container["startupProbe"]
        assert probe["periodSeconds"] * probe["failureThreshold"] >= 1200
        assert "activeDeadlineSeconds" not in pod["spec"]
        assert {d["spec"]["progressDeadlineSeconds"] >= 1200 for d in story.list("deployment")} == {True}
        past = story.elapse(minutes=20)
        story.annotate(f"look-{phase.lower()}")  # no verb: told by the pass that has judged the deadline too
        story.until("it is judged", lambda: f"look-{phase.lower()}" in {v["name"] for v in story.status["verbs"]})  # noqa: B023
        run = story.status["run"]
        assert (run["phase"], run["revision"], run["progressAt"]) == (phase, revision, past)
        story.loaded()
        story.serve()
        assert story.active == revision


def test_row_31_canary_and_gate_share_one_read_only_volume(live):
    source = {"pvc": "weights"}
    story = Story(live, model__source=source, rollout__steps=[{"weight": 33, "pause": "1h"}]).serve()
    story.edit(**ON)
    story.until("the canary runs", lambda: story.status["run"]["heldSince"])
    volumes = [
        (volume["persistentVolumeClaim"], mount["readOnly"])
        for pod in story.list("pod")
        for volume in pod["spec"]["volumes"]
        for mount in pod["spec"]["containers"][0]["volumeMounts"]
        if volume["name"] == mount["name"] == "model"
    ]
    assert len(volumes) == len(story.list("pod")) >= 4
    assert {tuple(claim.items()) for claim, _ in volumes} == {(("claimName", "weights"), ("readOnly", True))}
    assert {read_only for _, read_only in volumes} == {True}


def test_row_33_one_apply_with_islands_is_gated_and_reaches_all_pods_and_row_34_the_spec_stays_the_users(live):
    story = Story(live).serve()
    story.edit(**ON)
    wanted = story.parent["spec"]
    story.serve()
    assert {p["metadata"]["labels"][HALF] for p in story.ready()} == {"islands"}
    assert story.status["gateVerdict"] == "PASS"
    parent = story.parent
    assert parent["spec"] == wanted
    owners = {f["manager"] for f in parent["metadata"]["managedFields"] if "f:spec" in f["fieldsV1"]}
    assert owners == {"user"}


def test_row_35_the_guides_command_of_a_verb_does_what_it_says(live):
    story = Story(live, rollout__steps=[{"weight": 33, "pause": "1h"}]).serve()
    story.edit(engine__image="good:2")
    story.until_phase("Canary")
    guide = (ROOT / "docs/rollouts.md").read_text()
    (command,) = [line for line in guide.splitlines() if line.startswith("kubectl annotate iisvc NAME")]
    live.plane.kubectl(*command.replace("NAME", "x").split()[1:], "-n", story.namespace)
    story.until("it is paused", lambda: story.told("Progressing") == ("True", "Paused"))
    story.until("and taken off", lambda: "annotations" not in story.parent["metadata"])


def test_row_7_a_gate_without_a_gpu_says_so_and_meets_its_deadline(without_a_gpu):
    story = without_a_gpu
    story.until("its verdict", lambda: story.status["gate"].get("verdict") == "INCONCLUSIVE", timeout=90)
    assert story.status["gate"]["reason"] == "InsufficientGPU"
    assert "spec.gate.deadline" in story.status["gate"]["message"]
    story.rest()
    story.until("its pod is gone", lambda: story.pods("gate") == [])
    assert len(story.ready()) == 2


def test_the_planted_divergence_is_in_the_status_and_its_report_in_a_configmap(live):
    story = Story(live).serve()
    story.edit(engine__image="wrong:1", **ON)
    story.rest()
    name = story.until("the report is stored", lambda: story.status["gate"]["report"])
    kept = story.get("configmap", name)
    assert kept["immutable"] is True
    assert owner(kept) == story.get("job", name)["metadata"]["uid"]
    assert f'"probe": "{DIVERGENCE["probe"]}"' in kept["data"]["verdict.json"]
    story.delete("job", name + "?propagationPolicy=Background")
    story.until("it goes with its Job", lambda: story.get("configmap", name) is None)
