"""A TLS server's end of a connection whose records the test sends by hand: cut, glued, broken or not at all."""

from __future__ import annotations

import _ssl
import contextlib
import ctypes
import ssl
from collections.abc import Callable

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from support import certificates, frames
from support.frames import Parser
from support.servers import Peer
from support.upgrade import acceptance
from wsfast._opening.tls.rustls import connection_of
from wsfast._rust._native import ffi

_KEY_UPDATE_REQUESTED = 1
_SET_MAX_SEND_FRAGMENT = 52


def call(tls: ssl.SSLObject, name: str, *args: object) -> None:
    """Call a function of OpenSSL's that Python's ssl module does not."""
    function = getattr(ctypes.CDLL(_ssl.__file__), name)
    connection = connection_of(tls._sslobj)
    assert function(ctypes.c_void_p(int(ffi.cast("uintptr_t", connection))), *args) == 1, name


def key_update(tls: ssl.SSLObject) -> None:
    """Have the server send a KeyUpdate that asks for the client's."""
    call(tls, "SSL_key_update", ctypes.c_int(_KEY_UPDATE_REQUESTED))
    call(tls, "SSL_do_handshake")


def ticket(tls: ssl.SSLObject) -> None:
    """Have the server send a session ticket."""
    call(tls, "SSL_new_session_ticket")
    call(tls, "SSL_do_handshake")


def set_fragment(tls: ssl.SSLObject, size: int) -> None:
    """Have the server make no longer records."""
    call(tls, "SSL_ctrl", _SET_MAX_SEND_FRAGMENT, ctypes.c_long(size), None)


def set_padding(tls: ssl.SSLObject, block: int) -> None:
    """Have the server pad every record to a multiple of so many bytes."""
    call(tls, "SSL_set_block_padding", ctypes.c_size_t(block))


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

    def _call(self, name: str, *args: object) -> None:
        call(self.tls, name, *args)

    def key_update(self) -> bytes:
        key_update(self.tls)
        return self._outgoing.read()

    def pad(self, block: int) -> None:
        set_padding(self.tls, block)

    def renegotiate(self) -> bytes:
        """HelloRequest, of TLS 1.2."""
        self._call("SSL_renegotiate")
        self._call("SSL_do_handshake")
        return self._outgoing.read()

    def ticket(self, fragment: int) -> bytes:
        """A session ticket, in records of so many bytes."""
        set_fragment(self.tls, fragment)
        ticket(self.tls)
        return self._outgoing.read()


# What records carry (RFC 8446 section 5.1).
ALERT, HANDSHAKE, DATA = 21, 22, 23


class Forger:
    """Makes every record of the server from now on, with any content: for TLS 1.3. `start` must be sent first.

    :param log: the file of the context's key log
    """

    def __init__(self, secure: TLSPeer, log: str) -> None:
        cipher = secure.tls.cipher()[0]
        self._hash = hashes.SHA384() if cipher.endswith("SHA384") else hashes.SHA256()
        with open(log) as lines:
            secret = next(line.split()[2] for line in lines if line.startswith("SERVER_TRAFFIC_SECRET_0 "))
        # OpenSSL alone knows how many records it has sent; with another key they are counted from 0.
        self.start = secure.key_update()
        key = self._expand(bytes.fromhex(secret), b"traffic upd", self._hash.digest_size)
        size = 16 if "AES_128" in cipher else 32
        self._cipher = (ChaCha20Poly1305 if "CHACHA20" in cipher else AESGCM)(self._expand(key, b"key", size))
        self._iv = self._expand(key, b"iv", 12)
        self._number = 0

    def _expand(self, secret: bytes, label: bytes, size: int) -> bytes:
        """HKDF-Expand-Label (RFC 8446 section 7.1)."""
        label = b"tls13 " + label
        info = size.to_bytes(2, "big") + bytes([len(label)]) + label + b"\0"
        return HKDFExpand(self._hash, size, info).derive(secret)

    def record(self, content: bytes, kind: int = DATA, padding: int = 0) -> bytes:
        return self.raw(content + bytes([kind]) + bytes(padding))

    def raw(self, inner: bytes) -> bytes:
        header = b"\x17\x03\x03" + (len(inner) + 16).to_bytes(2, "big")
        nonce = bytes(a ^ b for a, b in zip(self._iv, self._number.to_bytes(12, "big"), strict=True))
        self._number += 1
        return header + self._cipher.encrypt(nonce, inner, header)


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


async def until_it_ends(server: TLSPeer) -> str:
    """Read until the client ends TLS. Returns how."""
    try:
        while await server.read():
            pass
    except (ssl.SSLError, EOFError, ConnectionError) as exc:
        return str(exc)
    server.send(server.end())
    return "close_notify"


def _broken(wire: bytes) -> bytes:
    return wire[:-1] + bytes([wire[-1] ^ 1])


# What a server may send after the record of the message "good", and must not.
WRONG: dict[str, Callable[[TLSPeer], bytes]] = {
    "a changed record": lambda server: _broken(server.records(text("x"))),
    "no record": lambda server: b"HTTP/1.1 400 Bad Request\r\n\r\n" * 40,
    "too long a record": lambda server: b"\x17\x03\x03\xff\xff" + b"x" * 100,
    "a record without a tag": lambda server: b"\x17\x03\x03\x00\x00",
    "a record again": lambda server: 2 * server.records(text("good")),
}
