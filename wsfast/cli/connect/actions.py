"""What a line at the prompt of ``wsfast connect`` means."""

from __future__ import annotations

import dataclasses
from typing import Literal

__all__ = ["HELP", "NAMES", "Action", "from_hex", "parse"]

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
    """What to do. `message`: to send, or the payload of a PING, or the reason of a CLOSE."""

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
