"""recv(), recv_streaming() and iteration: ready results, waiting, cancellation, queues."""

from __future__ import annotations

import asyncio
import gc
import inspect
import socket
import threading
import time
import weakref
from collections.abc import Coroutine
from contextlib import asynccontextmanager, suppress

import pytest
from support import HUNG, certificates, frames
from support.awaiting import awaitable, beside, feed, finished_at_once, turns, woken, work
from support.frames import BINARY, CONTINUATION, PING, PONG, TEXT, Sent, texts
from support.kinds import kind_of
from support.servers import serve

from wsfast import ConnectionClosed
from wsfast.asyncio.client import connect
from wsfast.exceptions import (
    ConcurrencyError,
    ConnectionClosedError,
    ConnectionClosedOK,
    InvalidText,
    PayloadTooBig,
)

KIB = 1024


# Ready results take no detour.


async def test_recv_of_a_queued_message_ends_in_its_first_step():
    async with awaitable() as (ws, _):
        await feed(ws, frames.text("a") + frames.binary(b"b") + frames.text("c") + frames.text("d"))
        assert finished_at_once(ws.recv()) == "a"
        assert finished_at_once(ws.recv()) == b"b"
        assert finished_at_once(ws.recv(decode=False)) == b"c"
        assert finished_at_once(ws.__aiter__().__anext__()) == "d"


async def test_recv_of_a_message_that_arrives_costs_no_turn_of_the_loop():
    """The receiver runs inside the read, before anything that the event loop was to do next."""
    order = []
    async with awaitable() as (ws, _):

        async def receive():
            order.append(await ws.recv())
            order.append(await ws.recv())

        receiving = asyncio.ensure_future(receive())
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        loop.call_soon(ws.protocol.data_received, frames.text("message") + frames.text("another"))
        loop.call_soon(order.append, "the loop's next callback")
        await receiving
    assert order == ["message", "another", "the loop's next callback"]


async def test_the_task_that_is_run_is_the_current_one_and_has_its_own_context():
    import contextvars

    variable = contextvars.ContextVar("variable", default="default")
    seen = []
    async with awaitable() as (ws, _):

        async def receive():
            variable.set("mine")
            seen.append(await ws.recv())
            seen.append((asyncio.current_task(), variable.get()))

        receiving = asyncio.ensure_future(receive())
        await asyncio.sleep(0)
        await feed(ws, frames.text("x"))
        await receiving
        assert seen == ["x", (receiving, "mine")]
        assert variable.get() == "default"


async def test_a_task_that_feeds_does_not_run_another_task_inside_itself():
    async with awaitable() as (ws, _):
        receiving = asyncio.ensure_future(ws.recv())
        await asyncio.sleep(0)
        ws.protocol.data_received(frames.text("x"))
        assert not receiving.done()
        assert await receiving == "x"


@pytest.mark.parametrize("how", ["recv", "async for"])
async def test_a_flood_of_ready_results_lets_other_tasks_run(how):
    """All messages are there; receiving them takes some milliseconds of the processor and not one wait."""
    async with awaitable(max_queue=None) as (ws, _):
        await feed(ws, texts(*range(20_000)))
        assert ws.listener.frames == 20_000
        received = 0
        async with beside() as other:
            end = time.perf_counter() + 0.02
            if how == "recv":
                while time.perf_counter() < end or received < 20_000:
                    if received < 20_000:
                        assert await ws.recv() == str(received)
                        received += 1
            else:
                async for message in ws:
                    assert message == str(received)
                    received += 1
                    if received == 20_000:
                        break
        assert other.turned >= 3


async def test_slow_processing_of_ready_results_lets_other_tasks_run_after_a_few():
    async with awaitable(max_queue=None) as (ws, _):
        await feed(ws, texts(*range(40)))
        async with beside() as other:
            for _ in range(40):
                await ws.recv()
                work(0.0005)
        assert other.turned >= 3


def test_recv_and_send_give_coroutines_as_far_as_python_can_tell():
    from wsfast.asyncio._messaging import Receive, Send

    for kind in (Receive, Send):
        assert issubclass(kind, Coroutine)


