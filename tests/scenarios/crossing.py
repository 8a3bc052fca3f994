"""Random scenarios of several connections that read inside each other's reads, and of loops that change threads.

The connections are of listeners and awaitable ones. Their transports are wsfast's own, plain and by rustls,
aiofastnet's with OpenSSL, those of asyncio and of uvloop. Both sides send records that describe themselves. Each
callback, each function that is shown messages, each task that has received, each log record of a loop in debug mode,
and each finalizer may have a server send more, may send, and may poll any connection of the thread. Each connection
checks each byte when it is delivered, and again what it kept; each server checks what it got.

In every third scenario another loop runs in another thread. Either its connections were opened there, and everything
arrives; or they were opened in this thread, and the first read in the other one ends them. Meanwhile this thread sleeps
in poll().

    python -m scenarios.crossing --seed 7           in tests/: one scenario
    python -m scenarios.crossing --seconds 600      new ones until the time is up
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import uvloop
from support import certificates, frames

from scenarios.peer import Peer, record, records
from wsfast import ConnectionClosed, Tuning, WSFrame, WSListener, WSMsgType, WSTransport, ws_connect
from wsfast._engine.messages import show_messages
from wsfast.asyncio.client import ClientConnection, connect

DEPTH = 4  # of reads inside reads
BUDGET = 120  # the most polls of a scenario
STEPS = 40
SIZES = (30, 1000, 20_000, 70_000, 200_000)
KINDS = ("plain", "rustls", "openssl", "openssl", "the loop's", "the loop's openssl")
MOVED = "the event loop has moved"


class Connection:
    """One connection, its server, and what it has received."""

    transport: WSTransport = None  # type: ignore[assignment]

    def __init__(self, scenario: Scenario, kind: str) -> None:
        self.scenario = scenario
        self.kind = kind
        self.sent = self.got = self.said = 0
        self.kept: list[tuple[Callable[[], bytes], bytes]] = []
        ours, theirs = socket.socketpair()
        for sock in (ours, theirs):
            sock.setblocking(False)
        self.ours, self.theirs = ours, theirs
        self.secure = kind.endswith(("rustls", "openssl"))
        self.peer = Peer(theirs, self.secure, False)

    async def open(self) -> None:
        tls: Any = None
        if self.secure:
            rustls = self.kind == "rustls"
            tls = certificates.client_settings() if rustls else certificates.client_context()
        connecting = asyncio.ensure_future(self.connect(f"ws{'s' * self.secure}://localhost/", tls))
        while not connecting.done():
            self.hear()
            await asyncio.sleep(0)
        await connecting

    async def connect(self, url: str, tls: Any) -> None:
        raise NotImplementedError

    def serve(self, size: int, count: int) -> None:
        """Have the server send records; if none, those that the kernel did not take."""
        with self.scenario.unarmed():
            for _ in range(count):
                self.peer.write(frames.binary(record(self.sent, size)))
                self.sent += 1
            self.peer.write(b"")

    def hear(self) -> None:
        """Have the server read, and check."""
        with self.scenario.unarmed():
            self.peer.read(1 << 22)

    def new_record(self) -> bytes:
        """For the server, which need not get them in this order: a callback inside a send may send."""
        with self.scenario.unarmed():
            self.said += 1
            return record(self.said - 1, self.scenario.rng.choice(SIZES))

    def received(self, payload: bytes, again: Callable[[], bytes]) -> None:
        """Check a message. `again` reads the same bytes once more, from the object that was delivered."""
        scenario = self.scenario
        try:
            numbers: Any = records(payload)
        except (AssertionError, ValueError) as exc:
            numbers = exc
        if numbers != [self.got]:
            scenario.faults.append(f"{self}: message {self.got} is {numbers}")
        self.got += 1
        if scenario.rng.random() < 0.5:
            self.kept.append((again, payload))
        if len(self.kept) > 8:
            self.check_kept()

    def check_kept(self) -> None:
        if any(again() != payload for again, payload in self.kept):
            self.scenario.faults.append(f"{self}: what was kept has changed")
        self.kept.clear()

    def check_server(self) -> None:
        self.hear()
        got = sorted(self.peer.numbers)
        if len(set(got)) != len(got) or not set(got) <= set(range(self.said)):
            self.scenario.faults.append(f"{self}: the server got {got}")

    async def end(self) -> None:
        self.transport.abort()
        await self.transport.wait_disconnected()

    def close(self) -> None:
        for sock in (self.theirs, self.ours):
            with suppress(OSError):
                sock.close()

    def __str__(self) -> str:
        return f"{type(self).__name__}, {self.kind}"


class Listening(Connection, WSListener):
    async def connect(self, url: str, tls: Any) -> None:
        self.transport, _ = await ws_connect(
            lambda: self,
            url,
            ssl_context=tls,
            socket_factory=lambda uri: self.ours,
            use_aiofastnet=False if self.kind.startswith("the loop's") else None,
            close_timeout=1,
            tuning=self.scenario.tuning,
        )

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        scenario = self.scenario
        armed, scenario.armed = (
            scenario.armed,
            False,
        )  # at once, or a nested read would be checked before this one
        self.received(frame.get_payload_as_bytes(), frame.get_payload_as_bytes)
        scenario.armed = armed
        scenario.meddle()


class Awaiting(Connection):
    """An awaitable connection: a task receives, and perhaps another one sends."""

    async def connect(self, url: str, tls: Any) -> None:
        rng = self.scenario.rng
        self.ws: ClientConnection = await connect(
            url,
            ssl=tls,
            sock=self.ours,
            close_timeout=1,
            compression=None,
            ping_interval=None,  # a slow machine may take longer for a scenario
            max_queue=rng.choice([2, 16, None]),
            tuning=self.scenario.tuning,
        )
        self.transport = self.ws.protocol
        self.looks = random.Random(rng.random())
        if self.looks.random() < 0.5:
            show_messages(self.transport, self.look)
        self.tasks = [asyncio.ensure_future(self.receive())]
        if rng.random() < 0.5:
            self.tasks.append(asyncio.ensure_future(self.send()))

    def look(self, message: str | bytes) -> bool:
        """Is shown messages, as a supervisor is, and leaves them to the receiver."""
        with self.scenario.unarmed():
            records(message)  # type: ignore[arg-type]
        self.scenario.meddle()
        if self.looks.random() < 0.02:
            show_messages(self.transport, None)
        return False

    async def receive(self) -> None:
        rng = self.scenario.rng
        with suppress(ConnectionClosed):
            while True:
                if rng.random() < 0.1:
                    parts = [part async for part in self.ws.recv_streaming(decode=False)]
                    payload: Any = b"".join(parts)
                else:
                    payload = await self.ws.recv(rng.choice([None, memoryview]))
                with self.scenario.unarmed():
                    self.received(bytes(payload), memoryview(payload).tobytes)
                self.scenario.meddle()
                if rng.random() < 0.1:
                    await asyncio.sleep(0)

    async def send(self) -> None:
        with suppress(ConnectionClosed):
            while not self.scenario.finishing:
                await self.ws.send(self.new_record())
                self.hear()
                await asyncio.sleep(0)

    async def end(self) -> None:
        await super().end()
        for outcome in await asyncio.gather(*self.tasks, return_exceptions=True):
            if outcome is not None:
                raise outcome


class Garbage:
    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.cycle = self

    def __del__(self) -> None:
        if self.scenario.armed:
            self.scenario.meddle()


class Handler(logging.Handler):
    """A program's handler, on the loggers of those whose transports wsfast uses."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__()
        self.scenario = scenario

    def emit(self, record: logging.LogRecord) -> None:
        self.scenario.meddle()


