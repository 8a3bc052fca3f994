"""A TCP proxy between a client and a real server. It splits, delays and cuts the bytes, as networks do.

The proxy runs in the loop of the test and relays one connection at a time. With TLS it sees records, but not their
contents. A test can hold back the bytes for the client, forward them one by one, and cut them off. No step depends on
time.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

# The type of TLS records with application data (RFC 8446 section 5.1). The client's first such record is its Finished,
# and the second is its request.
_APPLICATION_DATA = 23
_REQUEST_RECORD = 2


class Proxy:
    """The test's control over the connection. `piece`: the number of bytes in each write to either side; 0 writes
    all."""

    def __init__(self, url: str, port: int, piece: int) -> None:
        parts = urlsplit(url)
        self.secure = parts.scheme == "wss"
        self.url = parts._replace(netloc=f"127.0.0.1:{port}").geturl()
        self.piece = piece
        self.accepted = 0
        self._target = parts.hostname, parts.port
        self._gate = asyncio.Event()
        self._gate.set()
        self._holds_at_request = False
        self._held = bytearray()  # bytes for the client
        self._ended = False  # the server has sent its last byte
        self._changed = asyncio.Event()
        self._client: asyncio.StreamWriter | None = None
        self._server: asyncio.StreamWriter | None = None
        self._pumps: list[asyncio.Task[None]] = []

    # ---- the interface for tests

    def hold(self) -> None:
        """Hold back all bytes for the client from now on."""
        self._gate.clear()
        self._changed.set()

    def hold_at_request(self) -> None:
        """As hold(), from the moment at which the client has sent its upgrade request."""
        self._holds_at_request = True

    async def arrived(self, count: int = 1) -> None:
        """Wait until `count` bytes are held back."""
        while self._gate.is_set() or len(self._held) < count:
            await self._change()

    def forward(self, count: int) -> None:
        """Forward `count` of the bytes that are held back."""
        assert self._client is not None
        self._client.write(bytes(self._held[:count]))
        del self._held[:count]

    def release(self) -> None:
        """Forward all bytes again."""
        self._gate.set()

    def reset(self) -> None:
        """Reset the connection to the client (RST)."""
        self._stop()
        for writer in (self._client, self._server):
            if writer is not None:
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                writer.transport.abort()

    def half_close(self) -> None:
        """Send FIN to the client, and go on reading its bytes. TLS gets no close_notify."""
        assert self._client is not None
        self._pumps[-1].cancel()
        self._client.write_eof()

    def cut(self) -> None:
        """Close both connections. TLS gets no close_notify."""
        self._stop()
        for writer in (self._client, self._server):
            if writer is not None:
                writer.close()

    # ---- the implementation

    def _stop(self) -> None:
        for pump in self._pumps:
            pump.cancel()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._client = writer
        from_server, self._server = await asyncio.open_connection(*self._target)
        pumps = (self._up(reader, self._server), self._read(from_server), self._down(writer))
        self._pumps = [asyncio.ensure_future(pump) for pump in pumps]
        for outcome in await asyncio.gather(*self._pumps, return_exceptions=True):
            if not isinstance(outcome, (ConnectionError, asyncio.CancelledError, type(None))):
                raise outcome
        for each in (writer, self._server):
            each.close()
            with suppress(OSError):
                await each.wait_closed()

    async def _up(self, reader: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
        records = 0
        while data := await (self._record(reader) if self.secure else reader.read(1 << 16)):
            records += data[0] == _APPLICATION_DATA
            if self._holds_at_request and (records == _REQUEST_RECORD or not self.secure):
                self._holds_at_request = False
                self.hold()
            await self._write(server, data)
        server.write_eof()

    async def _record(self, reader: asyncio.StreamReader) -> bytes:
        """One whole TLS record; b"" at the end of the stream."""
        try:
            head = await reader.readexactly(5)
            return head + await reader.readexactly(int.from_bytes(head[3:], "big"))
        except asyncio.IncompleteReadError:
            return b""

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(1 << 16):
            self._held += data
            self._changed.set()
        self._ended = True
        self._changed.set()

    async def _down(self, client: asyncio.StreamWriter) -> None:
        while self._held or not self._ended:
            await self._gate.wait()
            if self._held:
                data, self._held = self._held, bytearray()
                await self._write(client, data)
            elif not self._ended:
                await self._change()
        client.write_eof()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _write(self, writer: asyncio.StreamWriter, data: bytes | bytearray) -> None:
        size = self.piece or len(data)
        for at in range(0, len(data), size):
            writer.write(data[at : at + size])
            await writer.drain()
            await asyncio.sleep(0)  # so that each piece is a segment, and perhaps a read, of its own


@asynccontextmanager
async def proxy(url: str, *, piece: int = 0, held: bool = False) -> AsyncIterator[Proxy]:
    """A proxy in front of the server at `url`, for one connection."""
    relays: list[asyncio.Task[None]] = []

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relays.append(asyncio.ensure_future(between._relay(reader, writer)))

    listening = socket.socket(
        socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
    )  # with the protocol given, asyncio turns Nagle's algorithm off
    listening.bind(("127.0.0.1", 0))
    server = await asyncio.start_server(accept, sock=listening)
    between = Proxy(url, listening.getsockname()[1], piece)
    if held:
        between.hold()
    try:
        yield between
    finally:
        server.close()
        between.cut()
        await asyncio.gather(*relays)
        await server.wait_closed()
