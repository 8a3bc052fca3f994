"""One HTTP request, and the reply to it as it arrives: interim replies, the header, a refusal's body. No I/O.

Subclasses judge the reply: `ClientHandshake` that of a server, `TunnelHandshake` that of a proxy. Code that
drives one of them drives the other, too.
"""

from __future__ import annotations

from typing import NoReturn, Protocol

from wsfast._common.upgrade import UpgradeResponse, decode_value
from wsfast._opening.http.reply import MalformedError, Reply, end_of_header
from wsfast.exceptions import InvalidHandshake, InvalidMessage, InvalidStatus, SecurityError

__all__ = ["MAX_BODY", "MAX_HEADER", "Exchange", "Observer"]

# Bytes of the reply's header, interim replies included.
MAX_HEADER = 16 * 1024

# Bytes of a refusal's body that are kept: plenty for any error page, and the default limit of a message.
MAX_BODY = 1024 * 1024

# The same with its framing: chunks of a byte each would be six times as long, and trailers endless.
_MAX_FRAMED_BODY = MAX_BODY + MAX_HEADER

# A TLS server answers plain text with an alert or a handshake record (RFC 8446 section 5.1).
_TLS_RECORDS = (21, 22)


class Observer(Protocol):
    """An object that is notified of the reply."""

    def replied(self, response: UpgradeResponse) -> None:
        """The header of the final reply has come."""

    def refused(self, body: bytes) -> None:
        """The peer has refused; `body` is the part that was received."""


class Exchange:
    """One exchange: send ``request_bytes``, and ``feed()`` the bytes that come back.

    Attributes:
        request_bytes: the request, to be sent in one write.
        trailing: after success, the bytes that followed the reply.
        observer: is notified of the reply.

    """

    # Subclasses set the wording of errors and the exception types.
    _whose = "the server's"
    _secure = "a wss:// server"
    _encrypted = False
    _invalid: type[InvalidHandshake] = InvalidMessage
    _too_long: type[InvalidHandshake] = SecurityError
    _refused: type[InvalidHandshake] = InvalidStatus

    def __init__(self, request_bytes: bytes) -> None:
        self.request_bytes = request_bytes
        self.trailing = b""
        self._received = bytearray()  # until the final reply's header is complete, all that came
        self._begin = 0  # of the reply whose header is incomplete: interim replies may be before it
        self._searched = 0  # up to here it does not end
        self._refusal: tuple[Reply, UpgradeResponse] | None = None  # whose body is being received
        self._framed_size = 0  # of that body, in bytes
        self._over = False
        self.observer: Observer | None = None

    @property
    def shown_request_line(self) -> str:
        """The first line of the request, as the log may show it."""
        return self.request_bytes.partition(b"\r\n")[0].decode("ascii")

    def _agrees(self, reply: Reply, response: UpgradeResponse) -> bool:
        """Judge the header of the final reply. False: it refuses, and its body follows.

        :raises InvalidHandshake: it does neither
        """
        raise NotImplementedError

    @property
    def rejection(self) -> InvalidHandshake | None:
        """The error to raise for the peer's refusal, with the received part of its body; None without a refusal."""
        if self._refusal is None:
            return None
        reply, response = self._refusal
        response.body = bytes(reply.body[:MAX_BODY])
        error = self._refused(response)
        error.raw_header = bytes(self._received)
        error.raw_body = response.body
        return error

    def feed(self, data: bytes | bytearray | memoryview) -> UpgradeResponse | None:
        """Take bytes of the peer; return its reply once that is complete and agrees, None before.

        Raises a subclass of InvalidHandshake otherwise. A refusal (InvalidStatus, InvalidProxyStatus) is raised when
        its body is complete or has reached ``MAX_BODY`` bytes. A caller that cannot wait so long raises `rejection`.
        """
        if self._over:
            raise RuntimeError("the handshake is over")
        if not data:
            return None
        try:
            if self._refusal is None:
                self._received += data
                return self._read_header()
            self._read_body(self._refusal[0], data)
            return None
        except InvalidHandshake as error:
            self._fail(error)

    def feed_eof(self) -> NoReturn:
        """Note the end of the stream: raise the rejection, otherwise InvalidMessage or InvalidProxyMessage,
        which is caused by an EOFError, like websockets'."""
        if self._over:
            raise RuntimeError("the handshake is over")
        if self.rejection is not None:
            self._fail(self.rejection)
        text = f"connection closed before {self._whose} reply was complete"
        if not self._received and not self._encrypted:
            text = f"connection closed before {self._whose} reply began: is it {self._secure}?"
        error = self._invalid(text)
        error.__cause__ = EOFError(f"got {len(self._received)} bytes of the reply's header")
        self._fail(error)

    def _fail(self, error: InvalidHandshake) -> NoReturn:
        self._over = True
        if self._received and error.raw_header is None:
            error.raw_header = bytes(self._received[:MAX_HEADER])
        if self.observer is not None:
            self.observer.refused(error.raw_body or b"")
        raise error

    def _read_header(self) -> UpgradeResponse | None:
        self._check_is_http()
        while True:
            end = end_of_header(self._received, max(self._begin, self._searched - 2), MAX_HEADER)
            if end < 0:
                if len(self._received) > MAX_HEADER:
                    raise self._too_long(
                        f"the header of {self._whose} reply is longer than {MAX_HEADER} bytes"
                    )
                self._searched = len(self._received)
                return None
            try:
                reply = Reply(bytes(self._received[self._begin : end]))
            except MalformedError as error:
                raise self._invalid(f"{self._whose} reply isn't valid HTTP: {error}") from error
            self._begin = end
            if reply.status >= 200 or reply.status == 101:
                break
            # Any other 1xx is interim (RFC 9110 section 15.2); the final reply follows.
        rest = bytes(self._received[end:])
        del self._received[end:]
        response = UpgradeResponse(
            version=reply.version,
            status=reply.status,
            reason_phrase=decode_value(reply.reason),
            raw_headers=b"\r\n".join([b"%b: %b" % field for field in reply.fields]),
        )
        if self.observer is not None:
            self.observer.replied(response)
        try:
            agrees = self._agrees(reply, response)
        except InvalidHandshake as error:
            error.response = response
            raise
        if agrees:
            self._over = True
            self.trailing = rest
            return response
        self._refusal = reply, response
        self._read_body(reply, rest)
        return None

    def _check_is_http(self) -> None:
        # Whatever else answers on this port (TLS, SSH, SMTP) shows in the first bytes; the empty line behind a header
        # never comes.
        if self._received[0] in _TLS_RECORDS:
            raise self._invalid(f"{self._whose} reply is TLS, not HTTP: is it {self._secure}?")
        if not self._received.startswith(b"HTTP/"[: len(self._received)]):
            raise self._invalid(f"{self._whose} reply isn't HTTP")

    def _read_body(self, reply: Reply, data: bytes | bytearray | memoryview) -> None:
        self._framed_size += len(data)
        rejection = None
        try:
            reply.feed(data)
            full = len(reply.body) >= MAX_BODY or self._framed_size >= _MAX_FRAMED_BODY
            if reply.complete or full:
                rejection = self.rejection
        except MalformedError as error:
            rejection = self.rejection  # the status matters more than the framing of its body
            assert rejection is not None
            rejection.__cause__ = error
        if rejection is not None:
            raise rejection
