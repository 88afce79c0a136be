"""The lease's state machine, in virtual time, on a fake cluster."""

import asyncio

import pytest
from support.virtual_time import virtually

from island_operator.cluster.fake import FakeCluster
from island_operator.cluster.protocol import ApiError, Unreachable
from island_operator.runtime.lease import Lease

SLOT = ("Lease", "system", "radix-islands")


def now():
    return asyncio.get_running_loop().time()


def lease(cluster, identity):
    return Lease(cluster, identity, "system", clock=now)


def holder(cluster):
    return cluster.objects[SLOT]["spec"]["holderIdentity"]


def steal(cluster, identity):
    held = cluster.objects[SLOT]
    cluster.put({**held, "spec": {**held["spec"], "holderIdentity": identity, "renewTime": f"{now()}"}})


def down(verb, kind):
    raise Unreachable("connection refused")


async def hang(*_):
    """An API server that never answers; virtual time."""
    await asyncio.sleep(10_000)


def test_the_first_takes_it_at_once_and_keeps_it():
    async def story():
        cluster = FakeCluster()
        a = lease(cluster, "a")
        assert not a.held()
        await a.take()
        keeping = asyncio.create_task(a.lost())
        await asyncio.sleep(3600)
        assert a.held()
        assert not keeping.done()
        keeping.cancel()
        spec = cluster.objects[SLOT]["spec"]
        assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("a", 0)

    virtually(story())


def test_a_standby_waits_for_a_dead_leader_by_its_own_clock_whatever_the_stamps_say():
    async def story():
        cluster = FakeCluster()
        await lease(cluster, "a").take()
        steal(cluster, "dead, with a renewTime of long ago")
        b = lease(cluster, "b")
        await b.take()
        assert now() == 15
        assert holder(cluster) == "b"
        assert cluster.objects[SLOT]["spec"]["leaseTransitions"] == 1

    virtually(story())


@pytest.mark.parametrize("offset", [0.0, 0.3, 0.7, 0.99])
@pytest.mark.parametrize("alive", [0.1, 1.9, 2.0, 7.5])
def test_a_standby_leads_no_later_than_16_seconds_after_the_leader_died(offset, alive):
    async def story():
        cluster = FakeCluster()
        a, b = lease(cluster, "a"), lease(cluster, "b")
        await a.take()
        keeping = asyncio.create_task(a.lost())
        await asyncio.sleep(offset)
        waiting = asyncio.create_task(b.take())
        await asyncio.sleep(alive)
        keeping.cancel()
        died = now()
        await waiting
        assert 13 <= now() - died <= 16

    virtually(story())


def test_a_standby_takes_over_at_once_when_the_leader_hands_it_back():
    async def story():
        cluster = FakeCluster()
        a, b = lease(cluster, "a"), lease(cluster, "b")
        await a.take()
        waiting = asyncio.create_task(b.take())
        await asyncio.sleep(3)
        await a.release()
        assert not a.held()
        await asyncio.wait_for(waiting, timeout=1.01)
        assert holder(cluster) == "b"

    virtually(story())


def test_a_usurped_leader_stops_at_its_next_look_and_does_not_take_it_back():
    async def story():
        cluster = FakeCluster()
        a = lease(cluster, "a")
        await a.take()
        steal(cluster, "thief")
        await asyncio.wait_for(a.lost(), timeout=2.1)
        assert not a.held()
        await a.release()
        assert holder(cluster) == "thief"

    virtually(story())


@pytest.mark.parametrize("left", [True, False], ids=["handed back", "deleted"])
def test_a_leader_that_slept_while_another_led_does_not_lead_on_with_what_it_knew_before(left):
    async def story():
        cluster = FakeCluster()
        a, b = lease(cluster, "a"), lease(cluster, "b")
        await a.take()
        await b.take()  # 15 s later: a was stopped by SIGSTOP
        await b.release()
        if not left:
            cluster.remove(*SLOT)
        keeping = asyncio.create_task(a.lost())
        a._renewed = now()  # it was about to look when it was stopped
        await asyncio.wait_for(keeping, timeout=2.1)
        assert not a.held()
        assert SLOT not in cluster.objects or holder(cluster) == ""

    virtually(story())


