"""Rollouts on a real API server while their operator dies, its calls fail, and the API server itself goes away."""

import asyncio
import contextlib
import random

import pytest
import yaml
from support.arena import NAME, Arena, Flaky, Mortal, ended
from support.control_plane import ROOT, OperatorProcess
from support.proxy import Proxy
from support.watching import connect, eventually

from island_operator.cluster.kinds import PARENT

FAULTS = 0.05  # the share of calls that fail
SEEDS = 10
VARIES = 3  # writes
MANY = 12  # InferenceServices, and so connections of one operator
OFF, ON = ("off", "0.4", "9984", "8"), ("on", "0.15", "19968", "8")


@pytest.fixture
async def arena(control_plane):
    async with Arena.open(control_plane.kubeconfig) as arena:
        yield arena


def resource(namespace):
    made = yaml.safe_load((ROOT / "examples/tiny-gemma.yaml").read_text())
    made["metadata"] = {"name": NAME, "namespace": namespace}
    made["spec"].pop("podTemplate")
    made["spec"]["replicas"] = 1
    made["spec"]["engine"]["image"] = "good:1"
    made["spec"]["rollout"]["steps"] = [{"weight": 50, "pause": "1s"}]
    return made


ROLLOUTS = {
    "a gate that passes": {"islands": {"enabled": True}},
    "a gate that fails": {"islands": {"enabled": True}, "engine": {"image": "wrong:1"}},
}


ENDS = {  # the namespace that each leaves, however its operator fared
    "a gate that passes": {
        "deployments": [("islands", 1), ("stock", 0)],
        "pairs": [OFF, ON],
        "islands": {"enabled": True, "ratio": "0.15", "maxTotalTokens": 19_968, "maxRunningRequests": 8},
        "rejected": [],
        "conditions": {
            "Ready": ("True", "Serving"),
            "Available": ("True", "EnoughPodsReady"),
            "Progressing": ("False", "Stable"),
            "Degraded": ("False", "AsExpected"),
            "GatePassed": ("True", "Passed"),
            "RolledBack": ("False", "NotRolledBack"),
        },
    },
    "a gate that fails": {
        "deployments": [("stock", 1)],
        "pairs": [OFF],
        "islands": {"enabled": False, "ratio": "0.4", "maxTotalTokens": 9_984, "maxRunningRequests": 8},
        "rejected": ["GateFailed"],
        "conditions": {
            "Ready": ("False", "RolledBack"),
            "Available": ("True", "EnoughPodsReady"),
            "Progressing": ("False", "Stable"),
            "Degraded": ("True", "GateFailed"),
            "GatePassed": ("False", "GateFailed"),
            "RolledBack": ("True", "GateFailed"),
        },
    },
}
OTHERS = ["InferenceService", "Job", "PodDisruptionBudget", "Service", "Service", "Service"]
for end in ENDS.values():
    end |= {"others": OTHERS, "pods": ["engine", "gate"], "gates": 1}


async def story(arena, namespace, rollout, first, then, after=None):
    """Serve the stock half, edit, and come to rest: with `first` until it dies after so many writes, then with `then`.
    What is there in the end is what that rollout leaves.
    """
    edit = ROLLOUTS[rollout]
    await arena.create_namespace(namespace)
    await arena.cluster.create(resource(namespace))
    async with arena.living(namespace, first):
        await arena.until(namespace, lambda: arena.is_at_rest(namespace))
        mortal = first.arm(after) if after is not None else None
        arena.see(await arena.cluster.patch(PARENT, namespace, NAME, {"spec": edit}))
        await arena.until(namespace, lambda: arena.is_at_rest(namespace) or (mortal and mortal.died.is_set()))
    async with arena.living(namespace, then) as life:
        await arena.until(namespace, lambda: life.is_idle and arena.has_come_to(namespace, ENDS[rollout]))


@pytest.mark.parametrize("rollout", ROLLOUTS)
async def test_row_13_killed_after_each_write_the_api_server_took_a_rollout_ends_the_same(arena, rollout):
    name, whole = rollout.replace(" ", "-"), Mortal(arena.cluster)
    await story(arena, f"{name}-0", rollout, whole, arena.cluster, after=0)
    # how often a status is written on the way varies with the order of the watches and the speed of the machine
    mortals = [Mortal(arena.cluster) for _ in range(len(whole.writes) + VARIES)]
    await asyncio.gather(
        *(story(arena, f"{name}-{n}", rollout, m, arena.cluster, after=n) for n, m in enumerate(mortals, 1))
    )
    children = sum(name != "patch_status" for name, _ in whole.writes)
    assert all(mortal.died.is_set() for mortal in mortals[: children + 1]), "these and the run's beginning are certain"


