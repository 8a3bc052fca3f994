"""How a connection of the crate ended, in exceptions."""

from __future__ import annotations

import os
import re
import ssl
from typing import Any, NamedTuple

from wsfast.closing import connection_closed
from wsfast.exceptions import (
    Close,
    ConnectionClosed,
    InvalidText,
    KeepaliveTimeout,
    PayloadTooBig,
    ProtocolError,
)
from wsfast._native import ffi, lib

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
        return _refused(ending.number, message)
    if cause == lib.WST_CAUSE_TLS:
        return _tls_error(ssl.SSLError, re.sub(r"\W+", "_", message).upper(), message)
    if cause == lib.WST_CAUSE_PANIC:
        return RuntimeError("a bug in wsfast: its Rust part panicked")
    return None


def _refused(code: int, message: str) -> ssl.SSLError:
    """As Python's ssl module tells it. `code` and `message`: OpenSSL's."""
    text = f"certificate verify failed: {message}"
    error = _tls_error(ssl.SSLCertVerificationError, "CERTIFICATE_VERIFY_FAILED", text)
    error.verify_code, error.verify_message = code, message  # type: ignore[attr-defined]
    return error


def _tls_error(kind: type[ssl.SSLError], reason: str, text: str) -> ssl.SSLError:
    error = kind(ssl.SSL_ERROR_SSL, f"[SSL: {reason}] {text}")
    error.library, error.reason = "SSL", reason
    return error
