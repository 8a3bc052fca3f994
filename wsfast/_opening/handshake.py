"""The client's opening handshake (RFC 6455 section 4.1): the request to send, the reply to judge. No I/O.

The request is written here; reply.py reads the answer as HTTP; wsproto makes the key and computes the accept token.
wsproto's state machine (``H11Handshake``) stands aside. It keeps the reason phrase, the version and most headers of the
reply to itself, hides the bytes after a 101 in its frame decoder, reports an interim 1xx as a rejection, lets the last
of several Sec-WebSocket-Accept or -Protocol headers win, raises UnicodeDecodeError at a non-ASCII token, knows no limit
on bodies, and says in prose only which header was wrong. So the judgement of section 4.1 is here.
"""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn

from multidict import CIMultiDict

from wsfast import deflate
from wsfast._opening.reply import MALFORMED, Reply, end_of_header
from wsfast._opening.uri import WebSocketURI
from wsfast.exceptions import (
    HeaderLineTooLong,
    InvalidHandshake,
    InvalidHeader,
    InvalidHeaderValue,
    InvalidMessage,
    InvalidStatus,
    InvalidUpgrade,
    NegotiationError,
    SecurityError,
    StatusLineTooLong,
    TooManyHeaders,
)
from wsfast.upgrade import UpgradeRequest, UpgradeResponse, decode_value

__all__ = [
    "MAX_BODY",
    "MAX_HEADER",
    "MAX_HEADERS",
    "MAX_LINE",
    "USER_AGENT",
    "ClientHandshake",
    "HeadersLike",
]

PlainHeaders = Mapping[str, str] | Iterable[tuple[str, str]]
HeadersLike = PlainHeaders | Callable[[], PlainHeaders]

# Bytes of the reply's header, interim replies included.
MAX_HEADER = 16 * 1024

# Headers of the reply, and bytes of one, its name included, or of the status line: websockets' limits.
MAX_HEADERS = 128
MAX_LINE = 8 * 1024

# Bytes of a rejection's body that are kept: plenty for any error page, and the default limit of a message.
MAX_BODY = 1024 * 1024

# Bytes of a rejection's body with its framing: chunks of a byte each would be six times as long, and trailers endless.
_MAX_FRAMED_BODY = MAX_BODY + MAX_HEADER

# How a TLS server answers what isn't TLS: with an alert or a handshake record (RFC 8446 section 5.1).
_TLS_RECORDS = (21, 22)


# wsproto takes a sixth of the time that importing wsfast would take, so it is imported with the first handshake.


def generate_nonce() -> bytes:
    """The key of a request."""
    from wsproto.utilities import generate_nonce

    return generate_nonce()


def generate_accept_token(key: bytes) -> bytes:
    """What the server has to make of the key."""
    from wsproto.utilities import generate_accept_token

    return generate_accept_token(key)


# That of pyproject.toml, as a test makes sure: importlib.metadata takes longer to import than most of this package.
VERSION = "0.1.0"

USER_AGENT = f"wsfast/{VERSION} Python/{sys.version_info.major}.{sys.version_info.minor}"

# What this module sets itself, or what would announce a body that a GET for an upgrade cannot have.
_RESERVED = (
    "Upgrade",
    "Connection",
    "Sec-WebSocket-Key",
    "Sec-WebSocket-Version",
    "Sec-WebSocket-Accept",
    "Content-Length",
    "Transfer-Encoding",
)

# RFC 9110 section 5.6.2.
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

# The target of a request: visible ASCII, for a blank would end it.
_TARGET = re.compile(r"[\x21-\x7e]+")

# What a field value cannot have: controls (RFC 9110 section 5.5), and surrogates, which UTF-8 cannot encode.
_NOT_IN_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")

# An element of an extension list. Parameters may be quoted strings (RFC 6455 section 9.1), commas included,
# at which wsproto's split_comma_header would cut.
_EXTENSION = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*"?)+')


