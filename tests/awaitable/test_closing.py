"""How an awaitable connection ends: close(), its deadline, the server's silence, and what everybody is told."""

from __future__ import annotations

import asyncio
import gc
import math
import time
import zlib
from contextlib import suppress

import pytest
from support import HUNG, frames
from support.awaiting import awaitable, feed, turns
from support.certificates import client_settings
from support.frames import CLOSE, CONTINUATION, PING, PONG, TEXT, texts
from support.servers import serve

from wsfast import WSMsgType
from wsfast._common.connection import State
from wsfast.asyncio.client import ClientConnection, connect
from wsfast.exceptions import ConnectionClosedError, ConnectionClosedOK, KeepaliveTimeout


async def receive_all(ws):
    while True:
        await ws.recv()


# close()


async def test_states():
    async with awaitable() as (ws, far):
        assert ws.state is State.OPEN
        assert "OPEN" in repr(ws)
        closing = asyncio.ensure_future(ws.close())
        await turns(2)
        assert ws.state is State.CLOSING
        assert ws.close_code is None
        await far.frames(1)
        await far.send(frames.close(1000))
        far.sock.close()
        await closing
        assert ws.state is State.CLOSED
        assert (ws.close_code, ws.close_reason) == (1000, "")


async def test_close_called_many_times_at_once():
    async with awaitable() as (ws, far):
        closing = [asyncio.ensure_future(ws.close()) for _ in range(5)]
        assert (await far.frames(1))[0].opcode == CLOSE
        await far.send(frames.close(1000))
        far.sock.close()
        await asyncio.gather(*closing)
        await ws.close()
        assert far.parser.buffer == b""


async def test_close_ends_every_waiter():
    async with awaitable(close_timeout=0.05) as (ws, _):
        receiving = asyncio.ensure_future(ws.recv())
        pong = await ws.ping()
        await asyncio.sleep(0)
        await ws.close(4000)
        for waiter in (receiving, pong):
            with pytest.raises(ConnectionClosedError) as caught:
                await waiter
            assert caught.value.sent.code == 4000
            assert caught.value.rcvd is None


async def test_a_pong_that_nobody_awaits_is_no_error_when_the_connection_ends():
    async with awaitable() as (ws, _):
        await ws.ping()
        ws.protocol.abort()
        await ws.wait_closed()
    gc.collect()


# Bug 6 of the peers: a full queue blocked close().


@pytest.mark.parametrize("late", [0, 5, 500])
async def test_close_works_while_reading_is_paused(late):
    """The server's CLOSE is behind messages that nobody receives."""
    async with awaitable(max_queue=4, close_timeout=None) as (ws, far):
        await feed(ws, texts(*range(10)))
        assert ws.listener.paused
        await far.send(texts(*range(10, 10 + late)))
        closing = asyncio.ensure_future(ws.close())
        assert (await far.frames(1))[0].opcode == CLOSE
        await far.send(frames.close(1000))
        far.sock.close()
        await closing
        assert [await ws.recv() for _ in range(10 + late)] == [str(number) for number in range(10 + late)]
        with pytest.raises(ConnectionClosedOK):
            await ws.recv()


async def test_close_discards_what_a_chatty_server_still_says():
    """It ends, and does not keep all of it."""

    async def handler(peer):
        await peer.accept()
        peer.send(frames.binary(bytes(10_000)) * 50)
        closing = asyncio.ensure_future(peer.frames_until_close())
        while not closing.done():
            peer.send(frames.binary(bytes(10_000)) * 50)
            await peer.writer.drain()
        peer.send(frames.binary(bytes(10_000)) * 500 + frames.close(1000))
        await peer.writer.drain()

    async with serve(handler) as served:
        ws = await connect(served.url, max_queue=4, close_timeout=None)
        await ws.recv()
        await ws.close()
        left = 0
        with suppress(ConnectionClosedOK):
            while True:
                assert len(await ws.recv()) == 10_000
                left += 1
        assert left < 250
        assert ws.close_code == 1000


