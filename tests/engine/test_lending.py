"""Lending the memory that is read into: to transports of others, beside other threads, and with loops that move."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import threading
import zlib
from typing import Any

import pytest
import uvloop
from scenarios.peer import Peer, record
from support import certificates, frames
from support.frames import binary, text
from support.listeners import Recorder
from support.mock import Wire

import wsfast
from wsfast import ConnectionClosed, WSListener, ws_connect
from wsfast.asyncio._messaging import enter_methods

pytestmark = pytest.mark.memory

MOVED = "the event loop has moved to another thread: a connection stays in the thread that opened it"


def test_what_is_lent_is_nobody_else_s_until_it_is_reported(loop):
    """The other connection reads, amid the read of a transport that is not wsfast's own."""
    wire, other = Wire(loop), Wire(loop)
    data = text(frames.pattern(1000, 1))
    for _ in range(3):
        lent = wire.transport.get_buffer(-1)
        lent[: len(data)] = data
        other.feed(text(frames.pattern(200_000, 2)))
        wire.transport.buffer_updated(len(data))
        del lent
    assert wire.listener.payloads == 3 * [frames.pattern(1000, 1)]
    assert other.listener.payloads == 3 * [frames.pattern(200_000, 2)]
    wire.lose(), other.lose()


def test_a_view_that_is_kept_writes_to_nobody_s_memory(loop):
    """An io_uring completes late; or a traceback keeps the view. The end of the view gives the memory back."""
    wire, other = Wire(loop), Wire(loop)
    late = wire.transport.get_buffer(-1)
    wire.lose()
    other.feed(text("a" * 1000)[:-1])
    late[:] = bytes(len(late))
    del late, wire
    gc.collect()
    other.feed(b"a")
    assert other.listener.payloads == [b"a" * 1000]
    other.lose()


def test_a_view_that_was_dropped_is_reported_at_once_or_refused(loop):
    """uvloop's TLS does so. If another connection has read since, the bytes there are its own."""
    wire, other = Wire(loop), Wire(loop)
    wire.transport.get_buffer(-1)[:3] = text("a")
    wire.transport.buffer_updated(3)
    wire.transport.get_buffer(-1)[:3] = text("b")
    other.feed(text("c"))
    with pytest.raises(RuntimeError, match="without get_buffer"):
        wire.transport.buffer_updated(3)
    assert wire.listener.payloads == [b"a"]
    wire.lose(), other.lose()


def test_a_transport_reads_once_at_a_time(loop):
    wire = Wire(loop)
    lent = wire.transport.get_buffer(-1)
    with pytest.raises(RuntimeError, match="another read is under way"):
        wire.transport.get_buffer(-1)
    lent.release()
    with pytest.raises(NotImplementedError):
        wire.transport.poll(0)
    wire.lose()


class Polling(logging.Handler):
    def __init__(self, poll) -> None:
        super().__init__(logging.DEBUG)
        self.poll = poll
        self.refused = set()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.poll()
        except RuntimeError as exc:
            self.refused.add(str(exc))


@contextlib.contextmanager
def handled(handler: logging.Handler):
    logger = logging.getLogger("aiofastnet")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


class Opened:
    """A connection over a socket pair, whose server runs where the test does."""

    def __init__(self, way: str, compressed: bool = False) -> None:
        self.ours, self.theirs = socket.socketpair()
        for sock in (self.ours, self.theirs):
            sock.setblocking(False)
        self.peer = Peer(self.theirs, way != "plain", compressed)
        self.url = f"ws{'s' * (way != 'plain')}://localhost/"
        make = certificates.WAYS[way]
        self.options: dict[str, Any] = {
            "ssl": None if make is None else make(),
            "compression": "deflate" if compressed else None,
        }

    async def open(self, face: str, **options: Any) -> Any:
        if face != "awaitable":
            options["use_aiofastnet"] = None if face == "listener" else False
            listener, own = options.pop("listener", Recorder), self.ours
            opening = ws_connect(
                listener, self.url, socket_factory=lambda uri: own, **self.options, **options
            )
        else:
            opening = wsfast.connect(self.url, sock=self.ours, **self.options, **options)
        connecting = asyncio.ensure_future(opening)
        while not connecting.done():
            self.peer.read(100_000)
            await asyncio.sleep(0)
        connection = await connecting
        return connection if face == "awaitable" else connection[0]


async def test_a_connection_is_not_polled_amid_its_own_read():
    """aiofastnet logs amid a read when the loop is in debug mode."""
    asyncio.get_running_loop().set_debug(True)
    opened, listener = Opened("openssl"), Recorder()
    transport = await opened.open("listener", listener=lambda: listener)
    handler = Polling(lambda: transport.poll(0))
    with handled(handler):
        opened.peer.write(binary(frames.pattern(100_000)))
        await listener.until(lambda: listener.frames)
    assert handler.refused == {"poll() while the transport beneath is reading or writing"}
    assert listener.payloads == [frames.pattern(100_000)]
    transport.abort()
    await transport.wait_disconnected()
    opened.theirs.close()