class ClientHandshake:
    """One opening handshake: send ``request_bytes``, ``feed()`` what comes back.

    ``extra_headers``, a mapping or pairs of ``str``, or a function that returns them, are added to the request. Some
    have a meaning here:

    - Host, User-Agent and Authorization replace what would be generated from ``uri`` and ``user_agent``;
    - Sec-WebSocket-Protocol offers subprotocols, like ``subprotocols``; only one of the two may be given;
    - Sec-WebSocket-Extensions offers extensions by hand: it is sent as is, and the reply may name any in it. It
      excludes ``compression``, the offers of permessage-deflate, of which the reply may accept one.

    Without an Authorization header, credentials in ``uri`` are sent as Basic authentication (RFC 7617).
    ``user_agent=None`` sends no User-Agent.

    Raises ValueError naming the argument if a value cannot be sent: a CR, LF, NUL or other control character,
    a subprotocol that is no token or is offered twice, a header set twice, or one that is not the caller's to
    set. Raises TypeError naming the argument for a wrong type.

    Attributes:
        request: the request, as an object.
        request_bytes: the request, to be sent in one write.
        subprotocol: after success, the subprotocol the server picked, or None.
        compression: after success, what was agreed of ``compression``, or None.
        extensions_header: after success, the reply's Sec-WebSocket-Extensions, or None.
        trailing: after success, the bytes that followed the reply: the beginning of the first frames.

    """

    def __init__(
        self,
        uri: WebSocketURI,
        *,
        subprotocols: Sequence[str] | None = None,
        extra_headers: HeadersLike | None = None,
        origin: str | None = None,
        user_agent: str | None = USER_AGENT,
        compression: Sequence[deflate.PerMessageDeflate] = (),
    ) -> None:
        extra = _check_extra_headers(extra_headers)
        self._offers = compression
        self._subprotocols = _offered_subprotocols(subprotocols, extra)
        self._extensions = _extension_names(", ".join(extra.getall("Sec-WebSocket-Extensions", [])))
        self._key = generate_nonce()
        if compression:
            if self._extensions:
                raise ValueError("compression: extra_headers has Sec-WebSocket-Extensions, too")
            extra["Sec-WebSocket-Extensions"] = ", ".join(offer.offer() for offer in compression)
        headers = _request_headers(uri, self._key, self._subprotocols, extra, origin, user_agent)
        self.request_bytes = _serialize(uri, headers)
        self.request = UpgradeRequest(self.request_bytes)
        self.subprotocol: str | None = None
        self.extensions_header: str | None = None
        self.compression: deflate.AgreedDeflate | None = None
        self.trailing = b""
        self._received = bytearray()  # until the final reply's header is complete, all that came
        self._begin = 0  # of the reply whose header is incomplete: interim replies may be before it
        self._searched = 0  # up to here it does not end
        self._rejection: UpgradeResponse | None = None  # whose body is being received
        self._reply: Reply | None = None  # the same, as HTTP
        self._framed_size = 0  # of that body, in bytes
        self._over = False

    def feed(self, data: bytes | bytearray | memoryview) -> UpgradeResponse | None:
        """Take what the server sent; return the 101 reply once it is complete and right, None before.

        Raises a subclass of InvalidHandshake otherwise. A rejection (InvalidStatus) is raised when its body
        is complete or has reached ``MAX_BODY`` bytes; a caller who will not wait for that calls
        ``feed_eof()``.
        """
        if self._over:
            raise RuntimeError("the handshake is over")
        if not data:
            return None
        try:
            if self._rejection is None:
                self._received += data
                return self._read_header()
            self._read_body(self._rejection, data)
            return None
        except InvalidHandshake as error:
            self._fail(error)

    def feed_eof(self) -> NoReturn:
        """Take note that nothing more will come: raise InvalidStatus if rejected, otherwise InvalidMessage.

        The InvalidStatus has the body received so far. The InvalidMessage is caused by an EOFError, like
        websockets'.
        """
        if self._over:
            raise RuntimeError("the handshake is over")
        if self._rejection is not None:
            self._fail(self._rejected(self._rejection))
        error = InvalidMessage("connection closed before the server's reply was complete")
        error.__cause__ = EOFError(f"got {len(self._received)} bytes of the reply's header")
        self._fail(error)

    def _fail(self, error: InvalidHandshake) -> NoReturn:
        self._over = True
        if self._received:
            error.raw_header = bytes(self._received[:MAX_HEADER])
        raise error

    def _read_header(self) -> UpgradeResponse | None:
        self._check_is_http()
        while True:
            end = end_of_header(self._received, max(self._begin, self._searched - 2), MAX_HEADER)
            if end < 0:
                if len(self._received) > MAX_HEADER:
                    raise SecurityError(f"the header of the server's reply is longer than {MAX_HEADER} bytes")
                self._searched = len(self._received)
                return None
            reply = self._parse(bytes(self._received[self._begin : end]))
            self._begin = end
            if reply.status >= 200 or reply.status == 101:
                break
            # Any other 1xx is interim (RFC 9110 section 15.2): the final reply follows it.
        rest = bytes(self._received[end:])
        del self._received[end:]
        if reply.status == 101:
            return self._accept(reply, rest)
        self._reply = reply
        self._rejection = self._response(reply)
        self._read_body(self._rejection, rest)
        return None

    def _check_is_http(self) -> None:
        # Whatever else answers on this port (TLS, SSH, SMTP) shows in the first bytes; the empty line behind a header
        # never comes.
        if self._received[0] in _TLS_RECORDS:
            raise InvalidMessage("the server's reply is TLS, not HTTP: is it a wss:// server?")
        if not self._received.startswith(b"HTTP/"[: len(self._received)]):
            raise InvalidMessage("the server's reply isn't HTTP")

    def _parse(self, header: bytes) -> Reply:
        try:
            return Reply(header)
        except MALFORMED as error:
            raise InvalidMessage(f"the server's reply isn't valid HTTP: {error}") from error

    def _response(self, reply: Reply) -> UpgradeResponse:
        _check_limits(reply)
        response = UpgradeResponse(
            version=reply.version,
            status=reply.status,
            reason_phrase=decode_value(reply.reason),
            raw_headers=b"\r\n".join(b"%b: %b" % field for field in reply.fields),
        )
        if reply.version != b"HTTP/1.1":
            version = response.version.decode("ascii")
            error = InvalidMessage(f"unsupported HTTP version: {version} (status {response.status_code})")
            error.response = response
            raise error
        return response

    def _accept(self, reply: Reply, rest: bytes) -> UpgradeResponse:
        response = self._response(reply)
        fields = [(name.lower(), value) for name, value in reply.fields]
        try:
            _check_upgrade(fields, generate_accept_token(self._key))
            self.subprotocol = _picked_subprotocol(fields, self._subprotocols)
            self.extensions_header = _decode_optional(_combined(fields, b"sec-websocket-extensions")) or None
            if self._extensions:
                _check_accepted(self.extensions_header or "", self._extensions)
            else:
                self.compression = deflate.negotiate(self.extensions_header, self._offers)
        except InvalidHandshake as error:
            error.response = response
            raise
        self._over = True
        self.trailing = rest
        return response

    def _read_body(self, rejection: UpgradeResponse, data: bytes | bytearray | memoryview) -> None:
        assert self._reply is not None
        self._framed_size += len(data)
        try:
            self._reply.feed(data)
        except MALFORMED as error:
            # The status matters more than the framing of its body.
            raise self._rejected(rejection) from error
        full = len(self._reply.body) >= MAX_BODY or self._framed_size >= _MAX_FRAMED_BODY
        if self._reply.complete or full:
            raise self._rejected(rejection)

    def _rejected(self, rejection: UpgradeResponse) -> InvalidStatus:
        assert self._reply is not None
        rejection.body = bytes(self._reply.body[:MAX_BODY])
        error = InvalidStatus(rejection)
        error.raw_body = rejection.body
        return error


