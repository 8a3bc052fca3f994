"""TLS over any blocking stream, another TLS stream included: how the blocking face is to stack them."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Protocol

_READ = 16 * 1024


class Stream(Protocol):
    def send(self, data: bytes) -> None: ...

    def recv(self) -> bytes: ...


class SocketStream:
    """`left`: seconds until the deadline; raises TimeoutError when it has passed."""

    def __init__(self, sock: socket.socket, left: Callable[[], float]) -> None:
        self._sock = sock
        self._left = left

    def send(self, data: bytes) -> None:
        self._sock.settimeout(self._left())
        self._sock.sendall(data)

    def recv(self) -> bytes:
        self._sock.settimeout(self._left())
        return self._sock.recv(_READ)


class TLSStream:
    def __init__(self, beneath: Stream, context: ssl.SSLContext, name: str) -> None:
        self._beneath = beneath
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._to_send, server_hostname=name)
        self._do(self._tls.do_handshake)

    def send(self, data: bytes) -> None:
        self._do(self._tls.write, data)

    def recv(self) -> bytes:
        try:
            return self._do(self._tls.read, _READ)
        except ssl.SSLZeroReturnError:
            return b""

    def _do(self, call: Callable[..., object], *args: object) -> bytes:
        while True:
            try:
                result = call(*args)
            except ssl.SSLWantReadError:
                self._flush()
                data = self._beneath.recv()
                if data:
                    self._received.write(data)
                else:
                    self._received.write_eof()
            else:
                self._flush()
                return result  # type: ignore[return-value]

    def _flush(self) -> None:
        if self._to_send.pending:
            self._beneath.send(self._to_send.read())
