"""The output of ``wsfast connect``: as lines for pipes, as JSON, or for people at a terminal."""

from __future__ import annotations

import itertools
import json
import re
import sys
import time
from typing import Any

from wsfast._common.redaction import shown_value
from wsfast.asyncio import ClientConnection
from wsfast.cli.outcome import printable
from wsfast.cli.text import duration, for_stdout

__all__ = ["JSONPrinter", "LinePrinter", "Printer", "RichPrinter"]

Message = str | bytes

# JSON beyond these limits is not laid out: characters, and levels of nesting.
_LONGEST, _DEEPEST = 1 << 16, 32

# A string that does not end goes up to the end: that it is tried from each of its quotes would take quadratic time.
_NO_BRACKETS = re.compile(r'"(?:[^"\\]|\\(?:.|\Z))*(?:"|\Z)|[^][{}]', re.DOTALL)


class Printer:
    """Messages go to stdout, and everything else to stderr."""

    def opened(self, ws: ClientConnection) -> None:
        """A connection is open."""

    def message(self, message: Message) -> None:
        """A message has arrived."""

    def pong(self, seconds: float) -> None:
        """The server has answered a PING."""

    def closed(self, ws: ClientConnection) -> None:
        """A connection has ended."""

    def note(self, text: str) -> None:
        """Show a person any other text."""
        print(f"wsfast: {text}", file=sys.stderr, flush=True)


class LinePrinter(Printer):
    """A line for each message; binary ones as ``0x`` and hex."""

    def message(self, message: Message) -> None:
        text = message if isinstance(message, str) else f"0x{message.hex()}"
        print(printable(text) if sys.stdout.isatty() else text, flush=True)

    def pong(self, seconds: float) -> None:
        self.note(f"pong: {duration(seconds * 1e9)}")

    def closed(self, ws: ClientConnection) -> None:
        if ws.close_code not in (1000, 1001, 1005):
            self.note(ending(ws))


class JSONPrinter(Printer):
    """A line of JSON for each event."""

    def _print(self, event: str, **fields: Any) -> None:
        line = {"event": event, "time": round(time.time(), 6), **fields}
        print(for_stdout(line), flush=True)

    def opened(self, ws: ClientConnection) -> None:
        self._print(
            "open",
            address=list(ws.remote_address[:2]),
            subprotocol=ws.subprotocol,
            compression=ws.compression is not None,
            tls=None if ws.tls is None else {"version": ws.tls.version, "cipher": ws.tls.cipher},
            headers=[(name, shown_value(name, value)) for name, value in ws.response.headers.items()],
        )

    def message(self, message: Message) -> None:
        if isinstance(message, str):
            self._print("message", type="text", data=message)
        else:
            self._print("message", type="binary", hex=message.hex())

    def pong(self, seconds: float) -> None:
        self._print("pong", seconds=seconds)

    def closed(self, ws: ClientConnection) -> None:
        info = ws.close_info
        by = None if info is None else info.initiator
        self._print("close", code=ws.close_code, reason=ws.close_reason, by=by)


class RichPrinter(Printer):
    """For a person: JSON is laid out and coloured, and text of the server cannot control the terminal.

    :param raw: JSON stays as it was sent
    """

    def __init__(self, *, raw: bool = False) -> None:
        from rich.console import Console

        self._console = Console(highlight=False, emoji=False)
        self._raw = raw

    def _print(self, text: str, style: str) -> None:
        self._console.print(text, style=style, markup=False)

    def opened(self, ws: ClientConnection) -> None:
        host, port = ws.remote_address[:2]
        facts = [f"connected to {host}:{port}"]
        if ws.tls is not None:
            facts.append(f"{ws.tls.version}, {ws.tls.cipher} ({ws.tls.layer})")
        if ws.subprotocol is not None:
            facts.append(f"subprotocol {ws.subprotocol}")
        if ws.compression is not None:
            facts.append("permessage-deflate")
        self.note(", ".join(facts))

    def message(self, message: Message) -> None:
        if isinstance(message, bytes):
            self._print(f"< ({len(message)} bytes) {message.hex(' ')}", "magenta")
            return
        if not self._raw and _can_be_laid_out(message):
            from rich.json import JSON

            try:
                data = json.loads(message)
                laid_out = JSON.from_data(data, ensure_ascii=False)
                # Decoding has turned escapes into characters. Write those that could control the terminal as escapes.
                if printable(laid_out.text.plain) != laid_out.text.plain:
                    laid_out = JSON.from_data(data, ensure_ascii=True)
            except ValueError:  # not JSON
                pass
            else:
                self._console.print("<", laid_out, markup=False)
                return
        self._print(f"< {printable(message)}", "green")

    def pong(self, seconds: float) -> None:
        self.note(f"pong: {duration(seconds * 1e9)}")

    def closed(self, ws: ClientConnection) -> None:
        self.note(ending(ws))

    def note(self, text: str) -> None:
        self._print(printable(text), "dim")


def _can_be_laid_out(message: str) -> bool:
    """JSON, perhaps, that a screen can show. Each level of nesting indents all lines in it, so a few kilobytes of a
    server's could become gigabytes."""
    if message.lstrip()[:1] not in ("{", "[") or len(message) > _LONGEST:
        return False
    brackets = _NO_BRACKETS.sub("", message)
    return max(itertools.accumulate(1 if bracket in "{[" else -1 for bracket in brackets)) <= _DEEPEST


def ending(ws: ClientConnection) -> str:
    """The end of a connection, in a line."""
    info = ws.close_info
    if info is None:
        return "closed"
    by = "by this end" if info.initiator == "local" else "by the server"
    reason = f" ({printable(info.reason)})" if info.reason else ""
    cause = "" if info.cause is None else f": {printable(str(info.cause)) or type(info.cause).__name__}"
    return f"closed {by} with {int(info.code)}{reason}{cause}"
