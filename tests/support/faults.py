"""A TCP proxy for many connections at once, which stalls, delays, cuts and resets them as networks do."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit


class Line:
    """One connection through the proxy."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self._writers = (client, server)
        self._flows = asyncio.Event()
        self._flows.set()
        self.latency = 0.0
        self.is_open = True

    def stall(self) -> None:
        """Forward nothing to the client until release(). TCP holds what comes meanwhile, and then the sender.

        What the client sends goes on at once: a network that delays one frame and not the next moves them together, and
        then no client can keep to a limit on frames per second.
        """
        self._flows.clear()

    def release(self) -> None:
        self._flows.set()

    def reset(self) -> None:
        """Drop the connection by a RST to both sides. What was under way is lost."""
        for writer in self._writers:
            sock = writer.get_extra_info("socket")
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        self.end()

    def cut(self) -> None:
        """Close the connection, without a CLOSE frame."""
        for writer in self._writers:
            writer.close()
        self.end()

    def end(self) -> None:
        self.is_open = False
        self._flows.set()

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to_client: bool) -> None:
        while data := await reader.read(1 << 16):
            if to_client:
                if self.latency:
                    await asyncio.sleep(self.latency)
                await self._flows.wait()
            if not self.is_open:
                return
            writer.write(data)
            await writer.drain()
        writer.write_eof()


class Faults:
    """The lines of a proxy, and how often each fault was used."""

    def __init__(self, url: str, port: int) -> None:
        parts = urlsplit(url)
        self.url = parts._replace(netloc=f"127.0.0.1:{port}").geturl()
        self.target = parts.hostname, parts.port
        self.lines: list[Line] = []
        self.used: Counter[str] = Counter()
        self.refuses = False

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            writer.transport.abort()
            return
        from_server, server = await asyncio.open_connection(*self.target)
        line = Line(writer, server)
        self.lines.append(line)
        try:
            pumps = (line.pump(reader, server, False), line.pump(from_server, writer, True))
            await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            self.lines.remove(line)
            line.end()
            for each in (writer, server):
                each.close()
                with suppress(OSError):
                    await each.wait_closed()

    async def misbehave(self, rng: random.Random, pause: float, stall: float) -> None:
        """Do something bad to some line now and then, for ever.

        :param pause: seconds between two faults, on average
        :param stall: seconds that a stall or a refusal lasts, at most
        """
        while True:
            await asyncio.sleep(rng.expovariate(1 / pause))
            fault = rng.choice(["stall", "stall", "latency", "reset", "cut", "refuse"])
            lines = list(self.lines)
            line = rng.choice(lines) if lines else None
            if fault == "refuse":
                self.refuses = True
                await asyncio.sleep(rng.uniform(0, stall))
                self.refuses = False
            elif line is None:
                continue
            elif fault == "stall":
                line.stall()
                await asyncio.sleep(rng.uniform(0, stall))
                line.release()
            elif fault == "latency":
                line.latency = rng.choice([0.0, rng.uniform(0, stall / 20)])
            else:
                getattr(line, fault)()
            self.used[fault] += 1


@asynccontextmanager
async def faults(url: str) -> AsyncIterator[Faults]:
    """A proxy in front of the server at `url`."""
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with suppress(OSError, asyncio.CancelledError):
            await between.relay(reader, writer)
        tasks.discard(task)
        writer.close()

    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    server = await asyncio.start_server(accept, sock=listening)
    between = Faults(url, listening.getsockname()[1])
    try:
        yield between
    finally:
        server.close()
        for line in list(between.lines):
            line.reset()
        for task in list(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await server.wait_closed()
