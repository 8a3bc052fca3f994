"""The parts that awaitable and blocking connections have in common, with websockets' names."""

from __future__ import annotations

import enum
import functools
import logging
import weakref
from typing import TYPE_CHECKING, Any

from multidict import CIMultiDict

from wsfast._common.closing import MAX_CONTROL
from wsfast._common.option_names import Fixed
from wsfast._common.upgrade import UpgradeRequest
from wsfast.exceptions import ProtocolError

if TYPE_CHECKING:
    import uuid

__all__ = ["BYTES_LIKE", "DataLike", "Identity", "Request", "State", "control_payload", "fixed"]

DataLike = str | bytes | bytearray | memoryview

# Types of messages and fragments other than str.
BYTES_LIKE = (bytes, bytearray, memoryview)


class State(enum.IntEnum):
    """The states of a connection (RFC 6455), with websockets' numbers."""

    CONNECTING, OPEN, CLOSING, CLOSED = range(4)


class Request:
    """The upgrade request, with websockets' attributes."""

    __slots__ = ("_request",)

    def __init__(self, request: UpgradeRequest) -> None:
        self._request = request

    def __repr__(self) -> str:
        return repr(self._request).replace("Upgrade", "", 1)

    @property
    def method(self) -> str:
        """``GET``."""
        return self._request.method.decode("ascii")

    @property
    def protocol(self) -> str:
        """``HTTP/1.1``."""
        return self._request.version.decode("ascii")

    @property
    def path(self) -> str:
        """Path and query."""
        return self._request.path.decode("ascii")

    @property
    def headers(self) -> CIMultiDict[str]:
        """The headers that were sent."""
        return self._request.headers


def fixed() -> Fixed:
    """An option that cannot change during a connection."""
    return Fixed("not an attribute of connections", "cannot be changed on a connection: pass it to connect()")


class Identity:
    """The identity of a connection in logs. Its parts are made at the first access, because few programs use them."""

    _base_logger: Any

    @functools.cached_property
    def id(self) -> uuid.UUID:
        """A unique identifier of the connection, for logs."""
        import uuid  # only if a program asks for an id

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
            f"payload of {len(payload)} bytes exceeds the limit of control frames, {MAX_CONTROL} bytes"
        )
    return payload