SPLIT = frames.text("before")
LONG = frames.binary(b"\xff" * 500_000)
BEGUN = frames.header(TEXT, 200_000) + b"a" * 50_000


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            [SPLIT[:3], SPLIT[3:]], [LONG[:200_000], LONG[200_000:300_000], LONG[300_000:]], id="a frame"
        ),
        pytest.param([BEGUN], [b"\xff" * 50_000, b"\xff" * 100_000], id="the rest of a frame"),
        pytest.param(
            [frames.frame(TEXT, b"x" * 600_000, fin=False)],
            [frames.frame(CONTINUATION, b"x" * 100), frames.binary(b"x" * 600_000)],
            id="more than is left of a message",
        ),
    ],
)
async def test_what_is_discarded_is_not_judged(before, after):
    async with awaitable(max_queue=4, max_size=1_100_000, close_timeout=None) as (ws, far):
        closing = asyncio.ensure_future(ws.close())
        await turns(2)
        for data in [frames.binary(b"x" * 100_000)] * 21 + before:
            await feed(ws, data)
        assert ws.listener.paused
        while ws.listener.paused:  # until it is clear that nobody receives
            await turns(1)
        for data in after:
            await feed(ws, data)
        await feed(ws, frames.close(1000))
        far.sock.close()
        await closing
        assert ws.close_code == 1000


async def test_text_that_is_discarded_is_not_checked():
    """Every other fragment begins inside a character, but the one before it was not looked at."""
    text = "€".encode() * 3000
    two = [frames.frame(CONTINUATION, half, fin=False) for half in (text + b"\xe2", b"\x82\xac" + text)]

    async def handler(peer):
        await peer.accept()
        peer.send(frames.text("first") + frames.text("", fin=False))
        closing = asyncio.ensure_future(peer.frames_until_close())
        while not closing.done():
            peer.send(b"".join(two) * 25)
            await peer.writer.drain()
        peer.send(b"".join(two) * 250 + frames.frame(CONTINUATION) + frames.close(1000))
        await peer.writer.drain()

    async with serve(handler) as served:
        ws = await connect(served.url, max_queue=4, max_size=None, close_timeout=None)
        assert await ws.recv() == "first"
        await ws.close()
        assert ws.close_code == 1000


async def says_much_before_its_close(peer):
    """Three times as much as a queue takes while nobody receives."""
    await peer.accept()
    await peer.frames_until_close()
    for number in range(3000):
        peer.send(frames.text(f"{number:01000}"))
        await peer.writer.drain()
    peer.send(frames.close(1000))


async def next_by_a_task(ws):
    return await asyncio.ensure_future(ws.recv())


async def next_in_time(ws):
    return await asyncio.wait_for(ws.recv(), HUNG)


async def next_after_others(ws):
    await asyncio.sleep(0)
    return await ws.recv()


async def next_after_work(ws):
    """It takes longer than a receiver may keep the loop from turning."""
    message = await ws.recv()
    for _ in range(40):
        int(message)
    return message


NEXT = [next_by_a_task, next_in_time, next_after_others, next_after_work]


@pytest.mark.parametrize("receive_next", [ClientConnection.recv, *NEXT])
async def test_a_receiver_gets_everything_the_server_says_before_its_close(receive_next):
    async with serve(says_much_before_its_close) as served:
        ws = await connect(served.url, max_queue=4, close_timeout=None)
        received = []

        async def receive():
            while True:
                received.append(int(await receive_next(ws)))

        receiving = asyncio.ensure_future(receive())
        await asyncio.sleep(0)
        await ws.close()
        with pytest.raises(ConnectionClosedOK):
            await receiving
        assert received == list(range(3000))


@pytest.mark.parametrize("how", ["stops", "is cancelled"])
async def test_close_does_not_wait_for_a_receiver_that(how):
    async with serve(says_much_before_its_close) as served:
        ws = await connect(served.url, max_queue=4, close_timeout=None)

        async def receive():
            while not ws.listener.paused:
                await next_after_work(ws)
            if how == "is cancelled":
                receiving.cancel()
                await asyncio.sleep(0)
            return ws.state

        receiving = asyncio.ensure_future(receive())
        await asyncio.sleep(0)
        await ws.close()
        await asyncio.wait([receiving])
        assert receiving.cancelled() or receiving.result() is State.CLOSING
        assert receiving.cancelled() == (how == "is cancelled")
        assert ws.close_code == 1000


# Bug 7 of the peers: close() took minutes, was extended by data, or took several times its limit.