async def test_recv_may_be_given_to_whatever_takes_a_coroutine():
    async with awaitable() as (ws, _):
        pending = ws.recv()
        assert asyncio.iscoroutine(pending)
        assert inspect.isawaitable(pending)
        pending.close()
        await feed(ws, texts(*range(6)))
        assert await asyncio.create_task(ws.recv()) == "0"
        assert await asyncio.wait_for(ws.recv(), HUNG) == "1"
        assert await asyncio.gather(ws.recv(), ws.recv()) == ["2", "3"]
        done, _ = await asyncio.wait([asyncio.ensure_future(ws.recv())])
        assert done.pop().result() == "4"
        assert await asyncio.shield(ws.recv()) == "5"


async def test_recv_that_is_never_awaited_warns_and_takes_nothing():
    async with awaitable() as (ws, _):
        await feed(ws, frames.text("x"))
        with pytest.warns(RuntimeWarning, match="recv' was never awaited"):
            ws.recv()
        assert await ws.recv() == "x"


async def test_a_result_can_be_awaited_once():
    async with awaitable() as (ws, _):
        await feed(ws, texts(1, 2))
        receiving = ws.recv()
        assert await receiving == "1"
        with pytest.raises(RuntimeError, match="already awaited"):
            await receiving
        assert await ws.recv() == "2"


async def test_another_thread_is_refused():
    raised = []
    async with awaitable() as (ws, _):

        def wrong_thread():
            for make in (ws.recv, lambda: ws.send("x")):
                try:
                    make().send(None)
                except RuntimeError as exc:
                    raised.append(str(exc))

        thread = threading.Thread(target=wrong_thread)
        thread.start()
        thread.join()
    assert len(raised) == 2
    assert all("wrong thread" in text for text in raised)


# Cancellation loses nothing. (Bug 2 of the peers: wait_for(recv()) lost messages.)


async def test_cancelled_before_a_message_arrives():
    async with awaitable() as (ws, _):
        for number in range(3):
            receiving = asyncio.ensure_future(ws.recv())
            await asyncio.sleep(0)
            receiving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await receiving
            await feed(ws, frames.text(str(number)))
            assert await ws.recv() == str(number)


@pytest.mark.parametrize("first", ["cancel", "message"])
@pytest.mark.parametrize("inside_a_task", [True, False])
async def test_cancelled_in_the_iteration_in_which_a_message_arrives(first, inside_a_task):
    """Whoever comes first, the message is received once."""
    loop = asyncio.get_running_loop()
    async with awaitable() as (ws, _):
        for number in range(5):
            receiving = asyncio.ensure_future(ws.recv())
            await asyncio.sleep(0)
            steps = [receiving.cancel, lambda n=number: ws.protocol.data_received(frames.text(str(n)))]
            for step in steps if first == "cancel" else steps[::-1]:
                if inside_a_task:
                    step()
                else:
                    loop.call_soon(step)
            try:
                got = await receiving
            except asyncio.CancelledError:
                got = await ws.recv()
            assert got == str(number)
            assert ws.listener.frames == 0


async def test_recv_with_a_time_out_loses_no_message():
    """A server sends at random moments; a client that polls gets all of it."""
    count = 400

    async def handler(peer):
        await peer.accept()
        for number in range(count):
            peer.send(frames.text(str(number)))
            await turns(number % 7)
        await peer.answer_close()

    async with serve(handler) as served, connect(served.url) as ws:
        received, tries = [], 0
        while len(received) < count:
            tries += 1
            with suppress(asyncio.TimeoutError):
                received.append(await asyncio.wait_for(ws.recv(), tries % 3 * 1e-6))
        assert received == [str(number) for number in range(count)]


async def test_cancelled_while_other_tasks_get_their_turn():
    """The await that yields because it has gone on too long holds no message yet."""
    async with awaitable(max_queue=None) as (ws, _):
        await feed(ws, texts(*range(5000)))
        received = []

        async def receive():
            while True:
                received.append(await ws.recv())

        while len(received) < 5000:
            receiving = asyncio.ensure_future(receive())
            await asyncio.sleep(0)
            receiving.cancel()
            with suppress(asyncio.CancelledError):
                await receiving
        assert received == [str(number) for number in range(5000)]


async def test_cancelled_inside_a_fragmented_message():
    async with awaitable() as (ws, _):
        await feed(ws, frames.frame(TEXT, b"a", fin=False))
        receiving = asyncio.ensure_future(ws.recv())
        await turns(2)
        receiving.cancel()
        await turns(2)
        await feed(ws, frames.frame(CONTINUATION, b"b") + frames.text("next"))
        assert await ws.recv() == "ab"
        assert await ws.recv() == "next"


