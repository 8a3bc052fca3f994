"""The client's opening handshake (RFC 6455 section 4.1): the request to send, the reply to judge. No I/O.

The request is written here, and reply.py reads the answer as HTTP. The judgement of section 4.1 is here, too, because
wsproto's state machine (``H11Handshake``) keeps the reason phrase, the version and most headers of the reply to itself,
hides the bytes after a 101 in its frame decoder, reports an interim 1xx as a rejection, lets the last of several
Sec-WebSocket-Accept or -Protocol headers win, raises UnicodeDecodeError at a non-ASCII token, knows no limit on bodies,
and says in prose only which header was wrong.
"""

from __future__ import annotations

import binascii
import os
import sys
from collections.abc import Iterable, Mapping, Sequence

from multidict import CIMultiDict

from wsfast import deflate
from wsfast._common.headers import TOKEN, VISIBLE, PlainHeaders, basic_auth, check_value, checked_headers
from wsfast._common.redaction import shown_subprotocol, shown_value
from wsfast._common.upgrade import UpgradeRequest, UpgradeResponse, decode_value
from wsfast._common.version import VERSION
from wsfast._opening.http.exchange import Exchange
from wsfast._opening.http.reply import Reply
from wsfast._opening.uri import WebSocketURI
from wsfast.exceptions import (
    HeaderLineTooLong,
    InvalidHeader,
    InvalidHeaderFormat,
    InvalidHeaderValue,
    InvalidMessage,
    InvalidUpgrade,
    NegotiationError,
    StatusLineTooLong,
    TooManyHeaders,
)

__all__ = ["MAX_HEADERS", "MAX_LINE", "USER_AGENT", "ClientHandshake"]

# Headers of the reply, and bytes of one, its name included, or of the status line: websockets' limits.
MAX_HEADERS = 128
MAX_LINE = 8 * 1024


def generate_nonce() -> bytes:
    """The key of a request."""
    return binascii.b2a_base64(os.urandom(16), newline=False)


def generate_accept_token(key: bytes) -> bytes:
    """The Sec-WebSocket-Accept that the server must derive from the key."""
    import hashlib  # with the first handshake

    digest = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11", usedforsecurity=False).digest()
    return binascii.b2a_base64(digest, newline=False)


USER_AGENT = f"wsfast/{VERSION} Python/{sys.version_info.major}.{sys.version_info.minor}"

# Headers that this module sets itself, or that would announce a body, which an upgrade request cannot have.
_RESERVED = (
    "upgrade",
    "connection",
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-accept",
    "content-length",
    "transfer-encoding",
)


