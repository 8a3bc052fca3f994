"""The engine shows messages to a supervisor before it delivers them, and counts control frames apart."""

from __future__ import annotations

import asyncio
import zlib

import pytest
from support import frames
from support.awaiting import awaitable
from support.frames import CONTINUATION, PING, PONG, frame, text, texts
from support.listeners import Recorder
from support.pair import pair

from wsfast import ConnectionClosedError, WSListener
from wsfast._engine.messages import show_messages

DEFLATE = b"Sec-WebSocket-Extensions: permessage-deflate\r\n"


class Look:
    """Records what it is shown, and wants none of what it is told not to."""

    def __init__(self, *unwanted):
        self.unwanted = unwanted
        self.shown = []

    def __call__(self, payload):
        self.shown.append(payload)
        return payload in self.unwanted


def fragmented(*parts):
    first, *between, last = parts
    rest = b"".join(frame(CONTINUATION, part, fin=False) for part in between)
    return text(first, fin=False) + rest + frame(CONTINUATION, last)


async def test_an_inbox_shows_whole_messages_and_forgets_the_unwanted():
    look = Look("x", "xyz")
    async with awaitable(close_timeout=0.05) as (ws, far):
        show_messages(ws.protocol, look)
        await far.send(texts("a", "x") + fragmented("x", "y", "z") + fragmented("b", "c") + texts("d"))
        assert [await ws.recv() for _ in range(3)] == ["a", "bc", "d"]
        assert look.shown == ["a", "x", "xyz", "bc", "d"]
        show_messages(ws.protocol, None)
        await far.send(texts("x"))
        assert await ws.recv() == "x"
        assert len(look.shown) == 5


async def test_an_inbox_shows_what_nobody_receives_yet():
    look = Look()
    async with awaitable(max_queue=2) as (ws, far):
        show_messages(ws.protocol, look)
        await far.send(fragmented("1", "2") + texts(*range(50)) + frames.binary(b"\xff"))
        await far.send(frame(PING))
        await far.frames(1)
        assert look.shown == ["12", *map(str, range(50)), b"\xff"]
        assert [await ws.recv() for _ in range(52)] == look.shown


async def test_an_inbox_shows_compressed_messages_as_the_program_gets_them():
    look = Look("unwanted")
    deflating = zlib.compressobj(9, zlib.DEFLATED, -15)
    said = b""
    for message in ("wanted " * 50, "unwanted", "last"):
        data = deflating.compress(message.encode()) + deflating.flush(zlib.Z_SYNC_FLUSH)
        said += text(data[:-4], rsv=4)
    async with awaitable(headers=DEFLATE) as (ws, far):
        show_messages(ws.protocol, look)
        await far.send(said)
        assert [await ws.recv() for _ in range(2)] == ["wanted " * 50, "last"]
    assert look.shown == ["wanted " * 50, "unwanted", "last"]


async def test_text_that_is_not_utf8_is_not_shown_and_fails_as_ever():
    look = Look()
    async with awaitable(close_timeout=0.05) as (ws, far):
        show_messages(ws.protocol, look)
        await far.send(text(b"\xff"))
        with pytest.raises(ConnectionClosedError):
            await ws.recv()
        assert ws.close_info is None or ws.close_info.code == 1007
    assert look.shown == []


async def test_nobody_takes_the_message_while_it_is_shown():
    raised = []

    def look(payload):
        for call in (lambda: ws.recv().send(None), lambda: ws.protocol.poll(0)):
            try:
                call()
            except RuntimeError as exc:  # ConcurrencyError, for the first
                raised.append(type(exc).__name__)
        return False

    async with awaitable(close_timeout=0.05) as (ws, far):
        show_messages(ws.protocol, look)
        await far.send(texts("a"))
        assert await ws.recv() == "a"
    assert raised == ["ConcurrencyError", "RuntimeError"]


@pytest.mark.parametrize("end", ["abort", "fail"])
async def test_the_connection_may_end_while_a_message_is_shown(end):
    def look(payload):
        if end == "abort":
            ws.abort()
        else:
            ws.protocol._fail(1011, "enough", TimeoutError())
        return True

    async with awaitable(close_timeout=0.05) as (ws, far):
        show_messages(ws.protocol, look)
        await far.send(texts("a", "b") + fragmented("c", "d"))
        with pytest.raises(ConnectionClosedError):
            await ws.recv()


class Messages(WSListener):
    payload_type = str

    def __init__(self):
        self.got = []

    def on_ws_message(self, transport, msg_type, payload):
        self.got.append(payload)


async def test_a_listener_of_messages_shows_them():
    look, listener = Look("x"), Messages()
    async with pair(listener) as (transport, _, far):
        show_messages(transport, look)
        await far.send(texts("a", "x") + fragmented("b", "c") + frame(PING))
        await far.frames(1)
        show_messages(transport, None)
        await far.send(texts("x") + frame(PING))
        await far.frames(1)
    assert listener.got == ["a", "bc", "x"]
    assert look.shown == ["a", "x", "bc"]


async def test_a_listener_of_frames_shows_those_that_are_whole_messages():
    look = Look(b"x")
    async with pair() as (transport, listener, far):
        show_messages(transport, look)
        await far.send(texts("a", "x") + fragmented("b", "c") + frame(PING))
        await far.frames(1)
        show_messages(transport, None)
        await far.send(texts("x") + frame(PING))
        await far.frames(1)
        assert listener.payloads == [b"a", b"b", b"c", b"x"]
    assert look.shown == [b"a", b"x", 1, 1]  # of fragments, how many bytes they have


async def test_a_listener_without_methods_shows_them_too():
    look = Look()
    async with pair(WSListener()) as (transport, _, far):
        show_messages(transport, look)
        await far.send(texts("a") + frame(PING))
        await far.frames(1)
    assert look.shown == [b"a"]
    show_messages(transport, look)  # it is gone: nothing happens


async def test_data_is_counted_apart_from_control_frames():
    async with pair(Recorder()) as (transport, listener, far):
        await far.send(texts("a") + fragmented("b", "c") + frame(PING) + frame(PONG, "unasked"))
        await listener.received(4)
        assert transport._data_received == 3
        await far.frames(1)
        task = asyncio.ensure_future(transport.measure_roundtrip_time(1))
        (ping,) = await far.frames(1)
        await far.send(frame(PONG, ping.payload))
        await task
        assert transport._data_received == 3
        assert transport.stats.frames_received == 6