async def test_cancelled_streaming_before_the_first_fragment_is_harmless():
    async with awaitable() as (ws, _):
        fragments = ws.recv_streaming()
        receiving = asyncio.ensure_future(fragments.__anext__())
        await turns(2)
        receiving.cancel()
        await asyncio.wait([receiving])
        await feed(ws, frames.text("x"))
        assert await ws.recv() == "x"


async def test_cancelled_streaming_inside_a_message_does_not_turn_its_rest_into_a_message():
    async with awaitable() as (ws, _):
        await feed(ws, frames.frame(TEXT, b"a", fin=False))
        fragments = ws.recv_streaming()
        assert await fragments.__anext__() == "a"
        receiving = asyncio.ensure_future(fragments.__anext__())
        await turns(2)
        receiving.cancel()
        await asyncio.wait([receiving])
        await feed(ws, frames.frame(CONTINUATION, b"b") + frames.text("next"))
        with pytest.raises(ConcurrencyError):
            await ws.recv()


@pytest.mark.parametrize("exc", [GeneratorExit, ZeroDivisionError])
async def test_an_exception_inside_a_stream_does_not_turn_its_rest_into_a_message(exc):
    async with awaitable() as (ws, _):
        await feed(ws, frames.frame(TEXT, b"a", fin=False))
        fragments = ws.recv_streaming()
        assert await fragments.__anext__() == "a"
        receiving = fragments.__anext__()
        receiving.send(None)
        with pytest.raises(exc):
            receiving.throw(exc)
        await feed(ws, frames.frame(CONTINUATION, b"b") + frames.text("next"))
        with pytest.raises(ConcurrencyError):
            await ws.recv()


async def test_a_receiver_that_is_thrown_away_leaves_room_for_another():
    async with awaitable() as (ws, _):
        receiving = ws.recv()
        receiving.send(None)
        with pytest.raises(ConcurrencyError):
            await ws.recv()
        del receiving
        await feed(ws, frames.text("x"))
        assert await ws.recv() == "x"
        receiving = ws.recv()
        receiving.send(None)
        receiving.close()
        receiving = ws.recv()
        receiving.send(None)
        with pytest.raises(LookupError, match="mine"):
            receiving.throw(LookupError("mine"))
        await feed(ws, frames.text("y"))
        assert await ws.recv() == "y"


# Messages


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, 300_000, 3_000_000])
@pytest.mark.parametrize("waiting", [True, False])
async def test_messages_of_all_sizes(size, waiting):
    payload = frames.pattern(size)
    async with awaitable(max_size=None) as (ws, far):
        receiving = asyncio.ensure_future(ws.recv()) if waiting else None
        await asyncio.sleep(0)
        await far.send(frames.binary(payload) + frames.text("end"))
        assert await (receiving or ws.recv()) == payload
        assert await ws.recv() == "end"


@pytest.mark.memory
async def test_messages_that_nobody_took_survive_later_reads():
    """They lie in the read buffer at first, which is used again for what follows."""
    async with awaitable(max_queue=None) as (ws, far):
        for number in range(50):
            await far.send(frames.binary(frames.pattern(1000, number)) + frames.text(f"text {number}"))
            await turns(3)
        for number in range(50):
            assert await ws.recv() == frames.pattern(1000, number)
            assert await ws.recv() == f"text {number}"


async def test_every_split_of_the_stream():
    stream = (
        frames.text("one")
        + frames.frame(TEXT, "żółw".encode()[:1], fin=False)
        + frames.frame(PING, b"!")
        + frames.frame(CONTINUATION, "żółw".encode()[1:])
        + frames.binary(b"x" * 130)
    )
    for split in range(len(stream)):
        async with awaitable() as (ws, far):
            receiving = asyncio.ensure_future(ws.recv())
            await asyncio.sleep(0)
            await feed(ws, stream[:split])
            await feed(ws, stream[split:])
            assert await receiving == "one"
            assert [await ws.recv(), await ws.recv()] == ["żółw", b"x" * 130]
            assert await far.frames(1) == [Sent(PONG, b"!")]


