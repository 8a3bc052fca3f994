"""Supervisors share a limit on how often they connect, in one event loop and in many threads."""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
import time

import pytest
from support.sessions import idle, sessions, supervise

from wsfast.supervisor import ConnectLimit


def most_in_any(times, per):
    return max(sum(1 for time in times if begin <= time < begin + per) for begin in times)


async def test_attempts_begin_in_their_order_and_no_more_than_allowed():
    begun = []

    async def attempt(number):
        await limit.wait()
        begun.append((number, time.monotonic()))

    limit = ConnectLimit(4, 0.1)
    await asyncio.gather(*map(attempt, range(15)))
    assert [number for number, _ in begun] == list(range(15))
    assert most_in_any([at for _, at in begun], 0.1) == 4
    assert begun[-1][1] - begun[0][1] < 3  # 0.3, on an idle machine


async def test_a_cancelled_attempt_takes_no_place():
    limit = ConnectLimit(1, 0.05)
    await limit.wait()
    others = [asyncio.ensure_future(limit.wait()) for _ in range(200)]
    last = asyncio.ensure_future(limit.wait())
    await asyncio.sleep(0)
    for other in others:
        other.cancel()
    await last  # it moves up: after 0.05 seconds, not after 10
    assert len(limit._begun) == 1
    assert not limit._waiting


async def test_all_attempts_of_all_supervisors_count():
    """Also those that fail, and those that follow them."""

    async def script(peer):
        arrived.append(time.monotonic())
        if peer.number > 3:
            await idle(peer)

    arrived, limit, began = [], ConnectLimit(2, 0.1), time.monotonic()
    async with sessions(script) as server:
        feeds = [supervise(server.url, connects=limit) for _ in range(4)]
        for feed in feeds:
            await feed.__aenter__()
        while len(arrived) < 7:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert [len(limit._begun), len(limit._waiting)] == [2, 0]
        for feed in feeds:
            await feed.close()
    assert arrived[6] - began > 0.3  # 7 attempts: 2 at once, 5 in three more windows
    with pytest.raises(TypeError, match="connects"):
        supervise("ws://x/", connects=(300, 300))


def test_threads_share_it_and_a_blocked_one_loses_its_turn():
    """The first in the queue has a loop that never runs again."""
    begun, limit = [], ConnectLimit(1, 0.05)

    async def attempts():
        for _ in range(5):
            await limit.wait()
            begun.append(time.monotonic())

    stuck = asyncio.new_event_loop()
    begun_already = stuck.create_task(limit.wait())
    stuck.run_until_complete(begun_already)
    waiting = stuck.create_task(limit.wait())
    stuck.run_until_complete(asyncio.sleep(0))
    threads = [threading.Thread(target=asyncio.run, args=(attempts(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    begun.sort()
    assert len(begun) == 15
    assert min(later - sooner for sooner, later in itertools.pairwise(begun)) > 0.045
    stuck.run_until_complete(waiting)  # it has kept its place in the queue
    stuck.close()


def test_an_abandoned_attempt_leaves_the_queue():
    """A loop is closed with an attempt that waits, and the collector closes its coroutine."""
    limit, loop = ConnectLimit(1, 60), asyncio.new_event_loop()
    loop.run_until_complete(limit.wait())
    waiting = limit.wait()
    loop.call_soon(waiting.send, None)
    loop.run_until_complete(asyncio.sleep(0))
    assert len(limit._waiting) == 1
    loop.close()
    del waiting
    gc.collect()
    assert not limit._waiting


@pytest.mark.parametrize(
    ("error", "arguments"),
    [(ValueError, (0, 1)), (TypeError, ("1", 1)), (ValueError, (1, 0)), (TypeError, (1, None))],
)
def test_wrong_limits_are_refused(error, arguments):
    with pytest.raises(error):
        ConnectLimit(*arguments)
