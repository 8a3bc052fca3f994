"""Ends of connections: the public types that describe one, and the exception for it (RFC 6455 section 7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from wsfast._common.logging import guarded
from wsfast._common.protocol_numbers import WSCloseCode
from wsfast.exceptions import (
    Close,
    ConnectionClosed,
    ConnectionClosedError,
    ConnectionClosedOK,
    InvalidText,
    KeepaliveTimeout,
    ProtocolError,
    WSProtocolError,
)

# RFC 6455 section 7.4.1: these codes stand for "an empty CLOSE frame" and "no CLOSE frame". They are never sent.
NO_STATUS_RECEIVED = 1005
ABNORMAL_CLOSURE = 1006

# The codes of a normal closure (section 7.4.1).
_NORMAL = (1000, 1001, NO_STATUS_RECEIVED)

# The largest payload of a control frame, in bytes (section 5.5). In a CLOSE frame the code takes two of them.
MAX_CONTROL = 125
MAX_REASON = MAX_CONTROL - 2


class WSCloseInfo(NamedTuple):
    """One CLOSE frame: its code (``WSCloseCode.NO_INFO`` if it was empty) and its reason (None if it had none)."""

    code: int
    reason: str | None


class WSCloseHandshake(NamedTuple):
    """The CLOSE frames of a connection: received, sent, and whether the received one came first."""

    recv: WSCloseInfo | None
    sent: WSCloseInfo | None
    recv_then_sent: bool


class WSDisconnectInfo(NamedTuple):
    """Why a connection ended.

    ``initiator`` is ``"local"`` if this program or wsfast itself ended the connection, and ``"remote"`` if the server
    or the network did. ``code`` and ``reason`` come from the CLOSE frame that ended the connection. ``code`` is 1005
    if that frame was empty, and 1006 if there was no CLOSE frame. ``cause`` is the exception that ended the
    connection: an exception of a callback, a protocol violation, a missed pong, a closing handshake that timed out,
    an ``EOFError`` if the stream ended without a CLOSE frame from the server, or an ``OSError`` of the connection.
    ``cause`` is None if the connection ended in an orderly way.
    """

    initiator: str
    code: int
    reason: str
    cause: BaseException | None


def _direction(close: Close | None) -> WSCloseInfo | None:
    if close is None:
        return None
    if close.code == NO_STATUS_RECEIVED:
        return WSCloseInfo(WSCloseCode.NO_INFO, None)
    try:
        return WSCloseInfo(WSCloseCode(close.code), close.reason or None)
    except ValueError:
        return WSCloseInfo(close.code, close.reason or None)


def close_handshake(rcvd: Close | None, sent: Close | None, rcvd_then_sent: bool) -> WSCloseHandshake | None:
    """The closing handshake in picows' types; None while neither side has sent a CLOSE frame."""
    if rcvd is None and sent is None:
        return None
    return WSCloseHandshake(_direction(rcvd), _direction(sent), rcvd_then_sent)


def disconnect_info(
    rcvd: Close | None, sent: Close | None, rcvd_then_sent: bool, aborted: bool, cause: BaseException | None
) -> WSDisconnectInfo:
    """Which side ended the connection, and how. `aborted`: this program gave up without a CLOSE frame."""
    if sent is not None and not rcvd_then_sent:
        return WSDisconnectInfo("local", sent.code, sent.reason, cause)
    if rcvd is not None:
        return WSDisconnectInfo("remote", rcvd.code, rcvd.reason, cause)
    return WSDisconnectInfo("local" if aborted else "remote", ABNORMAL_CLOSURE, "", cause)


def connection_closed(
    rcvd: Close | None, sent: Close | None, rcvd_then_sent: bool | None, cause: BaseException | None = None
) -> ConnectionClosed:
    """The exception for a call on a connection that is closing or closed, in every face.

    The rule is websockets': ConnectionClosedOK if both ends sent a normal code, and no message was lost. `cause`
    becomes ``__cause__``.
    """
    if rcvd is None or sent is None:
        exception: ConnectionClosed = ConnectionClosedError(rcvd, sent, None)
    elif rcvd.code in _NORMAL and sent.code in _NORMAL and not isinstance(cause, ProtocolError):
        exception = ConnectionClosedOK(rcvd, sent, rcvd_then_sent)
    else:
        exception = ConnectionClosedError(rcvd, sent, rcvd_then_sent)
    exception.__cause__ = cause
    return exception


def close_reason(code: object, message: object, is_valid: Callable[[int], bool]) -> bytes:
    """Check the caller's close code and reason, and encode the reason as UTF-8. `message`: str, UTF-8 bytes or None.

    :param is_valid: the engine's ``close_code_valid()``
    :raises TypeError, ValueError: a CLOSE frame must not contain this code or this reason
    """
    if not isinstance(code, int):
        raise TypeError(f"close_code must be a WSCloseCode, not {code!r}")
    if code and not is_valid(code):
        raise ValueError(f"close_code {code!r} must not be sent (RFC 6455 section 7.4)")
    try:
        reason = message.encode() if isinstance(message, str) else bytes(memoryview(message or b""))  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"close_message must be str or bytes-like, not {type(message).__name__}") from None
    try:
        reason.decode()
    except UnicodeDecodeError as exc:
        raise ValueError(f"close_message must be UTF-8: {exc}") from None
    if len(reason) > MAX_REASON:
        raise ValueError(f"close_message must be at most {MAX_REASON} bytes, not {len(reason)}")
    if reason and not code:
        raise ValueError("close_message needs a close_code")
    return reason


def end(call: Callable[[], object], loop: Any) -> None:
    """Abort or close the transport beneath.

    :param call: the transport's ``abort`` or ``close``
    :param loop: the event loop, if the transport is calling ``resume_writing()``; None otherwise. asyncio's own
        transports would close twice if `call` ran inside that callback, so it runs in the loop's next iteration.
    """
    if loop is None:
        call()
    else:
        loop.call_soon(call)


def log_failure(logger: Any, exc: BaseException, first: bool) -> None:
    """Log the exception that ended a connection, or a later one. Log a traceback if the exception may be a bug, because
    perhaps no task awaits the exception. Supervisor.drop() ends connections by ConnectionAbortedError."""
    if not first:
        if not isinstance(exc, ProtocolError):  # further violations by the server are not worth a record
            guarded(logger.error, "another exception while the connection ends", exc_info=exc)
    elif isinstance(exc, (WSProtocolError, KeepaliveTimeout, ConnectionAbortedError)):
        guarded(logger.warning, "connection ended: %s: %s", type(exc).__name__, exc)
    else:
        guarded(logger.error, "connection ended: %s: %s", type(exc).__name__, exc, exc_info=exc)


def reason_for(exc: WSProtocolError) -> str:
    """The reason of the CLOSE frame for a violation by the server, in every face; for invalid text, websockets'
    wording."""
    return f"{exc.reason} at position {exc.start}" if isinstance(exc, InvalidText) else str(exc)


def cut_reason(reason: str) -> bytes:
    """Shorten the reason of a CLOSE frame that wsfast sends by itself to as many whole characters as fit."""
    # Surrogates, which UTF-8 cannot encode, are replaced.
    return reason.encode(errors="replace")[:MAX_REASON].decode(errors="ignore").encode()
