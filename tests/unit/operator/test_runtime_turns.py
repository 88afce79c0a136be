"""Others give way to a pass that a user waits for, in virtual time: never wholly, and never for long."""

import asyncio

from support.virtual_time import virtually

from island_operator.runtime.turns import Turns

SECOND = 1.0  # that each write takes here


def now():
    return asyncio.get_running_loop().time()


async def other(turns, ended):
    async with turns.write():
        await asyncio.sleep(SECOND)
    ended.append(now())


async def urgent(turns, ended, writes=1):
    with turns.urgent():
        for _ in range(writes):
            async with turns.write():
                await asyncio.sleep(SECOND)
    ended.append(now())


def story(*parts, beside=2, patience=100.0):
    """Each part (start, function, more arguments); returns when the writes of each ended, by function."""

    async def told():
        turns, ended = Turns(beside, patience), {other: [], urgent: []}

        async def one(start, function, *more):
            await asyncio.sleep(start)
            await function(turns, ended[function], *more)

        async with asyncio.TaskGroup() as group:
            for part in parts:
                group.create_task(one(*part))
        return ended

    return virtually(told())


def test_without_a_hurry_all_write_at_once():
    assert story(*[(0, other)] * 9)[other] == [1] * 9


def test_while_an_urgent_pass_runs_few_others_write_and_it_waits_for_none_of_them():
    ended = story(*[(0, other)] * 3, (0.5, urgent, 4), *[(1, other)] * 6)
    assert ended[urgent] == [4.5]
    # three were under way already; then two at a time
    assert ended[other] == [1, 1, 1, 2, 2, 3, 3, 4, 4]


def test_once_it_is_over_all_write_again():
    assert story((0, urgent), *[(0.5, other)] * 5)[other] == [1.5, 1.5, 2, 2, 2]


def test_edits_that_never_end_do_not_stop_the_others():
    ended = story(*[(0.5 * n, urgent, 1) for n in range(20)], *[(0.25, other)] * 8)
    assert ended[other] == [1.25, 1.25, 2.25, 2.25, 3.25, 3.25, 4.25, 4.25]


def test_an_urgent_pass_that_hangs_is_given_way_to_for_a_while_only():
    assert story((0, urgent, 60), *[(0.5, other)] * 5, patience=1.0)[other] == [1.5, 1.5, 2, 2, 2]


def test_what_is_cancelled_while_it_waits_or_writes_leaves_its_place():
    async def told():
        turns, ended = Turns(beside=1), []
        tasks = [asyncio.create_task(other(turns, ended)) for _ in range(2)]
        hurried = asyncio.create_task(urgent(turns, [], 9))
        await asyncio.sleep(0)
        tasks += [asyncio.create_task(other(turns, ended)) for _ in range(2)]
        await asyncio.sleep(0.5)  # two write, since before the hurry, and two wait
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await asyncio.create_task(other(turns, ended))
        hurried.cancel()
        return ended

    assert virtually(told()) == [1.5]