@pytest.mark.parametrize("server", ["silent", "chatty", "half-closed", "pinging"])
async def test_close_timeout_is_total(server):
    async def handler(peer):
        await peer.accept()
        with suppress(ConnectionError):
            if server == "half-closed":
                peer.writer.write_eof()
            while server in ("chatty", "pinging"):
                peer.send(frames.text("data") if server == "chatty" else frames.frame(PING, b"?"))
                await peer.writer.drain()
                await asyncio.sleep(0)
            await peer.rest()

    async with serve(handler) as served:
        took = math.inf
        while took > 0.5:  # a busy machine may be late, but not each time
            ws = await connect(served.url, close_timeout=0.1)
            start = time.perf_counter()
            await ws.close()
            took = time.perf_counter() - start
            with pytest.raises(ConnectionClosedError):
                await receive_all(ws)


@pytest.mark.parametrize("tls", [None, client_settings], ids=["plain", "rustls"])
async def test_close_timeout_counts_if_a_write_has_failed_a_moment_ago(tls):
    """Bytes are held back behind a full queue, and close() comes before the loop says that the connection is lost."""
    deflated = zlib.compressobj(wbits=-15)
    bombs = []
    for _ in range(5):
        bomb = deflated.compress(bytes(900_000)) + deflated.flush(zlib.Z_SYNC_FLUSH)
        bombs.append(frames.frame(frames.BINARY, bomb[:-4], rsv=4))
    full = asyncio.Event()
    async with awaitable(
        tls=tls and tls(),
        max_queue=1,
        on_high_water=lambda ws: full.set(),
        close_timeout=0.05,
        headers=b"Sec-WebSocket-Extensions: permessage-deflate\r\n",
    ) as (ws, far):
        await far.send(b"".join(bombs))
        await full.wait()
        far.sock.close()
        ws.protocol.send(WSMsgType.TEXT, "x")
        await ws.close()
        assert isinstance(ws.protocol.close_info.cause, OSError)
        with pytest.raises(ConnectionClosedError):
            await receive_all(ws)


async def test_close_timeout_with_a_full_write_buffer():
    async with awaitable(close_timeout=0.05) as (ws, _):
        sending = asyncio.ensure_future(ws.send(bytes(10_000_000)))
        await turns(2)
        await ws.close()
        with pytest.raises(ConnectionClosedError) as caught:
            await sending
        assert isinstance(caught.value.__cause__, TimeoutError)


async def test_leaving_async_with_closes():
    async def handler(peer):
        await peer.accept()
        return frames.parse_close((await peer.answer_close()).payload)

    async with serve(handler) as served:
        async with connect(served.url):
            pass
        assert await served.result() == (1000, "")
        with pytest.raises(asyncio.CancelledError):
            async with connect(served.url):
                raise asyncio.CancelledError
        assert await served.result() == (1011, "")


# Bugs 3 of the peers: control frames inside fragments.


async def test_control_frames_inside_a_fragmented_message():
    async with awaitable() as (ws, _):
        pong = await ws.ping(b"p")
        await feed(
            ws, frames.frame(TEXT, b"a", fin=False) + frames.frame(PING, b"!") + frames.frame(PONG, b"p")
        )
        assert await pong >= 0
        await feed(
            ws, frames.frame(0, b"b", fin=False) + frames.frame(PONG, b"nobody's") + frames.frame(0, b"c")
        )
        await feed(ws, frames.frame(PONG, b"p") + frames.text("next"))
        assert [await ws.recv(), await ws.recv()] == ["abc", "next"]


async def test_a_close_inside_a_fragmented_message_is_a_close():
    """RFC 6455 section 5.4: control frames may come between fragments. websockets calls it a violation."""
    async with awaitable() as (ws, far):
        await feed(
            ws, frames.text("whole") + frames.frame(TEXT, b"part", fin=False) + frames.close(1000, "bye")
        )
        assert frames.parse_close((await far.frames(1))[0].payload) == (1000, "bye")
        far.sock.close()
        assert await ws.recv() == "whole"
        with pytest.raises(ConnectionClosedOK):
            await ws.recv()
        assert (ws.close_code, ws.close_reason) == (1000, "bye")


