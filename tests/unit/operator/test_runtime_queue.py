"""The work queue, in virtual time: order, one worker per key, backoff, the urgent lane, writers that never rest."""

import asyncio
import contextlib
import itertools
import random

import pytest
from support.virtual_time import virtually

from island_operator.cluster.cache import Key
from island_operator.runtime.queue import Done, Queue


class Ears:
    def __init__(self):
        self.results, self.waits = [], []

    def waited(self, seconds):
        self.waits.append(seconds)

    def finished(self, result, seconds):
        self.results.append(result)


def key(name):
    return Key("default", name)


def now():
    return asyncio.get_running_loop().time()


@contextlib.asynccontextmanager
async def working(work, **options):
    queue = Queue(work, Ears(), **options)
    task = asyncio.create_task(queue.run())
    await asyncio.sleep(0)
    try:
        yield queue
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def test_a_key_added_twice_before_its_pass_runs_once():
    async def story():
        ran = []

        async def work(k):
            ran.append(k.name)
            return Done()

        async with working(work) as queue:
            for _ in range(3):
                queue.add(key("a"))
            queue.add(key("b"))
            await asyncio.sleep(1)
        return ran

    assert virtually(story()) == ["a", "b"]


def test_a_key_that_got_dirty_while_running_runs_again_and_never_beside_itself():
    async def story():
        spans = []

        async def work(k):
            began = now()
            await asyncio.sleep(2)
            spans.append((began, now()))
            return Done()

        async with working(work, workers=4) as queue:
            queue.add(key("a"))
            await asyncio.sleep(1)
            queue.add(key("a"))
            queue.add(key("a"), urgent=True)
            await asyncio.sleep(10)
        return spans

    assert virtually(story()) == [(0, 2), (2, 4)]


@pytest.mark.parametrize("seed", range(20))
def test_random_additions_never_overlap_a_key_and_the_last_one_is_always_seen(seed):
    dice = random.Random(seed)  # noqa: S311 - repeatable on purpose

    async def story():
        running, begun = set(), {}

        async def work(k):
            assert k not in running
            running.add(k)
            begun[k] = now()
            await asyncio.sleep(dice.random())
            running.discard(k)
            if dice.random() < 0.2:
                raise OSError("no")
            return Done(again=dice.choice([None, 0.5]))

        async with working(work, workers=3) as queue:
            added = {}
            for _ in range(200):
                k = key(dice.choice("abcdef"))
                added[k] = now()
                queue.add(k, urgent=dice.random() < 0.3)
                await asyncio.sleep(dice.random() / 4)
            await asyncio.sleep(300)
            assert all(begun[k] >= added[k] for k in added)

    virtually(story())


def test_an_urgent_key_passes_the_backlog_even_when_it_was_already_in_it():
    async def story():
        ran = []

        async def work(k):
            ran.append(k.name)
            await asyncio.sleep(1)
            return Done()

        async with working(work, workers=1) as queue:
            for n in range(5):
                queue.add(key(f"bulk{n}"))
            await asyncio.sleep(0.5)
            queue.add(key("bulk4"), urgent=True)
            queue.add(key("switch"), urgent=True)
            await asyncio.sleep(20)
        return ran

    assert virtually(story()) == ["bulk0", "bulk4", "switch", "bulk1", "bulk2", "bulk3"]


@pytest.mark.parametrize("left", [Done(0.0, wrote=True), Done(0.0), Done(wrote=True)])
@pytest.mark.parametrize("hurries", [True, False])
def test_what_a_pass_in_a_hurry_leaves_to_do_does_not_wait_behind_the_backlog(left, hurries):
    """The pass that throws the kill switch only records it; the next one moves the pods."""

    async def story():
        switched = []

        async def work(k):
            if k.name == "switch":
                switched.append(now())
            await asyncio.sleep(1)
            return left if k.name == "switch" and len(switched) < 3 else Done()

        async with working(work, workers=1, hurries=lambda _: hurries) as queue:
            for n in range(9):
                queue.add(key(f"bulk{n}"))
            await asyncio.sleep(0.5)
            queue.add(key("switch"), urgent=True)
            await asyncio.sleep(20)
        return switched

    assert virtually(story()) == ([0.5, 1.5, 2.5] if hurries else [0.5, 9, 10])


def test_urgent_keys_do_not_wait_for_workers_that_hang_nor_for_each_other():
    async def story():
        ran = {}

        async def work(k):
            ran[k.name] = now()
            await asyncio.sleep(1000 if k.name.startswith("hung") else 0)
            return Done()

        async with working(work, workers=2) as queue:
            for name in ("hung1", "hung2", "calm"):
                queue.add(key(name))
            await asyncio.sleep(5)
            for name in ("hung edit", "hung verb", "switch"):
                queue.add(key(name), urgent=True)
            await asyncio.sleep(1)
            return ran

    assert virtually(story()) == {"hung1": 0, "hung2": 0, "hung edit": 5, "hung verb": 5, "switch": 5}


