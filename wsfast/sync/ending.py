"""How a connection of the crate ended, in exceptions."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from wsfast._native import ffi, lib
from wsfast.closing import connection_closed
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
    """The CLOSE frames of both directions, which came first, and what is behind the end."""

    rcvd: Close | None
    sent: Close | None
    rcvd_then_sent: bool | None
    cause: BaseException | None

    def exception(self, cause: BaseException | None) -> ConnectionClosed:
        """What a call on the closed connection raises. `cause`: what Python knows and the crate does not."""
        return connection_closed(self.rcvd, self.sent, self.rcvd_then_sent, cause or self.cause)


def describe(handle: Any) -> Ending:
    """Ask the crate."""
    ending = ffi.new("wst_ending *")
    lib.wst_describe_ending(handle, ending)
    rcvd = _close(ending.rcvd_code, ending.rcvd_reason, ending.rcvd_size)
    sent = _close(ending.sent_code, ending.sent_reason, ending.sent_size)
    return Ending(rcvd, sent, bool(ending.rcvd_then_sent), _cause(ending))


def _close(code: int, reason: Any, size: int) -> Close | None:
    return None if code < 0 else Close(code, ffi.unpack(reason, size).decode())


def _cause(ending: Any) -> BaseException | None:
    cause = ending.cause
    message = ffi.unpack(ending.message, ending.message_size).decode(errors="replace")
    if cause == lib.WST_CAUSE_EOF:
        return EOFError("unexpected end of stream")
    if cause == lib.WST_CAUSE_OS:
        return OSError(ending.number, os.strerror(ending.number))
    if cause == lib.WST_CAUSE_PROTOCOL:
        return ProtocolError(message)
    if cause == lib.WST_CAUSE_TOO_BIG:
        size, current = (None if number < 0 else number for number in (ending.size, ending.current))
        return PayloadTooBig(size, ending.limit, current)
    if cause == lib.WST_CAUSE_NO_MEMORY:
        return MemoryError("there was no memory for the rest of a frame")
    if cause == lib.WST_CAUSE_TEXT:
        return InvalidText("utf-8", b"", 0, 1, message)
    if cause == lib.WST_CAUSE_KEEPALIVE:
        return KeepaliveTimeout("nothing was received in time after a keepalive ping")
    if cause == lib.WST_CAUSE_CLOSE_TIMEOUT:
        return TimeoutError("timed out while closing connection")
    if cause == lib.WST_CAUSE_CERTIFICATE:
        return certificate_refused(ending.number, message)
    if cause == lib.WST_CAUSE_TLS:
        return tls_failed(message)
    if cause == lib.WST_CAUSE_PANIC:
        return RuntimeError("a bug in wsfast: its Rust part panicked")
    return None
