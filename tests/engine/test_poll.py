"""transport.poll(): frames without the event loop, in their order, whatever else is going on."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import select
import signal
import socket
import sys
import threading
import time
import zlib
from contextlib import suppress
from random import Random

import pytest
from support import HUNG, certificates, frames
from support.awaiting import awaitable
from support.frames import BINARY, CLOSE, PING, PONG, TEXT, Sent, text
from support.listeners import Recorder, Scripted
from support.pair import pair
from support.servers import Peer, break_off, serve

from wsfast import ConnectionClosed, Tuning, WSListener, WSMsgType, ws_connect


async def test_a_frame_is_delivered_before_poll_returns():
    async with pair() as (transport, listener, far):
        assert transport.poll(0) is False
        far.sock.send(text("a"))
        assert transport.poll(0) is True
        assert listener.payloads == [b"a"]
        assert transport.poll(0.001) is False
        stats = transport.stats
        assert (stats.poll_hits, stats.reads, stats.frames_received) == (1, 2, 1)
        assert stats.poll_misses >= 2


async def test_all_frames_of_a_read_are_delivered():
    async with pair() as (transport, listener, far):
        far.sock.send(text("a") + text("b") + text("c")[:1])
        assert transport.poll(0) is True
        assert listener.payloads == [b"a", b"b"]
        assert transport.poll(0) is False
        far.sock.send(text("c")[1:])
        assert transport.poll(0) is True
        assert listener.payloads == [b"a", b"b", b"c"]


async def test_it_waits_until_a_frame_is_complete_and_other_threads_run_meanwhile():
    async with pair() as (transport, listener, far):
        far.sock.send(text("abc")[:3])
        thread = threading.Timer(0.02, far.sock.send, [text("abc")[3:]])
        thread.start()
        assert transport.poll(HUNG) is True
        assert listener.payloads == [b"abc"]
        thread.join()


async def test_send_and_poll_is_a_round_trip_with_one_write_and_one_read():
    replies = []

    def order(self, transport, frame):
        if len(self.frames) == 1:
            transport.send(WSMsgType.TEXT, "order")
            far.sock.send(text("done"))  # the server answers, as fast as can be
            before = transport.stats
            assert transport.poll(HUNG)
            after = transport.stats
            replies.append(self.payloads[-1])
            assert (after.reads - before.reads, after.poll_misses - before.poll_misses) == (1, 0)

    async with pair(Scripted(on_ws_frame=order)) as (_, listener, far):
        far.sock.send(text("tick"))
        await listener.received(2)
        assert replies == [b"done"]
        assert await far.frames(1) == [Sent(TEXT, b"order")]


async def test_the_frames_of_the_current_read_come_first():
    polls = []

    def nested(self, transport, frame):
        if len(self.frames) in (1, 4):
            polls.append((self.payloads[-1], transport.poll(0), list(self.payloads)))

    async with pair(Scripted(on_ws_frame=nested)) as (_, listener, far):
        far.sock.send(text("a") + text("b") + text("c"))
        await listener.received(3)
        far.sock.send(text("d"))
        await listener.received(4)
        far.sock.send(text("e") + text("f"))
        await listener.received(6)
        assert polls == [(b"a", True, [b"a", b"b", b"c"]), (b"d", False, [b"a", b"b", b"c", b"d"])]
        assert listener.payloads == [b"a", b"b", b"c", b"d", b"e", b"f"]


@pytest.mark.memory
@pytest.mark.parametrize("size", [5, 3000, 100_000, 400_000])
async def test_a_frame_that_the_current_read_has_begun_is_continued(size):
    payload = frames.pattern(size)
    whole = frames.binary(payload)
    kept = []

    def nested(self, transport, frame):
        kept.append(frame)
        if len(self.frames) == 1:
            assert transport.poll(HUNG)

    async with pair(Scripted(on_ws_frame=nested)) as (_, listener, far):
        rest = threading.Thread(target=_send_all, args=[far.sock, whole[4:] + text("z")])
        far.sock.send(text("a") + whole[:4])
        rest.start()
        await listener.received(3)
        rest.join()
        assert listener.payloads == [b"a", payload, b"z"]
        assert [bytes(frame) for frame in kept] == [b"a", payload, b"z"]


def _send_all(sock, data):
    while data:
        select.select([], [sock], [])
        data = data[sock.send(data) :]


@pytest.mark.memory
async def test_polls_may_be_nested_deeply_and_every_kept_frame_stays():
    kept = []

    def nested(self, transport, frame):
        kept.append(frame)
        if len(sent) < 50:
            sent.append(frames.pattern(100 * len(sent), len(sent)))
            far.sock.send(frames.binary(sent[-1]))
            assert transport.poll(HUNG)

    sent = [b"first"]
    async with pair(Scripted(on_ws_frame=nested)) as (_, listener, far):
        far.sock.send(frames.binary(sent[0]))
        await listener.received(50)
        assert listener.payloads == sent
        assert [bytes(frame) for frame in kept] == sent


async def test_frames_that_came_with_the_reply_are_delivered_by_a_poll_of_on_ws_connected():
    polled = []

    def poll(self, transport):
        polled.append((transport.poll(HUNG), list(self.payloads)))

    async def glued(peer: Peer) -> None:
        await peer.accept(text("a") + text("b"))
        await peer.rest()

    async with serve(glued) as server:
        transport, listener = await ws_connect(lambda: Scripted(on_ws_connected=poll), server.url)
        assert polled == [(True, [b"a", b"b"])]
        await asyncio.sleep(0)
        assert listener.payloads == [b"a", b"b"]
        transport.abort()
        await transport.wait_disconnected()


async def test_what_wsfast_takes_for_itself_is_no_frame():
    async with pair() as (transport, listener, far):
        far.sock.send(frames.frame(PING, b"p"))
        assert transport.poll(0) is False
        assert await far.frames(1) == [Sent(PONG, b"p")]
        measuring = asyncio.ensure_future(transport.measure_roundtrip_time(1))
        ping = (await far.frames(1))[0]
        far.sock.send(frames.frame(PONG, ping.payload))
        assert transport.poll(0) is False
        await measuring
        far.sock.send(frames.frame(PONG, b"unasked"))
        assert transport.poll(0) is True
        assert listener.payloads == [b"unasked"]


@pytest.mark.parametrize("how", ["cork", "gather"])
async def test_what_waits_to_be_sent_is_sent_first(how):
    async with pair(tuning=Tuning(write_policy="gather" if how == "gather" else "immediate")) as (
        transport,
        _,
        far,
    ):
        if how == "cork":
            with transport.cork():
                transport.send(WSMsgType.TEXT, "a")
                assert far.read_available() == b""
                transport.poll(0)
                assert await far.frames(1) == [Sent(TEXT, b"a")]
        else:
            for message in "ab":
                transport.send(WSMsgType.TEXT, message)
            transport.poll(0)
            assert frames.parse(far.read_available()) == [Sent(TEXT, b"a"), Sent(TEXT, b"b")]


async def test_an_exception_of_the_callback_ends_the_connection_and_not_the_poll():
    def explode(self, transport, frame):
        raise LookupError("mine")

    async with pair(Scripted(on_ws_frame=explode)) as (transport, listener, far):
        far.sock.send(text("a") + text("b"))
        assert transport.poll(HUNG) is True
        assert listener.payloads == [b"a"]
        assert (await far.frames(1))[0].opcode == CLOSE
        with pytest.raises(ConnectionClosed):
            transport.poll(HUNG)
        far.sock.close()
        with pytest.raises(LookupError, match="mine"):
            await transport.wait_disconnected()


async def test_an_exception_inside_a_nested_poll_ends_the_connection_once():
    def nested(self, transport, frame):
        if len(self.frames) == 1:
            assert transport.poll(HUNG)
        else:
            raise LookupError("inner")

    async with pair(Scripted(on_ws_frame=nested)) as (transport, listener, far):
        far.sock.send(text("a") + text("b") + text("c"))
        assert (await far.frames(1))[0].opcode == CLOSE
        assert listener.payloads == [b"a", b"b"]
        far.sock.close()
        with pytest.raises(LookupError, match="inner"):
            await transport.wait_disconnected()


async def test_a_violation_that_a_nested_poll_finds_ends_the_connection():
    def nested(self, transport, frame):
        with suppress(ConnectionClosed):
            transport.poll(HUNG)

    async with pair(Scripted(on_ws_frame=nested)) as (_, listener, far):
        far.sock.send(text("a") + b"\xff\xff" + text("b"))
        sent = (await far.frames(1))[0]
        assert sent.opcode == CLOSE
        assert frames.parse_close(sent.payload)[0] == 1002
        assert listener.payloads == [b"a"]


@pytest.mark.parametrize("end", ["eof", "abort", "close frame", "disconnect"])
async def test_a_connection_that_ends_raises(end):
    def look_again(self, transport, frame):
        with pytest.raises(ConnectionClosed):
            transport.poll(HUNG)
        self.note("refused")

    async with pair(Scripted(on_ws_frame=look_again)) as (transport, listener, far):
        if end == "eof":
            far.sock.close()
        elif end == "abort":
            transport.abort()
        elif end == "disconnect":
            transport.disconnect()
        else:
            far.sock.send(frames.close(1000) + text("never delivered"))
            assert transport.poll(HUNG) is True
            assert listener.events == ["connected", "frame", "refused"]
            assert [got.msg_type for got in listener.frames] == [WSMsgType.CLOSE]
        with pytest.raises(ConnectionClosed):
            transport.poll(math.inf)
        far.sock.close()
        await transport.wait_disconnected()
        with pytest.raises(ConnectionClosed):
            transport.poll(0)


async def test_a_broken_connection_raises():
    async with serve(break_off) as server:
        transport, _ = await ws_connect(Recorder, server.url)
        transport.send(WSMsgType.TEXT, "a")
        await server.result()
        with pytest.raises(ConnectionClosed):
            transport.poll(math.inf)
        await transport.wait_disconnected()
        assert isinstance(transport.close_info.cause, ConnectionResetError)


async def test_the_server_s_close_is_received_while_closing():
    async with pair() as (transport, listener, far):
        transport.send_close(1000)
        far.sock.send(text("late") + frames.close(1000))
        assert transport.poll(HUNG) is True
        assert [got.msg_type for got in listener.frames] == [WSMsgType.TEXT, WSMsgType.CLOSE]


@pytest.mark.parametrize("timeout", [-1, math.nan, -math.inf])
async def test_a_timeout_that_makes_no_sense_is_refused(timeout):
    async with pair() as (transport, _, _):
        with pytest.raises(ValueError, match="timeout must not be negative"):
            transport.poll(timeout)


async def test_it_refuses_to_wait_for_what_is_not_read():
    async with pair() as (transport, _, far):
        transport.underlying_transport.pause_reading()
        far.sock.send(text("a"))
        with pytest.raises(RuntimeError, match="paused"):
            transport.poll(HUNG)
        transport.underlying_transport.resume_reading()
        assert transport.poll(HUNG) is True


async def test_other_threads_are_refused():
    async with pair() as (transport, _, _):
        with pytest.raises(RuntimeError, match="wrong thread"):
            await asyncio.to_thread(transport.poll, 0)


async def test_the_loop_s_own_transports_are_refused():
    async with pair(use_aiofastnet=False) as (transport, _, _):
        with pytest.raises(NotImplementedError, match="use_aiofastnet"):
            transport.poll(0)


async def test_other_threads_get_the_interpreter_whenever_they_ask_for_it():
    """Each time.sleep(0) gives it away, and asks for it again."""

    def work():
        for _ in range(500):
            time.sleep(0)
        far.sock.send(text("a"))

    interval = sys.getswitchinterval()
    async with pair() as (transport, _, far):
        thread = threading.Thread(target=work)
        sys.setswitchinterval(1e-4)
        try:
            thread.start()
            assert transport.poll(HUNG) is True
        finally:
            sys.setswitchinterval(interval)
            thread.join()


def _start_and_poll(thread, transport, **options):
    """The signal may come before the poll."""
    thread.start()
    transport.poll(math.inf, **options)


async def test_a_signal_gets_in():
    def handler(number, stack):
        raise LookupError("the signal")

    previous = signal.signal(signal.SIGUSR1, handler)
    try:
        async with pair() as (transport, _, _):
            thread = threading.Timer(0.02, os.kill, [os.getpid(), signal.SIGUSR1])
            with pytest.raises(LookupError, match="the signal"):
                _start_and_poll(thread, transport)
            thread.join()
    finally:
        signal.signal(signal.SIGUSR1, previous)


# ---- poll(sleep=True) waits in the kernel


async def test_a_sleeping_poll_looks_once_at_a_socket_that_is_ready():
    async with pair() as (transport, listener, far):
        before = time.monotonic()
        thread = threading.Timer(0.05, far.sock.send, [text("a")])
        thread.start()
        assert transport.poll(HUNG, sleep=True) is True
        pulses = (time.monotonic() - before) / 0.2  # it waits about so long at once
        assert listener.payloads == [b"a"]
        assert transport.stats.poll_hits == 1
        assert transport.stats.poll_misses <= pulses + 2  # a signal of another test's child ends a wait, too
        thread.join()


@pytest.mark.parametrize("seconds", [0, 0.0001, 0.02])
async def test_a_sleeping_poll_ends_when_the_time_is_up(seconds):
    async with pair() as (transport, _, _):
        before = time.monotonic()
        assert transport.poll(seconds, sleep=True) is False
        assert time.monotonic() - before >= seconds
        assert transport.stats.poll_misses <= 3


async def test_a_sleeping_poll_goes_on_until_the_frame_is_complete():
    async with pair() as (transport, listener, far):
        whole = frames.binary(bytes(200_000))
        thread = threading.Thread(target=_send_all, args=[far.sock, whole])
        thread.start()
        assert transport.poll(HUNG, sleep=True) is True
        assert listener.payloads == [bytes(200_000)]
        thread.join()


async def test_other_threads_run_while_a_poll_sleeps():
    """A thread that runs Python code only until it has the interpreter sends the frame."""
    interval = sys.getswitchinterval()
    async with pair() as (transport, _, far):
        thread = threading.Thread(target=lambda: far.sock.send(text("a")))
        sys.setswitchinterval(1000)
        try:
            thread.start()
            assert transport.poll(HUNG, sleep=True) is True
        finally:
            sys.setswitchinterval(interval)
            thread.join()


@pytest.mark.parametrize("what", ["raises", "sends", "closes", "pauses"])
async def test_a_signal_handler_runs_while_a_poll_sleeps(what):
    def handler(number, stack):
        if what == "raises":
            raise LookupError("the signal")
        if what == "sends":
            far.sock.send(text("a"))
        elif what == "closes":
            transport.abort()
        else:
            transport.underlying_transport.pause_reading()

    previous = signal.signal(signal.SIGUSR1, handler)
    try:
        async with pair() as (transport, listener, far):
            thread = threading.Timer(0.02, os.kill, [os.getpid(), signal.SIGUSR1])
            if what == "sends":
                thread.start()
                assert transport.poll(math.inf, sleep=True) is True
                assert listener.payloads == [b"a"]
            else:
                error = {"raises": LookupError, "closes": ConnectionClosed, "pauses": RuntimeError}[what]
                with pytest.raises(error):
                    _start_and_poll(thread, transport, sleep=True)
                if what == "pauses":
                    transport.underlying_transport.resume_reading()
            thread.join()
    finally:
        signal.signal(signal.SIGUSR1, previous)


@pytest.mark.parametrize("end", ["eof", "close"])
async def test_a_connection_that_ends_wakes_a_sleeping_poll(end):
    async with pair() as (transport, _, far):
        endings = {
            "eof": lambda: far.sock.shutdown(socket.SHUT_WR),
            "close": lambda: far.sock.send(frames.close(1000)),
        }
        thread = threading.Timer(0.02, endings[end])
        thread.start()
        if end == "close":
            assert transport.poll(HUNG, sleep=True) is True
        with pytest.raises(ConnectionClosed):
            transport.poll(HUNG, sleep=True)
        thread.join()


async def test_a_sleeping_poll_refuses_to_wait_for_what_is_not_read():
    async with pair() as (transport, _, _):
        transport.underlying_transport.pause_reading()
        with pytest.raises(RuntimeError, match="paused"):
            transport.poll(math.inf, sleep=True)
        transport.underlying_transport.resume_reading()


async def test_what_the_kernel_did_not_take_leaves_while_a_poll_sleeps():
    """The server answers when it has all of it. No event loop runs that would send the rest."""
    size = 8_000_000
    async with pair() as (transport, listener, far):

        def answer():
            far.sock.setblocking(True)
            left = size + 14
            while left:
                left -= len(far.sock.recv(min(left, 1 << 20)))
            far.sock.sendall(text("all"))
            far.sock.setblocking(False)

        thread = threading.Thread(target=answer)
        transport.send(WSMsgType.BINARY, bytes(size))
        assert transport.write_buffer_size > 0
        thread.start()
        assert transport.poll(HUNG, sleep=True) is True
        assert listener.payloads == [b"all"]
        thread.join()


async def test_a_sleeping_poll_goes_on_when_it_has_waited_in_vain():
    """poll(2) waits for a quarter of a second at most. The descriptor, which others may share, never does."""
    async with pair() as (transport, listener, far):
        beneath = transport.underlying_transport
        fd = beneath.get_extra_info("socket").fileno()
        before = time.monotonic()
        for delay in (0.3, 0.02):
            thread = threading.Timer(delay, far.sock.send, [text("a")])
            thread.start()
            assert transport.poll(HUNG, sleep=True) is True
            assert not os.get_blocking(fd)
            thread.join()
            beneath.pause_reading()
            await asyncio.sleep(0)
            beneath.resume_reading()
            await asyncio.sleep(0)
        assert transport.stats.poll_misses <= 2 + (time.monotonic() - before) / 0.2
        assert listener.payloads == [b"a", b"a"]


async def test_nothing_else_waits_when_a_poll_has_slept():
    async with pair() as (transport, listener, far):
        far.sock.send(text("a"))
        assert transport.poll(HUNG, sleep=True) is True
        assert transport.poll(0) is False
        transport.underlying_transport._read_ready()
        transport.send(WSMsgType.BINARY, bytes(8_000_000))
        assert transport.write_buffer_size > 0
        far.sock.send(text("b"))
        await listener.received(2)


async def test_the_awaitable_client_sleeps_as_well():
    async with awaitable() as (ws, far):
        thread = threading.Timer(0.02, far.sock.send, [text("a")])
        thread.start()
        assert ws.poll(HUNG, sleep=True) is True
        assert await ws.recv() == "a"
        thread.join()


async def test_it_works_from_a_task_with_the_awaitable_client_as_well():
    async with awaitable() as (ws, far):
        waiting = asyncio.ensure_future(ws.recv())
        await asyncio.sleep(0)
        far.sock.send(text("a"))
        assert ws.protocol.poll(HUNG) is True
        assert await waiting == "a"


@pytest.mark.parametrize("sleep", [False, True])
@pytest.mark.parametrize("settings", [certificates.client_context, certificates.client_settings])
async def test_tls_is_polled_through_its_transport(settings, sleep):
    def nested(self, transport, frame):
        if frame.get_payload_as_bytes() == b"a":
            peer.send(text("c"))
            assert transport.poll(HUNG, sleep)

    async def handler(there):
        await there.accept()
        arrived.set_result(there)
        await done.wait()

    arrived, done = asyncio.get_running_loop().create_future(), asyncio.Event()
    async with serve(handler, ssl_context=certificates.server_context()) as served:
        transport, listener = await ws_connect(
            lambda: Scripted(on_ws_frame=nested), served.url, ssl_context=settings()
        )
        peer = await arrived
        assert transport.poll(0) is False
        peer.send(text("a") + text("b"))
        assert transport.poll(HUNG, sleep) is True
        assert listener.payloads[:2] == [b"a", b"b"]
        while len(listener.payloads) < 3:
            assert transport.poll(HUNG, sleep) is True
        assert listener.payloads == [b"a", b"b", b"c"]
        big = frames.pattern(300_000)
        peer.send(frames.binary(big)[:100_000])
        transport.poll(0.01)
        peer.send(frames.binary(big)[100_000:])
        while len(listener.frames) < 4:
            transport.poll(0.01, sleep)
            await asyncio.sleep(0)  # the server has more to write than the kernel takes
        assert listener.frames[-1].payload == big
        assert transport.stats.poll_hits >= 4
        done.set()
        await transport.wait_disconnected()
        with pytest.raises(ConnectionClosed):
            transport.poll(0)


async def test_a_large_frame_is_not_cut_by_a_poll_of_a_finalizer():
    """A message sent while a long frame leaves piece by piece waits, even if somebody polls."""

    def poll(self):
        self.transport.send(WSMsgType.TEXT, "inside")
        self.transport.poll(0)

    async with pair(Scripted(pause_writing=poll)) as (transport, _, far):
        payload = frames.pattern(3_000_000)
        transport.send(WSMsgType.BINARY, payload)
        assert await far.frames(2) == [Sent(BINARY, payload), Sent(TEXT, b"inside")]


@pytest.mark.parametrize("payload_type", [memoryview, bytes, str])
async def test_whole_messages_come_in_their_order_too(payload_type):
    class Messages(Recorder):
        def on_ws_message(self, transport, msg_type, payload) -> None:
            got.append(payload)
            if len(got) in (1, 3):
                far.sock.send(text("from the socket"))
                assert transport.poll(HUNG)
            self.note("message")

    Messages.payload_type = payload_type
    got: list = []
    async with pair(Messages()) as (_, listener, far):
        far.sock.send(text("a") + text("b", fin=False) + frames.frame(frames.CONTINUATION, "c") + text("d"))
        await listener.until(lambda: len(got) == 5)
        expected = ["a", "bc", "d", "from the socket", "from the socket"]
        assert [payload if payload_type is str else bytes(payload).decode() for payload in got] == expected


@pytest.mark.memory
@pytest.mark.parametrize("compressed", [False, True])
async def test_a_finalizer_amid_a_message_does_not_take_the_next_one(compressed):
    class Messages(WSListener):
        def on_ws_message(self, transport, msg_type, payload):
            received.append(bytes(payload))
            if len(received) == len(messages):
                complete.set()

    def collect(phase, info):
        # From CPython 3.12 on the collector runs at the first line of a function, too, and there the message has come.
        amid = sys._getframe(1).f_code is not Messages.on_ws_message.__code__
        if phase == "stop" and amid and threading.get_ident() == here and not complete.is_set():
            with suppress(RuntimeError):
                listening[0].poll(0)

    async def handler(peer):
        await peer.accept(headers=b"Sec-WebSocket-Extensions: permessage-deflate\r\n" if compressed else b"")
        await go.wait()
        wire = b""
        for message in messages:
            if compressed:
                message = deflater.compress(message) + deflater.flush(zlib.Z_SYNC_FLUSH)
            wire += frames.frame(BINARY, message.removesuffix(b"\0\0\xff\xff"), rsv=4 * compressed)
        peer.send(wire)
        await peer.rest()

    # Large ones take several steps to inflate, and between them objects are made: the collector runs.
    random = Random(1)
    messages = [random.randbytes(1 if number % 2 else 100_000) for number in range(20)]
    deflater = zlib.compressobj(wbits=-15)
    received, listening, here = [], [], threading.get_ident()
    go, complete = asyncio.Event(), asyncio.Event()
    threshold = gc.get_threshold()
    async with serve(handler) as server:
        transport, _ = await ws_connect(Messages, server.url, compression="deflate")
        listening.append(transport)
        gc.callbacks.append(collect)
        gc.set_threshold(1)
        try:
            go.set()
            await asyncio.wait_for(complete.wait(), HUNG)
        finally:
            gc.callbacks.remove(collect)
            gc.set_threshold(*threshold)
        assert received == messages
        transport.abort()
