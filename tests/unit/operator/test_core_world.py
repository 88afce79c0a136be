"""Whatever users, pods, GPUs and crashes of the operator do in whatever order: what must always hold, holds."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from support.world import GATES, HALF, RETRY, REVISION, World, coupled, ended, is_ready, leaving, told

from island_operator.api.status import Status
from island_operator.core import attempt, health, killswitch, revision, scale, state
from island_operator.core.checks import Reading
from island_operator.core.exposition import Sample
from island_operator.core.scale import Room
from island_operator.core.verbs import VERBS

TROUBLES = {"Paused", "EngineDied", "ImagePullFailed", "InsufficientGPU", "DeadlineExceeded"}
STOCK = {"swaFullTokensRatio": "0.4", "maxTotalTokens": 9984}
ZERO, BUSY = Sample(0.0), Sample(0.0, running=1, queued=3, swa_usage=1.0, full_usage=0.1)
READINGS = [
    Reading((ZERO, Sample(60.0, requests=100, responses=100, errors=errors, violations=violations)))
    for errors, violations in ((0, 0), (50, 0), (0, 1))
] + [Reading((BUSY, replace(BUSY, at=60.0))), Reading(fault="HTTP 500")]
MODES = ["Surge", "Replace", "Downtime"]
CONDITIONS = {"Ready", "Available", "Progressing", "Degraded", "GatePassed", "RolledBack"}
IMAGES = [*(f"good:{n}" for n in (1, 2, 3, 4) for _ in range(3)), *(f"{kind}:1" for kind in GATES)]


def invariants(world):
    """After every single write and every turn of the controllers."""
    pods = world.pods()
    world.been_ready |= {p["metadata"]["labels"][REVISION] for p in pods if is_ready(p)}
    for pod in pods:
        assert coupled(pod) in world.legal_pairs, f"{pod['metadata']['name']} mixes halves: {coupled(pod)}"
        assert (pod["metadata"]["labels"][HALF] == "islands") == (told(pod)[0] == "on")
    assert len(world.jobs_made) == len(set(world.jobs_made)), "a second gate Job for the same attempt"
    gates = [p for p in world.pods("gate") if not ended(p) and not leaving(p)]
    assert len(gates) <= 1
    n, mode = world.parent["spec"]["replicas"], world.status.get("run", {}).get("mode", "Surge")
    if world.status:
        _status_is_sound(world)
    if world.phase == "Stable":
        active = world.status["revisions"]["active"]
        asked = sum(
            d["spec"]["replicas"] for d in world.of("Deployment") if d["metadata"]["labels"][REVISION] == active
        )
        world.whole |= min(asked, world.ready(active)) >= n
    if world.status.get("run", {}).get("kind") == "KillSwitch":
        spare = world.gpus > n  # else the safety action takes the GPU of one that serves
        world.whole &= spare or n > 1
        less = mode == "Downtime" or (mode == "Replace" and n > 1) or not spare
    else:
        less = mode == "Downtime" or (mode == "Replace" and n > 1)
    if world.whole:
        assert world.ready() >= n - less, f"{world.ready()} of {n} Ready in {world.phase}"


def _status_is_sound(world):
    status = world.status
    Status.model_validate(status)
    promoted = {k["revision"] for k in status["revisions"].get("history", ()) if "promotedAt" in k}
    assert promoted <= world.been_ready, "promoted unseen"
    assert {c["type"] for c in status["conditions"]} == CONDITIONS
    assert state.written(state.read(status)).items() <= status.items()
    assert all(c["observedGeneration"] == status["observedGeneration"] for c in status["conditions"])
    if world.condition("Ready")["status"] == "True":
        assert world.condition("Available")["status"] == "True"
        assert status["revisions"]["active"] == status["revisions"]["desired"]


def restarted(pod):
    return bool(pod["status"].get("containerStatuses", [{}])[0].get("restartCount"))


class Operations(RuleBasedStateMachine):
    """Edits, verbs, faults, crashes after any write, and time."""

    @initialize(
        spare=st.sampled_from([1, 1, 1, 0, -1, 3]),
        replicas=st.integers(1, 3),
        islands=st.booleans(),
        image=st.sampled_from(IMAGES),
        mode=st.sampled_from(MODES),
        steps=st.sampled_from([[], [{"weight": 33, "pause": "5s"}], [{"weight": 1, "pause": "2s"}, {"weight": 60}]]),
        settled=st.sampled_from([True, True, False]),
    )
    def begin(self, spare, replicas, islands, image, mode, steps, settled):
        self.world = World(
            replicas + spare,
            invariants,
            replicas=replicas,
            islands__enabled=islands,
            engine__image=image,
            rollout__mode=mode,
            rollout__steps=steps,
        )
        if settled:
            self.world.settle()

    # --- the operator and the controllers ---

    @rule(turns=st.integers(1, 12))
    def work(self, turns):
        for _ in range(turns):
            if self._operate().requeue_after != 0:
                self.world.tick()

    @rule(image=st.sampled_from(IMAGES), on=st.booleans(), turns=st.integers(0, 40))
    def roll_some_way(self, image, on, turns):
        """A change, and some of the way to its end."""
        self.world.edit(engine__image=image, islands__enabled=on)
        self.work(turns)

    @rule(writes=st.integers(0, 6))
    def crash_between_writes(self, writes):
        self._operate(crash_after=writes)

    @rule()
    def see_pods_late(self):
        self._operate(late=True)

    @precondition(lambda self: self.world.phase == "Stable")
    @rule(turns=st.integers(0, 12), drift=st.sampled_from(["Report", "Rollback"]))
    def a_scheduled_gate_comes_due(self, turns, drift):
        """And whatever it was about to find, somebody takes the schedule back."""
        self.world.edit(gate__schedule="10m", gate__onDrift=drift)
        self.world.tick(700)
        self.work(turns)
        self.world.edit(gate__schedule=None)

    @rule(seconds=st.sampled_from([5, 30, 400, 700]))
    def time_passes(self, seconds):
        self.world.tick(seconds)

    @rule()
    def settle(self):
        self.world.settle()
        assert self.world.operate().requeue_after is None
        before = len(self.world.writes)
        self.world.operate()
        assert len(self.world.writes) == before, "idle writes"

    def _operate(self, **how):
        """A rejected revision never gets another pod, unless the kill switch asks for it."""
        world = self.world
        before = {d["metadata"]["labels"][REVISION]: d["spec"]["replicas"] for d in world.of("Deployment")}
        rejected = {r["revision"] for r in world.status.get("revisions", {}).get("rejected", [])}
        killed = not world.parent["spec"]["islands"]["enabled"]
        retried = RETRY in world.parent["metadata"].get("annotations", {})
        run = world.status.get("run", {})
        plan = world.operate(**how)
        self._was_seen(run)
        for want in plan.desired:
            name = want["metadata"]["labels"].get(REVISION)
            if want["kind"] == "Deployment" and name in rejected and not killed and not retried:
                assert want["spec"]["replicas"] <= before.get(name, 0)
        return plan

    def _was_seen(self, run):
        """Nothing that served gives way to a rollout of which no pod was ever Ready, unless a user said promote."""
        status, new = self.world.status, run.get("revision")
        over = run.get("kind") == "Rollout" and status["revisions"].get("active") == new != run.get("previous")
        if over and run.get("previous") in self.world.been_ready and new not in self.world.been_ready:
            assert "promote" in {verb["name"] for verb in status.get("verbs", ())}, f"{new} was taken unseen"

    # --- the user ---

    @rule(image=st.sampled_from(IMAGES))
    def edit_image(self, image):
        self.world.edit(engine__image=image)

    @rule(on=st.booleans())
    def throw_switch(self, on):
        self.world.edit(islands__enabled=on)

    @precondition(lambda self: any(told(p)[0] == "on" for p in self.world.pods()))
    @rule(
        image=st.sampled_from(["good:1", "good:2", "nopull:1", "crash:1", "late:1"]),
        broken=st.booleans(),
        ill=st.sampled_from([False, False, True]),
        turns=st.one_of(st.none(), st.integers(0, 40)),
    )
    def pull_the_kill_switch_and_change_the_image(self, image, broken, ill, turns):
        """In one patch, at any moment; `broken`: with a spec that makes no pods at all; `ill`: and no stock pod boots
        meanwhile; `turns` None: to the end.
        """
        world = self.world
        world.edit(islands__enabled=False, engine__image=image)
        world.cannot_boot = lambda pod: ill and pod["metadata"]["labels"][HALF] == "stock" and not is_ready(pod)
        if broken:
            self.edit_the_template(broken=True)
        if turns is not None:
            self.work(turns)
        elif world.gpus >= world.parent["spec"]["replicas"]:
            world.settle()
            if not ill:
                self._islands_have_ended()
        world.cannot_boot = lambda pod: False
        self.crashed_pods_come_back()

    @rule(
        ratio=st.sampled_from(["0.15", "0.17", "0.2"]),
        tokens=st.sampled_from([19968, 17024]),
        cap=st.sampled_from([{}, {"maxRunningRequests": 6}]),
    )
    def edit_the_half_for_islands(self, ratio, tokens, cap):
        half = {"swaFullTokensRatio": ratio, "maxTotalTokens": tokens, **cap}
        self.world.edit(partition={"mode": "halves", "islands": half, "stock": STOCK})

    @rule()
    def unify(self):
        self.world.edit(partition={"mode": "unified"})

    @rule(replicas=st.integers(0, 4))
    def scale(self, replicas):
        self.world.disrupted()
        self.world.edit(replicas=replicas)

    @precondition(lambda self: self.world.phase == "Stable")
    @rule(image=st.sampled_from(IMAGES), turns=st.integers(0, 40))
    def change_what_is_scaled_to_zero(self, image, turns):
        self.world.disrupted()
        self.world.edit(replicas=0, engine__image=image)
        self.work(turns)

    @rule(mode=st.sampled_from(MODES))
    def edit_mode(self, mode):
        self.world.disrupted()
        self.world.edit(rollout__mode=mode)

    @rule(verb=st.sampled_from([*VERBS, "promot"]), again=st.integers(1, 3))
    def say(self, verb, again):
        self.world.annotate(f"radix-islands.dev/{verb}", str(again))

    @precondition(lambda self: self.world.status.get("revisions", {}).get("rejected"))
    @rule()
    def retry(self):
        self.world.annotate(RETRY, "please")

    @rule(broken=st.booleans())
    def edit_the_template(self, broken):
        self.world.edit(podTemplate={"spec": {"containers": [{"name": "engine", "args": ["x"]}]}} if broken else {})

    # --- faults ---

    @rule(gpus=st.integers(0, 5))
    def other_tenants_come_and_go(self, gpus):
        self.world.disrupted()
        self.world.gpus = gpus

    @precondition(lambda self: self.world.pods())
    @rule(which=st.integers(0, 9), deleted=st.booleans())
    def pod_dies(self, which, deleted):
        pods = self.world.pods()
        pod = pods[which % len(pods)]
        self.world.disrupted()
        if deleted:
            pod["metadata"].setdefault("deletionTimestamp", self.world.now)
        elif is_ready(pod):
            self.world.crash(pod)

    @precondition(lambda self: self.world.ready())
    @rule()
    def a_pod_crashes_again_and_again(self):
        pod = next(p for p in self.world.pods() if is_ready(p))
        pod["status"]["containerStatuses"][0]["restartCount"] = 3
        self.world.crash(pod)

    @precondition(lambda self: self.world.ready())
    @rule(which=st.integers(0, 9), says=st.sampled_from(READINGS))
    def an_engine_is_read(self, which, says):
        pods = self.world.pods()
        self.world.readings[pods[which % len(pods)]["metadata"]["uid"]] = says

    @precondition(lambda self: any(map(restarted, self.world.pods())))
    @rule()
    def crashed_pods_come_back(self):
        for pod in self.world.pods():
            if restarted(pod) and pod["spec"]["containers"][0]["image"].startswith("good"):
                pod["status"]["containerStatuses"][0]["state"] = {"running": {}}

    @precondition(lambda self: self.world.status.get("gate", {}).get("jobUid"))
    @rule()
    def somebody_deletes_the_gate(self):
        """After the operator has seen it: nobody can know of a Job that lived between two of its passes."""
        self.world.store.pop(("Job", self.world.status["gate"]["job"]), None)

    @precondition(lambda self: self.world.of("Deployment"))
    @rule(which=st.integers(0, 9), replicas=st.integers(0, 3))
    def somebody_scales_a_child(self, which, replicas):
        deployments = self.world.of("Deployment")
        self.world.disrupted()
        deployments[which % len(deployments)]["spec"]["replicas"] = replicas

    # --- the end ---

    def teardown(self):
        if not hasattr(self, "world"):
            return
        world = self.world
        self.edit_the_template(broken=False)
        if "pausedAt" in world.status.get("run", {}):
            self.say("resume", 9)
        self.crashed_pods_come_back()
        world.disrupted()
        world.gpus = 20
        world.settle()
        self._rests()

    def _islands_have_ended(self):
        """Where they are off, whatever else the spec says."""
        if not self.world.parent["spec"]["islands"]["enabled"]:
            assert "on" not in {told(p)[0] for p in self.world.pods()}, "islands serve on after the kill switch"

    def _rests(self):
        """At the good revision with all pods, or where a status names what is in the way; nothing else holds a GPU."""
        world, n = self.world, self.world.parent["spec"]["replicas"]
        revisions, ready = world.status["revisions"], world.condition("Ready")
        active, desired = revisions.get("active"), revisions["desired"]
        image = world.parent["spec"]["engine"]["image"]
        assert not [p for p in world.pods("gate") if not ended(p)]
        self._islands_have_ended()
        if ready["status"] == "True":
            assert world.phase == "Stable"
            assert active == desired
            assert world.ready(active) == len(world.pods()) == n
            assert {told(p)[0] == "on" for p in world.pods()} <= {world.parent["spec"]["islands"]["enabled"]}
        elif ready["reason"] == "ScaledToZero":
            assert (world.phase, n, world.pods()) == ("Canary", 0, [])
            assert world.status["run"]["revision"] == desired
        elif ready["reason"] == "RolledBack":
            assert world.condition("RolledBack")["status"] == "True"
            assert desired != active
            if world.ready(active) >= n:  # else what is Ready of another keeps serving
                assert {p["metadata"]["labels"][REVISION] for p in world.pods()} <= {active}
        else:
            assert world.condition("Degraded")["status"] == "True"
            assert ready["reason"] in TROUBLES or desired in {r["revision"] for r in revisions["rejected"]}
        if image.startswith("good") and not world.parent["spec"]["islands"]["enabled"]:
            rejected = {r["revision"] for r in revisions.get("rejected", [])}
            waits = ready["reason"] == "ScaledToZero"
            assert waits or ready["status"] == "True" or desired in rejected, "a good image's stock half is reached"


QUICK = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def test_whatever_happens():
    run_state_machine_as_test(Operations, settings=QUICK)


def _pools_of(half):
    """The half's pools whatever the switch says."""
    whole = revision.half_of

    def mixed(parts):
        if parts["partition"].get("mode"):
            return whole(parts)
        side = parts["partition"][half]
        return whole({**parts, "partition": {"islands": side, "stock": side}})

    return revision, "half_of", mixed