def test_without_an_answer_the_leader_stops_before_a_standby_may_start():
    async def story():
        cluster = FakeCluster()
        a = lease(cluster, "a")
        await a.take()
        cluster.fault = down
        await a.lost()
        assert 10 <= now() < 15
        assert not a.answered

    virtually(story())


def test_a_leader_that_slept_may_not_write_even_before_it_notices():
    async def story():
        cluster = FakeCluster()
        a = lease(cluster, "a")
        await a.take()
        await asyncio.sleep(11)  # stopped by SIGSTOP: no renewal ran
        assert not a.held()

    virtually(story())


def test_a_short_outage_is_survived():
    async def story():
        cluster = FakeCluster()
        a = lease(cluster, "a")
        await a.take()
        keeping = asyncio.create_task(a.lost())
        cluster.fault = down
        await asyncio.sleep(7)
        cluster.fault = lambda verb, kind: None
        await asyncio.sleep(60)
        assert not keeping.done()
        assert a.held()
        assert a.answered
        keeping.cancel()

    virtually(story())


@pytest.mark.parametrize("status", [409, 403, 500])
def test_a_refusal_is_waited_out(status):
    async def story():
        cluster = FakeCluster()
        left = [3]

        def fault(verb, kind):
            if verb == "create" and left[0]:
                left[0] -= 1
                raise ApiError(status, "no")

        cluster.fault = fault
        a = lease(cluster, "a")
        await a.take()
        assert now() == 3
        assert a.held()

    virtually(story())


def test_at_no_moment_do_two_lead_however_they_come_and_go():
    async def story():
        cluster = FakeCluster()
        all_of_them = [lease(cluster, name) for name in "abc"]
        leaders = set()

        async def live(one):
            while True:
                await one.take()
                leaders.add(one)
                keeping = asyncio.create_task(one.lost())
                await asyncio.sleep(30)
                keeping.cancel()  # dies without a word, and comes back much later
                await asyncio.sleep(40)

        tasks = [asyncio.create_task(live(one)) for one in all_of_them]
        for _ in range(600):
            await asyncio.sleep(0.5)
            assert sum(one.held() for one in all_of_them) <= 1
        assert len(leaders) > 1
        for task in tasks:
            task.cancel()

    virtually(story())


def test_an_attempt_that_hangs_does_not_outlive_the_deadline():
    async def story():
        cluster = FakeCluster()
        a = lease(cluster, "a")
        await a.take()

        cluster.get = hang
        await a.lost()
        assert now() < 15

    virtually(story())


def test_one_connection_that_fell_silent_costs_no_leadership():
    async def story():
        cluster = FakeCluster()
        a = lease(cluster, "a")
        await a.take()
        keeping, get = asyncio.create_task(a.lost()), cluster.get

        async def once(*_):
            cluster.get = get  # the next attempt opens another connection
            await hang()

        cluster.get = once
        await asyncio.sleep(8)
        assert a.answered, "with two seconds to spare"
        await asyncio.sleep(60)
        assert not keeping.done()
        assert a.held()
        keeping.cancel()

    virtually(story())


@pytest.mark.parametrize("verb", ["get", "replace"])
def test_an_api_server_that_hangs_takes_little_of_the_grace_of_whoever_hands_back(verb):
    """A pod's grace is 15 seconds, and one request may take as long."""

    async def story():
        cluster = FakeCluster()
        a = lease(cluster, "a")
        await a.take()

        setattr(cluster, verb, hang)
        began = now()
        await a.release()
        assert now() - began <= 3
        assert not a.held()

    virtually(story())


def test_releasing_an_unreachable_lease_is_no_error():
    async def story():
        cluster = FakeCluster()
        a = lease(cluster, "a")
        await a.take()
        cluster.fault = down
        await a.release()
        assert not a.held()

    virtually(story())
