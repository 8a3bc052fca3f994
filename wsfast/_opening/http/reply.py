"""The server's reply as HTTP/1.1 (RFC 9112), read by httptools, which is llhttp. No I/O.

llhttp gets a header whole, never in pieces, so how a reply was cut does not show in how it is judged, and a byte that
arrives alone costs next to nothing. It reads the fields and the body. The status line is read here, because llhttp
takes a code such as 099, as are the transfer codings, of which it takes any.
"""

from __future__ import annotations

import functools
import re
from types import ModuleType

__all__ = ["MalformedError", "Reply", "end_of_header"]

# RFC 9112 section 4. Of a code the first digit is the class, from 1 on.
_STATUS_LINE = re.compile(rb"(HTTP/[0-9]\.[0-9]) ([1-9][0-9]{2})(?: ([\t\x20-\x7e\x80-\xff]*))?\r\n")

# The empty line behind a header. Lines that end without CR are found here so that llhttp refuses them at once.
_END = re.compile(rb"\n\r?\n")

# A line folding, which means a blank (RFC 9112 section 5.2).
_FOLDING = re.compile(rb"\r\n[ \t]+")

# Codes whose replies have no body, whatever their fields say (RFC 9112 section 6.3); so have all below 200.
_NO_BODY = (204, 304)

Fields = list[tuple[bytes, bytes]]


def end_of_header(data: bytearray, start: int, limit: int) -> int:
    """The end of the header in `data`, searched from `start` to `limit`; -1 if it has not arrived yet."""
    end = _END.search(data, start, limit)
    return -1 if end is None else end.end()


@functools.cache
def _httptools() -> ModuleType:
    """Import it late: that takes milliseconds."""
    import httptools

    return httptools


class MalformedError(ValueError):
    """The bytes are no valid HTTP reply; the text says why."""


class Reply:
    """One reply, interim or final: first its header, whole, then its body, as it comes.

    `version`, `status`, `reason` and `fields` are as the server spelled them, without the blanks around values.

    :raises MalformedError: the header is not that of a reply in HTTP/1; another minor version is read all the same
    """

    __slots__ = ("_events", "_parser", "fields", "reason", "status", "version")

    def __init__(self, header: bytes) -> None:
        line = _STATUS_LINE.match(header)
        if line is None:
            raise MalformedError("illegal status line")
        self.version = line[1]
        self.status = int(line[2])
        self.reason = line[3] or b""
        has_body = self.status >= 200 and self.status not in _NO_BODY
        self._events = _Events()
        self._parser = _httptools().HttpResponseParser(self._events)
        # 204 makes llhttp expect no body; the bytes behind a 101 are not HTTP.
        status = line[2] if has_body else b"204"
        lines = header[line.end() :]
        if b"\n " in lines or b"\n\t" in lines:
            lines = _FOLDING.sub(b" ", lines)
        try:
            self._parser.feed_data(b"HTTP/1.1 %b\r\n%b" % (status, lines))
        except _httptools().HttpParserError as exc:
            raise MalformedError(str(exc)) from exc
        self.fields = self._events.fields
        self._check_coding()
        if not has_body:
            self._events.complete = True

    def values(self, name: bytes) -> list[bytes]:
        """The values of all fields of this name, which is given in lower case."""
        return [value for field, value in self.fields if field.lower() == name]

    def _check_coding(self) -> None:
        codings = self.values(b"transfer-encoding")
        if codings and (len(codings) > 1 or codings[0].lower() != b"chunked"):
            raise MalformedError("unsupported Transfer-Encoding")

    @property
    def body(self) -> bytearray:
        """The received part of the body, without its framing."""
        return self._events.body

    @property
    def complete(self) -> bool:
        """True once the reply has arrived whole."""
        return self._events.complete

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes that follow the header; those that follow the body are ignored.

        :raises MalformedError: the framing of the body is broken
        """
        try:
            self._parser.feed_data(data)
        except _httptools().HttpParserError as exc:
            if not self.complete:
                raise MalformedError(str(exc)) from exc


class _Events:
    """Callbacks of the parser, by httptools' names."""

    __slots__ = ("_in_header", "body", "complete", "fields")

    def __init__(self) -> None:
        self.fields: Fields = []
        self.body = bytearray()
        self.complete = False
        self._in_header = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_header:  # else it is a trailer
            self.fields.append((name, value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        self._in_header = False

    def on_body(self, data: bytes) -> None:
        if not self.complete:
            self.body += data

    def on_message_complete(self) -> None:
        self.complete = True
