"""What is known of a message besides its payload: `last_message`, the same in every face."""

from __future__ import annotations

import asyncio
import socket
import time
import zlib

import pytest
from support import HUNG, certificates, frames
from support.awaiting import awaitable
from support.faces import FACES, TAKING_FRAMES, _Listening, connected
from support.frames import texts
from support.servers import echo, serve

import wsfast
import wsfast.sync.client
from wsfast import ConnectionClosed, Tuning, WSMessageInfo, WSMsgType, ws_connect
from wsfast.deflate import PerMessageDeflate

every_face = pytest.mark.parametrize("face", FACES)

ACCEPT = b"Sec-WebSocket-Extensions: permessage-deflate\r\n"


class Noting(_Listening):
    """Keeps what is known of each message."""

    def __init__(self):
        super().__init__()
        self.infos = []

    def on_ws_message(self, transport, msg_type, payload):
        self.infos.append(transport.last_message)
        super().on_ws_message(transport, msg_type, payload)


def noting(face, url, **options):
    if face == "listener":
        options["make"] = Noting
    return connected(face, url, **options)


async def receive(handle):
    """The next message, and what is known of it."""
    message = await handle.client.recv()
    return message, handle.client.infos.pop(0) if handle.face == "listener" else handle.own.last_message


@every_face
async def test_it_is_not_kept_unless_asked_for(face):
    async def handler(peer):
        await peer.accept()
        peer.send(texts("a"))
        await peer.rest()

    async with serve(handler) as server, noting(face, server.url) as handle:
        assert await receive(handle) == ("a", None)
        assert handle.own.last_message is None


@every_face
async def test_it_says_what_arrived_how_and_when(face):
    async def handler(peer):
        await peer.accept()
        times = []
        for data in (
            texts("a") + frames.binary(b"b") + frames.text("c")[:2],
            frames.text("c")[2:],
            frames.text("d", fin=False),
            frames.frame(frames.CONTINUATION, "e", fin=False) + frames.frame(frames.CONTINUATION, "f"),
        ):
            times.append(time.monotonic_ns())
            peer.send(data)
            await peer.frame()
        peer.send(frames.close(1000))
        await peer.frames_until_close()
        return times

    async with serve(handler) as server, noting(face, server.url, tuning=Tuning(timestamps="user")) as handle:
        got = []
        for expected, replies in (("a", 0), (b"b", 1), ("c", 2), ("def", 1)):
            got.append(await receive(handle))
            assert got[-1][0] == expected
            for _ in range(replies):
                await handle.client.send("go on")
        infos = [info for _, info in got]
        assert [info.msg_type for info in infos] == [
            WSMsgType.TEXT,
            WSMsgType.BINARY,
            WSMsgType.TEXT,
            WSMsgType.TEXT,
        ]
        assert [info.last_in_buffer for info in infos] == [False, True, True, True]
        assert not any(info.compressed or info.kernel_time_ns for info in infos)
        first, second, third, fourth = (info.recv_time_ns for info in infos)
        await handle.client.rest()
        assert handle.own.last_message == infos[-1]  # control frames are no messages
        times = await server.result()
        assert times[0] < first == second < times[1] < third < times[2] < times[3] < fourth
        assert fourth < time.monotonic_ns()
        assert type(infos[0]) is WSMessageInfo


@every_face
async def test_it_says_whether_the_server_compressed_it(face):
    def deflated(data):
        stream = zlib.compressobj(wbits=-15)
        return (stream.compress(data) + stream.flush(zlib.Z_FULL_FLUSH))[:-4]

    async def handler(peer):
        await peer.accept(headers=ACCEPT)
        second = deflated(b"bb")
        peer.send(
            frames.text(deflated(b"a"), rsv=4)
            + frames.frame(frames.BINARY, second[:2], fin=False, rsv=4)
            + frames.frame(frames.CONTINUATION, second[2:])
            + texts("c")
        )
        await peer.rest()

    options = {"tuning": Tuning(timestamps="user"), "compression": PerMessageDeflate()}
    async with serve(handler) as server, noting(face, server.url, **options) as handle:
        got = [await receive(handle) for _ in range(3)]
        assert [(message, info.compressed) for message, info in got] == [
            ("a", True),
            (b"bb", True),
            ("c", False),
        ]
        assert [info.msg_type for _, info in got] == [WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.TEXT]
        assert [info.last_in_buffer for _, info in got] == [False, False, True]


@every_face
async def test_the_kernel_says_when_it_had_the_bytes(face):
    async def say_and_dawdle(peer):
        await peer.accept()
        while (await peer.frame()).payload != b"now":
            peer.send(texts("not yet"))
        before = time.monotonic_ns()
        peer.send(texts("a"))
        after = time.monotonic_ns()
        await peer.answer_close()
        return before, after

    async with (
        serve(say_and_dawdle) as server,
        noting(face, server.url, tuning=Tuning(timestamps="kernel")) as handle,
    ):
        info = None
        while info is None or info.kernel_time_ns is None:  # it takes a while to begin
            await handle.client.send("?")
            _, info = await receive(handle)
        await handle.client.send("now")
        _, info = await receive(handle)
        await handle.client.close()
        before, after = await server.result()
        # The clocks are read one after the other, and the wall clock is being steered: not exact to the nanosecond.
        assert before - 50_000 < info.kernel_time_ns < after + 1_000_000
        assert info.kernel_time_ns <= info.recv_time_ns + 1_000_000


