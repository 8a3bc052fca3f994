"""The request that asked for a connection, and the server's final reply, as users see them."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from multidict import CIMultiDict

_STATUSES = {int(status): status for status in HTTPStatus}

__all__ = [
    "Headers",
    "UpgradeRequest",
    "UpgradeResponse",
    "WSUpgradeRequest",
    "WSUpgradeResponse",
    "WSUpgradeResponseWithListener",
]


class Headers(CIMultiDict[str]):
    """Headers, looked up without regard to case: multidict's, with the methods of websockets' headers."""

    def get_all(self, name: str) -> list[str]:
        """All values of a header; an empty list if there is none."""
        return list(self.getall(name, []))

    def raw_items(self) -> Iterator[tuple[str, str]]:
        """Names and values as they were sent, in their order."""
        return iter(self.items())


class UpgradeRequest:
    """The request that asked for the upgrade, with picows' attributes.

    The object keeps only the bytes that were sent, about 250, because each of thousands of idle connections has one.
    It parses the headers at the first access.
    """

    __slots__ = ("_headers", "_raw")

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._headers: Headers | None = None

    @property
    def method(self) -> bytes:
        """``b"GET"``."""
        return self._request_line()[0]

    @property
    def path(self) -> bytes:
        """Path and query, for example ``b"/ws?symbol=btcusdt"``."""
        return self._request_line()[1]

    @property
    def version(self) -> bytes:
        """``b"HTTP/1.1"``."""
        return self._request_line()[2]

    @property
    def headers(self) -> Headers:
        """All headers as they were sent."""
        if self._headers is None:
            lines = self._raw.partition(b"\r\n")[2]
            self._headers = _parse_headers(lines.removesuffix(b"\r\n\r\n"))
        return self._headers

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._raw,)

    def __repr__(self) -> str:
        return f"<UpgradeRequest {self.method.decode()} to {self.headers.get('Host', '')}>"

    def _request_line(self) -> list[bytes]:
        return self._raw.partition(b"\r\n")[0].split(b" ")


class UpgradeResponse:
    """The server's final reply. It parses the headers, about 200 bytes, at the first access.

    ``version`` is ``b"HTTP/1.1"``. ``status`` is an HTTPStatus, or a plain int if Python doesn't know it (for example
    520). ``reason_phrase`` is the text after the status, often empty. ``body`` is None for a 101, otherwise the part of
    the body that was received, at most ``MAX_BODY`` bytes.
    """

    __slots__ = ("_headers", "_raw_headers", "body", "reason_phrase", "status", "version")

    def __init__(
        self, version: bytes, status: int, reason_phrase: str, raw_headers: bytes, body: bytes | None = None
    ) -> None:
        self.version = version
        self.status: int = _STATUSES.get(status, status)
        self.reason_phrase = reason_phrase
        self.body = body
        self._raw_headers = raw_headers
        self._headers: Headers | None = None

    @property
    def status_code(self) -> int:
        """``status`` as a plain int (websockets' name)."""
        return int(self.status)

    @property
    def headers(self) -> Headers:
        """All headers of the reply, in the server's spelling. Lookups ignore case."""
        if self._headers is None:
            self._headers = _parse_headers(self._raw_headers)
        return self._headers

    def __reduce__(self) -> tuple[Any, ...]:
        status = int(self.status)
        return type(self), (self.version, status, self.reason_phrase, self._raw_headers, self.body)

    def __repr__(self) -> str:
        return f"<UpgradeResponse {self.status_code} {self.reason_phrase!r}>"


class WSUpgradeResponseWithListener:
    """picows' pair of a response and a listener, of use to a server's factory; here so that imports of it work."""

    __slots__ = ("listener", "response")

    def __init__(self, response: UpgradeResponse, listener: Any) -> None:
        if response.status_code == 101 and listener is None:
            raise ValueError("listener must not be None for a response 101")
        if response.status_code >= 400 and listener is not None:
            raise ValueError("listener must be None for a response that rejects")
        self.response = response
        self.listener = listener

    def __repr__(self) -> str:
        return f"<WSUpgradeResponseWithListener {self.response!r} {self.listener!r}>"


WSUpgradeRequest = UpgradeRequest
WSUpgradeResponse = UpgradeResponse


def _parse_headers(lines: bytes) -> Headers:
    """Parse header lines in wsfast's own format: no line is folded, and one blank follows each colon."""
    headers = Headers()
    for line in lines.split(b"\r\n") if lines else ():
        name, _, value = line.partition(b": ")
        headers.add(name.decode("ascii"), decode_value(value))
    return headers


def decode_value(value: bytes) -> str:
    """Decode a field value as UTF-8, which wsfast sends, or else as Latin-1, the historical encoding (RFC 9110
    section 5.5)."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")
