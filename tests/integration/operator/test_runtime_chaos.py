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
PAIRS = [("off", "0.4", "9984", "8"), ("on", "0.15", "19968", "8")]


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


async def story(arena, namespace, edit, first, then, after=None):
    """Serve the stock half, edit, and come to rest: with `first` until it dies after so many writes, then with `then`.

    Returns what is there in the end.
    """
    await arena.create_namespace(namespace)
    await arena.cluster.create(resource(namespace))
    async with arena.living(namespace, first):
        await arena.until(namespace, lambda: arena.is_at_rest(namespace))
        mortal = first.arm(after) if after is not None else None
        arena.see(await arena.cluster.patch(PARENT, namespace, NAME, {"spec": edit}))
        await arena.until(namespace, lambda: arena.is_at_rest(namespace) or (mortal and mortal.died.is_set()))
    async with arena.living(namespace, then) as life:
        await arena.until(namespace, lambda: life.is_idle and arena.is_at_rest(namespace) and arena.is_tidy(namespace))
    return arena.outcome(namespace)


@pytest.mark.parametrize("rollout", ROLLOUTS)
async def test_row_13_killed_after_each_write_the_api_server_took_a_rollout_ends_the_same(arena, rollout):
    name, edit = rollout.replace(" ", "-"), ROLLOUTS[rollout]
    whole = Mortal(arena.cluster)
    wanted = await story(arena, f"{name}-0", edit, whole, arena.cluster, after=0)
    assert (wanted["gates"], wanted["pairs"]) == (1, PAIRS if "passes" in rollout else PAIRS[:1])
    # how often a status is written on the way varies a little with the order of the watches
    mortals = [Mortal(arena.cluster) for _ in range(len(whole.writes) + VARIES)]
    ends = await asyncio.gather(
        *(story(arena, f"{name}-{n}", edit, m, arena.cluster, after=n) for n, m in enumerate(mortals, 1))
    )
    assert sum(mortal.died.is_set() for mortal in mortals) >= len(whole.writes) - VARIES
    for n, end in enumerate(ends, 1):
        assert end == wanted, n


async def test_calls_that_fail_or_are_never_answered_change_no_outcome(arena, control_plane):
    """5 % of all calls, in every story other ones."""
    wanted = {
        rollout: await story(arena, f"calm-{n}", edit, arena.cluster, arena.cluster)
        for n, (rollout, edit) in enumerate(ROLLOUTS.items())
    }
    async with contextlib.AsyncExitStack() as clients:
        flaky = []
        for seed in range(SEEDS):
            client = (await connect(control_plane.kubeconfig, Flaky)).sometimes(random.Random(seed), FAULTS)  # noqa: S311
            clients.push_async_callback(client.close)
            flaky.append(client)
        told = [list(ROLLOUTS)[seed % len(ROLLOUTS)] for seed in range(SEEDS)]
        ends = await asyncio.gather(
            *(story(arena, f"flaky-{seed}", ROLLOUTS[told[seed]], client, client) for seed, client in enumerate(flaky))
        )
    assert sum(client.faults for client in flaky) > SEEDS
    for seed, end in enumerate(ends):
        assert end == wanted[told[seed]], seed


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
                while await renewed(arena) == before:
                    assert operator.process.poll() is None, operator.lines()[-3:]
                    await asyncio.sleep(0.2)
                assert not operator.said("lost the lease")
            finally:
                operator.process.kill()  # a proxy in this loop could not help it to say goodbye


def count(arena, wanted):
    return sum(kind == wanted for kind, _ in arena.objects["idle"])


async def renewed(arena):
    return (await arena.cluster.get("Lease", "idle", "radix-islands"))["spec"]["renewTime"]


async def test_api_server_and_etcd_killed_in_the_middle_of_a_rollout(arena, control_plane):
    """By a real process with its watches and its Lease; where that ends, it is started again as a kubelet would."""
    edit = ROLLOUTS["a gate that passes"]
    wanted = await story(arena, "no-outage", edit, arena.cluster, arena.cluster)
    await arena.create_namespace("outage")
    await arena.cluster.create(resource("outage"))
    flags = ("--namespace", "outage", "--lease-namespace", "outage")
    async with restarted(control_plane.kubeconfig, *flags):
        await arena.until("outage", lambda: arena.is_at_rest("outage"))
        arena.see(await arena.cluster.patch(PARENT, "outage", NAME, {"spec": edit}))
        await arena.until("outage", lambda: arena.gates["outage"])
        control_plane.kill_api()
        control_plane.kill_etcd()
        await asyncio.sleep(1)  # the outage itself
        control_plane.start_etcd()
        control_plane.start_api()  # not in a thread: it dies with the thread that started it
        await arena.until("outage", lambda: arena.is_at_rest("outage"))
        end = lambda: but_for_gate_pods(arena.outcome("outage"))  # noqa: E731
        wanted = but_for_gate_pods(wanted)
        await eventually(lambda: f"{end()} is not {wanted}", lambda: end() == wanted, within=30)


def but_for_gate_pods(outcome):
    """One Job, but Kubernetes' own controller may make its pod twice: an etcd that is killed forgets the newest."""
    return {**outcome, "pods": [role for role in outcome["pods"] if role != "gate"]}


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