@every_face
async def test_over_tls_reads_are_stamped(face):
    async def handler(peer):
        await peer.accept()
        peer.send(texts("a", "b"))
        await peer.rest()

    before = time.monotonic_ns()
    context = certificates.client_context()
    async with (
        serve(handler, ssl_context=certificates.server_context()) as server,
        noting(face, server.url, context=context, tuning=Tuning(timestamps="user")) as handle,
    ):
        infos = [(await receive(handle))[1] for _ in range(2)]
        assert [info.last_in_buffer for info in infos] == [False, True]
        assert all(before < info.recv_time_ns < time.monotonic_ns() for info in infos)


@pytest.mark.parametrize("connect", [wsfast.connect, wsfast.sync.client.connect])
def test_the_kernel_cannot_stamp_tls(connect):
    with pytest.raises(ValueError, match="plain TCP"):
        connect("wss://127.0.0.1:9/", tuning=Tuning(timestamps="kernel"))
    with pytest.raises(ValueError, match="timestamps must be"):
        connect("ws://127.0.0.1:9/", tuning=Tuning(timestamps="hardware"))


def test_the_kernel_s_stamps_need_a_tcp_socket():
    ours, far = socket.socketpair()
    with far, pytest.raises(ValueError, match="TCP socket"):
        wsfast.sync.client.connect("ws://localhost/", sock=ours, tuning=Tuning(timestamps="kernel"))
    assert ours.fileno() == -1


async def test_frames_have_it_themselves():
    async def handler(peer):
        await peer.accept()
        peer.send(texts("a"))
        await peer.rest()

    async with (
        serve(handler) as server,
        TAKING_FRAMES["frames"](server.url, tuning=Tuning(timestamps="user")) as client,
    ):
        assert await client.recv() == "a"
        assert client.transport.last_message is None
        assert client.transport.last_received > 0


@every_face
@pytest.mark.parametrize("options", [{"tuning": Tuning(timestamps="user")}, {"ping_interval": 60}])
@pytest.mark.parametrize("tls", [False, True])
async def test_when_bytes_were_last_received(face, options, tls):
    """Control frames count, too: any byte is a sign of life."""

    async def handler(peer):
        await peer.accept()
        for data in (texts("a"), frames.frame(frames.PONG, b"heartbeat") + texts("b")):
            await peer.frame()
            peer.send(data)
        await peer.rest()

    own, context = (certificates.server_context(), certificates.client_context()) if tls else (None, None)
    async with (
        serve(handler, ssl_context=own) as server,
        connected(face, server.url, context=context, **options) as handle,
    ):
        times = [time.monotonic()]
        for message in ("a", "b"):
            await handle.client.send("go on")
            assert await handle.client.recv() == message
            times += [handle.own.last_received, time.monotonic()]
        assert times == sorted(set(times))


@every_face
async def test_when_bytes_were_received_is_not_noted_unless_asked_for(face):
    async with serve(echo) as server, connected(face, server.url, ping_interval=None) as handle:
        await handle.client.send("a")
        assert await handle.client.recv() == "a"
        assert handle.own.last_received == 0.0


async def test_messages_that_wait_keep_theirs():
    """However they leave the queue: whole, as fragments, as what nobody may have."""
    async with awaitable(tuning=Tuning(timestamps="user"), close_timeout=0.1) as (ws, far):
        far.sock.send(texts(*range(40)))
        assert ws.poll(1)
        first = ws.protocol.last_message
        assert first is None  # nobody has received it
        for i in range(40):
            assert await ws.recv() == str(i)
            assert ws.last_message.last_in_buffer == (i == 39)
        far.sock.send(frames.text("a", fin=False))
        assert ws.poll(1)
        streaming = ws.recv_streaming()
        assert await anext(streaming) == "a"
        before = ws.last_message
        far.sock.send(frames.frame(frames.CONTINUATION, "b"))
        assert [part async for part in streaming] == ["b"]
        assert ws.last_message.recv_time_ns > before.recv_time_ns
        last = ws.last_message
        far.sock.send(texts("c") + frames.text(b"\xff") + texts("d"))
        ws.poll(1)
        assert await ws.recv() == "c"
        assert ws.last_message.recv_time_ns > last.recv_time_ns
        last = ws.last_message
        with pytest.raises(ConnectionClosed):
            await ws.recv()
        assert ws.last_message == last


def test_a_blocking_connection_streams_and_queues():
    async def handler(peer):
        await peer.accept()
        await peer.frame()
        peer.send(texts("a") + frames.frame(frames.PONG, b"late"))
        peer.send(frames.frame(frames.PONG, (await peer.frame()).payload))
        await peer.frame()
        peer.send(frames.text("b", fin=False) + frames.frame(frames.CONTINUATION, "c"))
        await peer.rest()

    async def main():
        async with serve(handler) as server:

            def program():
                with wsfast.sync.client.connect(
                    server.url, tuning=Tuning(timestamps="user"), compression=None, close_timeout=1
                ) as ws:
                    ws.send("go")
                    assert ws.ping().wait(HUNG)  # meanwhile "a" is queued
                    between = time.monotonic_ns()
                    assert ws.last_message is None
                    assert ws.recv() == "a"
                    assert ws.last_message.recv_time_ns < between
                    ws.send("go on")
                    first = ws.last_message
                    streaming = ws.recv_streaming()
                    assert next(streaming) == "b"
                    assert ws.last_message is first
                    assert list(streaming) == ["c"]
                    assert ws.last_message.recv_time_ns > between

            await asyncio.to_thread(program)

    asyncio.run(main())


async def test_other_stamps_are_refused():
    with pytest.raises(ValueError, match="timestamps must be"):
        await ws_connect(Noting, "ws://127.0.0.1:9/", tuning=Tuning(timestamps="hardware"))
