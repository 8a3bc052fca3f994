"""What a connection of the awaitable and one of the blocking client have in common, with websockets' names."""

from __future__ import annotations

import enum
import functools
import logging
import uuid
import weakref
from typing import Any

from multidict import CIMultiDict

from wsfast.closing import MAX_CONTROL
from wsfast.exceptions import (
    Close,
    ConnectionClosed,
    ConnectionClosedError,
    ConnectionClosedOK,
    ProtocolError,
)
from wsfast.handshake import UpgradeRequest

__all__ = ["BYTES_LIKE", "DataLike", "Identity", "Request", "State", "closed", "control_payload"]

DataLike = str | bytes | bytearray | memoryview

# Types of messages and fragments other than str.
BYTES_LIKE = (bytes, bytearray, memoryview)

# The codes of a normal closure (RFC 6455 section 7.4.1); 1005 stands for an empty CLOSE frame.
_NORMAL = (1000, 1001, 1005)


class State(enum.IntEnum):
    """The states of a connection (RFC 6455), with websockets' numbers."""

    CONNECTING, OPEN, CLOSING, CLOSED = range(4)


class Request:
    """The upgrade request, with websockets' attributes: `path` and `headers`."""

    __slots__ = ("_request",)

    def __init__(self, request: UpgradeRequest) -> None:
        self._request = request

    @property
    def path(self) -> str:
        """Path and query."""
        return self._request.path.decode("ascii")

    @property
    def headers(self) -> CIMultiDict[str]:
        """The headers that were sent."""
        return self._request.headers


class Identity:
    """How logs tell a connection from others. Made when asked for, because hardly any program asks."""

    _base_logger: Any

    @functools.cached_property
    def id(self) -> uuid.UUID:
        """A unique identifier of the connection, for logs."""
        return uuid.uuid4()

    @functools.cached_property
    def logger(self) -> logging.LoggerAdapter[Any]:
        """The logger of this connection; its records have an attribute ``websocket``."""
        return logging.LoggerAdapter(self._base_logger, {"websocket": weakref.proxy(self)})


def control_payload(data: DataLike) -> bytes:
    """The payload of a control frame."""
    if isinstance(data, str):
        payload = data.encode()
    elif isinstance(data, BYTES_LIKE):
        payload = bytes(data)
    else:
        raise TypeError("data must be str or bytes-like")
    if len(payload) > MAX_CONTROL:
        raise ProtocolError(
            f"payload of {len(payload)} bytes is longer than {MAX_CONTROL}, the limit of control frames"
        )
    return payload


def closed(
    rcvd: Close | None, sent: Close | None, rcvd_then_sent: bool | None, cause: BaseException | None
) -> ConnectionClosed:
    """What a call on the closed connection raises: OK if both ends have said so, and no message was lost."""
    if rcvd is None or sent is None:
        exception: ConnectionClosed = ConnectionClosedError(rcvd, sent, None)
    elif rcvd.code in _NORMAL and sent.code in _NORMAL and not isinstance(cause, ProtocolError):
        exception = ConnectionClosedOK(rcvd, sent, rcvd_then_sent)
    else:
        exception = ConnectionClosedError(rcvd, sent, rcvd_then_sent)
    exception.__cause__ = cause
    return exception
