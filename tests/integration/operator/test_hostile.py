"""What clusters and people do to an InferenceService, on a real API server: named in its status, in nobody's way."""

import json
import re
from datetime import UTC, datetime

import pytest
from support.live import REVISION, SCARCE, Story
from support.live import container as container_status

ON = {"islands__enabled": True}
LIMITS = {"spec": {"containers": [{"name": "engine", "resources": {"limits": {"memory": "6Gi", "cpu": "1"}}}]}}


def quota(story, **hard):
    body = {"metadata": {"name": "few"}, "spec": {"hard": {key.replace("__", "/"): str(n) for key, n in hard.items()}}}
    story.create("resourcequota", body)
    story.until("the quota counts", lambda: story.get("resourcequota", "few")["status"]["hard"])


def says(story, kind, reason, *words):
    """Until that condition has that reason, for this cause; its message."""

    def told():
        found = story.condition(kind)
        assert found["reason"] == reason, found
        assert all(word in found["message"] for word in words), found
        return found["message"]

    return story.until(f"{reason}: {words}", told)


def test_a_quota_that_refuses_the_canarys_deployment_is_named_and_the_rollout_meets_its_deadline(live):
    story = Story(live, rollout__deadline="1h").serve()
    before = {pod["metadata"]["uid"] for pod in story.pods()}
    quota(story, **{"count__deployments.apps": 1})
    story.edit(engine__image="good:2")
    says(story, "Ready", "ApplyRefused", "exceeded quota: few, requested: count/deployments.apps=1")
    story.elapse(hours=2)
    story.rest()
    says(story, "RolledBack", "ApplyRefused", "no progress for 3600 s (spec.rollout.deadline): Deployment x-")
    assert {pod["metadata"]["uid"] for pod in story.pods()} == before


def test_a_quota_that_refuses_the_gates_job_is_named_and_goes_on_when_it_is_lifted(live):
    story = Story(live).serve()
    quota(story, **{"count__jobs.batch": 0})
    story.edit(**ON)
    says(story, "Ready", "ApplyRefused", "Job x-gate-", "exceeded quota: few")
    story.delete("resourcequota", "few")
    story.until(
        "gate and promotion", lambda: story.told("GatePassed")[0] == "True" and story.told("Ready")[0] == "True"
    )


def limited(story):
    limit = {"type": "Container", "max": {"memory": "1Mi"}}
    story.create("limitrange", {"metadata": {"name": "small"}, "spec": {"limits": [limit]}})


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda story: quota(story, pods=1), "exceeded quota: few"),
        (limited, "maximum memory usage per Container is 1Mi, but limit is 6Gi"),
    ],
    ids=["quota", "LimitRange"],
)
def test_what_refuses_pods_is_named(live, prepare, words):
    story = Story(live, prepare=prepare, podTemplate=LIMITS)
    says(story, "Ready", "PodsRefused", "the cluster refuses pods: pods ", words)


def test_pod_security_names_what_to_add_and_with_that_engines_and_gates_run_in_a_restricted_namespace(live):
    story = Story(live, labels={"pod-security.kubernetes.io/enforce": "restricted"})
    message = says(story, "Ready", "PodsRefused", 'violates PodSecurity "restricted:latest"')
    said = re.search(
        r"add to spec.podTemplate: (\{.*\}); use spec.model.source.pvc or huggingFace, not hostPath", message
    )
    story.edit(podTemplate=json.loads(said[1]), model__source={"pvc": "weights"})
    story.serve()
    story.edit(**ON)
    story.serve()
    assert story.told("GatePassed") == ("True", "Passed")