class ClientHandshake(Exchange):
    """One opening handshake with a server.

    ``extra_headers``, a mapping or pairs of ``str``, or a function that returns them, are added to the request. Some
    have a meaning here:

    - Host, User-Agent and Authorization replace what would be generated from ``uri`` and ``user_agent``;
    - Sec-WebSocket-Protocol offers subprotocols, like ``subprotocols``; only one of the two may be given;
    - Sec-WebSocket-Extensions offers extensions by hand: it is sent as is, and the reply may name any in it. It
      excludes ``compression``, the offers of permessage-deflate, of which the reply may accept one.

    Without an Authorization header, credentials in ``uri``, or else ``credentials``, are sent as Basic authentication
    (RFC 7617).
    ``user_agent=None`` sends no User-Agent.

    Raises ValueError naming the argument if a value cannot be sent: a CR, LF, NUL or other control character,
    a subprotocol that is no token or is offered twice, a header set twice, or one that is not the caller's to
    set. Raises TypeError naming the argument for a wrong type.

    Attributes:
        request: the request, as an object.
        request_bytes: the request, to be sent in one write.
        subprotocol: after success, the subprotocol the server picked, or None.
        compression: after success, the agreed compression, or None.
        extensions_header: after success, the reply's Sec-WebSocket-Extensions, or None.
        trailing: after success, the bytes that followed the reply: the beginning of the first frames.

    """

    def __init__(
        self,
        uri: WebSocketURI,
        *,
        subprotocols: Sequence[str] | None = None,
        extra_headers: PlainHeaders | None = None,
        origin: str | None = None,
        user_agent: str | None = USER_AGENT,
        compression: Sequence[deflate.PerMessageDeflate] = (),
        credentials: tuple[str, str] | None = None,
    ) -> None:
        extra = CIMultiDict(checked_headers("extra_headers", extra_headers, _RESERVED))
        self._uri = uri
        self._offers = compression
        self._subprotocols = _offered_subprotocols(subprotocols, extra)
        by_hand = extra.getall("Sec-WebSocket-Extensions", None)
        self._extensions = _offered_extensions(", ".join(by_hand)) if by_hand else []
        self._key = generate_nonce()
        if compression:
            if self._extensions:
                raise ValueError("compression: extra_headers has Sec-WebSocket-Extensions, too")
            extra["Sec-WebSocket-Extensions"] = ", ".join([offer.offer() for offer in compression])
        credentials = uri.user_info or credentials
        super().__init__(_request(uri, self._key, self._subprotocols, extra, origin, user_agent, credentials))
        self._encrypted = uri.secure
        self.request = UpgradeRequest(self.request_bytes)
        self.subprotocol: str | None = None
        self.extensions_header: str | None = None
        self.compression: deflate.AgreedDeflate | None = None

    @property
    def shown_request_line(self) -> str:
        """Without the secrets of the URI."""
        return f"GET {self._uri.shown_target} HTTP/1.1"

    def _agrees(self, reply: Reply, response: UpgradeResponse) -> bool:
        _check_limits(reply)
        if reply.version != b"HTTP/1.1":
            version = reply.version.decode("ascii")
            raise InvalidMessage(f"unsupported HTTP version: {version} (status {reply.status})")
        if reply.status != 101:
            return False
        fields: dict[bytes, list[bytes]] = {}
        for name, value in reply.fields:
            fields.setdefault(name.lower(), []).append(value)
        _check_upgrade(fields, generate_accept_token(self._key))
        self.subprotocol = _picked_subprotocol(fields, self._subprotocols)
        self.extensions_header = _decode_optional(_combined(fields, b"sec-websocket-extensions")) or None
        if self._extensions:
            _check_accepted(self.extensions_header or "", self._extensions)
        else:
            self.compression = deflate.negotiate(self.extensions_header, self._offers)
        return True


# The reply (RFC 6455 section 4.1, after "Once the client's opening handshake has been sent"). Header names are in lower
# case here.

_Fields = Mapping[bytes, Sequence[bytes]]


def _check_limits(reply: Reply) -> None:
    """Check the number and the length of lines: MAX_HEADER bytes may be one line, or four thousand."""
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
        shown = shown_value("Sec-WebSocket-Protocol", subprotocol)
        raise NegotiationError(f"the server picked a subprotocol that wasn't offered: {shown!r}")
    return subprotocol


def _check_accepted(value: str, offered: Sequence[str]) -> None:
    """Check step 5: all extensions of the reply were offered by hand. Their parameters are for the caller."""
    for name, _ in deflate.parse(value):
        if name not in offered:
            raise NegotiationError(f"the server picked an extension that wasn't offered: {name!r}")


def _combined(fields: _Fields, name: bytes) -> bytes | None:
    """Return the header's value, several being one list (RFC 9110 section 5.2); None if there is none."""
    return b", ".join(fields[name]) if name in fields else None


def _single(fields: _Fields, name: str) -> bytes | None:
    """Return the value of a header that may appear once only (RFC 6455 sections 11.3.3 and 11.3.4)."""
    values = fields.get(name.lower().encode(), ())
    if len(values) > 1:
        raise InvalidHeader(
            name, f"{len(values)} of them: {shown_value(name, decode_value(b', '.join(values)))}"
        )
    return values[0] if values else None


