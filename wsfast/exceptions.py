"""The one exception tree of wsfast.

::

    WebSocketException (WSError)
    ├── ConnectionClosed
    │   ├── ConnectionClosedOK
    │   └── ConnectionClosedError
    ├── InvalidURI (WSInvalidURL)
    ├── InvalidProxy
    ├── InvalidHandshake (WSHandshakeError)
    │   ├── SecurityError
    │   │   ├── StatusLineTooLong, HeaderLineTooLong, TooManyHeaders
    │   ├── ProxyError
    │   │   ├── InvalidProxyMessage, InvalidProxyStatus
    │   ├── InvalidMessage (WSInvalidMessageError)
    │   ├── InvalidStatus (WSInvalidStatusError)
    │   ├── InvalidHeader (WSInvalidHeaderError)
    │   │   ├── InvalidHeaderFormat, InvalidHeaderValue
    │   │   └── InvalidUpgrade (WSInvalidUpgradeError)
    │   └── NegotiationError
    │       ├── DuplicateParameter, InvalidParameterName, InvalidParameterValue
    ├── WSProtocolError
    │   └── ProtocolError
    │       ├── PayloadTooBig, TooManyFragments
    │       └── InvalidText (also a UnicodeDecodeError)
    ├── QueueOverflow
    ├── KeepaliveTimeout (also a TimeoutError)
    ├── TLSUnavailable (also a NotImplementedError)
    ├── InvalidState (also an AssertionError)
    └── ConcurrencyError (also a RuntimeError)

Names, constructors and attributes are those of websockets. The names in parentheses are picows' names for the same
classes. So an ``except`` clause that was written for either library works. Every exception can be pickled.
"""

# The names belong to websockets and picows; many do not end in "Error".
# ruff: noqa: N818

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wsfast._common.protocol_numbers import WSCloseCode, explain
from wsfast._common.redaction import shown
from wsfast._common.websockets_exceptions import SignatureOfInit, with_websockets_base

if TYPE_CHECKING:
    from typing_extensions import Self

    from wsfast._common.upgrade import UpgradeResponse

__all__ = [
    "Close",
    "ConcurrencyError",
    "ConnectionClosed",
    "ConnectionClosedError",
    "ConnectionClosedOK",
    "DuplicateParameter",
    "HeaderLineTooLong",
    "InvalidHandshake",
    "InvalidHeader",
    "InvalidHeaderFormat",
    "InvalidHeaderValue",
    "InvalidMessage",
    "InvalidParameterName",
    "InvalidParameterValue",
    "InvalidProxy",
    "InvalidProxyMessage",
    "InvalidProxyStatus",
    "InvalidState",
    "InvalidStatus",
    "InvalidText",
    "InvalidURI",
    "InvalidUpgrade",
    "KeepaliveTimeout",
    "NegotiationError",
    "PayloadTooBig",
    "ProtocolError",
    "ProxyError",
    "QueueOverflow",
    "SecurityError",
    "StatusLineTooLong",
    "TLSUnavailable",
    "TooManyFragments",
    "TooManyHeaders",
    "WSError",
    "WSHandshakeError",
    "WSInvalidHeaderError",
    "WSInvalidMessageError",
    "WSInvalidStatusError",
    "WSInvalidURL",
    "WSInvalidUpgradeError",
    "WSProtocolError",
    "WebSocketException",
    "printable",
]


@dataclass(frozen=True)
class Close:
    """The code and the reason of a CLOSE frame; ``str()`` explains the code."""

    code: int
    reason: str

    def __str__(self) -> str:
        text = f"{int(self.code)} ({explain(self.code)})"
        return f"{text} {printable(self.reason)}" if self.reason else text


