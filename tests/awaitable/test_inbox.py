"""The queue of an awaitable connection: the memory that it costs, what it does with fragments, and how it survives."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest
from support import frames
from support.awaiting import awaitable, feed

pytestmark = pytest.mark.memory

MEBI = 1 << 20
COST = 128  # of a queued frame, besides its payload


async def test_a_short_queue_may_cost_a_mebibyte():
    """64 KiB for each frame that it may hold would be less than one long message."""
    async with awaitable(max_queue=1, compression=None) as (ws, _):
        messages = [bytes([number]) * (MEBI // 4 - COST) for number in range(7)]
        await feed(ws, b"".join(map(frames.binary, messages)))
        assert ws.backlog.depth == 5  # one more than a mebibyte
        assert ws.backlog.paused
        assert [await ws.recv() for _ in messages] == messages


async def test_the_memory_of_a_long_queue_is_given_back_some_reads_later():
    async with awaitable(max_queue=None, compression=None) as (ws, _):
        await feed(ws, frames.binary(b""))
        await ws.recv()
        tracemalloc.start()
        try:
            await feed(ws, frames.binary(b"") * 5000)
            for _ in range(5000):
                await ws.recv()
            # The rest is memory of others, and perhaps a new read buffer.
            with_ring = tracemalloc.get_traced_memory()[0]
            for reads, given_back in ((3, False), (200, True)):
                for _ in range(reads):
                    await feed(ws, frames.frame(frames.PONG, b""))
                assert (tracemalloc.get_traced_memory()[0] < with_ring - 5000 * 30) is given_back
        finally:
            tracemalloc.stop()


async def test_a_message_that_is_waited_for_is_put_together_as_its_fragments_arrive():
    async with awaitable(compression=None) as (ws, _):
        receiving = asyncio.ensure_future(ws.recv())
        await asyncio.sleep(0)
        for number in range(100):
            await feed(ws, frames.frame(0 if number else frames.TEXT, b"a" * 10, fin=False))
            assert ws.listener.frames == 1
        await feed(ws, frames.frame(frames.CONTINUATION, b"b"))
        assert await receiving == "a" * 1000 + "b"
        assert ws.backlog.bytes == 0


def test_ctrl_c_in_the_task_that_receives_leaves_the_rest_of_the_read_in_order():
    """The frames behind its message are settled, and reading is paused if they are too many."""

    async def main(ws):
        await ws.recv()
        raise KeyboardInterrupt

    loop = asyncio.new_event_loop()
    try:
        context = awaitable(max_queue=2, compression=None)
        ws, _ = loop.run_until_complete(context.__aenter__())
        task = loop.create_task(main(ws))
        loop.call_soon(lambda: loop.call_soon(ws.protocol.data_received, frames.texts(*range(5))))
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(task)
        assert ws.backlog.paused
        assert [loop.run_until_complete(ws.recv()) for _ in range(4)] == ["1", "2", "3", "4"]
        loop.run_until_complete(context.__aexit__(None, None, None))
    finally:
        loop.close()
