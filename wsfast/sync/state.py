"""What the blocking client shares with nobody else: the states of a connection, and its request."""

from __future__ import annotations

import enum

from multidict import CIMultiDict

from wsfast.handshake import UpgradeRequest

__all__ = ["Request", "State"]


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
