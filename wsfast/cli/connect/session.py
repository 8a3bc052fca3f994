"""The connection of ``wsfast connect``: it prints the messages that arrive, and sends those that a feed reads.

There are two tasks: one connects and prints, the other is the feed. The first task to end also ends the other.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Literal

import wsfast
from wsfast.asyncio.client import ClientConnection, process_exception
from wsfast.cli.connect.printers import Printer
from wsfast.cli.outcome import CANNOT_CONNECT, ERRORS, INTERRUPTED, OK, cannot_connect, stdout_ended, why
from wsfast.cli.target import Target

__all__ = ["HELP", "NAMES", "Action", "Session", "from_hex", "parse"]


class Session:
    """Connects, prints the messages that arrive, and carries out the actions of a feed.

    :param options: arguments of ``wsfast.connect``, beside those of the target
    :param reconnect: connect again whenever a connection ends
    :param count: leave after so many messages
    """

    def __init__(
        self,
        target: Target,
        printer: Printer,
        *,
        options: dict[str, Any],
        reconnect: bool = False,
        count: int | None = None,
    ) -> None:
        self._target = target
        self._printer = printer
        self._options = {**target.options(), **options}
        self._reconnect = reconnect
        self._count = count
        self._again = False
        self._leaving = False
        self._interrupted = False
        self._ws: ClientConnection | None = None
        self._open = asyncio.Event()
        self._pings: set[asyncio.Task[None]] = set()
        self._feeding: asyncio.Task[None] | None = None
        self.received = 0

    async def run(self, feed: Callable[[Session], Coroutine[Any, Any, None]]) -> int:
        """Connect, and connect again as long as the options demand it. Returns the exit code.

        :param feed: reads the input, and calls :meth:`do`
        """
        serving = asyncio.ensure_future(self._connections())
        feeding = self._feeding = asyncio.ensure_future(feed(self))
        try:
            await asyncio.wait([serving, feeding], return_when=asyncio.FIRST_COMPLETED)
            self._leaving = True
            if not serving.done():
                if self._ws is None:  # not connected, or waiting to connect again
                    serving.cancel()
                else:
                    await self._ws.close()
        finally:
            feeding.cancel()
            for ping in self._pings:
                ping.cancel()
            await asyncio.wait([serving, feeding, *self._pings])
        if not feeding.cancelled():
            feeding.result()
        code = OK if serving.cancelled() else serving.result()
        return INTERRUPTED if self._interrupted else code

    def interrupt(self) -> None:
        """Ctrl-C."""
        self._interrupted = True
        assert self._feeding is not None
        self._feeding.cancel()

    def note(self, text: str) -> None:
        """Show a person something."""
        self._printer.note(text)

    async def connected(self) -> None:
        """Wait for the first connection, or the next one."""
        await self._open.wait()

    async def _connections(self) -> int:
        try:
            if self._reconnect:
                async for ws in wsfast.connect(
                    self._target.url, process_exception=self._failed, **self._options
                ):
                    code = await self._serve(ws)
                    if self._leaving:
                        return code
            while True:
                self._again = False
                async with wsfast.connect(self._target.url, **self._options) as ws:
                    code = await self._serve(ws)
                if not self._again:
                    return code
        except CANNOT_CONNECT as exc:
            if stdout_ended(exc):
                raise
            self._printer.note(cannot_connect(self._target.shown, exc))
            return ERRORS

    def _failed(self, exc: Exception) -> Exception | None:
        """An attempt failed. Returns None if the next one may succeed, and otherwise the exception to raise."""
        verdict = process_exception(exc)
        if verdict is None:
            self._printer.note(f"{cannot_connect(self._target.shown, exc)}; trying again")
        return verdict

    async def _serve(self, ws: ClientConnection) -> int:
        """Print messages until the connection ends. Returns the exit code."""
        self._ws = ws
        self._printer.opened(ws)
        self._open.set()
        try:
            async for message in ws:
                self._printer.message(message)
                self.received += 1
                if self.received == self._count:
                    self._leaving = True
                    await ws.close()
                    break
        except wsfast.ConnectionClosedError:
            code = OK if self._leaving or self._again else ERRORS
        else:
            code = OK
        finally:
            self._open.clear()
            self._ws = None
        await ws.wait_closed()
        self._printer.closed(ws)
        return code

    async def do(self, action: Action) -> None:
        """Carry out an action, once there is a connection.

        :raises ValueError, wsfast.ProtocolError, wsfast.exceptions.ConcurrencyError: the action is impossible: a CLOSE
            cannot have this code, or a PING with this payload is unanswered
        """
        if action.kind == "help":
            self._printer.note(HELP)
            return
        while True:
            await self._open.wait()
            ws = self._ws
            assert ws is not None
            try:
                if action.kind == "send":
                    await ws.send(action.message)
                elif action.kind == "ping":
                    self._ping(await ws.ping(action.message or None))  # random, if there is none
                elif action.kind == "reconnect":
                    self._again = True
                    await ws.close()
                else:
                    assert isinstance(action.message, str)
                    self._leaving = True
                    try:
                        await ws.close(action.code, action.message)
                    except (wsfast.ProtocolError, ValueError):
                        self._leaving = False
                        raise
            except wsfast.ConnectionClosed as exc:
                self._open.clear()
                if not self._reconnect:
                    return
                self._printer.note(f"not sent yet: {why(exc)}")
            else:
                return

    def _ping(self, pong: Any) -> None:
        async def wait() -> None:
            with suppress(wsfast.ConnectionClosed):  # closed() reports that
                self._printer.pong(await pong)

        task = asyncio.ensure_future(wait())
        self._pings.add(task)
        task.add_done_callback(self._pings.discard)


HELP = """\
/ping [TEXT]           send a PING, and show its round trip
/binary HEX            send a binary message: /binary 00 ff
/close [CODE [REASON]] close the connection, with 1000 if no code is given, and leave
/reconnect             close, and connect again
/help                  this list
/quit, Ctrl-D          close, and leave
//TEXT                 send a text that begins with a slash
anything else          send it as text"""

Kind = Literal["send", "ping", "close", "reconnect", "help"]

NAMES = ("/ping", "/binary", "/close", "/reconnect", "/help", "/quit")


@dataclasses.dataclass(frozen=True)
class Action:
    """An action of the prompt. `message`: to send, or the payload of a PING, or the reason of a CLOSE."""

    kind: Kind
    message: str | bytes = ""
    code: int = 1000


def parse(line: str) -> Action:
    """The meaning of a line.

    :raises ValueError: it begins with a slash, and is no command
    """
    if not line.startswith("/"):
        return Action("send", line)
    if line.startswith("//"):
        return Action("send", line[1:])
    name, _, rest = line.partition(" ")
    rest = rest.strip()
    if name == "/ping":
        return Action("ping", rest)
    if name == "/binary":
        return Action("send", from_hex(rest))
    if name == "/close":
        code, _, reason = rest.partition(" ")
        if code and not code.isdecimal():
            raise ValueError(f"/close takes a code and a reason, not {rest!r}")
        return Action("close", reason, int(code or 1000))
    if name == "/quit" and not rest:
        return Action("close")
    if name == "/reconnect" and not rest:
        return Action("reconnect")
    if name == "/help":
        return Action("help")
    raise ValueError(f"{name} is no command: /help lists them, and // begins a text with a slash")


def from_hex(text: str) -> bytes:
    """Bytes written in hex, with or without blanks and ``0x``.

    :raises ValueError: it is not hex
    """
    try:
        return bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        raise ValueError(f"{text!r} is not hex, such as 00 ff") from None
