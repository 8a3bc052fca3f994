"""``wsfast connect``: talk to a server, by hand or through pipes."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from wsfast.cli import target
from wsfast.cli.connect.printers import JSONPrinter, LinePrinter, RichPrinter
from wsfast.cli.connect.session import Action, Session, from_hex
from wsfast.cli.outcome import Usage, require

__all__ = ["BadLineError", "add_to", "send_lines"]

_EPILOG = """\
At a terminal: each line is sent as text, /help lists the commands (/ping, /binary, /close, /reconnect).
In a pipe: each line of stdin is sent, each message is a line of stdout.

  wsfast connect wss://ws.example.com/ -H 'Authorization: Bearer abc' --subprotocol orders.v2
  echo hello | wsfast connect ws://127.0.0.1:8765/
  wsfast connect wss://feed.example.com/ --json --count 100 </dev/null | jq .data

exit codes: 0 closed normally, 1 not connected or closed otherwise, 2 wrong usage or a missing extra, 130 Ctrl-C"""


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "connect",
        help="talk to a server, at the keyboard or through pipes",
        description="Talk to a WebSocket server, at the keyboard or through pipes.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=_run)
    target.add_arguments(parser)
    talk = parser.add_argument_group("messages")
    talk.add_argument("--binary", action="store_true", help="lines are hex, and are sent as binary messages")
    talk.add_argument("--json", action="store_true", help="print each event as a line of JSON")
    talk.add_argument("--raw", action="store_true", help="do not lay out messages that are JSON")
    talk.add_argument("-n", "--count", metavar="N", type=target.whole, help="leave after so many messages")
    talk.add_argument(
        "--wait",
        metavar="SECONDS",
        type=_wait,
        default=1.0,
        help="when stdin has ended, leave after so long without a message, or never: inf (1)",
    )
    talk.add_argument("--reconnect", action="store_true", help="connect again whenever the connection ends")
    talk.add_argument("--no-compression", action="store_true", help="do not offer permessage-deflate")
    talk.add_argument(
        "--max-size", metavar="BYTES", type=target.whole, default=2**20, help="of a received message (1 MiB)"
    )
    talk.add_argument("--no-history", action="store_true", help="do not remember lines for the next time")


def _wait(text: str) -> float:
    return math.inf if text == "inf" else target.not_negative(text)


def _run(arguments: argparse.Namespace) -> int:
    where = target.of_arguments(arguments)
    options: dict[str, Any] = {"max_size": arguments.max_size, "close_timeout": 2}
    if arguments.no_compression:
        options["compression"] = None
    by_hand = sys.stdin.isatty() and sys.stdout.isatty() and not arguments.json
    if by_hand:
        require("prompt_toolkit", "rich")
        if arguments.binary:
            raise Usage("--binary is for pipes: at the prompt, /binary HEX sends a binary message")
    shared = {"options": options, "reconnect": arguments.reconnect, "count": arguments.count}

    async def by_pipe() -> int:
        session = Session(where, JSONPrinter() if arguments.json else LinePrinter(), **shared)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, session.interrupt)
        try:
            return await session.run(send_lines(arguments.binary, arguments.wait))
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    async def at_the_prompt() -> int:
        from wsfast.cli.connect import prompt

        with prompt.output():
            session = Session(where, RichPrinter(raw=arguments.raw), **shared)
            return await session.run(prompt.feed(keep_history=not arguments.no_history))

    try:
        return asyncio.run(at_the_prompt() if by_hand else by_pipe())
    except BadLineError as exc:
        raise Usage(str(exc)) from exc


_CHUNK = 65536
_LOOK = 0.1  # seconds


class BadLineError(ValueError):
    """A line of stdin that cannot be sent."""


def send_lines(binary: bool, wait: float) -> Callable[[Session], Coroutine[Any, Any, None]]:
    """A feed of a session. It sends the lines of stdin, and then leaves once the server has been silent for `wait`.

    :param binary: lines are hex
    :param wait: how long the server must have been silent, in seconds
    """

    async def send(session: Session) -> None:
        await session.connected()
        numbers = itertools.count(1)
        async for lines in _Lines():
            for line in lines:
                await session.do(Action("send", _message(line, next(numbers), binary)))
        while True:
            received = session.received
            await asyncio.sleep(min(wait, 86400))
            if session.received == received and wait < 86400:
                return

    return send


def _message(line: bytes, number: int, binary: bool) -> str | bytes:
    try:
        text = line.decode()
        return from_hex(text) if binary else text
    except UnicodeDecodeError:
        raise BadLineError(
            f"line {number} of stdin is not UTF-8: --binary sends hex as binary messages"
        ) from None
    except ValueError as exc:
        raise BadLineError(f"line {number} of stdin: {exc}") from None


class _Lines:
    """The lines of stdin, all that have arrived at a time. A thread reads stdin, because it may be a file, and no event
    loop can wait for a file. The thread is a daemon, because nothing interrupts a read."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[list[bytes] | None] = asyncio.Queue()
        self._room = threading.Semaphore()  # for one batch: a fast stdin waits for a slow loop
        threading.Thread(target=self._read, name="wsfast-stdin", daemon=True).start()

    def __aiter__(self) -> _Lines:
        return self

    async def __anext__(self) -> list[bytes]:
        lines = await self._queue.get()
        self._room.release()
        if lines is None:
            raise StopAsyncIteration
        return lines

    def _read(self) -> None:
        # Do not use sys.stdin: a thread that waits in it holds its lock, and the interpreter then hangs at exit.
        descriptor = sys.stdin.fileno()
        parts: list[bytes] = []  # the parts of a line whose end has not arrived
        while chunk := _read(descriptor):
            *lines, last = chunk.split(b"\n")
            if lines:
                lines[0] = b"".join([*parts, lines[0]])
                parts = []
                if not self._put([line.removesuffix(b"\r") for line in lines]):
                    return
            if last:
                parts.append(last)
        if parts and not self._put([b"".join(parts)]):
            return
        self._put(None)

    def _put(self, lines: list[bytes] | None) -> bool:
        """Wait until the loop has room for the lines. False if the loop has ended."""
        while not self._room.acquire(timeout=_LOOK):
            if self._loop.is_closed():
                return False
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, lines)
        except RuntimeError:  # the loop is closed
            return False
        return True


def _read(descriptor: int) -> bytes:
    """Some bytes; no bytes at the end, or if the descriptor cannot be read (any more)."""
    try:
        return os.read(descriptor, _CHUNK)
    except OSError:
        return b""
