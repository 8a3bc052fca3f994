"""WebSocket URIs (RFC 6455 section 3, RFC 3986; IRIs as in RFC 3987 section 3.1).

Nothing is repaired silently: what ``urllib.parse`` would strip, skip or take for something else is refused
before it can mean one host to this program and another to the next. No error mentions a password, nor is any
chained to one that does.
"""

from __future__ import annotations

import functools
import ipaddress
import re
import urllib.parse
from dataclasses import dataclass, field
from typing import NoReturn

from wsfast._common.hostnames import to_ascii
from wsfast._common.redaction import HIDDEN, shown_target
from wsfast.exceptions import InvalidURI

__all__ = ["WSParsedURL", "WebSocketURI", "parse_uri"]

_DEFAULT_PORTS = {"ws": 80, "wss": 443}

# Controls (C0, DEL, C1), blanks of every script, and lone surrogates.
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\s\ud800-\udfff]")

# Decoded userinfo must not have control characters (RFC 7617 section 2).
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

# [userinfo@]host[:port], each part still unchecked. urllib.parse ignores text around brackets; this
# doesn't.
_AUTHORITY = re.compile(r"(?:(?P<userinfo>[^@]*)@)?(?P<host>\[[^\[\]]*\]|[^\[\]:@]*)(?::(?P<port>[^:@]*))?")

# A registered name or IPv4 address. The underscore is no hostname character, but Docker and AWS use it.
_HOST = re.compile(r"[a-z0-9._-]+")

# IPv6 zone identifiers are interface names or numbers (RFC 6874 section 2).
_ZONE = re.compile(r"[A-Za-z0-9._~-]+")

# Percent-encoding an IRI touches non-ASCII characters only, so that nothing is encoded twice.
_ASCII = "".join(map(chr, range(0x21, 0x7F)))


@dataclass(frozen=True, repr=False)
class WebSocketURI:
    """A parsed WebSocket URI: websockets' fields, with picows' names as properties.

    ``host`` is lower case, without brackets, in ASCII; ``port`` is always set; ``path`` starts with ``/``
    and, like ``query``, is percent-encoded; ``username`` and ``password`` are decoded, both set or both None.
    ``uri`` is the text it was parsed from, credentials included, and is left out of comparisons. ``redirected`` is
    True if a server chose the URI. ``repr()`` hides secrets.
    """

    secure: bool
    host: str
    port: int
    path: str
    query: str
    username: str | None = None
    password: str | None = None
    uri: str = field(default="", compare=False)
    redirected: bool = field(default=False, compare=False)

    @property
    def resource_name(self) -> str:
        """Path and query: the target of the request line (RFC 6455 section 3)."""
        path = self.path or "/"
        return f"{path}?{self.query}" if self.query else path

    @property
    def shown_target(self) -> str:
        """`resource_name` as a text may show it. All of a path that a server chose may be a secret."""
        return "/" + HIDDEN if self.redirected else shown_target(self.resource_name)

    def __repr__(self) -> str:
        credentials = "" if self.user_info is None else f"{HIDDEN}@"
        return f"WebSocketURI({f'{self.scheme}://{credentials}{self.netloc}{self.shown_target}'!r})"

    @property
    def user_info(self) -> tuple[str, str] | None:
        """``(username, password)``, or None."""
        if self.username is None or self.password is None:
            return None
        return self.username, self.password

    @property
    def scheme(self) -> str:
        """``"ws"`` or ``"wss"``."""
        return "wss" if self.secure else "ws"

    @property
    def netloc(self) -> str:
        """Host and port as the Host header wants them (RFC 6455 section 4.1).

        IPv6 addresses are bracketed and lose their zone, which means nothing to the peer (RFC 6874 section
        4); the port shows only if it is not the scheme's own; credentials never show.
        """
        host = self.host.partition("%")[0]
        if ":" in host:
            host = f"[{host}]"
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """picows' name of ``uri``."""
        return self.uri

    @property
    def is_secure(self) -> bool:
        """picows' name of ``secure``."""
        return self.secure


WSParsedURL = WebSocketURI


