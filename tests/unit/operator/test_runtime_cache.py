"""The cache: newest wins whatever the order, echoes wake nobody, a sweep corrects what no watch told."""

import json
import random

import pytest

from island_operator.cluster.cache import Cache, Key
from island_operator.cluster.kinds import INSTANCE
from island_operator.cluster.protocol import Listing

KEY = Key("default", "x")


def parent(version, uid="p", **status):
    meta = {"name": "x", "namespace": "default", "uid": uid, "resourceVersion": str(version), "managedFields": [1]}
    return {"kind": "InferenceService", "metadata": meta, "status": status}


def child(version, uid="c", name="x-1", labels=None):
    labels = {INSTANCE: "x"} if labels is None else labels
    meta = {"name": name, "namespace": "default", "uid": uid, "resourceVersion": str(version), "labels": labels}
    return {"kind": "Deployment", "metadata": meta, "spec": {"replicas": version}}


def held(cache):
    return {obj["metadata"]["name"]: obj["metadata"]["resourceVersion"] for obj in cache.snapshot(KEY).children}


@pytest.mark.parametrize("seed", range(10))
def test_whatever_the_order_of_arrival_the_newest_stays(seed):
    cache, versions = Cache(), [*range(90, 120)]
    random.Random(seed).shuffle(versions)  # noqa: S311 - repeatable on purpose
    cache.put("InferenceService", parent(1))
    woke = [version for version in versions if cache.put("Deployment", child(version)) == KEY]
    assert held(cache) == {"x-1": "119"}
    assert woke == [v for n, v in enumerate(versions) if v > max(versions[:n], default=0)], "only news wakes"


def test_versions_are_numbers_not_text():
    cache = Cache()
    cache.put("InferenceService", parent(999))
    assert cache.put("InferenceService", parent(1000)) == KEY


def test_the_echo_of_our_own_write_wakes_nobody():
    cache = Cache()
    cache.put("InferenceService", parent(5, phase="Stable"))
    assert cache.put("InferenceService", parent(5, phase="Stable")) is None


def test_what_a_childs_own_controller_writes_is_kept_and_wakes_nobody():
    cache, busy = Cache(), {**child(6), "spec": child(5)["spec"], "status": {"readyReplicas": 1}}
    cache.put("InferenceService", parent(1))
    assert [cache.put("Deployment", obj) for obj in (child(5), busy, child(7))] == [KEY, None, KEY]
    assert held(cache) == {"x-1": "7"}


def test_managed_fields_are_dropped_and_the_caller_keeps_its_object():
    cache, obj = Cache(), parent(1)
    cache.put("InferenceService", obj)
    assert "managedFields" not in cache.parent(KEY)["metadata"]
    assert "managedFields" in obj["metadata"]


def test_equal_strings_of_different_objects_are_one():
    cache = Cache()
    for name in ("a", "b"):
        cache.put("Deployment", json.loads(json.dumps(child(1, uid=name, name=name))))
    cache.put("InferenceService", parent(1))
    first, second = (obj["metadata"]["labels"] for obj in cache.snapshot(KEY).children)
    assert next(iter(first)) is next(iter(second))
    assert first[INSTANCE] is second[INSTANCE]


def test_a_child_without_our_label_is_nobodys():
    cache = Cache()
    assert cache.put("Deployment", child(1, labels={})) is None
    assert cache.put("Deployment", {**child(1), "metadata": {**child(1)["metadata"], "labels": None}}) is None


def test_the_deletion_of_an_old_object_does_not_take_its_successor():
    cache = Cache()
    cache.put("InferenceService", parent(1))
    cache.put("Deployment", child(10, uid="new"))
    assert cache.drop("Deployment", child(9, uid="old")) is None
    assert held(cache) == {"x-1": "10"}
    assert cache.drop("Deployment", child(11, uid="new")) == KEY
    assert cache.snapshot(KEY).children == ()


def test_late_news_of_a_predecessor_does_not_take_the_place_of_its_successor():
    """kopf tells of each uid in order, and of two in none."""
    cache = Cache()
    cache.put("InferenceService", parent(10, uid="new"))
    assert cache.put("InferenceService", parent(8, uid="old")) is None
    assert cache.drop("InferenceService", parent(9, uid="old")) is None
    assert cache.parent(KEY)["metadata"]["uid"] == "new"
    assert cache.put("InferenceService", parent(12, uid="newer")) == KEY


def test_children_without_their_parent_make_no_snapshot():
    cache = Cache()
    cache.put("Deployment", child(1))
    assert cache.snapshot(KEY) is None
    assert cache.parents() == []


def test_a_sweep_finds_what_vanished_what_changed_and_what_is_new():
    cache = Cache()
    cache.put("InferenceService", parent(1))
    for version, name in ((2, "stays"), (3, "vanished"), (4, "changed")):
        cache.put("Deployment", child(version, uid=name, name=name))
    listed = (child(2, uid="stays", name="stays"), child(9, uid="changed", name="changed"))
    assert cache.sweep("Deployment", Listing(listed, 9)) == {KEY}
    assert held(cache) == {"stays": "2", "changed": "9"}
    assert cache.sweep("Deployment", Listing(listed, 9)) == set()


def test_a_sweep_keeps_what_was_made_after_its_list_was_taken():
    cache = Cache()
    cache.put("InferenceService", parent(1))
    cache.put("Deployment", child(20))
    assert cache.sweep("Deployment", Listing((), 19)) == set()
    assert held(cache) == {"x-1": "20"}