@pytest.mark.parametrize("decode", [None, False])
@pytest.mark.parametrize("waiting", [True, False])
async def test_text_that_is_not_utf8_says_why(waiting, decode):
    """It ends the connection whether somebody waits for it or not, and nothing behind it is received."""
    async with awaitable(close_timeout=0.05) as (ws, far):
        first = asyncio.ensure_future(ws.recv()) if waiting else ws.recv()
        await asyncio.sleep(0)
        await feed(ws, frames.text("ok") + frames.text(b"bad \xff") + frames.text("never"))
        assert [sent.opcode for sent in await far.frames_until_eof()] == [frames.CLOSE]
        assert await first == "ok"
        for _ in range(2):
            with pytest.raises(ConnectionClosedError) as caught:
                await ws.recv(decode)
            assert isinstance(caught.value.__cause__, InvalidText)
            assert caught.value.__cause__.start == 4
            assert caught.value.sent.code == 1007


@pytest.mark.parametrize("decode", [None, False])
async def test_text_that_is_not_utf8_where_it_is_waited_for(decode):
    async with awaitable(close_timeout=0.05) as (ws, _):
        waiting = asyncio.ensure_future(ws.recv(decode))
        await asyncio.sleep(0)
        await feed(ws, frames.text(b"bad \xff") + frames.text("never"))
        for receiving in (waiting, ws.recv(decode)):
            with pytest.raises(ConnectionClosedError) as caught:
                await receiving
            assert isinstance(caught.value.__cause__, InvalidText)


async def test_a_stream_has_as_many_fragments_as_it_likes():
    count = 100_000

    async def handler(peer):
        await peer.accept(frames.frame(TEXT, "x", fin=False))
        peer.send(frames.frame(CONTINUATION, "x", fin=False) * (count - 2) + frames.frame(CONTINUATION, "x"))
        await peer.answer_close()

    async with serve(handler) as server, connect(server.url, compression=None) as ws:
        assert sum([len(part) async for part in ws.recv_streaming()]) == count


@pytest.mark.parametrize("decode", [None, True, False])
@pytest.mark.parametrize("waits", [True, False])
async def test_a_stream_of_one_frame_that_is_not_utf8(decode, waits):
    async with awaitable(close_timeout=0.05) as (ws, far):
        parts = ws.recv_streaming(decode)
        receiving = asyncio.ensure_future(parts.__anext__()) if waits else parts.__anext__()
        await asyncio.sleep(0)
        await feed(ws, frames.text(b"bad \xff") + frames.text("never"))
        with pytest.raises(ConnectionClosedError) as caught:
            await receiving
        assert isinstance(caught.value.__cause__, InvalidText)
        sent = (await far.frames_until_eof())[-1]
        assert frames.parse_close(sent.payload)[0] == 1007
        with pytest.raises(ConnectionClosedError):
            await ws.recv()


async def test_the_end_without_close_has_a_cause():
    async with awaitable() as (ws, far):
        far.sock.close()
        with pytest.raises(ConnectionClosedError) as caught:
            await ws.recv()
        assert isinstance(caught.value.__cause__, EOFError)


async def test_the_end_is_noticed_while_sending_is_blocked():
    async with awaitable(compression=None, close_timeout=None) as (ws, far):
        sending = asyncio.ensure_future(ws.send(bytes(20_000_000)))
        await turns(3)
        assert not sending.done()
        far.sock.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionClosedError) as caught:
            await sending
        assert isinstance(caught.value.__cause__, EOFError)


async def test_text_that_is_not_utf8_and_then_a_normal_close_is_no_normal_end():
    """A message is read when it is received, and by then the closing handshake may be over."""

    async def handler(peer):
        await peer.accept(
            frames.text("good") + frames.text(b"bad \xff") + frames.text("lost") + frames.close(1000)
        )
        assert (await peer.frame()).payload == b"\x03\xe8"

    async with serve(handler) as server, connect(server.url) as ws:
        await ws.wait_closed()
        assert await ws.recv() == "good"
        for _ in range(2):
            with pytest.raises(ConnectionClosedError) as caught:
                await ws.recv()
            assert isinstance(caught.value.__cause__, InvalidText)
            assert (caught.value.rcvd.code, caught.value.sent.code) == (1000, 1000)
        with pytest.raises(ConnectionClosedError):
            await anext(aiter(ws))