@pytest.mark.parametrize(
    "bad",
    [frames.frame(PING, b"x", fin=False), frames.frame(PONG, b"x", fin=False), frames.frame(CLOSE, b"\x03"),
     frames.frame(0, b"x"), frames.frame(CLOSE, b"\x03\xe8", fin=False)],
    ids=["ping-fin", "pong-fin", "close-1", "continuation", "close-fin"],
)  # fmt: skip
async def test_bad_control_frames_end_the_connection_with_1002(bad):
    async with awaitable(close_timeout=0.05) as (ws, _):
        await feed(ws, frames.text("before") + bad + frames.text("after"))
        assert await ws.recv() == "before"
        with pytest.raises(ConnectionClosedError) as caught:
            await ws.recv()
        assert caught.value.sent.code == 1002


# Bug 8 of the peers: keepalive.


async def test_a_silent_server_ends_every_waiter_with_a_typed_error():
    async with awaitable(ping_interval=0.02, ping_timeout=0.02, close_timeout=0.02) as (ws, far):
        receiving = asyncio.ensure_future(ws.recv())
        pong = await ws.ping(b"mine")
        for waiter in (receiving, pong):
            with pytest.raises(ConnectionClosedError, match="keepalive ping timeout") as caught:
                await waiter
            assert isinstance(caught.value.__cause__, KeepaliveTimeout)
            assert caught.value.sent.code == 1011
        with pytest.raises(ConnectionClosedError):
            await ws.send("x")
        assert [sent.opcode for sent in await far.frames_until_eof()] == [PING, PING, CLOSE]


async def test_pongs_keep_the_connection_and_measure_its_latency():
    async with awaitable(ping_interval=0.01, ping_timeout=HUNG) as (ws, far):
        for _ in range(4):
            ping = (await far.frames(1))[0]
            assert ping.opcode == PING
            await far.send(frames.frame(PONG, ping.payload))
        await feed(ws, b"")
        await turns(3)
        assert 0 < ws.latency < HUNG
        assert ws.state is State.OPEN


async def test_a_server_that_is_busy_with_a_long_message_is_alive():
    """No pong arrives, as it would be behind the message; its bytes do."""
    async with awaitable(ping_interval=0.02, ping_timeout=0.2, max_size=None) as (ws, far):
        message = frames.binary(frames.pattern(300))
        receiving = asyncio.ensure_future(ws.recv())
        for at in range(len(message)):
            await far.send(message[at : at + 1])
            await asyncio.sleep(0.001)
        assert await receiving == frames.pattern(300)
        assert ws.state is State.OPEN


async def test_a_program_that_does_not_receive_is_not_the_server_s_fault():
    """Reading is paused, so the pong cannot arrive."""
    async with awaitable(ping_interval=0.01, ping_timeout=0.01, max_queue=2) as (ws, far):
        pushing = asyncio.ensure_future(far.send(frames.binary(bytes(40_000)) * 200))
        assert [ping.opcode for ping in await far.frames(6)] == [PING] * 6
        assert ws.state is State.OPEN
        assert ws.listener.paused
        assert ws.listener.frames < 60  # a ping reads on, but not each a bit further
        for _ in range(200):
            assert len(await ws.recv()) == 40_000
        await pushing


async def test_pongs_count_while_nobody_receives():
    async with awaitable(ping_interval=0.01, ping_timeout=HUNG) as (ws, far):
        for _ in range(5):
            await far.send(frames.frame(PONG, (await far.frames(1))[0].payload))
        assert ws.state is State.OPEN


@pytest.mark.parametrize("options", [{"ping_interval": None}, {"ping_interval": 0.005, "ping_timeout": None}])
async def test_keepalive_can_be_turned_off(options):
    async with awaitable(**options) as (ws, far):
        if options["ping_interval"]:
            assert [ping.opcode for ping in await far.frames(5)] == [PING] * 5
        assert ws.state is State.OPEN


async def test_the_keepalive_is_not_collected_and_leaves_no_timer():
    async with awaitable(ping_interval=0.005, ping_timeout=0.01, close_timeout=0.01) as (ws, far):
        gc.collect()
        assert (await far.frames(1))[0].opcode == PING
        watch = ws._pings._watch
        await ws.wait_closed()
        assert watch._timer.cancelled()


async def test_a_new_connection_does_not_inherit_old_stamps():
    for _ in range(3):
        async with awaitable(ping_interval=0.2, ping_timeout=0.2) as (ws, far):
            ping = (await far.frames(1))[0]
            await far.send(frames.frame(PONG, ping.payload))
            await feed(ws, b"")
            assert ws.state is State.OPEN