async def test_calls_that_fail_or_are_never_answered_change_no_outcome(arena, control_plane):
    """5 % of all calls, in every story other ones."""
    async with contextlib.AsyncExitStack() as clients:
        flaky = []
        for seed in range(SEEDS):
            client = (await connect(control_plane.kubeconfig, Flaky)).sometimes(random.Random(seed), FAULTS)  # noqa: S311
            clients.push_async_callback(client.close)
            flaky.append(client)
        told = [list(ROLLOUTS)[seed % len(ROLLOUTS)] for seed in range(SEEDS)]
        await asyncio.gather(
            *(story(arena, f"flaky-{seed}", told[seed], client, client) for seed, client in enumerate(flaky))
        )
    assert sum(client.faults for client in flaky) > SEEDS


async def test_watches_that_fall_silent_are_noticed_by_the_next_sweep(arena, control_plane):
    """And so is a pooled connection by whoever wants to use it. kopf alone would notice after 70 s."""
    await arena.create_namespace("silence")
    await arena.cluster.create(resource("silence"))
    flags = ("--namespace", "silence", "--lease-namespace", "silence", "--resync", "2")
    async with Proxy(control_plane) as proxy, restarted(proxy.kubeconfig, *flags):
        await arena.until("silence", lambda: arena.is_at_rest("silence"))
        proxy.silence()
        arena.see(await arena.cluster.patch(PARENT, "silence", NAME, {"spec": {"replicas": 3}}))
        await arena.until("silence", lambda: arena.outcome("silence")["deployments"] == [("stock", 3)])


async def test_a_leader_outlives_any_number_of_idle_connections_that_fall_silent(arena, control_plane):
    """Each costs whoever gets it half of the Lease's deadline: of a pool that is shared it would be two in a row."""
    await arena.create_namespace("idle")
    flags = ("--namespace", "idle", "--lease-namespace", "idle")
    async with Proxy(control_plane) as proxy:
        with OperatorProcess(proxy.kubeconfig, *flags) as operator:
            try:
                await eventually("it leads", lambda: operator.said("serving "))
                for number in range(MANY):  # their passes run beside each other
                    made = resource("idle")
                    made["metadata"]["name"] = f"x{number}"
                    await arena.cluster.create(made)
                await eventually("all are made", lambda: count(arena, "PodDisruptionBudget") == MANY)
                proxy.silence()
                before = await renewed(arena)
                while await renewed(arena) == before and operator.process.poll() is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
                unheard = [line for line in operator.lines() if "no answer in time" in line["message"]]
                assert len(unheard) <= 1, "the next attempt had a connection of its own"
                # on a machine so slow that it ran out all the same, it says so
                assert operator.process.poll() is None or operator.said("lost the lease"), operator.lines()[-3:]
            finally:
                operator.process.kill()  # a proxy in this loop could not help it to say goodbye


def count(arena, wanted):
    return sum(kind == wanted for kind, _ in arena.objects["idle"])


async def renewed(arena):
    return (await arena.cluster.get("Lease", "idle", "radix-islands"))["spec"]["renewTime"]


async def test_api_server_and_etcd_killed_in_the_middle_of_a_rollout(arena, control_plane):
    """By a real process with its watches and its Lease; where that ends, it is started again as a kubelet would."""
    rollout = "a gate that passes"
    await arena.create_namespace("outage")
    await arena.cluster.create(resource("outage"))
    flags = ("--namespace", "outage", "--lease-namespace", "outage")
    async with restarted(control_plane.kubeconfig, *flags):
        await arena.until("outage", lambda: arena.is_at_rest("outage"))
        arena.see(await arena.cluster.patch(PARENT, "outage", NAME, {"spec": ROLLOUTS[rollout]}))
        await arena.until("outage", lambda: arena.gates["outage"])
        control_plane.kill_api()
        control_plane.kill_etcd()
        await asyncio.sleep(1)  # the outage itself
        control_plane.start_etcd()
        control_plane.start_api()  # not in a thread: it dies with the thread that started it
        # One Job, but Kubernetes' own controller may make its pod twice: an etcd that is killed forgets the newest.
        await arena.until("outage", lambda: arena.has_come_to("outage", ENDS[rollout], but_for="pods"))
        await arena.until("outage", lambda: arena.outcome("outage")["pods"].count("engine") == 1)


@contextlib.asynccontextmanager
async def restarted(kubeconfig, *flags):
    """`island-operator run`, and again whenever it ends."""

    async def run():
        while True:
            with OperatorProcess(kubeconfig, *flags) as operator:
                try:
                    await eventually("it ends", lambda: operator.process.poll() is not None, within=float("inf"))
                finally:
                    operator.process.kill()  # a proxy in this loop could not help it to say goodbye

    task = asyncio.create_task(run())
    try:
        yield
    finally:
        await ended({task})