# The reply (RFC 6455 section 4.1, after "Once the client's opening handshake has been sent"). Header names are in lower
# case here.

_Fields = Sequence[tuple[bytes, bytes]]


def _check_limits(reply: Reply) -> None:
    """Check what MAX_HEADER leaves open: its bytes may be one line, or four thousand."""
    if len(reply.reason) > MAX_LINE:
        raise StatusLineTooLong(f"the server's status line is longer than {MAX_LINE} bytes")
    if len(reply.fields) > MAX_HEADERS:
        raise TooManyHeaders(f"the server's reply has more than {MAX_HEADERS} headers")
    for name, value in reply.fields:
        if len(name) + len(value) > MAX_LINE:
            raise HeaderLineTooLong(f"a header of the server's reply is longer than {MAX_LINE} bytes")


def _check_upgrade(fields: _Fields, accept_token: bytes) -> None:
    """Check steps 2 to 4: Upgrade, Connection and Sec-WebSocket-Accept."""
    upgrade = _combined(fields, b"upgrade")
    if upgrade is None or upgrade.lower() != b"websocket":
        raise InvalidUpgrade("Upgrade", _decode_optional(upgrade))
    connection = _combined(fields, b"connection")
    if connection is None or b"upgrade" not in [token.strip() for token in connection.lower().split(b",")]:
        raise InvalidUpgrade("Connection", _decode_optional(connection))
    accept = _single(fields, "Sec-WebSocket-Accept")
    if accept is None:
        raise InvalidHeader("Sec-WebSocket-Accept")
    if accept != accept_token:  # base64, so the case matters
        raise InvalidHeaderValue("Sec-WebSocket-Accept", decode_value(accept))


