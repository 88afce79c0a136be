"""The user's verbs: what each does, that it does it once, and that it says so."""

import pytest
from support.world import HALF, REVISION, World, told

from island_operator.core.verbs import KEPT, VERBS

PREFIX = "radix-islands.dev/"
STEPS = [{"weight": 33, "pause": "1m"}, {"weight": 66, "pause": "1m"}]


def active(world):
    return world.status["revisions"]["active"]


def outcomes(world):
    return [(v["name"], v["outcome"]) for v in world.status.get("verbs", [])]


def reasons(world):
    return [e.reason for e in world.events]


def annotate(world, *names, value="1"):
    for name in names:
        world.annotate(PREFIX + name, value)
    return world


def work(world, turns):
    for _ in range(turns):
        if world.operate().requeue_after != 0:
            world.tick()
    return world


@pytest.fixture
def stock():
    return World(gpus=4, replicas=3, rollout__steps=STEPS).settle()


@pytest.fixture
def canary(stock):
    """A canary of one pod that holds its first step."""
    stock.edit(engine__image="good:2")
    stock.until("Canary")
    while not stock.status.get("run", {}).get("heldSince"):
        stock.operate()
        stock.tick()
    stock.events.clear()
    return stock


def images(world):
    return sorted(p["spec"]["containers"][0]["image"] for p in world.pods())


def test_pause_holds_everything_and_no_deadline_runs_and_resume_goes_on(canary):
    before = images(canary)
    annotate(canary, "pause")
    work(canary, 4)
    assert canary.status["run"]["pausedAt"]
    assert canary.condition("Progressing")["reason"] == "Paused"
    canary.tick(3600)
    work(canary, 6)
    assert images(canary) == before == ["good:1", "good:1", "good:1", "good:2"]
    assert canary.operate().requeue_after is None
    annotate(canary, "resume")
    canary.settle()
    assert images(canary) == ["good:2"] * 3
    assert reasons(canary) == ["Paused", "Resumed", "CanaryPassed", "Promoted"]
    assert [name for name, _ in outcomes(canary)] == ["pause", "resume"]


def test_a_paused_promotion_stays_as_far_as_it_is(canary):
    canary.until("Promoting")
    while images(canary).count("good:2") < 2:
        work(canary, 1)
    annotate(canary, "pause")
    work(canary, 5)
    before = images(canary)
    assert "good:1" in before
    work(canary, 10)
    assert images(canary) == before
    annotate(canary, "promote")
    canary.settle()
    assert images(canary) == ["good:2"] * 3


def test_a_paused_canary_that_becomes_all_pods_there_are_stays_one():
    world = World(gpus=6, replicas=4, rollout__steps=[{"weight": 25}]).settle()
    world.edit(engine__image="good:2")
    annotate(world.until("Canary"), "pause").operate()
    world.edit(replicas=1)
    work(world, 10)
    assert (world.phase, world.condition("Progressing")["reason"]) == ("Canary", "Paused")
    annotate(world, "resume").settle()
    assert world.condition("Ready")["status"] == "True"


def test_a_paused_gate_ends_and_no_canary_begins():
    world = World().settle()
    world.edit(islands__enabled=True)
    world.until("Gating")
    annotate(world, "pause")
    world.settle()
    assert world.phase == "Canary"
    assert {p["metadata"]["labels"][HALF] for p in world.pods()} == {"stock"}
    assert world.holding() == world.pods()  # the gate's GPU is free again
    annotate(world, "resume")
    world.settle()
    assert {p["metadata"]["labels"][HALF] for p in world.pods()} == {"islands"}


@pytest.mark.parametrize("value", ["false", "False", "no", "0", "off", " OFF "])
def test_a_value_that_says_no_carries_nothing_out(canary, value):
    before = canary.status["run"]
    annotate(canary, "abort", "promote", "pause", value=value)
    work(canary, 3)
    assert canary.status["run"] == before
    assert not canary.parent["metadata"]["annotations"]
    for name, outcome in outcomes(canary):
        assert outcome == f'{name} was refused: its value is "{value}": remove the annotation, or set any other value'
    assert {name for name, _ in outcomes(canary)} == {"abort", "promote", "pause"}