def test_urgent_passes_alone_run_in_a_hurry_to_their_end():
    async def story():
        told, hurried = [], []

        @contextlib.contextmanager
        def hurry():
            hurried.append(now())
            try:
                yield
            finally:
                hurried.append(now())

        async def work(k):
            told.append((k.name, len(hurried) % 2 == 1))
            await asyncio.sleep(1)
            if k.name == "fails":
                raise RuntimeError
            return Done()

        async with working(work, workers=1, hurry=hurry) as queue:
            for name, urgent in (("switch", True), ("calm", False), ("fails", True)):
                queue.add(key(name), urgent=urgent)
                await asyncio.sleep(1)
        return told, hurried

    assert virtually(story()) == ([("switch", True), ("calm", False), ("fails", True)], [0, 1, 2, 3])


def test_failures_come_back_with_doubling_jittered_capped_delays_and_success_resets_them():
    async def story():
        at, fail = [], True

        async def work(k):
            at.append(now())
            if fail:
                raise ValueError("broken")
            return Done()

        async with working(work, base=1.0, cap=16.0) as queue:
            queue.add(key("a"))
            await asyncio.sleep(200)
            gaps = [b - a for a, b in itertools.pairwise(at)]
            fail = False
            await asyncio.sleep(20)
            fail, first = True, len(at)
            queue.add(key("a"))
            await asyncio.sleep(1.01)
            return gaps, len(at) - first

    gaps, after_reset = virtually(story())
    for gap, ceiling in zip(gaps, [1, 2, 4, 8, 16, 16, 16, 16], strict=False):
        assert ceiling / 2 <= gap <= ceiling
    assert len({round(gap / ceiling, 3) for gap, ceiling in zip(gaps[4:], [16] * 4, strict=False)}) > 1, "jitter"
    assert after_reset == 2, "the first delay again, not the last"


def test_a_failing_key_delays_no_other():
    async def story():
        ran = []

        async def work(k):
            if k.name == "bad":
                raise RuntimeError("x" * 100_000)
            ran.append((k.name, now()))
            return Done()

        async with working(work, workers=1) as queue:
            for name in ("bad", "good", "bad", "fine"):
                queue.add(key(name))
            await asyncio.sleep(1)
        return ran

    assert virtually(story()) == [("good", 0), ("fine", 0)]


def test_of_several_timers_the_earliest_wins_and_forget_cancels_it():
    async def story():
        at = []

        async def work(k):
            at.append(now())
            return Done()

        async with working(work) as queue:
            for seconds in (9, 3, 6):
                queue.later(key("a"), seconds)
            await asyncio.sleep(20)
            queue.later(key("a"), 5)
            queue.forget(key("a"))
            await asyncio.sleep(20)
        return at

    assert virtually(story()) == [3]


def test_a_pass_makes_the_timer_moot_that_was_set_before_it_and_says_itself_when_the_next_is_due():
    async def story():
        times = []

        async def work(_):
            times.append(now())
            return Done(again=5 if len(times) < 3 else None)

        async with working(work) as queue:
            queue.add(key("a"))
            await asyncio.sleep(3)
            queue.add(key("a"))
            await asyncio.sleep(60)
        return times

    assert virtually(story()) == [0, 3, 8]


def test_a_pass_that_wrote_is_looked_at_again_at_once_and_one_that_did_not_is_left_alone():
    async def story():
        at = []

        async def work(k):
            at.append(now())
            return Done(wrote=len(at) < 4)

        async with working(work) as queue:
            queue.add(key("a"))
            await asyncio.sleep(100)
        return at

    assert virtually(story()) == [0, 0, 0, 0]


def test_a_fight_with_another_controller_is_slowed_to_a_pass_a_second_but_never_an_urgent_edit():
    async def story():
        at = []

        async def work(k):
            at.append(now())
            return Done(wrote=True)

        async with working(work, burst=10) as queue:
            queue.add(key("a"))
            await asyncio.sleep(60.5)
            slowed = len(at)
            queue.add(key("a"), urgent=True)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return slowed, len(at) - slowed

    slowed, urgent = virtually(story())
    assert 65 <= slowed <= 75
    assert urgent == 1


def test_stalled_tells_a_hung_pass_from_an_idle_queue():
    async def story():
        async def work(k):
            await asyncio.sleep(1000 if k.name == "hung" else 1)
            return Done()

        async with working(work, workers=1) as queue:
            await asyncio.sleep(500)
            idle = queue.stalled()
            queue.add(key("a"))
            await asyncio.sleep(3)
            done = queue.stalled()
            queue.add(key("hung"))
            await asyncio.sleep(200)
            return idle, done, queue.stalled()

    assert virtually(story()) == (0.0, 0.0, 200.0)
