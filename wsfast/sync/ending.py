"""Exceptions for the end of a connection of the crate."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from wsfast._common.closing import connection_closed
from wsfast._rust._native import ffi, lib
from wsfast.exceptions import (
    Close,
    ConnectionClosed,
    InvalidText,
    KeepaliveTimeout,
    PayloadTooBig,
    ProtocolError,
)
from wsfast.tls import certificate_refused, tls_failed

__all__ = ["Ending", "describe"]


class Ending(NamedTuple):
    """The CLOSE frames of both directions, which came first, and the cause of the end."""

    rcvd: Close | None
    sent: Close | None
    rcvd_then_sent: bool | None
    cause: BaseException | None

    def exception(self, cause: BaseException | None) -> ConnectionClosed:
        """The exception of a call on the closed connection. `cause`: one that Python knows, and the crate does not."""
        return connection_closed(self.rcvd, self.sent, self.rcvd_then_sent, cause or self.cause)


def describe(handle: Any) -> Ending:
    """Ask the crate."""
    ending = ffi.new("wst_ending *")
    lib.wst_describe_ending(handle, ending)
    rcvd = _close(ending.rcvd_code, ending.rcvd_reason, ending.rcvd_size)
    sent = _close(ending.sent_code, ending.sent_reason, ending.sent_size)
    return Ending(rcvd, sent, bool(ending.rcvd_then_sent), _cause(ending))


def _close(code: int, reason: Any, size: int) -> Close | None:
    return None if code < 0 else Close(code, ffi.unpack(reason, size).decode() if size else "")


def _cause(ending: Any) -> BaseException | None:
    make = _CAUSES.get(ending.cause)
    return None if make is None else make(ending)


def _message(ending: Any) -> str:
    text: str = ffi.unpack(ending.message, ending.message_size).decode(errors="replace")
    return text


def _too_big(ending: Any) -> PayloadTooBig:
    size, current = (None if number < 0 else number for number in (ending.size, ending.current))
    return PayloadTooBig(size, ending.limit, current)


# An end in order has no cause, and Python knows its own.
_CAUSES: dict[int, Callable[[Any], BaseException]] = {
    lib.WST_CAUSE_EOF: lambda _: EOFError("unexpected end of stream"),
    lib.WST_CAUSE_OS: lambda ending: OSError(ending.number, os.strerror(ending.number)),
    lib.WST_CAUSE_PROTOCOL: lambda ending: ProtocolError(_message(ending)),
    lib.WST_CAUSE_TOO_BIG: _too_big,
    lib.WST_CAUSE_NO_MEMORY: lambda _: MemoryError("there was no memory for the rest of a frame"),
    lib.WST_CAUSE_TEXT: lambda ending: InvalidText("utf-8", b"", 0, 1, _message(ending)),
    lib.WST_CAUSE_KEEPALIVE: lambda _: KeepaliveTimeout(
        "nothing was received in time after a keepalive ping"
    ),
    lib.WST_CAUSE_CLOSE_TIMEOUT: lambda _: TimeoutError("timed out while closing connection"),
    lib.WST_CAUSE_TLS: lambda ending: tls_failed(_message(ending)),
    lib.WST_CAUSE_CERTIFICATE: lambda ending: certificate_refused(ending.number, _message(ending)),
    lib.WST_CAUSE_PANIC: lambda _: RuntimeError("a bug in wsfast: its Rust part panicked"),
}
