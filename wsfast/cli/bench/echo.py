"""The server of ``wsfast bench``: it answers each message with one of the same length, as cheaply as possible, so that
the figures show the clients.

An answer is not the message but a prepared frame, so the server neither unmasks nor allocates. A thread with blocking
calls serves each connection; only one connection is active at a time.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import os
import socket
import sys
import threading

__all__ = ["serve"]

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 section 1.3
_READ = 1 << 18
_CLOSE = 8


def serve(listening: socket.socket) -> None:
    """Serve connections for ever."""
    while True:
        connection, _ = listening.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_serve_one, args=(connection,), daemon=True).start()


def _serve_one(connection: socket.socket) -> None:
    with connection:
        try:
            rest = _accept(connection)
            while data := connection.recv(_READ):
                rest += data
                answers = []
                at = 0
                while (length := _frame_length(rest, at)) and len(rest) >= at + length:
                    if rest[at] & 15 == _CLOSE:
                        connection.sendall(b"\x88\x02\x03\xe8")  # 1000
                        return
                    answers.append(_answer(rest[at], _payload_length(rest, at)))
                    at += length
                rest = rest[at:]
                if answers:
                    connection.sendall(b"".join(answers))
        except OSError:
            pass


def _accept(connection: socket.socket) -> bytes:
    """The opening handshake. Returns what follows the request."""
    request = b""
    while b"\r\n\r\n" not in request:
        data = connection.recv(_READ)
        if not data:
            raise ConnectionResetError
        request += data
    head, _, rest = request.partition(b"\r\n\r\n")
    key = next(
        value.strip()
        for name, _, value in (line.partition(b":") for line in head.split(b"\r\n"))
        if name.lower() == b"sec-websocket-key"
    )
    accept = base64.b64encode(hashlib.sha1(key + _GUID).digest())  # noqa: S324 - the RFC's
    connection.sendall(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
    )
    return rest


def _payload_length(data: bytes, at: int) -> int:
    length = data[at + 1] & 127
    if length < 126:
        return length
    return int.from_bytes(data[at + 2 : at + 4] if length == 126 else data[at + 2 : at + 10], "big")


def _frame_length(data: bytes, at: int) -> int:
    """The length of the client's frame at `at` with its header and mask; 0 if its header is incomplete."""
    if len(data) < at + 2:
        return 0
    header = 2 + {126: 2, 127: 8}.get(data[at + 1] & 127, 0)
    return 0 if len(data) < at + header else header + 4 + _payload_length(data, at)


@functools.lru_cache
def _answer(first: int, length: int) -> bytes:
    if length < 126:
        header = bytes([first, length])
    elif length < 1 << 16:
        header = bytes([first, 126]) + length.to_bytes(2, "big")
    else:
        header = bytes([first, 127]) + length.to_bytes(8, "big")
    return header + b"x" * length


if __name__ == "__main__":
    if sys.argv[1]:
        os.sched_setaffinity(0, [int(sys.argv[1])])
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, args=(listening,), daemon=True).start()
        print(listening.getsockname()[1], flush=True)
        sys.stdin.read()  # until the parent process ends