def test_a_missing_right_is_named_and_what_is_allowed_is_made(live):
    """An operator whose account may do everything but write Services, in the place of the one that may."""
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch", "create", "patch", "update"]}]
    rules[0]["resources"] = [
        "inferenceservices", "inferenceservices/status", "inferenceservices/finalizers", "deployments", "jobs", "pods",
        "poddisruptionbudgets", "leases", "events", "namespaces",
    ]  # fmt: skip
    services = {"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list", "watch"]}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "less"}}
    live.plane.apply(role | {"rules": [*rules, services]})
    live.plane.kubectl("create", "serviceaccount", "less", "-n", "default")
    live.plane.kubectl("create", "clusterrolebinding", "less", "--clusterrole=less", "--serviceaccount=default:less")
    with live.instead("less"):
        story = Story(live)
        says(story, "Degraded", "ApplyRefused", "Service x", 'User "system:serviceaccount:default:less" cannot patch')
        story.until("the rest of it serves", lambda: len(story.ready()) == 2 and len(story.list("pdb")) == 1)
    story.until(
        "healed with the right", lambda: story.told("Degraded")[0] == "False" and len(story.list("service")) == 3
    )


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        (
            {"conditions": [{"type": "PodScheduled", "status": "True"}],
             "containerStatuses": [container_status("good:2", {"waiting": {
                "reason": "CreateContainerConfigError", "message": 'secret "token" not found'}})]},
            "StartFailed", 'CreateContainerConfigError: secret "token" not found',
        ),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message":
                '0/3 nodes are available: persistentvolumeclaim "weights" not found. preemption: not helpful.'}]},
            "Unschedulable", 'persistentvolumeclaim "weights" not found',
        ),
        ({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": SCARCE}]},
         "InsufficientGPU", "which 0 of 1 nodes have free (1 Insufficient nvidia.com/gpu)"),
    ],
    ids=["a deleted Secret", "a deleted PVC", "no GPU"],
)  # fmt: skip
def test_what_the_kubelet_and_the_scheduler_miss_is_named(live, status, reason, words):
    story = Story(live, gpus=2).serve()
    story.edit(engine__image="good:2")
    story.until_phase("Canary")
    (pod,) = story.until(
        "its pod", lambda: [p for p in story.pods() if p["metadata"]["labels"][REVISION] != story.active]
    )
    story.tell(pod, status)
    says(story, "Progressing", reason, words)
    assert story.told("Available")[0] == "True"


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ({"spec": {"nodeName": "mine"}}, "spec.podTemplate.spec.nodeName is decided by the operator: remove it"),
        ({"metadata": {"labels": {REVISION: "x"}}}, f"spec.podTemplate.metadata.labels.{REVISION} is the operator's"),
        ({"spec": {"containers": [{"name": "engine", "args": ["--evil"]}]}}, "use spec.engine.args"),
        ({"spec": {"containers": "none"}}, "spec.podTemplate.spec.containers must be a list"),
    ],
)  # fmt: skip
def test_a_pod_template_that_breaks_the_contract_is_named_and_what_serves_stays(live, served, template, words):
    served.edit(podTemplate=template)
    says(served, "Ready", "PodTemplateInvalid", words)
    assert len(served.ready()) == 2
    served.spec.pop("podTemplate")
    served.apply()
    served.serve()


@pytest.fixture(scope="module")
def served(live):
    return Story(live).serve()


def test_names_and_labels_at_their_limits_fit_everywhere(live):
    """44 characters are what the longest child leaves; 63 and 253 the longest label and subdomain."""
    long = f"{'l' * 63}"
    story = Story(live, name="n" * 44, accelerator__nodeSelector={f"{'d' * 63}.{'e' * 63}/{long}": long},
                  podTemplate={"metadata": {"labels": {f"{'p' * 63}.example/{long}": long}}}, **ON)  # fmt: skip
    story.serve()
    assert story.told("GatePassed") == ("True", "Passed")
    names = [o["metadata"]["name"] for kind in ("job", "service", "pdb", "deployment", "pod") for o in story.list(kind)]
    assert max(map(len, names)) <= 63
    assert story.status["selector"].count("n" * 44) == 1


def test_a_megabyte_of_last_words_and_control_characters_stay_out_of_status_and_log(live):
    story = Story(live).serve()
    forged = '\n{"level":"info","message":"all is well"}\n\x1b[31m\u202e'
    story.edit(engine__image="never:2")
    story.until_phase("Canary")
    (pod,) = story.until(
        "its pod", lambda: [p for p in story.pods() if p["metadata"]["labels"][REVISION] != story.active]
    )
    story.tell(pod, story.crashed("never:2", message="y" * 1_000_000 + forged))
    story.rest()
    message = says(story, "RolledBack", "EngineDied")
    assert "\\x1b[31m\\u202e" in message
    assert message.isprintable()
    assert len(json.dumps(story.status)) < 20_000
    whole, _, _ = live.operator.log.read_text().rpartition("\n")  # behind it a line is being written
    assert all(isinstance(json.loads(line), dict) for line in whole.splitlines()), "a line of log is an object of ours"
    assert "all is well" not in {line.get("message") for line in live.operator.lines()}


def test_a_gate_report_of_somebody_else_proves_nothing_and_a_job_in_the_way_is_left_alone(live):
    story = Story(live).serve()
    story.edit(engine__image="hangs:1", **ON)
    (pod,) = story.until("the gate runs", lambda: story.pods("gate"))
    report = {"schema": "somebody.example/v1", "verdict": "PASS", "reason": "Equal", "message": "trust me"}
    ended = {"terminated": {"exitCode": 0, "reason": "Completed", "message": json.dumps(report)}}
    story.tell(pod, {"phase": "Succeeded", "containerStatuses": [container_status("hangs:1", ended)]})
    story.rest()
    assert story.status["gate"]["reason"] == "NoReport"
    assert story.status["islands"]["enabled"] is False


