"""The parts that awaitable and blocking connections have in common, with websockets' names."""

from __future__ import annotations

import enum
import functools
import logging
import weakref
from typing import TYPE_CHECKING, Any

from multidict import CIMultiDict

from wsfast._common.closing import ABNORMAL_CLOSURE, MAX_CONTROL
from wsfast._common.option_names import Fixed
from wsfast._common.options import Pinging, Timeouts
from wsfast._common.upgrade import UpgradeRequest
from wsfast.exceptions import Close, ProtocolError

if TYPE_CHECKING:
    import uuid

__all__ = ["BYTES_LIKE", "ConnectionAttributes", "DataLike", "Request", "State", "control_payload", "fixed"]

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


class ConnectionAttributes:
    """Attributes of a connection: its name in logs, the options that may change, its state and its end."""

    _base_logger: Any
    _pinging: Pinging
    _close_timeout: float | None

    # The methods of each client that stand behind the attributes.
    def _life(self) -> State:
        raise NotImplementedError

    def _received_close(self) -> Close | None:
        raise NotImplementedError

    def _set_close_timeout(self, seconds: float | None) -> None:
        raise NotImplementedError

    def _keep_alive(self, pinging: Pinging) -> None:
        raise NotImplementedError

    @functools.cached_property
    def id(self) -> uuid.UUID:
        """A unique identifier of the connection, for logs."""
        import uuid  # only if a program asks for an id

        return uuid.uuid4()

    @functools.cached_property
    def logger(self) -> logging.LoggerAdapter[Any]:
        """The logger of this connection; its records have an attribute ``websocket``."""
        return logging.LoggerAdapter(self._base_logger, {"websocket": weakref.proxy(self)})

    max_size = fixed()
    max_queue = fixed()

    @property
    def close_timeout(self) -> float | None:
        """The time limit for closing, in seconds; None is no limit. A change counts until closing begins."""
        return self._close_timeout

    @close_timeout.setter
    def close_timeout(self, seconds: float | None) -> None:
        self._set_close_timeout(Timeouts(None, seconds).close)

    @property
    def ping_interval(self) -> float | None:
        """Seconds between PINGs; None sends none. A change counts from now on.

        On a blocking connection it counts from the next call of a method on. A thread that waits in one meanwhile
        notices it when it wakes: it sleeps in the kernel, where only the server can wake it.
        """
        return self._pinging.interval

    @ping_interval.setter
    def ping_interval(self, seconds: float | None) -> None:
        self._keep_alive(Pinging(seconds, self._pinging.timeout))

    @property
    def ping_timeout(self) -> float | None:
        """Seconds that the answer to a PING may take; None is without end. A change counts from the next PING on."""
        return self._pinging.timeout

    @ping_timeout.setter
    def ping_timeout(self, seconds: float | None) -> None:
        self._keep_alive(Pinging(self._pinging.interval, seconds))

    @property
    def state(self) -> State:
        """Open, closing or closed. Rather than look at it, call :meth:`send` and catch :exc:`ConnectionClosed`."""
        return self._life()

    @property
    def close_code(self) -> int | None:
        """The code that the server closed with, 1006 if it sent none; None until the connection is closed."""
        if self.state is not State.CLOSED:
            return None
        received = self._received_close()
        return ABNORMAL_CLOSURE if received is None else received.code

    @property
    def close_reason(self) -> str | None:
        """The reason that the server gave, "" if it gave none; None until the connection is closed."""
        if self.state is not State.CLOSED:
            return None
        received = self._received_close()
        return "" if received is None else received.reason


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