async def test_text_is_read_once_and_given_as_wished():
    async with awaitable() as (ws, _):
        await feed(ws, frames.text("żółw") + frames.text("żółw") + frames.text("żółw"))
        assert await ws.recv(decode=False) == "żółw".encode()
        assert [piece async for piece in ws.recv_streaming(decode=False)] == ["żółw".encode()]
        assert await ws.recv() == "żółw"


async def test_a_message_over_max_size_says_whose_limit_and_how_much():
    async with awaitable(max_size=10, close_timeout=0.05) as (ws, far):
        await feed(ws, frames.frame(TEXT, b"x" * 8, fin=False) + frames.frame(CONTINUATION, b"x" * 3))
        with pytest.raises(ConnectionClosedError, match="receiver's limit") as caught:
            await ws.recv()
        cause = caught.value.__cause__
        assert isinstance(cause, PayloadTooBig)
        assert (cause.size, cause.current_size, cause.max_size) == (3, 8, 10)
        assert frames.parse_close((await far.frames_until_eof())[-1].payload)[0] == 1009


async def test_a_long_fragment_is_refused_by_its_header():
    """Not after megabytes of it have been received."""
    async with awaitable(max_size=1000, close_timeout=0.05) as (ws, _):
        head = frames.frame(TEXT, b"x" * 600, fin=False)
        await feed(ws, head + frames.header(CONTINUATION, 401))
        with pytest.raises(ConnectionClosedError):
            await ws.recv()


# Queues


async def test_max_queue_pauses_and_resumes_reading():
    async with awaitable(max_queue=(8, 2)) as (ws, far):
        await feed(ws, texts(*range(8)))
        assert not ws.listener.paused
        await feed(ws, texts(8))
        assert ws.listener.paused
        await far.send(texts(9))
        await turns(3)
        assert ws.listener.frames == 9
        for number in range(9):
            assert ws.listener.paused == (number <= 6)
            assert await ws.recv() == str(number)
        assert await ws.recv() == "9"


@pytest.mark.parametrize("last", [b"", frames.close(1000)], ids=["silent", "close"])
@pytest.mark.parametrize("settings", [certificates.client_context, certificates.client_settings])
async def test_what_tls_holds_while_reading_is_paused_is_received(last, settings):
    # Reads are short if messages may be compressed, so most of this has left the kernel when reading is paused.
    messages = [f"{number}:" + "x" * 10 * KIB for number in range(100)]

    async def handler(peer):
        await peer.accept(headers=b"Sec-WebSocket-Extensions: permessage-deflate\r\n")
        await go.wait()
        peer.send(texts(*messages) + last)
        await peer.rest()

    go = asyncio.Event()
    async with (
        serve(handler, ssl_context=certificates.server_context()) as server,
        connect(server.url, ssl=settings(), close_timeout=None) as ws,
    ):
        go.set()
        while ws.transport.is_reading():  # noqa: ASYNC110
            await asyncio.sleep(0)
        for message in messages:
            assert await ws.recv() == message
        ws.protocol.abort()


# More than the queue may cost, so a part of it is held back as it came from the wire.
HELD = [f"{number}:" + "x" * 5 * KIB for number in range(400)]


@asynccontextmanager
async def held_back_at_the_end(last: bytes, before=lambda ws: None):
    """The server has sent all of HELD and `last`, and the connection beneath is gone, as TLS tells of it at once.
    `before(ws)` is called while it is there."""
    async with awaitable(close_timeout=0.2, ping_interval=None) as (ws, _):
        before(ws)
        await feed(ws, texts(*HELD) + last)
        assert ws.listener.paused
        assert ws.listener.frames < len(HELD)
        ws.protocol.eof_received()
        ws.transport.close()
        await turns(3)
        yield ws


@pytest.mark.parametrize("last", [b"", frames.close(1000)], ids=["nothing", "close"])
async def test_what_is_held_back_when_the_connection_ends_is_received(last):
    async with held_back_at_the_end(last) as ws:
        assert [await ws.recv() for _ in HELD] == HELD
        with pytest.raises(ConnectionClosedError) as raised:
            await ws.recv()
        assert (raised.value.rcvd is None) == (not last)
        assert isinstance(raised.value.__cause__, type(None) if last else EOFError)