def test_a_namespace_that_is_being_deleted_is_left_in_peace_and_delays_nobody(live, served):
    story = Story(live, **ON)
    story.until("its gate runs", lambda: story.list("job"))
    status, _ = live.api("DELETE", f"/api/v1/namespaces/{story.namespace}")
    assert status == 200
    served.edit(engine__image="good:7")
    served.serve()
    path = f"/api/v1/namespaces/{story.namespace}"
    served.until("the namespace is gone", lambda: live.api("GET", path)[0] == 404)


def test_b_to_c_and_a_scale_in_the_middle_of_a_rollout(live):
    story = Story(live, gpus=6, rollout__steps=[{"weight": 33, "pause": "1h"}]).serve()
    story.edit(engine__image="good:2")
    story.until_phase("Canary")
    second = story.status["run"]["revision"]
    story.edit(engine__image="good:3")
    story.until("the third", lambda: story.status["run"]["revision"] != second and story.status["phase"] == "Canary")
    story.scale(3)
    story.until("the canary holds", lambda: story.status["run"]["heldSince"])
    assert story.pods(**{REVISION: second}) == []
    story.annotate("promote")
    story.serve()
    story.until("three", lambda: len(story.ready()) == 3)
    assert {pod["metadata"]["labels"][REVISION] for pod in story.pods()} == {story.active}


def test_the_budget_lets_one_pod_go_at_a_time_and_stands_in_no_way_of_zero(live):
    story = Story(live).serve()
    story.until("the budget counts", lambda: story.get("pdb", "x")["status"]["disruptionsAllowed"] == 1)
    first, second = (pod["metadata"]["name"] for pod in story.ready())
    evicted = [
        live.api(
            "POST",
            f"{story.path('pod')}/{name}/eviction",
            {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}},
        )[0]
        for name in (first, second)
    ]
    assert evicted == [201, 429]
    story.scale(0)
    story.until("scaled to zero", lambda: story.told("Ready") == ("True", "ScaledToZero") and story.pods() == [])


def test_scaled_to_zero_in_a_canary_promotes_nothing_unseen(live):
    story = Story(live, rollout__steps=[{"weight": 33, "pause": "2s"}]).serve()
    before = story.active
    story.loading = True  # else it may be promoted before it is scaled
    story.edit(engine__image="good:2")
    story.until_phase("Canary")
    story.scale(0)
    message = says(story, "Ready", "ScaledToZero", "set spec.replicas to 1 or more, or annotate the object with")
    assert "canary of revision" in message
    held = story.until("nothing is left of it", lambda: story.pods() == [] and story.status["run"]["heldSince"])
    story.until("its pause is over", lambda: age(held) > 4)
    assert (story.status["phase"], story.active, story.told("Progressing")[1]) == ("Canary", before, "ScaledToZero")
    story.loading = False
    story.scale(2)
    story.serve()
    assert {pod["spec"]["containers"][0]["image"] for pod in story.ready()} == {"good:2"}


def age(stamp):
    return (datetime.now(UTC) - datetime.fromisoformat(stamp)).total_seconds()


def test_an_autoscaler_scales_by_the_scale_subresource_and_is_not_undone(live, autoscaled):
    story = autoscaled
    story.until("the HPA's minimum", lambda: len(story.ready()) == 3, timeout=90)
    assert story.parent["spec"]["replicas"] == 3
    hpa = story.get("hpa", "x")
    able = {c["type"]: c["status"] for c in hpa["status"]["conditions"]}
    assert able["AbleToScale"] == "True"
    scale = live.api("GET", f"{story.path('iisvc')}/x/scale")[1]
    assert scale["status"]["replicas"] == 3
    assert scale["status"]["selector"] == "radix-islands.dev/instance=x,radix-islands.dev/role=engine"


@pytest.fixture(scope="module", autouse=True)
def autoscaled(live):
    """Begun before the other tests: the HPA looks every 15 s. Below its minimum it needs no metric."""
    story = Story(live).serve()
    target = {"apiVersion": "radix-islands.dev/v1alpha1", "kind": "InferenceService", "name": "x"}
    story.create(
        "hpa", {"metadata": {"name": "x"}, "spec": {"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": 4}}
    )
    return story