def test_an_abort_that_says_no_stands_in_no_other_verb_s_way(canary):
    canary.annotate(f"{PREFIX}abort", "no")
    canary.annotate(f"{PREFIX}promote", "yes")
    canary.settle()
    assert images(canary) == ["good:2"] * 3


def test_what_is_paused_still_fails(canary):
    annotate(canary, "pause")
    work(canary, 3)
    canary.crash(next(p for p in canary.pods() if p["spec"]["containers"][0]["image"] == "good:2"))
    canary.settle()
    assert images(canary) == ["good:1"] * 3
    assert canary.condition("RolledBack")["reason"] == "EngineDied"


def test_abort_rolls_both_settings_back_and_is_remembered(canary):
    good = active(canary)
    annotate(canary, "abort")
    canary.settle()
    assert images(canary) == ["good:1"] * 3
    assert active(canary) == good
    (rejected,) = canary.status["revisions"]["rejected"]
    assert (rejected["reason"], rejected["revision"]) == ("Aborted", canary.status["revisions"]["desired"])
    assert canary.condition("RolledBack")["status"] == "True"
    assert outcomes(canary) == [("abort", f"the rollout of revision {rejected['revision']} was aborted in Canary")]
    assert PREFIX + "abort" not in canary.parent["metadata"]["annotations"]
    canary.edit(replicas=2)  # row 5: scaling is no reason to try again
    canary.settle()
    assert images(canary) == ["good:1"] * 2
    annotate(canary, "retry")
    canary.settle()
    assert images(canary) == ["good:2"] * 2


def test_abort_of_a_gate_gives_its_gpu_back_at_once():
    world = World().settle()
    world.edit(islands__enabled=True, engine__image="hangs:1")
    world.until("Gating")
    work(world, 4)
    assert len(world.holding()) == 3
    annotate(world, "abort")
    work(world, 5)
    assert len(world.holding()) == 2
    assert (world.status["gate"]["verdict"], world.status["gate"]["reason"]) == ("INCONCLUSIVE", "Aborted")


def test_row_12_abort_beats_promote(canary):
    annotate(canary, "promote", "abort", "retry")
    canary.settle()
    assert images(canary) == ["good:1"] * 3
    said = dict(outcomes(canary))
    assert "was aborted" in said["abort"]
    assert said["promote"] == "promote was refused: abort was asked for at the same time and beats it"
    assert "beats it" in said["retry"]


def test_promote_skips_the_rest_of_the_steps(canary):
    annotate(canary, "promote")
    work(canary, 2)
    assert canary.phase == "Promoting"
    begun = canary.seconds
    canary.settle()
    assert images(canary) == ["good:2"] * 3
    assert canary.seconds - begun < 60


def test_promote_never_skips_a_gate():
    world = World().settle()
    world.edit(islands__enabled=True, engine__image="hangs:1")
    world.until("Gating")
    annotate(world, "promote")
    work(world, 3)
    assert world.phase == "Gating"
    assert "set spec.gate.enabled to false" in outcomes(world)[0][1]


def test_rollback_goes_to_the_revision_before_and_again_to_the_one_before_that(stock):
    first = active(stock)
    for image in ("good:2", "good:3"):
        stock.edit(engine__image=image, rollout__steps=[])
        stock.settle()
    annotate(stock, "rollback")
    ready = []
    stock.check = lambda world: ready.append(world.ready())
    stock.settle()
    assert images(stock) == ["good:2"] * 3
    assert min(ready) >= 3
    assert stock.condition("RolledBack")["reason"] == "RolledBackByHand"
    assert stock.parent["spec"]["engine"]["image"] == "good:3"  # row 34
    annotate(stock, "rollback")
    stock.settle()
    assert (images(stock), active(stock)) == (["good:1"] * 3, first)
    annotate(stock, "rollback")
    stock.settle()
    assert images(stock) == ["good:1"] * 3
    assert "no earlier revision is left" in outcomes(stock)[-1][1]


def test_rollback_of_islands_that_came_first_leads_to_their_stock_half():
    world = World(islands__enabled=True).settle()
    annotate(world, "rollback")
    world.settle()
    assert {told(p) for p in world.pods()} == {("off", "0.4", "9984")}
    assert world.status["islands"]["enabled"] is False
    assert world.condition("Ready")["reason"] == "RolledBack"


