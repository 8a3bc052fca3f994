"""How a connection ended: the words for it, and the exception made of them (RFC 6455 section 7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from wsfast.codes import WSCloseCode, close_code_on_wire_ok
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
from wsfast.kinship import kin

# RFC 6455 section 7.4.1: codes that stand for "an empty CLOSE frame" and "no CLOSE frame"; never sent.
NO_STATUS_RECEIVED = 1005
ABNORMAL_CLOSURE = 1006

# The codes of a normal closure (section 7.4.1).
_NORMAL = (1000, 1001, NO_STATUS_RECEIVED)

# The payload of a control frame, in bytes (section 5.5). Of that of a CLOSE frame the code takes two.
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

    ``initiator`` is ``"local"`` if this program or wsfast itself ended it and ``"remote"`` if the server or the network
    did. ``code`` and ``reason`` are those of the CLOSE frame that ended it; 1005 if that frame was empty, 1006 if there
    was none. ``cause`` is the exception behind it: one raised by a callback, a protocol violation, a missed pong, a
    closing handshake that timed out, an ``EOFError`` where the stream ended without a CLOSE frame of the server's, an
    ``OSError`` of the connection. None for an orderly end.
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
    """The handshake in picows' words; None while neither side has sent a CLOSE frame."""
    if rcvd is None and sent is None:
        return None
    return WSCloseHandshake(_direction(rcvd), _direction(sent), rcvd_then_sent)


def disconnect_info(
    rcvd: Close | None, sent: Close | None, rcvd_then_sent: bool, aborted: bool, cause: BaseException | None
) -> WSDisconnectInfo:
    """Who ended the connection and how. `aborted`: this program gave up without a CLOSE frame."""
    if sent is not None and not rcvd_then_sent:
        return WSDisconnectInfo("local", sent.code, sent.reason, cause)
    if rcvd is not None:
        return WSDisconnectInfo("remote", rcvd.code, rcvd.reason, cause)
    return WSDisconnectInfo("local" if aborted else "remote", ABNORMAL_CLOSURE, "", cause)


def connection_closed(
    rcvd: Close | None, sent: Close | None, rcvd_then_sent: bool | None, cause: BaseException | None = None
) -> ConnectionClosed:
    """What a call on a connection that is closing or closed raises, in every face.

    As websockets decides: OK if both ends have said so, and no message was lost. `cause` becomes ``__cause__``.
    """
    if rcvd is None or sent is None:
        exception = kin(ConnectionClosedError)(rcvd, sent, None)
    elif rcvd.code in _NORMAL and sent.code in _NORMAL and not isinstance(cause, ProtocolError):
        exception = kin(ConnectionClosedOK)(rcvd, sent, rcvd_then_sent)
    else:
        exception = kin(ConnectionClosedError)(rcvd, sent, rcvd_then_sent)
    exception.__cause__ = cause
    return exception


def close_reason(code: object, message: object) -> bytes:
    """The reason of a CLOSE frame as UTF-8, of what the caller gave as such: str, UTF-8 bytes or None.

    :raises TypeError, ValueError: such a frame must not be sent
    """
    if not isinstance(code, int):
        raise TypeError(f"close_code must be a WSCloseCode, not {code!r}")
    if code and not close_code_on_wire_ok(code):
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

    :param loop: while it calls ``resume_writing()``; None otherwise. asyncio's own transports would close twice if they
        were told there, so they are in the loop's next iteration.
    """
    if loop is None:
        call()
    else:
        loop.call_soon(call)


def log_failure(logger: Any, exc: BaseException, first: bool) -> None:
    """Log what ended a connection, or what comes on top of it: with its traceback if it may be a bug, for perhaps
    nobody awaits it."""
    if not first:
        if not isinstance(exc, ProtocolError):  # what else the server did wrong is not worth a word
            logger.error("another exception while the connection ends", exc_info=exc)
    elif isinstance(exc, (WSProtocolError, KeepaliveTimeout)):
        logger.warning("connection ended: %s: %s", type(exc).__name__, exc)
    else:
        logger.error("connection ended: %s: %s", type(exc).__name__, exc, exc_info=exc)


def reason_for(exc: WSProtocolError) -> str:
    """The reason of the CLOSE frame for what the server did wrong, in every face; of text in websockets' words."""
    return f"{exc.reason} at position {exc.start}" if isinstance(exc, InvalidText) else str(exc)


def cut_reason(reason: str) -> bytes:
    """The reason of a CLOSE frame that wsfast sends by itself: whole characters, as many as it holds."""
    # With what UTF-8 has no bytes for replaced.
    return reason.encode(errors="replace")[:MAX_REASON].decode(errors="ignore").encode()
