"""The server's side of the opening handshake, for the servers that tests write byte by byte."""

from __future__ import annotations

import base64
import hashlib


def accept_token(key: bytes) -> bytes:
    """What proves that the server has read the key (RFC 6455 section 4.2.2)."""
    return base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())


def acceptance(request: bytes, headers: bytes = b"") -> bytes:
    """The reply that accepts the upgrade request.

    :param headers: more of them, each with its CRLF
    """
    lines = request.split(b"\r\n")
    key = next(line.split(b": ")[1] for line in lines if line.lower().startswith(b"sec-websocket-key: "))
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + accept_token(key) + b"\r\n" + headers + b"\r\n"
    )