async def test_a_program_that_sends_before_it_receives_learns_of_the_end():
    """It would wait for itself: the end lies behind what it has yet to receive. Nothing of that is lost."""
    async with held_back_at_the_end(b"") as ws:
        for call in (ws.send("late"), ws.ping(), ws.send_many(["late"])):
            with pytest.raises(ConnectionClosedError):
                await call
        assert [await ws.recv() for _ in HELD] == HELD


async def test_a_send_that_waits_for_room_learns_of_the_end():
    """The transport beneath never says that it has room again."""
    sending = []

    def send(ws):
        ws.protocol.pause_writing()
        sending.append(asyncio.ensure_future(ws.send("late")))

    async with held_back_at_the_end(b"", send) as ws:
        with pytest.raises(ConnectionClosedError):
            await sending[0]
        assert [await ws.recv() for _ in HELD] == HELD


async def test_a_send_that_waits_for_room_sleeps():
    """However short `close_timeout` is."""
    async with awaitable(close_timeout=0) as (ws, _):
        ws.protocol.pause_writing()
        sending = asyncio.ensure_future(ws.send("x"))
        await turns(3)
        waits = list(ws._drains)
        await turns(50)
        assert list(ws._drains) == waits
        ws.protocol.resume_writing()
        await sending


@pytest.mark.parametrize("end", ["close", "abort", "send"])
@pytest.mark.parametrize("more", [b"", texts(*HELD)], ids=["what the queue may hold", "more"])
async def test_what_nobody_receives_of_it_is_given_up(more, end):
    """close() reads on, but no further than the queue may grow. The rest is held back until `close_timeout`."""
    async with held_back_at_the_end(more) as ws:
        if end == "send":
            sending = asyncio.ensure_future(ws.send("late"))
            await turns(3)
            ws.protocol.disconnect()
            with pytest.raises(ConnectionClosedError):
                await sending
        else:
            await (ws.close() if end == "close" else asyncio.sleep(0, ws.protocol.abort()))
        await ws.wait_closed()
        assert ws.close_code == 1006


async def test_max_queue_of_none_never_pauses():
    async with awaitable(max_queue=None) as (ws, _):
        await feed(ws, texts(*range(3000)))
        assert not ws.listener.paused
        assert [await ws.recv() for _ in range(3000)] == [str(number) for number in range(3000)]


async def test_max_queue_of_zero():
    async with awaitable(max_queue=0) as (ws, far):
        for number in range(3):
            await far.send(texts(number, number))
            assert [await ws.recv(), await ws.recv()] == [str(number)] * 2


async def test_an_endless_server_fills_no_memory():
    """Whatever the server sends, what waits for recv() is what one read can bring and what the queue may hold."""
    sent = 0

    async def handler(peer):
        nonlocal sent
        await peer.accept()
        with suppress(ConnectionError):
            while True:
                peer.send(frames.binary(bytes(1000)) * 64)
                sent += 64
                await peer.writer.drain()

    async with serve(handler) as served:
        ws = await connect(served.url)
        await ws.recv()
        blocked = -1
        while blocked != sent:
            blocked = sent
            await turns(20)
        assert ws.listener.paused
        assert ws.listener.frames <= 16 + 256 * KIB // 1004 + 1
        for _ in range(5000):
            assert len(await ws.recv()) == 1000
        ws.protocol.abort()
        await ws.wait_closed()


async def test_a_fragmented_message_of_more_frames_than_the_queue_holds():
    pieces = [frames.frame(TEXT if n == 0 else CONTINUATION, str(n % 10), fin=n == 99) for n in range(100)]
    for waiting in (True, False):
        async with awaitable(max_queue=4) as (ws, far):
            receiving = asyncio.ensure_future(ws.recv()) if waiting else None
            for piece in pieces:
                await far.send(piece)
                await turns(2)
            assert await (receiving or ws.recv()) == "0123456789" * 10
            await far.send(frames.text("next"))
            assert await ws.recv() == "next"


async def test_streaming_a_message_of_more_frames_than_the_queue_holds():
    async def handler(peer):
        await peer.accept()
        for n in range(3000):
            peer.send(frames.frame(TEXT if n == 0 else CONTINUATION, str(n), fin=n == 2999))
            await peer.writer.drain()
        await peer.answer_close()

    async with serve(handler) as served, connect(served.url, max_queue=4) as ws:
        assert [fragment async for fragment in ws.recv_streaming()] == [str(n) for n in range(3000)]


