"""What doctor makes of what it finds: OK, or what to do."""

import copy
from dataclasses import replace
from importlib.metadata import version

import pytest

from island_operator.api.crd import definition
from island_operator.cli.kubectl.diagnosis import RIGHTS, Facts, judge
from island_operator.cli.kubectl.doctor import plugin_version, table
from island_operator.cluster.protocol import ApiError

NOW = "2026-01-01T00:01:00Z"
MINE = version("radix-islands")
FORBIDDEN = ApiError(403, "forbidden")
GPU = "nvidia.com/gpu"


def deployment(release=MINE, ready=1):
    labels = {"app.kubernetes.io/version": release}
    meta = {"name": "radix-islands", "namespace": "system", "labels": labels}
    return {"metadata": meta, "spec": {"replicas": 2}, "status": {"readyReplicas": ready}}


def lease(holder="operator-1", renewed="2026-01-01T00:00:59.5Z"):
    spec = {"holderIdentity": holder, "renewTime": renewed}
    return {"metadata": {"name": "radix-islands", "namespace": "system"}, "spec": spec}


WELL = Facts(
    host="https://api.example",
    server={"major": "1", "minor": "34+", "gitVersion": "v1.34.4"},
    crd=definition(),
    parents=[{"spec": {"accelerator": {"resource": GPU, "count": 1}}}],
    deployments=[deployment()],
    leases=[lease()],
    nodes=[{"status": {"allocatable": {GPU: "2"}}}, {"status": {"allocatable": {"cpu": "8"}}}],
    engines={"p": MINE},
    rights={right: True for rights in RIGHTS.values() for right in rights},
    namespace="models",
)


def lines(facts, check):
    return [(f.ok, f.told) for f in judge(facts, NOW) if f.check == check]


def crd(change):
    made = copy.deepcopy(definition())
    change(made["spec"]["versions"][0])
    return made


def test_all_is_well():
    found = judge(WELL, NOW)
    assert [f.ok for f in found] == [True] * len(found)
    assert table(found)[1].plain == "cluster       ✔ OK     Kubernetes v1.34.4 at https://api.example"


def without_replicas(served):
    del served["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["replicas"]


def with_more(served):
    served["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["later"] = {"type": "string"}


@pytest.mark.parametrize(
    ("check", "change", "says"),
    [
        ("cluster", {"server": {"major": "1", "minor": "33", "gitVersion": "v1.33.0"}}, "upgrade to 1.34 or later"),
        ("cluster", {"server": ApiError(401, "Unauthorized")}, "Unauthorized; log in again"),
        ("CRD", {"parents": ApiError(404, "not found")}, "not known here: helm upgrade --install"),
        ("CRD", {"crd": crd(without_replicas)}, "older than this plugin: it has no spec.replicas: bring CRD, operator"),
        ("CRD", {"crd": crd(with_more)}, "newer than this plugin: it has spec.later"),
        ("CRD", {"crd": crd(lambda served: served.update(served=False))}, "does not serve v1alpha1"),
        ("operator", {"deployments": [], "leases": []}, "there is none: helm upgrade --install"),
        ("operator", {"deployments": [deployment(ready=0)]}, "0 of 2 Ready: kubectl -n system describe pods"),
        ("leader", {"leases": []}, "nobody holds a Lease radix-islands"),
        ("leader", {"leases": [lease(holder="")]}, "nobody holds a Lease radix-islands"),
        ("leader", {"leases": [lease(renewed="2025-12-31T23:00:00Z")]}, "renewed 3660 s ago: it is gone"),
        ("leader", {"leases": [lease(renewed=None)]}, "Lease system/radix-islands, never renewed: see that"),
        ("cluster", {"server": {}}, "upgrade to 1.34 or later"),
        ("CRD", {"crd": crd(lambda served: served.pop("schema"))}, "older than this plugin: it has no "),
        ("accelerator", {"nodes": []}, "no node offers nvidia.com/gpu: install its device plugin"),
        ("accelerator", {"parents": [{"spec": {"accelerator": {"resource": "a/g"}}}]}, "no node offers a/g: install"),
        ("versions", {"deployments": [deployment("9.9.9")]}, f"this plugin is {MINE}, the operator 9.9.9: install"),
        ("engines", {"engines": {"p": MINE, "q": "0.0.1"}}, "pod q has plugin 0.0.1, not"),
        ("permissions", {"rights": dict.fromkeys(WELL.rights, False)}, "ask for list inferenceservices, list"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_what_to_do(check, change, says):
    told = lines(replace(WELL, **change), check)
    assert any(ok is False and says in line for ok, line in told), told


@pytest.mark.parametrize(
    ("check", "change", "says"),
    [
        ("operator", {"deployments": FORBIDDEN}, "may not be listed by you"),
        ("leader", {"leases": FORBIDDEN}, "may not be listed by you"),
        ("accelerator", {"nodes": FORBIDDEN}, "may not be listed by you"),
        ("engines", {"engines": FORBIDDEN}, "may not be read by you: forbidden"),
        ("engines", {"engines": {}}, "no engine is Ready"),
        ("engines", {"engines": {"p": None}}, "the engines' logs do not say"),
        ("permissions", {"rights": FORBIDDEN}, "forbidden"),
    ],
)
def test_what_cannot_be_looked_at_is_no_fault(check, change, says):
    ((ok, told),) = lines(replace(WELL, **change), check)
    assert ok is None
    assert says in told


def test_what_is_well_without_being_usual():
    outside = replace(WELL, deployments=[])
    assert lines(outside, "operator") == [(True, "runs, but not from a Deployment of the chart")]
    cpu = replace(WELL, parents=[{"spec": {"accelerator": {"resource": GPU, "count": 0}}}])
    assert lines(cpu, "accelerator") == [(True, "no InferenceService asks for one")]
    shared = replace(WELL, nodes=[{"status": {"allocatable": {GPU: "80k"}}}, {"status": {"allocatable": {GPU: "6"}}}])
    assert lines(shared, "accelerator") == [(True, "80006 nvidia.com/gpu on 2 of 2 nodes")]
    new = replace(WELL, parents=[])
    assert lines(new, "accelerator") == [(True, "2 nvidia.com/gpu on 1 of 2 nodes")]
    secret = replace(WELL, crd=FORBIDDEN)
    assert lines(secret, "CRD")[0][0] is True


@pytest.mark.parametrize(
    "spec", [None, 3, {}, {"accelerator": None}, {"accelerator": []}, {"accelerator": {"resource": 1}}]
)
def test_a_spec_that_cannot_be_read_asks_for_no_accelerator(spec):
    found = lines(replace(WELL, parents=[{"spec": spec}, *WELL.parents]), "accelerator")
    assert found == lines(WELL, "accelerator")


def test_the_plugins_version_is_in_the_launchers_first_line():
    line = 'island-engine: {"islands": "on", "sglang": "0.5.23", "plugin": "0.1.0"}'
    assert plugin_version(f"warning: something {{odd\n{line}\nmore") == "0.1.0"
    assert plugin_version("no json\n{}\n[1]\n") is None