def _picked_subprotocol(fields: _Fields, offered: Sequence[str]) -> str | None:
    """Check step 6: the subprotocol is one of those offered, or none."""
    value = _single(fields, "Sec-WebSocket-Protocol")
    if value is None:
        return None
    subprotocol = decode_value(value)
    if subprotocol not in offered:
        raise NegotiationError(f"the server picked a subprotocol that wasn't offered: {subprotocol!r}")
    return subprotocol


def _check_accepted(value: str, offered: Sequence[str]) -> None:
    """Check step 5: all extensions of the reply were offered by hand. Their parameters are for the caller."""
    for name in _extension_names(value):
        if name not in offered:
            raise NegotiationError(f"the server picked an extension that wasn't offered: {name!r}")


def _extension_names(value: str) -> list[str]:
    """List the names in the value of a Sec-WebSocket-Extensions header (RFC 6455 section 9.1)."""
    names = (element.partition(";")[0].strip() for element in _EXTENSION.findall(value))
    return [name for name in names if name]


def _combined(fields: _Fields, name: bytes) -> bytes | None:
    """Return the header's value, several being one list (RFC 9110 section 5.2); None if there is none."""
    values = [value for field, value in fields if field == name]
    return b", ".join(values) if values else None


def _single(fields: _Fields, name: str) -> bytes | None:
    """Return the value of a header that may appear once only (RFC 6455 sections 11.3.3 and 11.3.4)."""
    values = [value for field, value in fields if field == name.lower().encode()]
    if len(values) > 1:
        raise InvalidHeader(name, f"{len(values)} of them: {decode_value(b', '.join(values))}")
    return values[0] if values else None


def _decode_optional(value: bytes | None) -> str | None:
    return None if value is None else decode_value(value)


# The request. What cannot be sent is refused here, before anything is, with the argument's name.


def _check_extra_headers(extra_headers: HeadersLike | None) -> CIMultiDict[str]:
    checked: CIMultiDict[str] = CIMultiDict()
    if callable(extra_headers):
        extra_headers = extra_headers()
    for name, value in _pairs(() if extra_headers is None else extra_headers):
        if not _TOKEN.fullmatch(name):
            raise ValueError(f"extra_headers: {name!r} isn't a header name")
        checked.add(name, _check_value(f"extra_headers[{name!r}]", value))
    for name in _RESERVED:
        if name in checked:
            raise ValueError(f"extra_headers: {name} is set by the handshake")
    return checked