async def test_ping_works_while_reading_is_paused():
    async with awaitable(max_queue=4) as (ws, far):
        await feed(ws, texts(*range(50)))
        assert ws.listener.paused
        answer = await ws.ping(b"?")
        assert await far.frames(1) == [Sent(PING, b"?")]
        await far.send(texts(*range(50, 60)) + frames.frame(PONG, b"?"))
        assert await answer > 0
        await far.send(texts(60))
        await turns(5)
        assert ws.listener.paused
        assert [await ws.recv() for _ in range(61)] == [str(number) for number in range(61)]


async def test_ping_works_while_the_queue_holds_as_many_bytes_as_it_may():
    """A mebibyte, and another one for the sake of the ping."""
    async with awaitable(max_queue=4, compression=None) as (ws, far):
        await feed(ws, frames.binary(bytes(1024 * KIB)) + texts(*range(10)))
        assert ws.listener.paused
        assert ws.listener.frames == 1
        answer = await ws.ping(b"?")
        assert not ws.listener.paused
        assert await far.frames(1) == [Sent(PING, b"?")]
        await far.send(texts(*range(10, 20)) + frames.frame(PONG, b"?"))
        assert await answer > 0
        assert len(await ws.recv()) == 1024 * KIB
        assert [await ws.recv() for _ in range(20)] == [str(number) for number in range(20)]


async def test_a_ping_does_not_open_the_gates():
    """Waiting for a pong that never comes does not let the queue grow without bounds."""
    async with awaitable(max_queue=4) as (ws, far):
        await feed(ws, texts(*range(50)))
        await ws.ping(b"?")
        pushing = asyncio.ensure_future(far.send(frames.binary(bytes(10_000)) * 1000))
        before = -1
        while before != ws.listener.frames:
            before = ws.listener.frames
            await turns(10)
        assert ws.listener.paused
        assert ws.listener.frames < 50 + 220  # 2 MiB
        pushing.cancel()
        with suppress(asyncio.CancelledError):
            await pushing


# Bug 9 of the peers: pings answered late, or only while somebody receives.


async def test_pings_of_the_server_are_answered_while_nobody_receives():
    async with awaitable() as (_, far):
        await far.send(frames.frame(PING, b"1"))
        assert await far.frames(1) == [Sent(PONG, b"1")]
        await far.send(frames.frame(TEXT, b"a", fin=False) + frames.frame(PING, b"2"))
        assert await far.frames(1) == [Sent(PONG, b"2")]


async def test_a_ping_that_comes_while_writing_is_blocked_is_answered_when_it_can_be():
    async with awaitable() as (ws, far):
        sending = asyncio.ensure_future(ws.send(bytes(5_000_000)))
        await turns(3)
        assert not sending.done()
        await far.send(frames.frame(PING, b"1"))
        await far.send(frames.frame(PING, b"2") + frames.text("x"))
        assert await ws.recv() == "x"
        got = await far.frames(2)
        await sending
        assert [len(got[0].payload), got[1]] == [5_000_000, Sent(PONG, b"2")]


# Life


async def test_what_was_queued_is_received_after_the_connection_is_gone():
    async with awaitable(max_queue=None) as (ws, far):
        await feed(ws, texts(*range(30)))
        far.sock.close()
        await ws.wait_closed()
        assert [await ws.recv() for _ in range(30)] == [str(number) for number in range(30)]
        with pytest.raises(ConnectionClosedError):
            await ws.recv()


async def test_a_close_of_the_server_ends_recv_and_iteration():
    async with awaitable() as (ws, far):
        receiving = asyncio.ensure_future(ws.recv())
        await far.send(frames.close(1000, "bye"))
        await far.frames(1)
        far.sock.close()
        with pytest.raises(ConnectionClosedOK) as caught:
            await receiving
        assert caught.value.reason == "bye"
        assert [message async for message in ws] == []


async def test_a_closed_connection_is_forgotten():
    gc.disable()
    try:
        async with awaitable() as (ws, _):
            await feed(ws, frames.text("x"))
            assert await ws.recv() == "x"
            alive = weakref.ref(ws)
        del ws
        await turns(2)
        gc.collect()
        assert alive() is None
    finally:
        gc.enable()


