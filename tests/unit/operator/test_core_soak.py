"""Rollout after rollout: what a resource carries along is bounded. `make bench-operator` does 10,000 of them."""

import json

from bench_operator.soak import Track


def carried(world):
    return len(world.store), len(json.dumps(world.status)), len(json.dumps([*world.store.values()]))


def test_row_18_many_rollouts_leave_no_more_behind_than_a_few():
    world = Track(2, replicas=1, rollout__steps=[])
    world.settle()
    for number in (*range(104, 214, 5), *range(214, 224)):  # one failed gate after another: a full list of rejections
        world.roll(number)
    objects, status, everything = carried(world)
    for number in range(224, 254):
        world.roll(number)
    again = carried(world)
    assert again[0] == objects
    assert abs(again[1] - status) < 200, "a time or a number may be a few digits longer"
    assert abs(again[2] - everything) < 1000