def printable(text: str) -> str:
    """Escape the characters that a server must not put into a log: line ends and other controls, characters that change
    the direction of writing, surrogates."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


class WebSocketException(Exception):
    """Base class of all WebSocket exceptions of wsfast.

    The text of an exception escapes unprintable characters from the server. The attributes contain the server's text
    unchanged. If the program has imported websockets, ``except`` clauses with the classes of ``websockets.exceptions``
    catch it, too.
    """

    __signature__ = SignatureOfInit()

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        return super().__new__(with_websockets_base(cls), *args, **kwargs)

    def __init__(self, *args: object) -> None:
        Exception.__init__(self, *args)  # not super(): websockets' class comes next

    def __str__(self) -> str:
        return printable(self._text())

    def _text(self) -> str:
        return Exception.__str__(self)


class ConnectionClosed(WebSocketException):
    """The connection is closed, so the operation is not possible.

    ``rcvd`` and ``sent`` are the CLOSE frames of each direction, None where there was none. If there were both,
    ``rcvd_then_sent`` is True if the server's came first, else False. Otherwise it is None.
    """

    def __init__(self, rcvd: Close | None, sent: Close | None, rcvd_then_sent: bool | None = None) -> None:
        if (rcvd_then_sent is None) != (rcvd is None or sent is None):
            raise ValueError("rcvd_then_sent must be a bool if there are two CLOSE frames, else None")
        super().__init__(rcvd, sent, rcvd_then_sent)
        self.rcvd = rcvd
        self.sent = sent
        self.rcvd_then_sent = rcvd_then_sent

    def _text(self) -> str:
        if self.rcvd is None and self.sent is None:
            return "no close frame received or sent"
        if self.rcvd is None:
            return f"sent {self.sent}; no close frame received"
        if self.sent is None:
            return f"received {self.rcvd}; no close frame sent"
        if self.rcvd_then_sent:
            return f"received {self.rcvd}; then sent {self.sent}"
        return f"sent {self.sent}; then received {self.rcvd}"

    @property
    def code(self) -> int:
        """The code of the server's CLOSE frame; 1006 if it sent no CLOSE frame (RFC 6455 section 7.1.5)."""
        return WSCloseCode.ABNORMAL_CLOSURE if self.rcvd is None else self.rcvd.code

    @property
    def reason(self) -> str:
        """The reason of the server's CLOSE frame; empty if it gave none (RFC 6455 section 7.1.6)."""
        return "" if self.rcvd is None else self.rcvd.reason


class ConnectionClosedOK(ConnectionClosed):
    """The connection was closed properly: 1000, 1001 or no code, in both directions."""


class ConnectionClosedError(ConnectionClosed):
    """The connection was closed with another code, or without a complete closing handshake."""


class InvalidURI(WebSocketException):
    """The URI is not a WebSocket URI (RFC 6455 section 3). ``***`` stands for what may be a secret in ``uri``."""

    def __init__(self, uri: str, msg: str) -> None:
        self.uri = shown(uri)
        self.msg = msg
        super().__init__(self.uri, msg)

    def _text(self) -> str:
        return f"{self.uri} isn't a valid URI: {self.msg}"

    @property
    def url(self) -> str:
        """picows' name of ``uri``."""
        return self.uri


class InvalidProxy(WebSocketException):
    """The proxy URL cannot be used. ``***`` stands for what may be a secret in ``proxy``."""

    def __init__(self, proxy: str, msg: str) -> None:
        self.proxy = shown(proxy)
        self.msg = msg
        super().__init__(self.proxy, msg)

    def _text(self) -> str:
        return f"{self.proxy} isn't a valid proxy: {self.msg}"


class InvalidHandshake(WebSocketException):
    """The opening handshake failed (RFC 6455 section 4).

    ``response`` is the server's reply, ``raw_header`` the bytes of its header, and ``raw_body`` its body. Each is None
    if unknown.
    """

    response: UpgradeResponse | None = None
    raw_header: bytes | None = None
    raw_body: bytes | None = None


class SecurityError(InvalidHandshake):
    """The server's reply exceeded a limit that protects this program."""


class StatusLineTooLong(SecurityError):
    """A status line is too long."""


class HeaderLineTooLong(SecurityError):
    """A header line is too long."""


class TooManyHeaders(SecurityError):
    """There are too many headers."""