def _decode_optional(value: bytes | None) -> str | None:
    return None if value is None else decode_value(value)


# The request. An argument that cannot be sent is refused here, by name, before anything is sent.


def _offered_subprotocols(subprotocols: Sequence[str] | None, extra: CIMultiDict[str]) -> list[str]:
    """Return the subprotocols to offer, moving Sec-WebSocket-Protocol out of ``extra``."""
    by_hand = extra.popall("Sec-WebSocket-Protocol", None)
    if by_hand is None:
        return _check_subprotocols("subprotocols", () if subprotocols is None else subprotocols)
    if subprotocols:
        raise ValueError("subprotocols: extra_headers has Sec-WebSocket-Protocol, too")
    tokens = [token.strip() for token in ",".join(by_hand).split(",")]
    return _check_subprotocols("extra_headers['Sec-WebSocket-Protocol']", tokens)


def _offered_extensions(value: str) -> list[str]:
    """Return the names of the extensions that are offered by hand."""
    try:
        return [name for name, _ in deflate.parse(value)]
    except InvalidHeaderFormat as exc:
        raise ValueError(f"extra_headers['Sec-WebSocket-Extensions'] is malformed: {exc}") from None


def _check_subprotocols(argument: str, subprotocols: Sequence[str]) -> list[str]:
    if isinstance(subprotocols, str) or not isinstance(subprotocols, Iterable):
        raise TypeError(f"{argument} must be a sequence of str, not {type(subprotocols).__name__}")
    offered = list(subprotocols)
    for subprotocol in offered:
        # Step 10 of the request in RFC 6455 section 4.1: tokens, each once.
        if not isinstance(subprotocol, str):
            raise TypeError(f"{argument} must be a sequence of str, not of {type(subprotocol).__name__}")
        if not TOKEN.fullmatch(subprotocol):
            raise ValueError(f"{argument}: {shown_subprotocol(subprotocol)!r} isn't a token")
        if offered.count(subprotocol) > 1:
            raise ValueError(f"{argument}: {shown_subprotocol(subprotocol)!r} is offered twice")
    return offered


def _request(
    uri: WebSocketURI,
    key: bytes,
    subprotocols: list[str],
    extra: CIMultiDict[str],
    origin: str | None,
    user_agent: str | None,
    credentials: tuple[str, str] | None,
) -> bytes:
    """Write the request (RFC 9112 section 3). `uri` need not come from parse_uri()."""
    if not VISIBLE.fullmatch(uri.resource_name):
        raise ValueError("uri: its path and query cannot be sent: they must be visible ASCII")
    lines = [
        f"GET {uri.resource_name} HTTP/1.1",
        f"Host: {_host(uri, extra)}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key.decode('ascii')}",
        "Sec-WebSocket-Version: 13",
    ]
    if subprotocols:
        lines.append(f"Sec-WebSocket-Protocol: {', '.join(subprotocols)}")
    if credentials is not None and "Authorization" not in extra:
        lines.append(f"Authorization: {basic_auth(*credentials)}")
    if origin is not None:
        if "Origin" in extra:
            raise ValueError("origin: extra_headers has Origin, too")
        lines.append(f"Origin: {check_value('origin', origin)}")
    if user_agent is not None and "User-Agent" not in extra:
        lines.append(f"User-Agent: {check_value('user_agent_header', user_agent)}")
    lines += [f"{name}: {value}" for name, value in extra.items()]
    lines += ["", ""]
    return "\r\n".join(lines).encode()


def _host(uri: WebSocketURI, extra: CIMultiDict[str]) -> str:
    """Return the value of Host, moving it out of ``extra`` if it is there."""
    if "Host" not in extra:
        return check_value("uri", uri.netloc)
    hosts = extra.popall("Host")
    if len(hosts) > 1:
        raise ValueError("extra_headers: Host is given twice")
    return hosts[0]
