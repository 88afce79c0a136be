"""`kubectl island status` in every phase, against texts in golden/ that a person has read.

`GOLDEN=write pytest tests/unit/operator/cli` writes them anew after a change that is meant; read them then.
"""

import copy
import os
import re
from pathlib import Path

import pytest
from support.world import World

from island_operator.cli.kubectl import tree, view
from island_operator.core import state
from island_operator.core.checks import Reading
from island_operator.core.exposition import Sample
from island_operator.core.verbs import VERBS, refused

GOLDEN = Path(__file__).parent / "golden"
STEPS = [{"weight": 33, "pause": "5m"}, {"weight": 100, "pause": "1m"}]
PROGRESS = "gate    61 s  on: hit 3/12 (about 40 s left)"


def turn(world, times=6):
    world.go(times)


def stable(gpus=3, **changes):
    world = World(gpus=gpus, rollout__steps=STEPS, **changes).settle()
    world.parent["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    return world


def serving_islands():
    world = stable()
    world.edit(islands__enabled=True)
    return world.settle()


def unseen():
    return World()


def progressing():
    world = World()
    for _ in range(3):
        world.operate()
    world.tick()
    return world


def not_observed():
    world = stable()
    world.edit(islands__enabled=True)
    return world


def gating():
    world = stable()
    world.edit(islands__enabled=True)
    world.until("Gating")
    turn(world, 3)
    return world


def gate_without_gpu():
    world = stable(gpus=2)
    world.edit(islands__enabled=True)
    world.until("Gating")
    turn(world, 8)
    return world


def canary():
    world = stable()
    world.edit(islands__enabled=True)
    world.until("Canary")
    turn(world)
    return world


def paused():
    world = canary()
    world.annotate("radix-islands.dev/pause", "1")
    world.operate()
    return world


def paused_gate():
    world = gating()
    world.annotate("radix-islands.dev/pause", "1")
    world.operate()
    return world


def canary_without_image():
    world = stable(rollout__autoRollback=False)
    world.edit(engine__image="nopull:1")
    world.until("Canary")
    turn(world)
    return world


def wrong_spec():
    world = serving_islands()
    world.edit(partition__islands={"swaFullTokensRatio": "0.001", "maxTotalTokens": 19968})
    world.operate()
    return world


def wrong_spec_in_a_canary():
    world = canary()
    world.edit(podTemplate={"spec": {"containers": [{"name": "engine", "image": "other:1"}]}})
    world.operate()
    return world


def crash_loop(world):
    """Of every pod."""
    for pod in world.pods():
        world.crash(pod)
        pod["status"]["containerStatuses"][0]["restartCount"] = 3


def crash_with_nothing_before():
    """The only revision there ever was; nothing is rolled back, there is nowhere to go."""
    world = stable()
    crash_loop(world)
    world.operate()
    return world


def crash_without_rollback():
    world = serving_islands()
    world.edit(rollout__autoRollback=False)
    world.operate()
    crash_loop(world)
    world.operate()
    return world


def canary_without_gpu():
    world = stable()
    world.edit(islands__enabled=True)
    world.until("Canary")
    world.gpus = 2
    turn(world, 8)
    return world


def rolled_back():
    world = stable()
    world.edit(islands__enabled=True, engine__image="wrong:1")
    return world.settle()


def rolling_back():
    world = stable()
    world.edit(engine__image="crash:1")
    world.until("RollingBack")
    return world


def fallback():
    """The watchdog leaves islands that serve for their stock half."""
    world = serving_islands()
    seen = Reading((Sample(0.0), Sample(60.0, violations=1)))
    world.readings = {pod["metadata"]["uid"]: seen for pod in world.pods()}
    world.until("RollingBack")
    turn(world, 2)
    return world


def kill_switch():
    world = serving_islands()
    world.edit(islands__enabled=False)
    world.until("Promoting")
    turn(world, 2)
    return world


def downtime():
    world = World(1, replicas=1, rollout__mode="Downtime").settle()
    world.edit(islands__enabled=True)
    world.until("Gating")
    turn(world, 5)
    return world


def unified():
    return stable(partition={"mode": "unified"})


def unreadable():
    world = serving_islands()
    world.readings = {pod["metadata"]["uid"]: Reading(fault="no answer within 5 s") for pod in world.pods()}
    world.operate()
    return world


SCENES = {
    scene.__name__: scene
    for scene in (
        unseen, progressing, stable, not_observed, gating, gate_without_gpu, canary, paused, canary_without_gpu,
        serving_islands, rolled_back, rolling_back, fallback, kill_switch, downtime, unified, unreadable,
        paused_gate, canary_without_image, wrong_spec, wrong_spec_in_a_canary, crash_with_nothing_before,
        crash_without_rollback,
    )
}  # fmt: skip


def steady(text):
    """Names that depend on a digest or on a counter, replaced by as many characters in order of appearance."""
    for pattern in (r"(?<![0-9a-f])()([0-9a-f]{10})(?![0-9a-f])", r"([0-9a-f]{10}-)(\d{1,2})\b"):
        found = list(dict.fromkeys(match.group() for match in re.finditer(pattern, text)))
        for index, old in enumerate(found, start=1):
            kept, counted = re.fullmatch(pattern, old).groups()
            text = text.replace(old, f"{kept}{index:0{len(counted)}}")
    return text


@pytest.mark.parametrize("name", SCENES)
def test_what_a_person_sees(name):
    world = SCENES[name]()
    seen = view.of(world.snapshot(), world.now, PROGRESS if name == "gating" else None)
    text = steady("\n".join(line.plain for line in tree.render(seen, world.now)) + "\n")
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("GOLDEN") == "write":
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SCENES)
def test_no_verb_is_offered_that_the_operator_refuses(name):
    world = SCENES[name]()
    for hint in view.of(world.snapshot(), world.now).hints:
        verb = hint.command.split()[2]
        if hint.command != f"kubectl island {verb} x" or verb not in VERBS:
            continue
        asked = copy.deepcopy(world)
        asked.annotate(f"radix-islands.dev/{verb}", "asked")
        asked.operate()
        (done,) = (one for one in state.read(asked.status).verbs if one.value == "asked")
        assert not refused(done), done.outcome


def test_no_golden_text_is_left_over():
    assert {file.stem for file in GOLDEN.iterdir()} == set(SCENES)
