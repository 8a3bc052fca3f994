"""Random programs on an awaitable connection. The peer checks every byte, and the client checks the order of messages.

    python -m scenarios.awaitable SECONDS [SEED]

Tasks receive, iterate, stream, send, ping and close. At each await the program may cancel the task, throw into it, or
run the collector. Then it drops the connection, or closes the loop while everything is pending. A seed repeats a
program, but not its timing.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import sys
import time
import warnings
import zlib
from collections.abc import Awaitable
from typing import Any

from support.awaiting import awaitable
from support.certificates import client_context, client_settings
from support.frames import BINARY, CLOSE, CONTINUATION, PING, TEXT, Parser, close, frame
from support.pair import Far

from wsfast.asyncio.client import ClientConnection
from wsfast.exceptions import ConcurrencyError, ConnectionClosed

# A program has stalled if its loop has run so many timers of TICK seconds and nothing else happened.
TICK, MOST_TICKS = 0.05, 600

# The exceptions that a task may get, besides CancelledError.
EXPECTED = (ConnectionClosed, ConcurrencyError, RuntimeError, LookupError)


class Program:
    """One connection, and the random actions on it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.said = 0
        self.last = -1
        self.tasks: list[asyncio.Task[Any]] = []
        self.compressed = self.random.random() < 0.3
        # rustls, or OpenSSL.
        self.tls = (client_settings if seed % 2 else client_context) if seed % 3 == 0 else None
        self.stream = zlib.compressobj(wbits=-15)
        self.overflow = self.random.choice(
            ["pause", "pause", "drop_oldest", "drop_newest", "conflate", "fail"]
        )
        self.had: set[int] = set()
        self.events = 0

    # ---- the server

    def message(self) -> bytes:
        """The frames of the next message, which starts with its number; in one frame, in fragments, or compressed."""
        body = f"{self.said}:".encode() + b"x" * self.random.choice([0, 1, 100, 5000, 70_000])
        self.said += 1
        opcode = self.random.choice([TEXT, BINARY])
        if self.compressed and self.random.random() < 0.5:
            data = self.stream.compress(body) + self.stream.flush(zlib.Z_SYNC_FLUSH)
            return frame(opcode, data[:-4], rsv=4)
        if self.random.random() < 0.5:
            return frame(opcode, body)
        size = self.random.choice([1, 7, 1000]) if len(body) < 200 else 9000
        parts = [body[at : at + size] for at in range(0, len(body), size)]
        said = frame(opcode, parts[0], fin=False)
        for part in parts[1:]:
            said += frame(PING, b"amid") if self.random.random() < 0.05 else b""
            said += frame(CONTINUATION, part, fin=False)
        return said + frame(CONTINUATION)

    async def serve(self, far: Far) -> None:
        for _ in range(self.random.randrange(30)):
            said = b"".join(self.message() for _ in range(self.random.choice([1, 1, 2, 50])))
            cut = self.random.randrange(len(said))
            for piece in (said[:cut], said[cut:]):
                await far.send(piece)
            if self.random.random() < 0.3:
                await asyncio.sleep(0)
        how = self.random.random()
        if how < 0.3:
            await far.send(close(1000))
        elif how < 0.4:
            await far.send(frame(TEXT, b"\xff"))
        elif how < 0.5:
            far.sock.close()

    async def check(self, far: Far) -> None:
        """Check that every frame is masked and complete, and that none follows CLOSE."""
        parser = Parser()
        closed = False
        while data := await far.read():
            for sent in parser.feed(data):
                assert not closed, "a frame behind CLOSE"
                closed = sent.opcode == CLOSE
                self.events += sent.opcode != PING
            if self.random.random() < 0.1:
                await asyncio.sleep(0.001)

    # ---- the client

    def got(self, message: str | bytes) -> None:
        text = message if isinstance(message, str) else bytes(message).decode()
        number = int(text.split(":")[0])
        if self.overflow == "conflate":  # a newer message takes the place of an older one
            assert number not in self.had, f"{number} twice"
            self.had.add(number)
        else:
            assert number > self.last, f"{number} after {self.last}"
        self.last = number

    def key(self, payload: bytes) -> int | None:
        """The key of a message, for overflow="conflate"; a finalizer may run, and a task may be cancelled."""
        self.disturb()
        number = int(payload.split(b":")[0])
        return None if number % 7 == 0 else number % 3

    async def receive(self, ws: ClientConnection) -> None:
        while True:
            # Do not use wait_for(): its task may return a message after another task has returned the next one.
            self.got(await ws.recv(self.random.choice([None, True, False])))
            self.disturb()

    async def iterate(self, ws: ClientConnection) -> None:
        async for message in ws:
            self.got(message)
            self.disturb()

    async def stream_parts(self, ws: ClientConnection) -> None:
        parts = [part async for part in ws.recv_streaming(self.random.choice([None, False]))]
        self.got(parts[0][:0].join(parts))  # type: ignore[arg-type,call-overload]

    async def send(self, ws: ClientConnection) -> None:
        for _ in range(self.random.randrange(20)):
            await self.perhaps_later(self.sending(ws, self.random.choice([0, 10, 3000, 200_000])))

    def sending(self, ws: ClientConnection, size: int) -> Awaitable[Any]:
        how = self.random.randrange(6)
        if how == 0:
            return ws.send(b"y" * size)
        if how == 1:
            return ws.send("y" * size)
        if how == 2:
            return ws.send([b"a", b"b" * size, b"c"])
        if how == 3:
            return ws.send_many(["a", b"b" * size])
        return ws.ping() if how == 4 else ws.pong(b"!")

    async def shut(self, ws: ClientConnection) -> None:
        for _ in range(self.random.randrange(100)):
            await asyncio.sleep(0)
        await ws.close()

    async def perhaps_later(self, awaited: Awaitable[Any]) -> Any:
        self.disturb()
        if self.random.random() < 0.1:
            awaited = asyncio.wait_for(awaited, self.random.choice([0.0005, 0.05]))
        try:
            return await awaited
        except asyncio.TimeoutError:
            raise LookupError from None

    def disturb(self) -> None:
        """Sometimes collect garbage, or cancel a task."""
        self.events += 1
        chance = self.random.random()
        if chance < 0.02:
            gc.collect(self.random.randrange(3))
        elif chance < 0.03 and self.tasks:
            self.random.choice(self.tasks).cancel()

    def by_hand(self, ws: ClientConnection) -> None:
        """Advance an awaitable without a task, throw into it, and perhaps leave it on the connection."""
        made = self.random.choice(
            [lambda: ws.recv(), lambda: ws.send("z"), lambda: ws.__aiter__().__anext__()]
        )()
        for _ in range(self.random.randrange(3)):
            self.random.choice(
                [
                    lambda: made.send(None),
                    lambda: made.throw(ValueError("thrown")),
                    lambda: made.close(),
                    lambda: gc.collect(),
                ]
            )()
        if self.random.random() < 0.3:
            ws.itself = made  # type: ignore[attr-defined]

    async def run(self) -> None:
        options: dict[str, Any] = {
            "max_queue": self.random.choice([1, 4, 16, None]),
            "write_limit": self.random.choice([0, 1000, 2**15]),
            "close_timeout": 0.05,
            "ping_interval": self.random.choice([None, 0.001]),
            "ping_timeout": None,
        }
        if self.overflow != "pause":
            options |= {"overflow": self.overflow, "max_queue": options["max_queue"] or 2}
        if self.overflow == "conflate":
            options["conflate_key"] = self.key
        if self.compressed:
            options["headers"] = b"Sec-WebSocket-Extensions: permessage-deflate\r\n"
        else:
            options["compression"] = None
        async with awaitable(tls=self.tls and self.tls(), **options) as (ws, far):
            beside = [asyncio.ensure_future(self.serve(far)), asyncio.ensure_future(self.check(far))]
            for _ in range(self.random.randrange(1, 7)):
                kind = self.random.choice(
                    [
                        self.receive,
                        self.receive,
                        self.iterate,
                        self.stream_parts,
                        self.send,
                        self.send,
                        self.shut,
                    ]
                )
                self.tasks.append(asyncio.ensure_future(kind(ws)))
                for _ in range(self.random.randrange(5)):
                    await asyncio.sleep(0)
                if self.random.random() < 0.2:
                    try:
                        self.by_hand(ws)
                    except (StopIteration, ValueError, *EXPECTED):
                        pass
                if self.random.random() < 0.3:
                    self.tasks.append(asyncio.ensure_future(ws.recv()))  # without a coroutine around it
                self.disturb()
            if self.random.random() < 0.2:
                return await self.leave(beside)
            await asyncio.wait(self.tasks, timeout=self.random.choice([0.001, 0.01, 0.1]))
            if self.random.random() < 0.5:
                ws.protocol.abort()
            for task in self.tasks:
                task.cancel()
            for outcome in await asyncio.gather(*self.tasks, return_exceptions=True):
                if isinstance(outcome, BaseException) and not isinstance(
                    outcome, (asyncio.CancelledError, *EXPECTED)
                ):
                    raise outcome
            if beside[1].done() and not isinstance(beside[1].exception(), OSError | None):
                raise beside[1].exception()  # type: ignore[misc]
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
        return None

    async def watch(self, task: asyncio.Task[None]) -> None:
        """Wait for the program, however long it takes, unless it has stalled."""
        seen = ticks = 0
        while not task.done():
            await asyncio.wait([task], timeout=TICK)
            ticks = ticks + 1 if self.events == seen else 0
            seen = self.events
            if ticks > MOST_TICKS:
                for waiting in asyncio.all_tasks():
                    waiting.print_stack()
                raise AssertionError("the program has stalled")
        await task

    async def leave(self, beside: list[asyncio.Task[Any]]) -> None:
        """Leave everything pending, for the collector."""
        beside.clear()
        self.tasks.clear()


def run(seed: int) -> None:
    """Run one program, and collect its garbage before returning."""
    program = Program(seed)
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *args: None)
    task = loop.create_task(program.run())
    try:
        if program.random.random() < 0.4:  # close the loop while the program runs
            loop.call_later(program.random.choice([0.005, 0.02, 0.05]), loop.stop)
            loop.run_forever()
            if task.done():
                task.result()
        else:
            loop.run_until_complete(program.watch(task))
    finally:
        del task
        loop.close()
        del program, loop
        gc.collect()
    assert (repr(None), type(None).__name__) == ("None", "NoneType"), "some code wrote into None"


def main(seconds: float, seed: int) -> None:
    logging.disable(logging.CRITICAL)
    sys.unraisablehook = lambda *args: None
    warnings.simplefilter("ignore")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        print(f"seed {seed}", end="\r", flush=True)
        run(seed)
        seed += 1
    print(f"passed, up to seed {seed}")


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 32))