async def test_a_send_amid_a_write_of_aiofastnet_leaves_behind_it():
    """aiofastnet logs between the write to the socket and the note that these bytes are gone."""
    asyncio.get_running_loop().set_debug(True)
    opened = Opened("openssl")
    transport = await opened.open("listener")
    sent = 0
    is_full = False

    def send() -> None:
        nonlocal sent
        sent += 1
        transport.send(wsfast.WSMsgType.BINARY, record(sent - 1, 10_000))

    class Sending(logging.Handler):
        def emit(self, said: logging.LogRecord) -> None:
            nonlocal is_full
            if is_full and "aiofn_write" in said.getMessage() and sent < 200:
                send()
            is_full = is_full or "_ensure_writer" in said.getMessage()

    with handled(Sending()):
        while not is_full:
            send()
        while len(opened.peer.numbers) < sent:
            opened.peer.read(1 << 20)
            await asyncio.sleep(0)
            assert not transport.is_disconnected, transport.close_info
    assert opened.peer.numbers == list(range(sent))
    assert sent == 200
    transport.abort()
    await transport.wait_disconnected()
    opened.theirs.close()


each_loop = pytest.mark.parametrize(
    "make_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


@each_loop
@pytest.mark.parametrize("face", ["listener", "listener on the loop's", "awaitable"])
@pytest.mark.parametrize("way", certificates.WAYS)
@pytest.mark.parametrize("what", ["text", "eof"])
def test_a_loop_that_moves_to_another_thread_ends_its_connections(make_loop, way, face, what):
    loop = make_loop()
    raised = []
    loop.set_exception_handler(lambda loop, context: raised.append(str(context.get("exception"))))
    opened = Opened(way)
    connection = loop.run_until_complete(opened.open(face))
    transport = connection.protocol if face == "awaitable" else connection

    async def elsewhere():
        with pytest.raises(RuntimeError, match=MOVED):
            transport.send(wsfast.WSMsgType.TEXT, "a")
        opened.peer.serve(what, 1)
        if what == "eof" and way != "plain":
            opened.peer.serve("close_notify", 0)
        while not transport.is_disconnected:  # noqa: ASYNC110
            await asyncio.sleep(0)

    thread = threading.Thread(target=lambda: loop.run_until_complete(elsewhere()))
    thread.start()
    thread.join()
    if face != "awaitable":
        with pytest.raises(RuntimeError, match=MOVED):
            loop.run_until_complete(transport.wait_disconnected())
    else:
        with pytest.raises(ConnectionClosed) as closed:
            loop.run_until_complete(connection.recv())
        assert str(closed.value.__cause__) == MOVED
    assert str(transport.close_info.cause) == MOVED
    assert len(raised) == 1
    opened.theirs.close()
    loop.close()


COUNT, SIZE = 40, 512 * 1024


class Keeping(WSListener):
    payload_type = bytes

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.others: list[bytes] = []

    def on_ws_connected(self, transport) -> None:
        self.transport = transport

    def on_ws_message(self, transport, msg_type, payload) -> None:
        if len(payload) < SIZE:
            self.others.append(payload)
            return
        assert payload[8:] == bytes(SIZE)
        self.numbers.append(int(payload[:8]))


def bombs(numbers):
    deflater, frames = zlib.compressobj(wbits=-15), b""
    for number in numbers:
        data = deflater.compress(b"%08d" % number + bytes(SIZE)) + deflater.flush(zlib.Z_SYNC_FLUSH)
        frames += binary(data[:-4], rsv=4)
    return frames


@pytest.mark.parametrize("max_queue", [16, 64, (256, 100)], ids=str)
@pytest.mark.parametrize("way", certificates.WAYS)
async def test_a_full_queue_and_what_waits_to_be_inflated_let_reading_go_on(way, max_queue):
    """The queue pauses reading; the rest of the read waits for the next iteration after the queue has room."""
    opened = Opened(way, compressed=True)
    connection = await opened.open("awaitable", max_queue=max_queue)
    data = bombs(range(3 * COUNT))
    for start in range(0, len(data), 10_000):
        opened.peer.write(data[start : start + 10_000])
        for _ in range(10):
            await asyncio.sleep(0)
    for number in range(3 * COUNT):
        assert int((await asyncio.wait_for(connection.recv(), 30))[:8]) == number
    connection.protocol.abort()
    opened.theirs.close()


@pytest.mark.parametrize(
    ("face", "options"),
    [
        ("listener", {}),
        ("listener on the loop's", {}),
        ("awaitable", {}),
        ("awaitable", {"max_queue": None}),
        ("awaitable", {"overflow": "drop_oldest"}),
    ],
    ids=str,
)
@pytest.mark.parametrize("way", certificates.WAYS)
async def test_bombs_are_inflated_a_mebibyte_in_each_iteration(way, face, options):
    listener = Keeping()
    if face != "awaitable":
        options = {"listener": lambda: listener}
    opened = Opened(way, compressed=True)
    connection = await opened.open(face, close_timeout=0.01, **options)
    transport = connection.protocol if face == "awaitable" else connection
    opened.peer.write(bombs(range(COUNT)) + frames.close(1000))
    received: list[int] = []
    while not transport.is_disconnected and len(received) < COUNT:
        before = transport.stats.frames_received
        await asyncio.sleep(0)
        opened.peer.read(1000)
        if opened.peer.close is not None:
            opened.theirs.close()
            break
        assert transport.stats.frames_received - before <= 4
        if face == "awaitable" and not options:
            received.append(int((await connection.recv())[:8]))
    if face != "awaitable":
        await transport.wait_disconnected()
        received = listener.numbers
    elif options:
        received = [int(message[:8]) async for message in connection]
        if "overflow" in options:
            assert received == list(range(COUNT))[-len(received) :]
            received = list(range(COUNT))
    assert received == list(range(COUNT))
    transport.abort()
    opened.theirs.close()


@each_loop
@pytest.mark.parametrize("face", ["listener", "listener on the loop's"])
@pytest.mark.parametrize("way", certificates.WAYS)
@pytest.mark.parametrize(
    "what", ["pause", "pause and resume", "poll", "disconnect", "abort", "close", "eof", "move"]
)
def test_while_the_rest_of_a_read_waits_the_program_may_do_as_ever(make_loop, way, face, what):
    loop = make_loop()
    raised = []
    loop.set_exception_handler(lambda loop, context: raised.append(str(context.get("exception"))))
    listener, opened = Keeping(), Opened(way, compressed=True)

    async def until(condition) -> None:
        while not condition():
            opened.peer.read(1000)
            await asyncio.sleep(0)

    async def begin() -> None:
        await opened.open(face, listener=lambda: listener)
        opened.peer.write(bombs(range(COUNT)))
        await until(lambda: listener.numbers)

    async def go_on() -> None:
        numbers, transport = listener.numbers, listener.transport
        beneath = transport.underlying_transport
        assert len(numbers) < COUNT
        assert beneath.is_reading()
        if what.startswith("pause"):
            beneath.pause_reading()
            assert not beneath.is_reading()
            opened.peer.write(binary(b"behind"))
            if "resume" in what:
                beneath.resume_reading()
            else:
                for _ in range(3 * COUNT):
                    await asyncio.sleep(0)
                assert not beneath.is_reading()
                assert len(numbers) == COUNT
                beneath.resume_reading()
            await until(lambda: b"behind" in listener.others)
        elif what == "poll" and face == "listener":
            while len(numbers) < COUNT:
                assert transport.poll(0)
        elif what in ("disconnect", "abort"):
            getattr(transport, what)()
            before = len(numbers)
            if what == "disconnect":
                await until(lambda: opened.peer.close is not None)
                assert opened.peer.close.payload == b"\x03\xe8"
            else:
                await transport.wait_disconnected()
            assert len(numbers) == before
        elif what in ("close", "eof"):
            opened.peer.write(frames.close(1000) if what == "close" else b"")
            await until(lambda: opened.peer.close is not None or what == "eof")
            opened.theirs.close()
            await transport.wait_disconnected()
            assert transport.close_info.code == (1000 if what == "close" else 1006)
        if what in ("poll", "close", "eof"):
            await until(lambda: len(numbers) == COUNT)
        transport.abort()
        opened.theirs.close()
        with contextlib.suppress(ConnectionError):
            await transport.wait_disconnected()

    async def move() -> None:
        await until(lambda: listener.transport.is_disconnected)

    loop.run_until_complete(begin())
    if what == "move":
        before = len(listener.numbers)
        thread = threading.Thread(target=lambda: loop.run_until_complete(move()))
        thread.start()
        thread.join()
        assert str(listener.transport.close_info.cause) == MOVED
        assert raised == [MOVED]
        assert len(listener.numbers) == before
        opened.theirs.close()
    else:
        loop.run_until_complete(go_on())
        assert not raised
    loop.close()


def test_only_a_connection_gets_the_methods_of_one():
    for wrong in (int, object, WSListener, 5, None):
        with pytest.raises(TypeError, match="not a subclass of Connection"):
            enter_methods(wrong)