class Scenario:
    def __init__(self, seed: int, tuning: Tuning | None = None) -> None:
        self.rng = random.Random(seed)
        self.tuning = tuning
        self.faults: list[str] = []
        self.armed = False  # outside of the code of the scenario, where a finalizer may act
        self.depth = 0
        self.budget = BUDGET
        self.thread = threading.get_ident()
        self.debug = self.rng.random() < 0.6
        self.finishing = False
        self.connections: list[Connection] = [
            self.rng.choice([Listening, Awaiting])(self, self.rng.choice(KINDS))
            for _ in range(self.rng.randint(2, 4))
        ]

    @contextmanager
    def unarmed(self) -> Iterator[None]:
        armed, self.armed = self.armed, False
        try:
            yield
        finally:
            self.armed = armed

    def meddle(self) -> None:
        """Amid whatever is going on, have a server send something, and poll a connection."""
        if self.depth >= DEPTH or self.budget <= 0 or threading.get_ident() != self.thread:
            return
        self.depth += 1
        try:
            with self.unarmed():
                for _ in range(self.rng.randrange(3)):
                    self.budget -= 1
                    one = self.rng.choice(self.connections)
                    if one.transport is None:
                        return
                    one.serve(self.rng.choice(SIZES), self.rng.randrange(3))
                    if self.rng.random() < 0.2:
                        with suppress(ConnectionClosed):
                            one.transport.send(WSMsgType.BINARY, one.new_record())
                        one.hear()
                    self.poll(one)
        finally:
            self.depth -= 1

    def poll(self, one: Connection, timeout: float = 0) -> None:
        Garbage(self)
        armed, self.armed = self.armed, True
        try:
            one.transport.poll(timeout, sleep=timeout > 0)
        except ConnectionClosed:
            pass  # its messages will be missed
        except RuntimeError as exc:
            # Over transports of the loop's own; amid a read of that connection itself.
            if not str(exc).startswith("poll() "):
                self.faults.append(f"{one}: {exc!r}")
        finally:
            self.armed = armed

    async def play(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_debug(self.debug)
        loop.slow_callback_duration = 1e9
        loop.set_exception_handler(
            lambda loop, context: self.faults.append(f"reached the event loop: {context}")
        )
        for one in self.connections:
            await one.open()
        for _ in range(STEPS):
            one = self.rng.choice(self.connections)
            one.serve(self.rng.choice(SIZES), self.rng.randrange(4))
            if self.rng.random() < 0.3:
                self.poll(one, self.rng.choice((0, 0.002)))
            Garbage(self)
            self.armed = True
            await asyncio.sleep(0)
            self.armed = False
        await self.finish()

    async def finish(self) -> None:
        """Everything arrives, and the connections end."""
        self.budget = 0
        self.finishing = True
        deadline = asyncio.get_running_loop().time() + 30
        for one in self.connections:
            while one.got < one.sent and not one.transport.is_disconnected:
                one.serve(0, 0)
                await asyncio.sleep(0)
                if asyncio.get_running_loop().time() > deadline:
                    break
            if one.got < one.sent:
                info = one.transport.close_info
                self.faults.append(f"{one}: {one.got} of {one.sent} messages arrived; {info}")
            one.check_kept()
            one.check_server()
            try:
                await one.end()
            except Exception as exc:
                self.faults.append(f"{one}: ended with {exc!r}")


class Elsewhere(Scenario):
    """Another loop, in a thread of its own, whose servers send without end.

    :param moved: its connections were opened in the thread of the scenario
    """

    def __init__(self, seed: int, moved: bool) -> None:
        super().__init__(~seed & 0xFFFFFFFF)
        self.moved = moved
        self.loop = new_loop(self.rng)
        if moved:
            self.loop.run_until_complete(self.open())
        self.over = threading.Event()
        self.running = threading.Thread(target=self.run)
        self.running.start()

    async def open(self) -> None:
        for one in self.connections:
            await one.open()

    def run(self) -> None:
        self.thread = threading.get_ident()
        # The one sentence, and no other; or uvloop's, of a get_buffer() that raises.
        self.loop.set_exception_handler(
            lambda loop, context: (
                None
                if re.search(f"{MOVED}|get_buffer\\(\\)", str(context.get("exception")))
                else self.faults.append(f"reached the loop: {context}")
            )
        )
        self.loop.run_until_complete(self.flood())
        self.loop.close()

    async def flood(self) -> None:
        if not self.moved:
            await self.open()
        while not self.over.is_set():
            for one in self.connections:
                if one.sent - one.got < 20 and not one.transport.is_disconnected:
                    one.serve(self.rng.choice(SIZES), 3)
                one.serve(0, 0)
            await asyncio.sleep(0)
        if not self.moved:
            await self.finish()
            return
        for one in self.connections:
            while not (one.transport.is_disconnected or one.got):
                one.serve(30, 1)
                await asyncio.sleep(0)
            info = one.transport.close_info
            if one.got or MOVED not in str(info.cause):
                self.faults.append(f"{one}: moved, {one.got} messages, {info}")

    def join(self) -> list[str]:
        self.over.set()
        self.running.join()
        return self.faults


def new_loop(rng: random.Random) -> asyncio.AbstractEventLoop:
    return uvloop.new_event_loop() if rng.random() < 0.4 else asyncio.new_event_loop()


def run(seed: int) -> list[str]:
    """Play a scenario, and return the faults."""
    scenario = Scenario(seed)
    loop = new_loop(scenario.rng)
    handler = Handler(scenario)
    loggers = [logging.getLogger(name) for name in ("aiofastnet", "asyncio")]
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
    elsewhere = Elsewhere(seed, moved=seed % 2 == 0) if seed % 3 == 0 else None
    threshold = gc.get_threshold()
    gc.set_threshold(5, 1000, 1000)
    try:
        loop.run_until_complete(scenario.play())
        if elsewhere is not None:
            scenario.faults += elsewhere.join()
    finally:
        gc.set_threshold(*threshold)
        if elsewhere is not None:
            elsewhere.join()
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate
        for one in scenario.connections + (elsewhere.connections if elsewhere else []):
            one.close()
        loop.close()
    return scenario.faults


if __name__ == "__main__":
    from scenarios.__main__ import main

    sys.exit(main(run, lambda seed: seed))
