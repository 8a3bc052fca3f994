"""What has arrived is delivered, on every event loop: with a reset right behind it, or nothing more."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from contextlib import contextmanager

import pytest
from support import certificates, frames
from support.upgrade import acceptance

from wsfast import ConnectionClosedError, Tuning, WSListener, connect, ws_connect

pytestmark = pytest.mark.parametrize("secure", certificates.WAYS.values(), ids=certificates.WAYS)


@contextmanager
def server(secure, script):
    """Serves one connection by `script` in a thread, and resets it. Yields the thread and the arguments of connect."""
    listening = socket.create_server(("127.0.0.1", 0))

    def run():
        sock, _ = listening.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # what waits at the reset is not sent
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if secure:
            sock = certificates.server_context().wrap_socket(sock, server_side=True)
        with sock:
            script(sock)

    thread = threading.Thread(target=run)
    thread.start()
    scheme = "wss" if secure else "ws"
    with listening:
        yield thread, f"{scheme}://127.0.0.1:{listening.getsockname()[1]}/"
        thread.join()


def accept(sock):
    request = b""
    while not request.endswith(b"\r\n\r\n"):
        request += sock.recv(4096)
    sock.sendall(acceptance(request))


@pytest.mark.parametrize("count", [1, 10_000])  # the second needs many reads
@pytest.mark.parametrize("max_queue", [None, 2])  # the second pauses reading
async def test_messages_are_delivered_and_the_end_is_told(secure, count, max_queue):
    if secure is certificates.client_context and max_queue:
        count = 1  # what it has read and not decrypted, aiofastnet 1.2 may forget at the reset

    def script(sock):
        accept(sock)
        sock.recv(100)
        sock.sendall(frames.frame(frames.BINARY, b"abc") * count)

    with server(secure, script) as (thread, url):
        tls = {"ssl": secure()} if secure else {}
        ws = await connect(
            url, max_queue=max_queue, tuning=Tuning(max_read_size=8000), ping_interval=None, **tls
        )
        await ws.send("now")
        thread.join()  # the loop finds data and reset together
        for _ in range(count):
            assert await ws.recv() == b"abc"
        with pytest.raises(ConnectionClosedError) as caught:
            await ws.recv()
        assert isinstance(caught.value.__cause__, ConnectionResetError)
        await ws.wait_closed()


async def test_a_reset_instead_of_a_reply_is_told(secure):
    """Over TLS 1.3 tickets come before it."""

    with server(secure, lambda sock: sock.recv(4096)) as (_, url):
        tls = {"ssl_context": secure()} if secure else {}
        with pytest.raises(ConnectionResetError):
            await ws_connect(WSListener, url, open_timeout=None, **tls)


async def test_what_is_held_back_comes_without_more_from_the_server(secure):
    """aiofastnet 1.2 waited for the socket to be readable, with records of TLS in its hands."""
    over = threading.Event()

    def script(sock):
        accept(sock)
        sock.recv(100)
        sock.sendall(frames.frame(frames.BINARY, b"abc") * 10_000)
        over.wait()

    with server(secure, script) as (_, url):
        tls = {"ssl": secure()} if secure else {}
        ws = await connect(url, max_queue=2, tuning=Tuning(max_read_size=8000), ping_interval=None, **tls)
        try:
            await ws.send("now")
            for _ in range(10_000):
                assert await ws.recv() == b"abc"
        finally:
            over.set()
            ws.transport.abort()
            await ws.wait_closed()


async def test_poll_finds_what_is_held_back_when_reading_resumes(secure):
    over = threading.Event()

    def script(sock):
        accept(sock)
        sock.recv(100)
        sock.sendall(frames.frame(frames.BINARY, b"abc") * 10_000)
        over.wait()

    class Pausing(WSListener):
        count = 0

        def on_ws_frame(self, transport, frame):
            self.count += 1
            if self.count == 1:
                transport.underlying_transport.pause_reading()
                paused.set_result(None)

    paused = asyncio.get_running_loop().create_future()
    with server(secure, script) as (_, url):
        tls = {"ssl_context": secure()} if secure else {}
        transport, listener = await ws_connect(Pausing, url, tuning=Tuning(max_read_size=8000), **tls)
        try:
            transport.send(frames.TEXT, "now")
            await paused
            transport.underlying_transport.resume_reading()
            while listener.count < 10_000:
                assert transport.poll(5)
        finally:
            over.set()
            transport.abort()
            await transport.wait_disconnected()
