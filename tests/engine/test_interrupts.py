"""Ctrl-C that comes out of the program's code amid a read: the connection ends, or nothing of the read is lost."""

from __future__ import annotations

import asyncio
import logging
import socket

import pytest
from support.frames import binary
from support.listeners import Recorder, Scripted
from support.mock import Wire
from support.pair import Far
from support.servers import Peer

from wsfast import WSMsgType, ws_connect
from wsfast.asyncio.client import connect


class Interrupted(KeyboardInterrupt):
    """Ctrl-C."""


def interrupt(*_):
    raise Interrupted


@pytest.fixture
def interrupted_log():
    """A logger whose handler is interrupted by each line."""
    logger = logging.Logger("interrupted", logging.INFO)
    handler = logging.Handler()
    handler.emit = interrupt
    logger.addHandler(handler)
    return logger


@pytest.fixture
def running():
    """A loop for a test that runs it after an interrupt, too."""
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


async def accepted(make_connection, glued=b""):
    """Connect over a pair of sockets. Returns the connection, and the far end; `glued` comes with the reply."""
    ours, theirs = socket.socketpair()
    for sock in (ours, theirs):
        sock.setblocking(False)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
    far = Far(theirs)
    task = asyncio.ensure_future(make_connection(ours))
    peer = Peer(None, None)
    while not peer.request.endswith(b"\r\n\r\n"):
        peer.request += await far.read()
    await far.send(peer.reply() + glued)
    return await task, far


def test_while_an_exception_of_a_callback_is_logged(loop, interrupted_log):
    wire = Wire(
        loop, Scripted(on_ws_frame=lambda *_: 1 / 0), disconnect_on_exception=False, logger=interrupted_log
    )
    with pytest.raises(Interrupted):
        wire.feed(binary(b"bad") + binary(b"never seen") + b"\x82")
    wire.feed(b"\x01x" + binary(b"never seen"))
    assert wire.listener.payloads == [b"bad"]
    assert [sent.payload for sent in wire.sent()] == [b"\x03\xf3"]
    assert isinstance(wire.end(), Interrupted)


def test_while_the_opening_is_logged(running, interrupted_log):
    listener = Recorder()
    opening = accepted(
        lambda sock: ws_connect(
            lambda: listener, "ws://localhost/", socket_factory=lambda _: sock, logger=interrupted_log
        ),
        glued=binary(b"first"),
    )
    task = running.create_task(opening)
    with pytest.raises(Interrupted):
        running.run_until_complete(task)
    (transport, _), far = running.run_until_complete(task)
    assert listener.payloads == [b"first"]
    transport.abort()
    running.run_until_complete(transport.wait_disconnected())
    far.sock.close()


def test_in_a_task_that_a_read_has_woken_while_the_rest_is_held_back(running):
    messages = 20_000

    async def receive():
        await ws.recv()
        raise Interrupted

    async def send():
        far.sock.send(binary(b"") * messages)
        await asyncio.wait([task])

    async def rest():
        for _ in range(messages - 1):
            await ws.recv()
        ws.protocol.abort()
        await ws.wait_closed()

    ws, far = running.run_until_complete(
        accepted(
            lambda sock: connect("ws://localhost/", sock=sock, max_queue=2, compression=None).__aenter__()
        )
    )
    task = running.create_task(receive())
    with pytest.raises(Interrupted):
        running.run_until_complete(send())
    with pytest.raises(Interrupted):
        task.result()
    running.run_until_complete(rest())
    far.sock.close()


def test_in_a_callback_of_the_future_that_send_threadsafe_returned(running):
    (transport, _), far = running.run_until_complete(
        accepted(lambda sock: ws_connect(Recorder, "ws://localhost/", socket_factory=lambda _: sock))
    )
    sent = transport.send_threadsafe(WSMsgType.TEXT, "x")
    sent.add_done_callback(interrupt)
    with pytest.raises(Interrupted):
        running.run_until_complete(far.read())
    assert sent.result() is None
    transport.abort()
    running.run_until_complete(transport.wait_disconnected())
    far.sock.close()
