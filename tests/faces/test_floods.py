"""Every wait ends when it is to end, however fast a server sends frames that complete no message.

The server stops when the client is gone. So a wait that the flood prolongs never returns, and the test fails by its
deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading

import pytest
from support import frames
from support.blocking import Peer, running, scripted
from support.certificates import WAYS, server_context
from support.faces import FACES
from support.frames import CONTINUATION, PING, PONG, TEXT

from wsfast.exceptions import ConnectionClosed
from wsfast.sync.client import connect

# The beginning of the flood, and the part of it that comes again and again.
FLOODS = {
    "PING": (b"", frames.frame(PING, b"x")),
    "PONG": (b"", frames.frame(PONG)),
    "empty fragments": (frames.text("", fin=False), frames.frame(CONTINUATION, fin=False)),
    "fragments": (frames.text("a", fin=False), frames.frame(CONTINUATION, "a", fin=False)),
    "compressed": (frames.frame(TEXT, fin=False, rsv=4), frames.frame(CONTINUATION, fin=False)),
}
DEFLATE = b"Sec-WebSocket-Extensions: permessage-deflate\r\n"

floods = pytest.mark.parametrize("flood", FLOODS)
# TLS hands over the bytes in other pieces, but the frames are the same.
over_tls = pytest.mark.parametrize(
    ("flood", "way"), [*((flood, "plain") for flood in FLOODS), ("PING", "rustls"), ("PING", "openssl")]
)


def flooding(flood, way="plain", until=None):
    """A server that floods, and reads nothing. Options for a client that it cannot break off by a limit."""
    first, again = FLOODS[flood]

    def script(peer: Peer) -> None:
        peer.accept(first, DEFLATE if flood == "compressed" else b"")
        with contextlib.suppress(OSError):
            while until is None or not until.is_set():
                peer.send(again * (65536 // len(again)))
            peer.send(frames.frame(CONTINUATION, b"z"))
            peer.sock.recv(1 << 20)

    make = WAYS[way]
    options = {"max_size": None, "close_timeout": 0.2, "ping_interval": None}
    options["compression"] = "deflate" if flood == "compressed" else None
    tls = {} if make is None else {"ssl": make()}
    return scripted(script, ssl_context=server_context() if make else None), options, tls


class Interrupted(Exception):  # noqa: N818
    """The handler of a signal raises it."""


@contextlib.contextmanager
def interrupted():
    """A signal comes soon."""

    def handler(*_):
        raise Interrupted

    previous = signal.signal(signal.SIGUSR1, handler)
    timer = threading.Timer(0.2, signal.pthread_kill, (threading.get_ident(), signal.SIGUSR1))
    timer.start()
    try:
        with pytest.raises(Interrupted):
            yield
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, previous)


def receive(ws):
    for timeout in (0.1, 0, 0):
        with pytest.raises(TimeoutError):
            ws.recv(timeout)


def wait(ws):
    assert not ws.ping(b"a ping").wait(0.1)
    assert not ws.ping(b"another").wait(0)
    assert not ws.wait_closed(0.1)
    assert not ws.wait_closed(0)


def close(ws):
    ws.close()
    with pytest.raises(ConnectionClosed):
        ws.recv()


def fail(ws):
    with pytest.raises(TypeError):
        ws.send(["a", 5])
    assert ws.close_code == 1006


def receive_until_closed(ws):
    timer = threading.Timer(0.1, ws.close)
    timer.start()
    with pytest.raises(ConnectionClosed):
        ws.recv()
    timer.join()


def measure_until_closed(ws):
    def measure():
        with pytest.raises(ConnectionClosed):
            ws.measure_roundtrip_time(10**9)

    with running(measure) as outcome:
        with pytest.raises(TimeoutError):
            ws.recv(0.1)
        ws.close()
    assert outcome == [None]


@over_tls
@pytest.mark.parametrize(
    "call",
    [receive, wait, close, fail, receive_until_closed, measure_until_closed],
    ids=lambda call: call.__name__,
)
def test_a_blocking_call_ends_in_time(flood, way, call):
    server, options, tls = flooding(flood, way)
    with server as served, connect(served.url, **options, **tls) as ws:
        call(ws)


@floods
@pytest.mark.parametrize(
    "call",
    [
        lambda ws: ws.recv(),
        lambda ws: ws.send(b"x" * (64 << 20), compress=False),
        lambda ws: ws.wait_closed(),
        lambda ws: ws.ping().wait(),
    ],
    ids=["recv", "send", "wait_closed", "pong"],
)
def test_a_signal_ends_a_blocking_call(flood, call):
    server, options, _ = flooding(flood)
    with server as served, connect(served.url, **options) as ws, interrupted():
        call(ws)


@pytest.mark.parametrize("flood", ["empty fragments", "fragments"])
def test_a_message_outlives_its_time_outs(flood):
    """The fragments that had come are not lost."""
    enough = threading.Event()
    server, options, _ = flooding(flood, until=enough)
    with server as served, connect(served.url, **options) as ws:
        receive(ws)
        enough.set()
        message = ws.recv()
        assert message.strip("a") == "z"
        assert len(message) > 65536 or flood != "fragments"


@pytest.mark.asyncio
@over_tls
@pytest.mark.parametrize("face", ["listener", "awaitable"])
async def test_a_task_ends_in_time(flood, way, face):
    server, options, tls = flooding(flood, way)
    if face == "listener":
        del options["ping_interval"]
        options["max_size"] = 1 << 30
    with server as served:
        async with FACES[face](served.url, context=tls.get("ssl"), **options) as client:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.recv(), 0.1)
            await client.close()
