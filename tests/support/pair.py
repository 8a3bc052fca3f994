"""A connection over a socket pair. The test holds the other end, and can count the bytes that the kernel took."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from support import certificates
from support.frames import Parser, Sent
from support.listeners import Recorder
from support.servers import Peer
from wsfast import WSListener, WSTransport, ws_connect


class Far:
    """The far end. It reads only inside its methods."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.parser = Parser()
        self.received = 0

    def read_available(self) -> bytes:
        """All bytes in the kernel's buffer, read without waiting and without running the event loop."""
        data = bytearray()
        while True:
            try:
                piece = self.sock.recv(1 << 20)
            except BlockingIOError:
                break
            if not piece:
                break
            data += piece
        self.received += len(data)
        return bytes(data)

    async def read(self) -> bytes:
        data = await asyncio.get_running_loop().sock_recv(self.sock, 1 << 20)
        self.received += len(data)
        return data

    async def send_and_block(self, data: bytes, seconds: float) -> None:
        """Send `data`, and then keep the event loop busy, so that timers that become due meanwhile run before the loop
        reads `data`. libuv does so only if the blocking callback was called for a descriptor."""
        loop = asyncio.get_running_loop()
        blocked = loop.create_future()

        def block() -> None:
            loop.remove_writer(self.sock)
            self.sock.send(data)
            time.sleep(seconds)
            blocked.set_result(None)

        loop.add_writer(self.sock, block)
        await blocked

    async def drain(self) -> None:
        """Read and discard, until the task is cancelled or the client closes."""
        while await self.read():
            pass

    async def frames_until_eof(self) -> list[Sent]:
        frames = []
        while data := await self.read():
            frames += self.parser.feed(data)
        return frames

    async def frames(self, count: int) -> list[Sent]:
        frames: list[Sent] = []
        while len(frames) < count:
            data = await self.read()
            assert data, "the client closed the connection"
            frames += self.parser.feed(data)
        return frames

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, data)


class SecureFar(Far):
    """The far end of a connection over TLS. One task may read while another one sends."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = certificates.server_context().wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._sending = asyncio.Lock()

    async def read(self) -> bytes:
        """What comes next; b"" at the end, however TLS ends."""
        while True:
            try:
                data = self._tls.read(1 << 18)
                self.received += len(data)
                return data
            except ssl.SSLWantReadError:
                await self._flush()
                wire = await asyncio.get_running_loop().sock_recv(self.sock, 1 << 18)
                if wire:
                    self._incoming.write(wire)
                else:
                    self._incoming.write_eof()
            except ssl.SSLError:
                return b""

    async def send(self, data: bytes) -> None:
        self._tls.write(data)
        await self._flush()

    async def _flush(self) -> None:
        async with self._sending:
            wire = self._outgoing.read()
            if wire:
                await super().send(wire)


@asynccontextmanager
async def pair(
    listener: WSListener | None = None, **options: Any
) -> AsyncIterator[tuple[WSTransport, Any, Far]]:
    """An open connection: the transport, its listener and the far end. The transport is aborted at the end of the
    block."""
    ours, theirs = socket.socketpair()
    for sock in (ours, theirs):
        sock.setblocking(False)
    far = Far(theirs)
    listener = Recorder() if listener is None else listener
    connecting = asyncio.ensure_future(
        ws_connect(lambda: listener, "ws://localhost/", socket_factory=lambda uri: ours, **options)
    )
    try:
        peer = Peer(None, None)  # type: ignore[arg-type]
        while not peer.request.endswith(b"\r\n\r\n"):
            peer.request += await far.read()
        await far.send(peer.reply())
        transport, _ = await connecting
        far.received = 0
        try:
            yield transport, listener, far
        finally:
            transport.abort()
            with suppress(Exception):  # a test that cares about the exception has awaited it before
                await transport.wait_disconnected()
    finally:
        theirs.close()
