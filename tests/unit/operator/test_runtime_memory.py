"""The garbage collector does not walk the cache over and over."""

import gc

import pytest

from island_operator.cluster.cache import Cache
from island_operator.cluster.kinds import PARENT
from island_operator.runtime import memory

FLEET, CHANGES = 3_000, 9_000


@pytest.fixture
def full():
    """How often everything was collected, from now on."""
    seen, before = [], gc.get_threshold()
    gc.set_threshold(700, 10, 10)  # Python's own: a test of `main` before us in this process leaves the product's
    gc.freeze()  # what others left here: a full collection waits until a quarter as much is new
    gc.collect()
    count = lambda phase, info: seen.append(info) if (phase, info["generation"]) == ("start", 2) else None  # noqa: E731
    gc.callbacks.append(count)
    yield seen
    gc.callbacks.remove(count)
    gc.set_threshold(*before)
    gc.unfreeze()


def told(number, version):
    """An object of the watch, as new as a JSON parser makes it."""
    labels = [{"name": f"{n}", "value": {"a": [version]}} for n in range(20)]
    meta = {"name": f"x{number}", "namespace": "default", "uid": f"{number}", "resourceVersion": f"{version}"}
    return {"metadata": meta, "spec": {"labels": labels}}


def churn():
    cache = Cache()
    for change in range(CHANGES):
        cache.put(PARENT, told(change % FLEET, change + 1))


def test_a_cache_that_changes_is_not_walked_as_a_whole(full):
    churn()
    assert full, "what Python does by itself"
    memory.spare()
    full.clear()
    churn()
    assert full == []