def _one_pod_too_few():
    whole = scale.step

    def greedy(room, cap, *rest, **more):
        return whole(Room(room.n, room.limit, room.floor - 1), cap + 1, *rest, **more)

    return scale, "step", greedy


def _a_step_without_pods():
    whole = health.step_over

    def blind(run, here):
        return whole(run, replace(here, intent=replace(here.intent, replicas=here.intent.replicas or 1)))

    return health, "step_over", blind


def _one_name():
    whole = attempt.begun
    return attempt, "begun", lambda *told: replace(whole(*told), job="x-gate")


PLANTED = {
    "a canary's step that ends without a pod": _a_step_without_pods,
    "the pools of the stock half with either switch": lambda: _pools_of("stock"),
    "the pools of the islands half with either switch": lambda: _pools_of("islands"),
    "an old pod given up before the new one is Ready": _one_pod_too_few,
    "a rejection that is forgotten": lambda: (state.State, "rejection", lambda _self, _revision: None),
    "one name for every gate Job": _one_name,
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(monkeypatch, fault):
    """The test of the test."""
    monkeypatch.setattr(*PLANTED[fault]())
    with pytest.raises((AssertionError, ExceptionGroup)):
        run_state_machine_as_test(
            Operations, settings=settings(QUICK, max_examples=400, database=None, phases=[Phase.generate])
        )


def test_a_kill_switch_that_waits_for_the_rest_of_the_spec_is_found(monkeypatch):
    """By its own step: chance takes a minute to serve islands first."""
    monkeypatch.setattr(killswitch, "stock_of", lambda _state, here: here.intent.desired)
    machine = Operations()
    machine.begin(spare=1, replicas=2, islands=True, image="good:1", mode="Surge", steps=[], settled=True)
    with pytest.raises(AssertionError, match="islands serve on after the kill switch"):
        machine.pull_the_kill_switch_and_change_the_image(image="nopull:1", broken=False, ill=False, turns=None)