def test_rollback_never_undoes_the_kill_switch():
    world = World(islands__enabled=True).settle()
    world.edit(islands__enabled=False)
    world.settle()
    annotate(world, "rollback")
    world.settle()
    assert {told(p)[0] for p in world.pods()} == {"off"}
    assert "rollback was refused" in outcomes(world)[-1][1]


def test_retry_in_the_middle_begins_anew_with_the_rollout_of_now(canary):
    canary.edit(rollout__steps=[], rollout__mode="Replace")
    work(canary, 3)
    assert canary.status["run"]["mode"] == "Surge"  # pinned
    annotate(canary, "retry")
    work(canary, 2)
    assert canary.status["run"]["mode"] == "Replace"
    canary.settle()
    assert images(canary) == ["good:2"] * 3


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_that_makes_no_sense_is_refused_in_one_sentence(stock, name):
    before = {k: v for k, v in stock.status.items() if k != "verbs"}
    annotate(stock, name)
    stock.settle()
    ((verb, outcome),) = outcomes(stock)
    assert verb == name
    assert outcome.startswith(f"{name} was refused: ")
    assert reasons(stock)[-1] == "VerbRefused"
    assert {k: v for k, v in stock.status.items() if k != "verbs"} == before


@pytest.mark.parametrize("name", ["abort", "promote", "pause", "resume"])
def test_the_kill_switch_is_neither_aborted_nor_paused(name):
    world = World(islands__enabled=True).settle()
    world.edit(islands__enabled=False)
    work(world, 1)
    annotate(world, name)
    world.settle()
    assert {told(p)[0] for p in world.pods()} == {"off"}
    assert "was refused" in outcomes(world)[-1][1]


def test_an_unknown_verb_is_told_which_there_are(stock):
    annotate(stock, "promot")
    stock.settle()
    assert outcomes(stock) == [
        ("promot", "unknown verb promot: use one of abort, rollback, retry, promote, resume, pause")
    ]
    assert stock.parent["metadata"]["annotations"] == {}
    assert reasons(stock)[-1] == "VerbUnknown"


def test_a_thousand_annotations_are_four_sentences_and_no_loop(stock):
    annotate(stock, *(f"v{n}" for n in range(1000)), value="x" * 5000 + "\x1b[31m")
    stock.settle()
    assert len(outcomes(stock)) == 4
    assert all(len(v["value"]) <= 64 and v["value"].isprintable() for v in stock.status["verbs"])
    assert stock.parent["metadata"]["annotations"] == {}


def test_the_last_verbs_are_kept(stock):
    for n in range(KEPT + 3):
        annotate(stock, "pause", value=str(n))
        stock.settle()
    assert [v["value"] for v in stock.status["verbs"]] == [str(n) for n in range(3, KEPT + 3)]


def test_the_same_verb_can_be_asked_for_again(stock):
    for n in (1, 2):
        annotate(stock, "pause")
        stock.settle()
        assert len(outcomes(stock)) == n


def test_a_verb_survives_a_kill_of_the_operator_and_is_carried_out_once(canary):
    """Killed after its record and before its annotation is gone: the next operator only takes it off."""
    annotate(canary, "retry")
    run = canary.status["run"]["startedAt"]
    canary.tick(5)
    canary.operate(crash_after=1)
    assert canary.status["verbs"][-1]["open"] is True
    begun = canary.status["run"]["startedAt"]
    assert begun > run
    canary.tick(5)
    canary.settle()
    assert len(outcomes(canary)) == 1
    assert PREFIX + "retry" not in canary.parent["metadata"]["annotations"]
    assert reasons(canary).count("Retried") == 1
    assert "open" not in canary.status["verbs"][-1]


def test_revisions_of_pods_never_mix(canary):
    """B -> C in the middle, by edit and by verb: every pod's revision is one that the user asked for."""
    canary.edit(engine__image="good:3")
    work(canary, 3)
    annotate(canary, "abort")
    work(canary, 5)
    canary.edit(engine__image="good:4")
    canary.settle()
    assert images(canary) == ["good:4"] * 3
    assert len({p["metadata"]["labels"][REVISION] for p in canary.pods()}) == 1