async def test_many_receivers_one_after_the_other():
    async def handler(peer):
        await peer.accept()
        for number in range(1000):
            peer.send(frames.text(str(number)))
            await peer.writer.drain()
        await peer.answer_close()

    async with serve(handler) as served, connect(served.url) as ws:
        lock = asyncio.Lock()
        received = []

        async def receive():
            while len(received) < 1000:
                async with lock:
                    if len(received) < 1000:
                        received.append(await ws.recv())

        await asyncio.gather(*(receive() for _ in range(5)))
        assert received == [str(number) for number in range(1000)]


async def test_an_exception_in_the_receiving_task_stays_there():
    async def do():
        raise LookupError("mine")

    async with awaitable() as (ws, _):
        with pytest.raises(LookupError, match="mine"):
            await woken(ws, do)
        assert await ws.recv() == "2"


async def test_a_receiving_task_may_drop_the_connection():
    async with awaitable() as (ws, _):

        async def do():
            ws.protocol.abort()
            return await ws.recv()

        assert await woken(ws, do) == ("1", "2")
        with suppress(ConnectionClosed):
            while True:
                await ws.recv()


@pytest.mark.memory
async def test_a_receiver_that_is_ahead_of_the_reader_when_the_connection_ends():
    """It was woken by the loop, took the only message, and waits for the next one: nothing is left to be kept."""
    async with awaitable() as (ws, far):
        received = []

        async def receive() -> None:
            while True:
                received.append(await ws.recv())

        receiving = asyncio.ensure_future(receive())
        await turns(2)
        ws.protocol.data_received(frames.text("only"))  # in a task, so the receiver runs later
        await turns(2)
        far.sock.close()
        with pytest.raises(ConnectionClosedError):
            await receiving
        assert received == ["only"]


# Whatever runs amid a step of recv()


class Interrupting(asyncio.SelectorEventLoop):
    """Calls `act` once when its method `amid` is called, as a finalizer or the handler of a signal may run there."""

    act = None
    amid = ""

    def _interrupt(self, method):
        if self.act is not None and self.amid == method:
            act, self.act = self.act, None
            act()

    def call_soon(self, *args, **options):
        self._interrupt("call_soon")
        return super().call_soon(*args, **options)

    def add_reader(self, *args):
        self._interrupt("add_reader")
        return super().add_reader(*args)


@pytest.fixture
def interrupting():
    loop = Interrupting()
    yield loop
    loop.close()


@pytest.mark.memory
async def test_what_a_receiver_takes_is_its_own_affair():
    """It is woken although there is no whole message yet, and must not take one."""
    async with awaitable(compression=None) as (ws, _):
        receiving = ws.recv()
        receiving.send(None)
        ws._streaming = True
        await feed(ws, frames.frame(BINARY, b"a", fin=False))
        receiving.send(None)
        await feed(ws, frames.frame(CONTINUATION, b"b"))
        with pytest.raises(StopIteration) as stopped:
            receiving.send(None)
        assert stopped.value.value == b"ab"


@pytest.mark.memory
def test_who_receives_amid_the_step_of_a_receiver_is_refused(interrupting):
    async def main():
        async with awaitable(max_queue=None) as (ws, _):
            await feed(ws, texts(*range(5000)))
            inner = []

            def receive():
                try:
                    inner.append(finished_at_once(ws.recv()))
                except ConcurrencyError as exc:
                    inner.append(kind_of(exc))

            interrupting.act, interrupting.amid = (
                receive,
                "call_soon",
            )  # when the receiver below asks for a turn of the loop
            assert [await ws.recv() for _ in range(5000)] == [str(number) for number in range(5000)]
            assert inner == [ConcurrencyError]

    interrupting.run_until_complete(main())


def test_what_arrives_while_a_receiver_begins_to_wait_wakes_it(interrupting):
    async def main():
        async with awaitable(max_queue=1, compression=None) as (ws, _):
            await feed(ws, frames.frame(TEXT, b"a", fin=False) + frames.frame(CONTINUATION, b"b", fin=False))
            assert ws.listener.paused
            interrupting.act = lambda: ws.protocol.data_received(frames.frame(CONTINUATION, b"c"))
            interrupting.amid = "add_reader"
            assert await ws.recv() == "abc"
            assert interrupting.act is None

    interrupting.run_until_complete(main())
