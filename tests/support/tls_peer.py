"""A TLS server's end of a connection whose records the test sends by hand: cut, glued, broken or not at all."""

from __future__ import annotations

import _ssl
import contextlib
import ctypes
import ssl

from support import certificates, frames
from support.frames import Parser
from support.servers import Peer
from support.upgrade import acceptance
from wsfast._native import ffi
from wsfast._opening.rustls import connection_of

_KEY_UPDATE_REQUESTED = 1
_SET_MAX_SEND_FRAGMENT = 52


class TLSPeer:
    """`peer` speaks no TLS itself."""

    def __init__(self, peer: Peer, context: ssl.SSLContext | None = None) -> None:
        self.peer = peer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = (context or certificates.server_context()).wrap_bio(
            self._incoming, self._outgoing, server_side=True
        )
        self._parser = Parser()

    async def accept(self, glued: bytes = b"") -> None:
        """The handshake of TLS, and the upgrade. `glued` is sent in the same write as the reply."""
        await self._do(self.tls.do_handshake)
        request = b""
        while not request.endswith(b"\r\n\r\n"):
            request += await self._do(self.tls.read, 4096)
        self.send(self.records(acceptance(request)) + glued)

    def records(self, plain: bytes) -> bytes:
        """What TLS makes of it, and whatever else it has to say."""
        if plain:
            self.tls.write(plain)
        return self._outgoing.read()

    def send(self, wire: bytes) -> None:
        self.peer.writer.write(wire)

    def end(self) -> bytes:
        """close_notify."""
        with contextlib.suppress(ssl.SSLError):
            self.tls.unwrap()
        return self._outgoing.read()

    def unread(self) -> bytes:
        """What came behind close_notify."""
        return self._incoming.read()

    async def read(self) -> bytes:
        """What the client says next; b"" for close_notify. EOFError if the connection ends without that."""
        try:
            return await self._do(self.tls.read, 1 << 18)
        except ssl.SSLZeroReturnError:
            return b""

    async def frames(self, count: int) -> list[bytes]:
        """The payloads of the next frames."""
        got: list[bytes] = []
        while len(got) < count:
            data = await self.read()
            if not data:
                raise EOFError
            got += [frame.payload for frame in self._parser.feed(data)]
        return got

    async def _do(self, call, *args):
        while True:
            try:
                return call(*args)
            except ssl.SSLWantReadError:
                self.send(self._outgoing.read())
                data = await self.peer.reader.read(1 << 18)
                if not data:
                    raise EOFError("the client closed TCP") from None
                self._incoming.write(data)

    # ---- what Python's ssl module cannot do

    def _call(self, name: str, *args: object) -> int:
        function = getattr(ctypes.CDLL(_ssl.__file__), name)
        connection = connection_of(self.tls._sslobj)
        return function(ctypes.c_void_p(int(ffi.cast("uintptr_t", connection))), *args)

    def key_update(self) -> bytes:
        """A KeyUpdate that asks for the client's."""
        assert self._call("SSL_key_update", ctypes.c_int(_KEY_UPDATE_REQUESTED)) == 1
        assert self._call("SSL_do_handshake") == 1
        return self._outgoing.read()

    def renegotiate(self) -> bytes:
        """HelloRequest, of TLS 1.2."""
        assert self._call("SSL_renegotiate") == 1
        assert self._call("SSL_do_handshake") == 1
        return self._outgoing.read()

    def ticket(self, fragment: int) -> bytes:
        """A session ticket, in records of so many bytes."""
        assert self._call("SSL_ctrl", 52, ctypes.c_long(fragment), None) == 1
        assert self._call("SSL_new_session_ticket") == 1
        assert self._call("SSL_do_handshake") == 1
        return self._outgoing.read()


def text(payload: str | bytes) -> bytes:
    return frames.text(payload.decode() if isinstance(payload, bytes) else payload)


def cut(wire: bytes) -> list[bytes]:
    """Its records."""
    found = []
    while wire:
        size = 5 + int.from_bytes(wire[3:5], "big")
        found.append(wire[:size])
        wire = wire[size:]
    return found
