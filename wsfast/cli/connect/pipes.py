"""Lines of stdin as messages."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from wsfast.cli.connect.actions import Action, from_hex
from wsfast.cli.connect.session import Session

__all__ = ["BadLineError", "feed"]

_CHUNK = 65536
_LOOK = 0.1  # seconds


class BadLineError(ValueError):
    """A line of stdin that cannot be sent."""


def feed(binary: bool, wait: float) -> Callable[[Session], Coroutine[Any, Any, None]]:
    """A feed of a session. It sends the lines of stdin, and then leaves once the server has been silent for `wait`.

    :param binary: lines are hex
    :param wait: how long the server must have been silent, in seconds
    """

    async def send_lines(session: Session) -> None:
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

    return send_lines


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