def _retry_after(response: UpgradeResponse) -> float | None:
    text = response.headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    # They take milliseconds to import.
    from datetime import timezone
    from email.utils import parsedate_to_datetime

    try:
        # All dates of HTTP are GMT, also when they leave that out.
        date = parsedate_to_datetime(text).replace(tzinfo=timezone.utc)
        return max(0.0, date.timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return None


class ProxyError(InvalidHandshake):
    """The proxy could not be reached, or refused the connection."""


class InvalidProxyMessage(ProxyError):
    """The proxy's reply is malformed."""


class InvalidProxyStatus(ProxyError):
    """An HTTP proxy rejected the connection; ``response`` is its reply."""

    response: UpgradeResponse

    def __init__(self, response: UpgradeResponse) -> None:
        super().__init__(response)
        self.response = response

    @property
    def retry_after(self) -> float | None:
        """The seconds after which the proxy wants a retry: see :attr:`InvalidStatus.retry_after`."""
        return _retry_after(self.response)

    def _text(self) -> str:
        return f"proxy rejected connection: HTTP {self.response.status_code:d}"


class InvalidMessage(InvalidHandshake):
    """The server's reply is missing, cut short, or not HTTP/1.1."""


class InvalidStatus(InvalidHandshake):
    """The server answered with a status other than 101; ``response`` contains status, headers and body."""

    response: UpgradeResponse

    def __init__(self, response: UpgradeResponse) -> None:
        super().__init__(response)
        self.response = response

    @property
    def retry_after(self) -> float | None:
        """The seconds after which the server wants a retry, from Retry-After; None without one (RFC 9110 section
        10.2.3)."""
        return _retry_after(self.response)

    def _text(self) -> str:
        return f"server rejected WebSocket connection: HTTP {self.response.status_code:d}"


class InvalidHeader(InvalidHandshake):
    """The header ``name`` is missing (``value`` is None), empty or wrong."""

    def __init__(self, name: str, value: str | None = None) -> None:
        super().__init__(name, value)
        self.name = name
        self.value = value

    def _text(self) -> str:
        if self.value is None:
            return f"missing {self.name} header"
        if self.value == "":
            return f"empty {self.name} header"
        return f"invalid {self.name} header: {self.value}"


class InvalidHeaderFormat(InvalidHeader):
    """A header violates its grammar at position ``pos``."""

    def __init__(self, name: str, error: str, header: str, pos: int) -> None:
        super().__init__(name, f"{error} at {pos} in {header}")
        self.args = (name, error, header, pos)


class InvalidHeaderValue(InvalidHeader):
    """A header is well formed, but its value isn't acceptable."""


class InvalidUpgrade(InvalidHeader):
    """The Upgrade or Connection header isn't that of a WebSocket handshake."""


class NegotiationError(InvalidHandshake):
    """Client and server cannot agree on extensions or on a subprotocol."""


class DuplicateParameter(NegotiationError):
    """A parameter of an extension is repeated."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def _text(self) -> str:
        return f"duplicate parameter: {self.name}"


class InvalidParameterName(NegotiationError):
    """An extension doesn't know a parameter."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def _text(self) -> str:
        return f"invalid parameter name: {self.name}"


class InvalidParameterValue(NegotiationError):
    """A parameter of an extension has a missing (None), empty or wrong value."""

    def __init__(self, name: str, value: str | None) -> None:
        super().__init__(name, value)
        self.name = name
        self.value = value

    def _text(self) -> str:
        if self.value is None:
            return f"missing value for parameter {self.name}"
        if self.value == "":
            return f"empty value for parameter {self.name}"
        return f"invalid value for parameter {self.name}: {self.value}"


class WSProtocolError(WebSocketException):
    """The connection fails with close code ``code``; ``str()`` is the message (RFC 6455 section 7.1.7).

    A callback may raise this exception to choose the code of the CLOSE frame. ``args`` is ``(code, message)``.
    """

    code: int
    message: str

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def _text(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # The constructors of subclasses take other arguments than args, so unpickling must not call them.
        return _rebuild, (type(self), self.args), self.__dict__


def _rebuild(cls: type[WSProtocolError], args: tuple[Any, ...]) -> WSProtocolError:
    error = cls.__new__(cls, *args)
    error.args = args
    return error


class ProtocolError(WSProtocolError):
    """The server violated the protocol with a bad frame or sequence of frames. The default code is 1002."""

    def __init__(self, message: str = "protocol error", code: int = WSCloseCode.PROTOCOL_ERROR) -> None:
        super().__init__(code, message)


class PayloadTooBig(ProtocolError):
    """A message is larger than this side's ``max_size``; the code is 1009.

    All sizes are in bytes. The arguments are the size of the frame that was too big (None if unknown), ``max_size``,
    the bytes that the limit left for that frame, and ``current_size``, the size of the message's earlier frames. The
    attribute ``max_size`` is the limit of the whole message. The first argument may be the text of the error instead;
    then all sizes are None.
    """

    def __init__(
        self, size_or_message: int | str | None, max_size: int | None = None, current_size: int | None = None
    ) -> None:
        self.size: int | None = None
        self.max_size: int | None = None
        self.current_size: int | None = None
        if isinstance(size_or_message, str):
            message = size_or_message
        elif max_size is None:
            raise TypeError("max_size is required")
        else:
            self.size = size_or_message
            self.max_size = max_size + (current_size or 0)
            self.current_size = current_size
            message = self._describe()
        super().__init__(message, WSCloseCode.MESSAGE_TOO_BIG)

    def _describe(self) -> str:
        size = "" if self.size is None else f"with {self.size} bytes "
        before = "" if self.current_size is None else f"after reading {self.current_size} bytes "
        return f"frame {size}{before}exceeds limit of {self.max_size} bytes"


class TooManyFragments(ProtocolError):
    """A message has too many frames. wsfast has the name from websockets, but limits bytes, and never raises it."""

    def __init__(self, max_fragments_or_message: int | str) -> None:
        message = max_fragments_or_message
        if not isinstance(message, str):
            message = f"fragmented message exceeds limit of {message} frames"
        super().__init__(message, WSCloseCode.MESSAGE_TOO_BIG)


class InvalidText(ProtocolError, UnicodeDecodeError):
    """A text message or a close reason is not UTF-8; the code is 1007 (RFC 6455 section 8.1).

    The class is a UnicodeDecodeError too, with the same constructor, ``args`` and attributes.
    """

    def __init__(self, encoding: str, data: bytes, start: int, end: int, reason: str) -> None:
        UnicodeDecodeError.__init__(self, encoding, data, start, end, reason)
        self.code = WSCloseCode.INVALID_TEXT
        self.message = UnicodeDecodeError.__str__(self)

    @classmethod
    def from_decode_error(cls, error: UnicodeDecodeError) -> InvalidText:
        """Return ``error`` as an InvalidText; raise it ``from error``."""
        return cls(error.encoding, error.object, error.start, error.end, error.reason)

    @classmethod
    def of_part(cls, part: bytes, inside: bool) -> InvalidText:
        """Return the error for a text that became invalid within ``part``. ``inside``: ``part`` begins inside a
        character."""
        if not inside:
            try:
                part.decode()
            except UnicodeDecodeError as error:
                return cls.from_decode_error(error)
        return cls("utf-8", part, 0, len(part), "invalid across fragments")

    def __reduce__(self) -> tuple[Any, ...]:
        # Only the constructor of UnicodeDecodeError sets its fields, and args are its arguments.
        return type(self), self.args, self.__dict__


class KeepaliveTimeout(WebSocketException, TimeoutError):
    """The server sent no byte within the time-out of a keepalive ping."""


class QueueOverflow(WebSocketException):
    """The program received more slowly than the server sent, and ``overflow="fail"`` ended the connection."""


class TLSUnavailable(WebSocketException, NotImplementedError):
    """The blocking client cannot use TLS with this Python, which hides its OpenSSL from other modules."""


class InvalidState(WebSocketException, AssertionError):
    """The connection is not in a state that allows the operation."""


class ConcurrencyError(WebSocketException, RuntimeError):
    """Two tasks or threads use the connection in a way that is allowed to only one at a time."""


WSError = WebSocketException
WSHandshakeError = InvalidHandshake
WSInvalidMessageError = InvalidMessage
WSInvalidStatusError = InvalidStatus
WSInvalidHeaderError = InvalidHeader
WSInvalidUpgradeError = InvalidUpgrade
WSInvalidURL = InvalidURI
