"""transport.stats, the histogram of pings, and that the steady state makes no garbage."""

from __future__ import annotations

import asyncio
import gc
import math

import pytest
from hdrh.histogram import HdrHistogram
from support import frames
from support.frames import PING, PONG, text
from support.listeners import Recorder
from support.pair import pair
from support.servers import websockets_echo

from wsfast import Tuning, WSListener, WSMsgType, WSStats, ws_connect


def since(before: WSStats, after: WSStats) -> WSStats:
    return WSStats(*(late - early for early, late in zip(before, after)))


async def test_frames_bytes_reads_and_writes_are_counted():
    async with pair() as (transport, listener, far):
        start = transport.stats
        assert isinstance(start, WSStats)
        assert start.frames_received == start.frames_sent == start.bytes_sent == 0
        await far.send(text("abc") + text("de"))
        await listener.received(2)
        await far.send(frames.frame(PING, b"p"))
        await far.frames(1)
        transport.send(WSMsgType.TEXT, "x" * 200)
        counted = since(start, transport.stats)
        assert counted == WSStats(
            frames_received=3,
            bytes_received=5 + 4 + 3,
            reads=2,
            frames_sent=2,
            bytes_sent=7 + 208,
            writes=2,
            frames_gathered=0,
            longest_backlog=0,
            poll_hits=0,
            poll_misses=0,
            empty_wakeups=0,
        )


async def test_gathered_frames_are_counted_and_leave_in_one_write():
    async with pair() as (transport, _, _):
        start = transport.stats
        with transport.cork():
            for _ in range(5):
                transport.send(WSMsgType.TEXT, "a")
        transport.send_many(WSMsgType.TEXT, ["a"] * 10)
        counted = since(start, transport.stats)
        assert (counted.frames_sent, counted.frames_gathered, counted.writes) == (15, 15, 2)


async def test_a_frame_that_leaves_in_pieces_and_one_masked_in_place_count_as_one():
    async with pair() as (transport, _, far):
        transport.send(WSMsgType.BINARY, bytes(5_000_000))
        transport.send_reuse_external_bytearray(WSMsgType.BINARY, bytearray(20), 14)
        await far.frames(2)
        stats = transport.stats
        assert (stats.frames_sent, stats.writes) == (2, 3)
        assert stats.bytes_sent == 5_000_014 + 12


@pytest.mark.parametrize("use_aiofastnet", [None, False])
async def test_the_longest_backlog_stays_when_it_is_gone(use_aiofastnet):
    async with pair(use_aiofastnet=use_aiofastnet) as (transport, _, far):
        for _ in range(100):
            transport.send(WSMsgType.BINARY, bytes(20_000))
        longest = transport.write_buffer_size
        assert longest > 500_000
        assert transport.stats.longest_backlog == longest
        await far.frames(100)
        assert transport.write_buffer_size == 0
        assert transport.stats.longest_backlog == longest


async def test_a_short_backlog_is_noticed_too():
    async with pair() as (transport, _, _):
        while transport.write_buffer_size == 0:
            transport.send(WSMsgType.BINARY, bytes(10_000))
        assert 0 < transport.stats.longest_backlog == transport.write_buffer_size < 64 * 1024


async def test_stats_are_there_when_the_connection_is_gone_and_in_its_thread_only():
    async with pair() as (transport, _, far):
        transport.send(WSMsgType.TEXT, "a")
        with pytest.raises(RuntimeError, match="wrong thread"):
            await asyncio.to_thread(lambda: transport.stats)
        far.sock.close()
        await transport.wait_disconnected()
        assert transport.stats.frames_sent == 1


async def test_a_read_that_came_too_late_is_an_empty_wakeup():
    """asyncio runs what is due, the poller among it, between being told that a socket is readable and reading it."""
    async with pair() as (transport, listener, far):
        far.sock.send(text("a"))
        asyncio.get_running_loop().call_soon(transport.poll, 0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert listener.payloads == [b"a"]
        assert transport.stats.empty_wakeups <= 1
        transport.underlying_transport._read_ready()
        assert transport.stats.empty_wakeups >= 1


async def test_round_trips_of_pings_are_in_the_histogram_which_serves_several_connections():
    histogram = HdrHistogram(1, 60_000_000_000, 3)
    async with websockets_echo() as url:
        for _ in range(2):
            transport, _ = await ws_connect(Recorder, url, tuning=Tuning(ping_histogram=histogram))
            times = await transport.measure_roundtrip_time(5)
            transport.disconnect()
            await transport.wait_disconnected()
    assert histogram.get_total_count() == 10
    assert histogram.get_max_value() >= 0.99e9 * max(times)
    assert histogram.get_min_value() > 1000


async def test_pings_by_the_clock_are_in_the_histogram_too():
    histogram = HdrHistogram(1, 60_000_000_000, 3)
    options = {"auto_ping_idle_timeout": 0.01, "auto_ping_reply_timeout": 0.01}
    async with pair(enable_auto_ping=True, tuning=Tuning(ping_histogram=histogram), **options) as (_, _, far):
        ping = (await far.frames(1))[0]
        await far.send(frames.frame(PONG, ping.payload))
        await far.frames(1)
        assert histogram.get_total_count() == 1


class Answering(WSListener):
    """Trades `left` round trips: what a program's own code would keep is none."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.done = asyncio.get_running_loop().create_future()

    def on_ws_frame(self, transport, frame) -> None:
        self.left -= 1
        if self.left:
            transport.send(WSMsgType.BINARY, b"order")
        else:
            self.done.set_result(None)


@pytest.mark.parametrize("busy_poll", [0, math.inf])
async def test_the_steady_state_makes_nothing_for_the_garbage_collector(busy_poll):
    """A collection starts when so many tracked objects were made more than were freed: here not one is left over."""
    collections = []
    answer = frames.binary(b"tick")
    async with pair(Answering(3000), tuning=Tuning(busy_poll=busy_poll, timestamps="user")) as (
        transport,
        listener,
        far,
    ):

        def server() -> None:
            far.sock.recv(1000)
            far.sock.send(answer)

        loop = asyncio.get_running_loop()
        loop.add_reader(far.sock, server)
        threshold = gc.get_threshold()
        gc.collect()
        gc.callbacks.append(lambda phase, info: collections.append(phase))
        gc.set_threshold(100)
        try:
            transport.send(WSMsgType.BINARY, b"order")
            await listener.done
        finally:
            gc.set_threshold(*threshold)
            gc.callbacks.pop()
            loop.remove_reader(far.sock)
    assert collections == []
