"""Random scenarios of several connections that read inside each other's reads, and of loops that change threads.

The connections have different transports: wsfast's own, plain and by rustls, aiofastnet's with OpenSSL, asyncio's. The
servers send records that describe themselves. Each callback, each log record of a loop in debug mode, and each
finalizer may have a server send more and may poll any connection of the thread. Each listener checks each byte when it
is delivered, and again what it kept.

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
import socket
import sys
import threading
from contextlib import suppress
from typing import Any

from support import certificates, frames

from scenarios.peer import Peer, record, records
from wsfast import ConnectionClosed, WSFrame, WSListener, WSTransport, ws_connect

DEPTH = 4  # of reads inside reads
BUDGET = 120  # the most polls of a scenario
STEPS = 40
SIZES = (30, 1000, 20_000, 70_000, 200_000)
KINDS = ("plain", "rustls", "openssl", "openssl", "the loop's", "the loop's openssl")
MOVED = "the event loop has moved"


class Connection(WSListener):
    """One connection, its server, and what it has received."""

    def __init__(self, scenario: Scenario, kind: str) -> None:
        self.scenario = scenario
        self.kind = kind
        self.sent = self.got = 0
        self.kept: list[tuple[WSFrame, bytes]] = []
        self.transport: WSTransport = None  # type: ignore[assignment]
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
        connecting = asyncio.ensure_future(
            ws_connect(
                lambda: self,
                f"ws{'s' * self.secure}://localhost/",
                ssl_context=tls,
                socket_factory=lambda uri: self.ours,
                use_aiofastnet=False if self.kind.startswith("the loop's") else None,
                close_timeout=1,
            )
        )
        while not connecting.done():
            self.peer.read(100_000)
            await asyncio.sleep(0)
        self.transport, _ = await connecting

    def serve(self, size: int, count: int) -> None:
        for _ in range(count):
            self.peer.write(frames.binary(record(self.sent, size)))
            self.sent += 1

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        scenario = self.scenario
        armed, scenario.armed = scenario.armed, False
        payload = frame.get_payload_as_bytes()
        try:
            numbers: Any = records(payload)
        except (AssertionError, ValueError) as exc:
            numbers = exc
        if numbers != [self.got]:
            scenario.faults.append(f"{self.kind}: message {self.got} is {numbers}")
        self.got += 1
        if scenario.rng.random() < 0.5:
            self.kept.append((frame, payload))
        if len(self.kept) > 8:
            self.check_kept()
        scenario.armed = armed
        scenario.meddle()

    def check_kept(self) -> None:
        if any(frame.get_payload_as_bytes() != payload for frame, payload in self.kept):
            self.scenario.faults.append(f"{self.kind}: a kept frame has changed")
        self.kept.clear()


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
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.faults: list[str] = []
        self.armed = False  # outside of the code of the scenario, where a finalizer may act
        self.depth = 0
        self.budget = BUDGET
        self.thread = threading.get_ident()
        self.debug = self.rng.random() < 0.6
        self.connections = [Connection(self, self.rng.choice(KINDS)) for _ in range(self.rng.randint(2, 4))]

    def meddle(self) -> None:
        """Amid whatever is going on, have a server send something, and poll a connection."""
        if self.depth >= DEPTH or self.budget <= 0 or threading.get_ident() != self.thread:
            return
        self.depth += 1
        armed, self.armed = self.armed, False
        try:
            for _ in range(self.rng.randrange(3)):
                self.budget -= 1
                one = self.rng.choice(self.connections)
                if one.transport is None:
                    return
                one.serve(self.rng.choice(SIZES), self.rng.randrange(3))
                self.poll(one)
        finally:
            self.armed = armed
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
                self.faults.append(f"{one.kind}: {exc!r}")
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
        deadline = asyncio.get_running_loop().time() + 30
        for one in self.connections:
            while one.got < one.sent and not one.transport.is_disconnected:
                one.peer.write(b"")
                await asyncio.sleep(0)
                if asyncio.get_running_loop().time() > deadline:
                    break
            if one.got < one.sent:
                info = one.transport.close_info
                self.faults.append(f"{one.kind}: {one.got} of {one.sent} messages arrived; {info}")
            one.check_kept()
            one.transport.abort()
            try:
                await one.transport.wait_disconnected()
            except Exception as exc:
                self.faults.append(f"{one.kind}: ended with {exc!r}")


class Elsewhere(Scenario):
    """Another loop, in a thread of its own, whose servers send without end.

    :param moved: its connections were opened in the thread of the scenario
    """

    def __init__(self, seed: int, moved: bool) -> None:
        super().__init__(~seed & 0xFFFFFFFF)
        self.moved = moved
        self.loop = asyncio.new_event_loop()
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
        # The one sentence, and no other.
        self.loop.set_exception_handler(
            lambda loop, context: (
                None
                if MOVED in str(context.get("exception"))
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
                one.peer.write(b"")
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
                self.faults.append(f"{one.kind}: moved, {one.got} messages, {info}")

    def join(self) -> list[str]:
        self.over.set()
        self.running.join()
        return self.faults


def run(seed: int) -> list[str]:
    """Play a scenario, and return the faults."""
    scenario = Scenario(seed)
    loop = asyncio.new_event_loop()
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
            with suppress(OSError):
                one.theirs.close()
                one.ours.close()
        loop.close()
    return scenario.faults


if __name__ == "__main__":
    from scenarios.__main__ import main

    sys.exit(main(run, lambda seed: seed))
