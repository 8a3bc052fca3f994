"""The server of a scenario. It reads when the scenario tells it to, and checks every byte, with no code of wsfast.

A payload consists of records that describe themselves: a number, a length, a checksum. So the peer can check that the
records are complete and in order.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import zlib

from support import certificates, frames, tls_peer
from support.frames import CLOSE, CONTINUATION, PING, PONG, Parser, Sent
from support.upgrade import acceptance


def record(number: int, size: int) -> bytes:
    """A record: a header of 24 bytes, and a body that compresses, but not to nothing. All bytes are ASCII."""
    body = (b"%08x" % (number * 2654435761 & 0xFFFFFFFF) * (size // 8 + 1))[: max(0, size - 24)]
    return b"%08x%08x%08x" % (number, len(body), zlib.crc32(body)) + body


def records(payload: bytes) -> list[int]:
    """The numbers of the records in a payload; AssertionError if a record is damaged or incomplete."""
    numbers, at = [], 0
    while at < len(payload):
        number, size, checksum = (int(payload[at + i : at + i + 8], 16) for i in (0, 8, 16))
        body = payload[at + 24 : at + 24 + size]
        assert len(body) == size, f"record {number} has {len(body)} bytes instead of {size}"
        assert zlib.crc32(body) == checksum, f"record {number} was damaged"
        numbers.append(number)
        at += 24 + size
    return numbers


class Peer:
    """The far end of a socket. It reads only when the scenario tells it to."""

    def __init__(self, sock: socket.socket, tls: bool, compressed: bool) -> None:
        self._sock = sock
        self._parser = Parser()
        self._tls: ssl.SSLObject | None = None
        if tls:
            self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            self._tls = certificates.server_context().wrap_bio(
                self._incoming, self._outgoing, server_side=True
            )
            self._shaken = False
        self._unsent = bytearray()
        self._request = bytearray()
        self._compressed = compressed
        self._inflater = zlib.decompressobj(-15) if compressed else None
        self._message: list[Sent] = []
        self._pinged: set[bytes] = set()
        self.open = False
        self.numbers: list[int] = []
        self.close: Sent | None = None
        self.close_sent = False
        self.eof = False
        self.broken = False  # this end broke the connection: later bytes of the client may be lost

    @property
    def keys(self) -> list[bytes]:
        """The mask keys so far."""
        return self._parser.keys

    # ---- bytes

    def read(self, size: int) -> int:
        """Read up to `size` bytes from the kernel, and return their number."""
        got = 0
        while got < size and not self.eof:
            try:
                data = self._sock.recv(min(size - got, 1 << 18))
            except BlockingIOError:
                break
            except OSError:
                self.eof = True
                break
            got += len(data)
            self.eof = not data
            self._received(data)
        self.write(b"")
        return got

    def _received(self, data: bytes) -> None:
        if self._tls is not None:
            self._incoming.write(data)
            data = self._decrypt()
        if not self.open:
            self._request += data
            head, found, data = bytes(self._request).partition(b"\r\n\r\n")
            if not found:
                return
            self._accept(head)
        for frame in self._parser.feed(data):
            self._check(frame)

    def _decrypt(self) -> bytes:
        assert self._tls is not None
        plain = bytearray()
        try:
            if not self._shaken:
                self._tls.do_handshake()
                self._shaken = True
            while piece := self._tls.read(1 << 18):
                plain += piece
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            self.eof = True  # close_notify
        self.write(b"")
        return bytes(plain)

    def write(self, data: bytes) -> None:
        """Send `data`, and keep the bytes that the kernel does not take."""
        if self._tls is not None:
            try:
                if data:
                    self._tls.write(data)
            except ssl.SSLError:
                return
            data = self._outgoing.read()
        self._unsent += data
        try:
            while self._unsent:
                del self._unsent[: self._sock.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()

    def _accept(self, head: bytes) -> None:
        extension = b"Sec-WebSocket-Extensions: permessage-deflate\r\n" if self._compressed else b""
        self.open = True
        self.write(acceptance(head, extension))

    # ---- frames

    def _check(self, frame: Sent) -> None:
        assert self.close is None, f"a frame behind CLOSE: opcode {frame.opcode}, {len(frame.payload)} bytes"
        assert frame.opcode in (0, 1, 2, CLOSE, PING, PONG), f"opcode {frame.opcode}"
        if frame.opcode & 8:
            assert frame.fin, "a fragmented control frame"
            assert not frame.rsv, "a control frame with a reserved bit"
            assert len(frame.payload) <= 125, "a long control frame"
            if frame.opcode == CLOSE:
                self.close = frame
                if not self.close_sent:
                    self.serve("close", 0, frame.payload)
            elif frame.payload in self._pinged:
                assert frame.opcode == PONG, "a PING with the payload of one of the server's"
            elif len(frame.payload) == 8:  # wsfast's own PING
                assert frame.opcode == PING, "a PONG for which there was no PING"
                self.write(frames.frame(PONG, frame.payload))
            else:
                self.numbers += records(frame.payload)
            return
        assert (frame.opcode == CONTINUATION) == bool(self._message), "a message within another one"
        assert not frame.rsv or (frame.rsv == 4 and self._compressed and not self._message), "a reserved bit"
        self._message.append(frame)
        payload = frame.payload
        if self._message[0].rsv:
            assert self._inflater is not None
            try:
                payload = self._inflater.decompress(payload + b"\0\0\xff\xff" * frame.fin)
            except zlib.error as exc:
                raise AssertionError(f"compressed data is damaged: {exc}") from exc
        self.numbers += records(payload)
        if frame.fin:
            self._message.clear()

    def serve(self, what: str, size: int, close: bytes = b"\x03\xe8") -> None:
        """Send the client frames, or end the connection, as `what` says."""
        if self.close_sent or self.eof or not self.open:
            return
        if what in ("text", "ping then text"):
            if what != "text":
                self.serve("ping", 1)
            self.write(frames.text(b"x" * size))
        elif what == "fragments":
            self.write(frames.text(b"a", fin=False))
            self.serve("ping", 1)
            self.write(frames.frame(CONTINUATION, b"b" * size))
        elif what == "ping":
            for _ in range(size):
                payload = b"ping %d" % len(self._pinged)
                self._pinged.add(payload)
                self.write(frames.frame(PING, payload))
        elif what == "close":
            self.close_sent = True
            self.write(frames.frame(CLOSE, close))
        elif what == "nonsense":
            self.broken = True
            self.write(b"\x83\x00")
        elif what == "eof":
            self.broken = True
            if self._tls is None:
                self._shut_down()
        elif what == "reset":
            self.broken = self.eof = True
            self._sock.close()
        elif self._tls is not None:
            self._serve_tls(self._tls, what)

    def _serve_tls(self, tls: ssl.SSLObject, what: str) -> None:
        if what == "key update":
            tls_peer.key_update(tls)
        elif what == "ticket":
            tls_peer.ticket(tls)
        elif what == "close_notify":
            self.broken = True
            with contextlib.suppress(ssl.SSLError):
                tls.unwrap()
        elif what == "no record":
            self.broken = True
            self._unsent += b"no record of TLS"
        self.write(b"")

    def finish(self) -> int:
        """Read everything, close if both sides have sent CLOSE, and return the number of bytes read."""
        got = self.read(1 << 30)
        if self.close is not None and self.close_sent and not self._unsent:
            self._shut_down()
        return got

    def _shut_down(self) -> None:
        if self._tls is not None:
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
            self.write(b"")
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)