def parse_uri(uri: str) -> WebSocketURI:
    """Parse a ``ws://`` or ``wss://`` URI or IRI.

    Raises InvalidURI, with a reason, if it isn't one, and TypeError if it isn't a ``str``.
    """
    if not isinstance(uri, str):
        raise TypeError(f"uri must be str, not {type(uri).__name__}")
    try:
        return _parse(uri)
    except _RefusedError as refused:
        reason = str(refused)
    # Outside the handler: the context of an exception in it would lead to texts with the password in them.
    raise InvalidURI(uri, reason)


class _RefusedError(Exception):
    """Why a URI is invalid, in words that repeat nothing of its userinfo."""


# Programs connect to the same few URIs again and again. (urllib.parse has a cache, too.)
@functools.lru_cache(maxsize=64)
def _parse(uri: str) -> WebSocketURI:
    if _FORBIDDEN.search(uri):
        _refuse("it contains a space or a control character")
    if "\\" in uri.partition("?")[0]:
        _refuse("it contains a backslash, which browsers read as a slash")
    try:
        parts = urllib.parse.urlsplit(uri)
    except ValueError:
        _refuse("user information or host isn't valid")
    if parts.scheme not in _DEFAULT_PORTS:
        _refuse("scheme isn't ws or wss")
    if "#" in uri:
        _refuse("fragment identifier is meaningless")
    authority = _AUTHORITY.fullmatch(parts.netloc)
    if authority is None:
        _refuse("host and port aren't valid")
    username, password = _parse_userinfo(authority["userinfo"])
    return WebSocketURI(
        secure=parts.scheme == "wss",
        host=_parse_host(authority["host"]),
        port=_parse_port(authority["port"], _DEFAULT_PORTS[parts.scheme]),
        path=urllib.parse.quote(parts.path, safe=_ASCII) or "/",
        query=urllib.parse.quote(parts.query, safe=_ASCII),
        username=username,
        password=password,
        uri=uri,
    )


def _refuse(reason: str) -> NoReturn:
    raise _RefusedError(reason)


def _parse_userinfo(userinfo: str | None) -> tuple[str | None, str | None]:
    if userinfo is None:
        return None, None
    name, colon, secret = userinfo.partition(":")
    if not colon:
        _refuse("username provided without password")
    try:
        username = urllib.parse.unquote(name, errors="strict")
        password = urllib.parse.unquote(secret, errors="strict")
    except UnicodeDecodeError:
        _refuse("username or password isn't UTF-8 when percent-decoded")
    # Basic authentication (RFC 7617 section 2) has no way to carry these.
    if ":" in username:
        _refuse("username contains a colon")
    if _CONTROL.search(username + password):
        _refuse("username or password contains a control character")
    return username, password


def _parse_host(text: str) -> str:
    if not text:
        _refuse("hostname isn't provided")
    if text.startswith("["):
        return _parse_ipv6(text[1:-1])
    try:
        host = to_ascii(text)
    except UnicodeError:
        _refuse("host isn't a valid domain name")
    # Once more after IDNA, which turns some characters into delimiters.
    if not _HOST.fullmatch(host):
        _refuse("host contains an invalid character")
    return host


def _parse_ipv6(text: str) -> str:
    address, percent, zone = text.partition("%")
    # RFC 6874 wants the delimiter encoded, "%25", but most people write it plain.
    if zone.startswith("25") and len(zone) > 2:
        zone = zone[2:]
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        _refuse("IPv6 address isn't valid")
    if percent and not _ZONE.fullmatch(zone):
        _refuse("IPv6 zone isn't valid")
    return f"{address.lower()}%{zone}" if percent else address.lower()


def _parse_port(text: str | None, default: int) -> int:
    if not text:
        return default
    if not (text.isascii() and text.isdigit()):
        _refuse("port isn't a number")
    digits = text.lstrip("0") or "0"
    # Counted first: int() raises a ValueError of its own when there are thousands of digits.
    if len(digits) > 5 or int(digits) > 65535:
        _refuse("port isn't in range 0-65535")
    return int(digits)
