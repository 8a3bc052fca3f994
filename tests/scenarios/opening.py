"""Scenarios of the opening: hostile servers that redirect, and a hostile proxy before them.

``python -m scenarios.opening [SEED]``, with tests/ on the path; without a seed one after the other, until one fails.

A seed draws what each server and the proxy say, how that is cut, how the connection ends, and whether the program
cancels. Whatever they do: an exception is of those that connect() documents, no secret goes to another origin, into a
log or into an exception, and no task and no descriptor is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import random
import socket
import struct
import sys
from typing import Any

from support import frames
from support.faces import FACES
from support.upgrade import acceptance

from wsfast.exceptions import WebSocketException

SECRET, PROXY_SECRET = "hunter2", "swordfish"
DOCUMENTED = (WebSocketException, OSError, TimeoutError, asyncio.TimeoutError, asyncio.CancelledError)

REFUSALS = [
    b"HTTP/1.1 403 No\r\nContent-Length: 5\r\n\r\nsorry",
    b"HTTP/1.1 407 No\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nsorry\r\n0\r\n\r\n",
    b"HTTP/1.1 503 No\r\nRetry-After: 1\r\n\r\nuntil the end",
    b"HTTP/1.1 403 No\r\nTransfer-Encoding: chunked\r\n\r\nnonsense",
    b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n",
    b"HTTP/1.0 101 Old\r\n\r\n",
    b"HTTP/1.1 101 Bare\r\n\r\n",
    b"HTTP/2.0 200\r\n\r\n",
    b"\x15\x03\x03\x00\x02\x02\x46",
    b"\x00" * 20,
    b"SSH-2.0-x\r\n",
    b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 6000,
    b"HTTP/1.1 103 Hints\r\n\r\n" * 2000,
    b"",
]
LOCATIONS = ["/next", "?x", "", "//", "ws://[::1", "//127.0.0.1:{port}/b", "ws://eve:evil@127.0.0.1:{port}/c"]
LOCATIONS += [
    "http://127.0.0.1:{port}/d#e",
    "ws://localhost:{port}/f",
    "wss://127.0.0.1:{port}/g",
    "ws://127.0.0.1:{own}/",
]
LOCATIONS += ["ws://127.0.0.1:{port}\\@127.0.0.1:{own}/", "ftp://127.0.0.1:{port}/", "/%0d%0aX: y", "/\xff"]


class Hostile:
    """A server. It keeps what it was asked."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.requests: list[bytes] = []
        self.others: list[int] = []  # ports to redirect to
        self.port = 0
        self.writers: list[asyncio.StreamWriter] = []  # its own ends, which the scenario closes

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with contextlib.suppress(EOFError, OSError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.requests.append(head)
            accepted, reply = self.reply(head)
            await say(self.draw, writer, reply)
            if accepted:
                await reader.read(1 << 16)
            self.end(writer)

    def reply(self, head: bytes) -> tuple[bool, bytes]:
        kind = self.draw.random()
        if kind < 0.4 and self.others:
            place = self.draw.choice(LOCATIONS).format(port=self.draw.choice(self.others), own=self.port)
            status = self.draw.choice([301, 302, 303, 307, 308])
            body = self.draw.choice([b"", b"Content-Length: 3\r\n"])
            head = b"HTTP/1.1 %d Go\r\nLocation: %b\r\n%b\r\nabc" % (status, place.encode("latin-1"), body)
            return False, head
        if kind < 0.7:
            return True, acceptance(head[:-4], b"") + frames.text("arrived")
        return False, self.draw.choice(REFUSALS)

    def end(self, writer: asyncio.StreamWriter) -> None:
        how = self.draw.randrange(4)
        if how == 0:
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if how < 3:  # else it stalls
            writer.close()


class HostileProxy(Hostile):
    """A proxy that now and then does what it is asked."""

    def reply(self, head: bytes) -> tuple[bool, bytes]:
        raise NotImplementedError

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with contextlib.suppress(EOFError, OSError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.requests.append(head)
            if self.draw.random() < 0.3:
                await say(self.draw, writer, self.draw.choice(REFUSALS))
                self.end(writer)
                return
            host, _, port = head.split()[1].decode().rpartition(":")
            behind = await asyncio.open_connection(host, int(port))
            self.writers.append(behind[1])
            await say(self.draw, writer, b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(pump(reader, behind[1]), pump(behind[0], writer))


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


async def say(draw: random.Random, writer: asyncio.StreamWriter, data: bytes) -> None:
    """Whole, or in pieces of any size."""
    largest = draw.choice([1 << 20, 200, 7, 1]) if len(data) < 500 else 1 << 20
    while data:
        size = draw.randint(1, largest)
        writer.write(data[:size])
        data = data[size:]
        await writer.drain()
        await asyncio.sleep(0)


class _Log(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


async def play(seed: int) -> list[str]:
    """The faults that were found."""
    draw = random.Random(seed)
    log, faults = _Log(), []
    logger = logging.getLogger("wsfast.client")
    logger.addHandler(log)
    level, logger.propagate = logger.level, False
    logger.setLevel(logging.INFO)
    servers = [Hostile(draw) for _ in range(3)]
    proxy = HostileProxy(draw)
    descriptors = len(os.listdir("/proc/self/fd"))
    async with contextlib.AsyncExitStack() as stack:
        for server in (*servers, proxy):
            made = await stack.enter_async_context(await asyncio.start_server(server, "127.0.0.1", 0))
            server.port = made.sockets[0].getsockname()[1]
        for server in servers:
            server.others = [other.port for other in servers]
        tasks = asyncio.all_tasks()
        fault = await connect(draw, servers[0], proxy)
        if fault:
            faults.append(fault)
        for _ in range(1000):
            for server in (*servers, proxy):
                for writer in server.writers:
                    writer.transport.abort()
            if asyncio.all_tasks() <= tasks:
                break
            await asyncio.sleep(0.001)
        else:
            faults.append(f"tasks are left: {asyncio.all_tasks() - tasks}")
    gc.collect()
    for _ in range(1000):
        if len(os.listdir("/proc/self/fd")) <= descriptors:
            break
        await asyncio.sleep(0.001)
    else:
        faults.append("descriptors are left")
    faults += secrets_elsewhere(servers, proxy, log.lines)
    logger.removeHandler(log)
    logger.setLevel(level)
    logger.propagate = True
    return faults


async def connect(draw: random.Random, first: Hostile, proxy: HostileProxy) -> str | None:
    face = draw.choice(list(FACES))
    headers = "extra_headers" if face == "listener" else "additional_headers"
    options: dict[str, Any] = {
        headers: {"Cookie": SECRET},
        "open_timeout": draw.choice([0.05, 0.2]),
        "close_timeout": 0.2,
    }
    url = f"ws://127.0.0.1:{first.port}/"
    if draw.random() < 0.5:
        url = url.replace("//", f"//me:{SECRET}@")
    if draw.random() < 0.4:
        options["proxy"] = f"http://you:{PROXY_SECRET}@127.0.0.1:{proxy.port}"

    async def attempt() -> None:
        async with FACES[face](url, **options) as client:
            await client.recv()

    task = asyncio.ensure_future(attempt())
    if face != "blocking" and draw.random() < 0.3:
        for _ in range(draw.randrange(30)):
            await asyncio.sleep(0)
        task.cancel()
    try:
        await task
    except DOCUMENTED as exc:
        return leak(exc)
    except Exception as exc:
        # The connection was made, and then ended.
        return None if type(exc).__name__ == "End" else f"{face}: {type(exc).__name__}: {exc}"
    return None


def leak(exc: BaseException | None) -> str | None:
    while exc is not None:
        text = f"{exc!s} {exc!r}"
        if SECRET in text or PROXY_SECRET in text:
            return f"a secret in an exception: {text}"
        exc = exc.__cause__ or exc.__context__
    return None


def secrets_elsewhere(servers: list[Hostile], proxy: HostileProxy, log: list[str]) -> list[str]:
    faults = []
    for server in servers[1:]:
        faults += [
            f"a secret at another origin: {head!r}" for head in server.requests if SECRET.encode() in head
        ]
    for server in servers:
        faults += [
            f"the proxy's secret: {head!r}" for head in server.requests if PROXY_SECRET.encode() in head
        ]
    faults += [f"a secret for the proxy: {head!r}" for head in proxy.requests if SECRET.encode() in head]
    return faults + [f"a secret in the log: {line}" for line in log if SECRET in line or PROXY_SECRET in line]


def main() -> int:
    seed, only = (int(sys.argv[1]), True) if len(sys.argv) > 1 else (random.randrange(1 << 32), False)
    while True:
        print(f"\rseed {seed} ", end="", flush=True)
        faults = asyncio.run(play(seed))
        if faults or only:
            print("\n".join(faults) or "no fault was found")
            return bool(faults)
        seed += 1


if __name__ == "__main__":
    sys.exit(main())