def _pairs(extra_headers: PlainHeaders) -> Iterable[tuple[str, str]]:
    pairs = extra_headers.items() if isinstance(extra_headers, Mapping) else extra_headers
    if not isinstance(pairs, Iterable):
        raise TypeError(f"extra_headers must be a mapping or pairs, not {type(pairs).__name__}")
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[0], str):
            raise TypeError("extra_headers must be a mapping or pairs, of str")
        yield pair[0], pair[1]


def _check_value(argument: str, value: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{argument} must be str, not {type(value).__name__}")
    # The value may be a secret, so it isn't shown.
    if _NOT_IN_VALUE.search(value):
        raise ValueError(f"{argument} contains a control character")
    return value.strip(" \t")


def _offered_subprotocols(subprotocols: Sequence[str] | None, extra: CIMultiDict[str]) -> list[str]:
    """Return what is offered, moving Sec-WebSocket-Protocol out of ``extra``."""
    by_hand = extra.popall("Sec-WebSocket-Protocol", None)
    if by_hand is None:
        return _check_subprotocols("subprotocols", () if subprotocols is None else subprotocols)
    if subprotocols:
        raise ValueError("subprotocols: extra_headers has Sec-WebSocket-Protocol, too")
    tokens = [token.strip() for token in ",".join(by_hand).split(",")]
    return _check_subprotocols("extra_headers['Sec-WebSocket-Protocol']", tokens)


def _check_subprotocols(argument: str, subprotocols: Sequence[str]) -> list[str]:
    if isinstance(subprotocols, str) or not isinstance(subprotocols, Iterable):
        raise TypeError(f"{argument} must be a sequence of str, not {type(subprotocols).__name__}")
    offered = list(subprotocols)
    for subprotocol in offered:
        # Step 10 of the request in RFC 6455 section 4.1: tokens, each once.
        if not isinstance(subprotocol, str):
            raise TypeError(f"{argument} must be a sequence of str, not of {type(subprotocol).__name__}")
        if not _TOKEN.fullmatch(subprotocol):
            raise ValueError(f"{argument}: {subprotocol!r} isn't a token")
        if offered.count(subprotocol) > 1:
            raise ValueError(f"{argument}: {subprotocol!r} is offered twice")
    return offered


def _request_headers(
    uri: WebSocketURI,
    key: bytes,
    subprotocols: list[str],
    extra: CIMultiDict[str],
    origin: str | None,
    user_agent: str | None,
) -> CIMultiDict[str]:
    headers: CIMultiDict[str] = CIMultiDict()
    headers["Host"] = _host(uri, extra)
    headers["Upgrade"] = "websocket"
    headers["Connection"] = "Upgrade"
    headers["Sec-WebSocket-Key"] = key.decode("ascii")
    headers["Sec-WebSocket-Version"] = "13"
    if subprotocols:
        headers["Sec-WebSocket-Protocol"] = ", ".join(subprotocols)
    if uri.user_info is not None and "Authorization" not in extra:
        headers["Authorization"] = _basic_auth(*uri.user_info)
    if origin is not None:
        if "Origin" in extra:
            raise ValueError("origin: extra_headers has Origin, too")
        headers["Origin"] = _check_value("origin", origin)
    if user_agent is not None and "User-Agent" not in extra:
        headers["User-Agent"] = _check_value("user_agent_header", user_agent)
    headers.extend(extra)
    return headers


def _host(uri: WebSocketURI, extra: CIMultiDict[str]) -> str:
    """Return the value of Host, moving it out of ``extra`` if it is there."""
    hosts = extra.popall("Host", [_check_value("uri", uri.netloc)])
    if len(hosts) > 1:
        raise ValueError("extra_headers: Host is given twice")
    return hosts[0]


def _basic_auth(username: str, password: str) -> str:
    """Return the value of an Authorization header (RFC 7617 section 2)."""
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode("ascii")


def _serialize(uri: WebSocketURI, headers: CIMultiDict[str]) -> bytes:
    """Write the request (RFC 9112 section 3). The headers are checked; `uri` need not come from parse_uri()."""
    if not _TARGET.fullmatch(uri.resource_name):
        raise ValueError("uri: its path and query cannot be sent: they must be visible ASCII")
    lines = [f"GET {uri.resource_name} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()
