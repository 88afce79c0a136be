"""spec.podTemplate: a strategic merge by name, and what it may not touch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.world import World

from island_operator.core.merge import TemplateError, check_template, merge

BASE = {
    "containers": [{"name": "engine", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}],
    "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
}


@pytest.mark.parametrize(
    ("over", "merged"),
    [
        ({}, BASE),
        (
            {"containers": [{"name": "engine", "env": [{"name": "B", "value": "3"}, {"name": "C", "value": "4"}]}]},
            {
                **BASE,
                "containers": [
                    {
                        "name": "engine",
                        "env": [{"name": n, "value": v} for n, v in (("A", "1"), ("B", "3"), ("C", "4"))],
                    }
                ],
            },
        ),
        (
            {"containers": [{"name": "sidecar", "image": "i"}]},
            {**BASE, "containers": [*BASE["containers"], {"name": "sidecar", "image": "i"}]},
        ),
        (  # a volume is one source: merged, it would be two
            {"volumes": [{"name": "shm", "hostPath": {"path": "/x"}}]},
            {**BASE, "volumes": [{"name": "shm", "hostPath": {"path": "/x"}}]},
        ),
        ({"nodeSelector": {"a": "b"}}, {**BASE, "nodeSelector": {"a": "b"}}),
        ({"volumes": None}, {"containers": BASE["containers"]}),
        ({"tolerations": [{"key": "k"}]}, {**BASE, "tolerations": [{"key": "k"}]}),
    ],
    ids=["nothing", "env by name", "a sidecar", "a volume as a whole", "a map", "null removes", "a plain list"],
)
def test_merge(over, merged):
    assert merge(BASE, over) == merged


def test_volume_mounts_are_merged_by_path():
    base = {"volumeMounts": [{"name": "model", "mountPath": "/model"}]}
    over = {"volumeMounts": [{"mountPath": "/model", "subPath": "a"}, {"name": "venv", "mountPath": "/opt/venv"}]}
    assert merge(base, over) == {
        "volumeMounts": [
            {"name": "model", "mountPath": "/model", "subPath": "a"},
            {"name": "venv", "mountPath": "/opt/venv"},
        ]
    }


KEYS = st.sampled_from(["", "a", "b", "env", "name"])  # few, so that both sides have the same ones
VALUES = st.recursive(st.integers(0, 2), lambda v: st.dictionaries(KEYS, v, max_size=3), max_leaves=8)


@given(st.dictionaries(KEYS, VALUES), st.dictionaries(KEYS, VALUES))
def test_merging_twice_changes_nothing_more(base, over):
    once = merge(base, over)
    assert merge(once, over) == once


def engine(**container):
    return {"spec": {"containers": [{"name": "engine", **container}]}}


@pytest.mark.parametrize(
    ("template", "names"),
    [
        (engine(args=["--x"]), ["containers[engine].args", "spec.engine.args"]),
        (engine(command=["sh"]), ["containers[engine].command", "spec.engine.image"]),
        (engine(image="other"), ["containers[engine].image", "spec.engine.image"]),
        (engine(env=[{"name": "SGLANG_PLUGINS", "value": ""}]), ["env.SGLANG_PLUGINS", "spec.islands"]),
        (engine(env=[{"value": "1"}]), ["env[0].name is missing"]),
        (engine(volumeMounts=[{"name": "x"}]), ["volumeMounts[0].mountPath is missing"]),
        ({"metadata": {"labels": {"radix-islands.dev/half": "stock"}}}, ["labels.radix-islands.dev/half"]),
        ({"metadata": {"labels": {"app.kubernetes.io/managed-by": "me"}}}, ["labels.app.kubernetes.io/managed-by"]),
        ({"spec": {"restartPolicy": "Never"}}, ["spec.restartPolicy"]),
        ({"spec": {"nodeName": "n"}}, ["spec.nodeName"]),
        ({"spec": {"automountServiceAccountToken": True}}, ["spec.automountServiceAccountToken"]),
        ({"spec": {"containers": [{"image": "i"}]}}, ["containers[0].name is missing"]),
        ({"spec": {"containers": [{"name": "main"}]}}, ["spec.podTemplate.spec.containers: name one of them engine"]),
        ({"spec": {"volumes": ["x"]}}, ["volumes[0].name is missing"]),
        ({"spec": {"volumes": 7}}, ["volumes must be a list"]),
        ({"spec": []}, ["spec.podTemplate.spec must be an object"]),
        ({"metadata": {"labels": "x"}}, ["labels must be an object"]),
        (engine(env="x"), ["containers[engine].env must be a list"]),
        ({"spec": {"initContainers": [{"name": "engine", "image": "i"}]}}, ["initContainers[engine]"]),
    ],
    ids=str,
)
def test_what_the_revision_decides_is_refused_with_the_field(template, names):
    with pytest.raises(TemplateError) as refused:
        check_template(template)
    for name in names:
        assert name in str(refused.value)
    world = World(podTemplate=template).settle()
    assert world.condition("Degraded")["reason"] == "PodTemplateInvalid"
    assert world.condition("Ready")["message"] == str(refused.value)


def test_a_broken_template_takes_nothing_down():
    world = World(islands__enabled=True).settle()
    pods = {p["metadata"]["uid"] for p in world.pods()}
    world.edit(podTemplate=engine(args=["--x"]))
    world.settle()
    assert {p["metadata"]["uid"] for p in world.pods()} == pods
    assert world.condition("Available")["status"] == "True"
    assert world.condition("Ready")["reason"] == "PodTemplateInvalid"


def test_a_broken_template_does_not_stop_the_kill_switch():
    world = World(islands__enabled=True).settle()
    world.edit(podTemplate=engine(args=["--x"]), islands__enabled=False)
    world.settle()
    assert [p["metadata"]["labels"]["radix-islands.dev/half"] for p in world.pods()] == ["stock", "stock"]
    assert world.status["islands"]["enabled"] is False
    assert world.condition("Degraded")["reason"] == "PodTemplateInvalid"


def test_a_template_broken_half_way_does_not_stop_what_is_under_way():
    world = World().until("Promoting")
    world.operate()
    world.edit(podTemplate=engine(args=["--x"]))
    world.settle()
    assert world.ready() == 2
