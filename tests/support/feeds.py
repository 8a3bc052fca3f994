"""Measures the memory that one connection holds for hostile feeds. It runs as a program, for a clean measurement:

    python -m support.feeds FACE

For each feed it prints two maxima in bytes: Python's allocations (tracemalloc), and the growth of the process (RSS).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import socket
import ssl
import sys
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import wsfast
from support import certificates
from support.frames import BINARY, CONTINUATION, PING, TEXT, frame, header
from support.memory import resident
from support.upgrade import acceptance
from wsfast.asyncio.client import connect

MEBI = 1 << 20


def bombs(body: bytes, opcode: int, count: int) -> bytes:
    """Compressed messages. From the second on they are the same bytes, because the window before them is the same."""
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    first, second = (stream.compress(body) + stream.flush(zlib.Z_SYNC_FLUSH) for _ in range(2))
    return frame(opcode, first[:-4], rsv=4) + frame(opcode, second[:-4], rsv=4) * (count - 1)


def fragments(payload: bytes, count: int) -> bytes:
    return frame(BINARY, payload, fin=False) + frame(CONTINUATION, payload, fin=False) * (count - 1)


EMOJI = b"a" * (MEBI - 4) + "\U0001f600".encode()

# The bytes of the server, and whether client and server agree on compression. No task receives.
FEEDS: dict[str, tuple[Callable[[], bytes], bool]] = {
    "nothing": (lambda: b"", False),
    "bombs": (lambda: bombs(bytes(MEBI), BINARY, 40), True),
    "emoji bombs": (lambda: bombs(EMOJI, TEXT, 40), True),
    "emoji": (lambda: frame(TEXT, EMOJI) * 20, False),
    "many in one read": (lambda: frame(BINARY, b"xy") * 150_000, False),
    "many texts in one read": (lambda: frame(TEXT, "é") * 150_000, False),
    "large messages": (lambda: frame(BINARY, bytes(MEBI)) * 20, False),
    "tiny fragments": (lambda: fragments(b"xy", 150_000), False),
    "empty fragments": (lambda: fragments(b"", 150_000), False),
    "fragments of a byte": (lambda: fragments(b"x", 300_000), False),
    "pings while paused": (lambda: (frame(BINARY, b"x" * 1000) + frame(PING, b"?")) * 15_000, False),
    "a huge frame announced": (lambda: header(BINARY, MEBI) + bytes(1000), False),
}


class Taking(wsfast.WSListener):
    """A listener that takes messages and keeps none."""

    def on_ws_message(self, transport: wsfast.WSTransport, msg_type: object, payload: object) -> None:
        pass


# One that only TLS can have: a record for each byte.
SMALL_RECORDS = "small records"


def serve(
    listening: socket.socket, said: bytes, agrees: bool, glued: bool, tls: ssl.SSLContext | None
) -> None:
    """Serve one connection: send the reply and `said`, and then nothing until the client disconnects."""
    sock, _ = listening.accept()
    if tls is not None:
        sock = tls.wrap_socket(sock, server_side=True)
    request = b""
    while not request.endswith(b"\r\n\r\n"):
        request += sock.recv(65536)
    reply = acceptance(request, b"Sec-WebSocket-Extensions: permessage-deflate\r\n" if agrees else b"")
    with contextlib.suppress(OSError):
        if glued:
            sock.sendall(reply + said)
        else:
            sock.sendall(reply)
            time.sleep(0.05)
            if tls is not None and len(said) < 50_000:
                for place in range(len(said)):
                    sock.sendall(said[place : place + 1])
            else:
                sock.sendall(said)
        while sock.recv(65536):
            pass


async def measure(face: str, url: str) -> tuple[int, int]:
    """The maximum of bytes while no task receives, counted by Python and by the kernel."""
    tls: dict[str, Any] = {}
    if "TLS" in face:
        tls["ssl"] = certificates.client_settings()
        tls["ssl"].context()
    elif "OpenSSL" in face:
        tls["ssl"] = certificates.client_context()
    gc.collect()
    tracemalloc.start()
    before = resident()
    largest = [0]

    def watch() -> None:
        while not done:
            largest[0] = max(largest[0], resident() - before)
            time.sleep(0.001)

    done: list[bool] = []
    watching = threading.Thread(target=watch)
    watching.start()
    if face.startswith("listener"):
        transport, _ = await wsfast.ws_connect(Taking, url, compression="deflate", max_frame_size=MEBI, **tls)
        drop = transport.abort
    else:
        ws = await connect(url, ping_interval=0.01 if "pinging" in face else None, ping_timeout=None, **tls)
        drop = ws.protocol.abort
        if "receiving" in face:
            receiving = asyncio.ensure_future(ws.recv())
    await asyncio.sleep(0.25)
    traced = tracemalloc.get_traced_memory()[1]
    if tls:
        told = (transport if face.startswith("listener") else ws).tls
        assert told is not None
        assert told.layer == ("rustls" if "TLS" in face else "OpenSSL")
    done.append(True)
    watching.join()
    if "receiving" in face:
        receiving.cancel()
    tracemalloc.stop()
    drop()
    return traced, largest[0]


# The feeds for which the variants "glued" and "pinging" differ from the face itself, and "TLS" from another one.
FEW = ("bombs", "emoji bombs", "many in one read", "large messages")
SHORT = ("glued", "pinging", "OpenSSL")


def main(face: str) -> None:
    logging.disable(logging.CRITICAL)
    tls = certificates.server_context() if "TLS" in face or "OpenSSL" in face else None
    feeds = dict(FEEDS)
    if tls is not None:
        feeds[SMALL_RECORDS] = (lambda: frame(BINARY, bytes(20_000)), False)
    for feed, (make, agrees) in feeds.items():
        if face.split()[-1] in SHORT and feed not in (*FEW, SMALL_RECORDS):
            continue
        if face == "awaitable TLS" and feed not in FEW:
            continue
        with socket.create_server(("127.0.0.1", 0)) as listening:
            server = os.fork()
            if server == 0:
                serve(listening, make(), agrees, "glued" in face, tls)
                os._exit(0)
            port = listening.getsockname()[1]
        traced, grown = asyncio.run(measure(face, f"{'ws' if tls is None else 'wss'}://127.0.0.1:{port}/"))
        os.waitpid(server, 0)
        print(f"{feed}: {traced} {grown}")


if __name__ == "__main__":
    main(sys.argv[1])
