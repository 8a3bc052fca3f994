"""The target of a redirect, and the parts of the request that may go there (RFC 9110 section 15.4). No I/O.

A server chooses the next URI, so these rules guard the program against it: credentials stay with the origin they were
given for, TLS is not given up, and a public server leads into no private network, which only this program reaches.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
import urllib.parse
from collections.abc import Callable, Iterable, Mapping, Sequence

from wsfast._common.headers import PlainHeaders
from wsfast._common.redaction import is_name, may_follow
from wsfast._common.upgrade import UpgradeResponse
from wsfast._opening.uri import WebSocketURI, parse_uri
from wsfast.exceptions import (
    InvalidHandshake,
    InvalidHeader,
    InvalidHeaderValue,
    InvalidStatus,
    InvalidURI,
    SecurityError,
)

__all__ = ["MAX_REDIRECTS", "ProcessRedirect", "Redirects", "is_public", "is_redirect"]

MAX_REDIRECTS = 10

# 300 offers a choice, 304 belongs to caches, 305 and 306 are history.
_STATUSES = (301, 302, 303, 307, 308)

_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}

# urllib.parse would remove some of these, and so read another URI than the next program does.
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f-\x9f\s\\]")

# Networks that ipaddress takes for public ones: site-local addresses, NAT64 for local use (RFC 8215), IPv4-compatible
# and IPv4-translated addresses.
_NOT_OF_INTERNET = [
    ipaddress.IPv6Network(network) for network in ("fec0::/10", "64:ff9b:1::/48", "::/96", "::ffff:0:0:0/96")
]

# As websockets' method of that name: returns the URI to follow, or the exception to raise.
# It gets the URI of the server that redirects, too.
ProcessRedirect = Callable[[InvalidStatus, WebSocketURI], Exception | str]


def is_redirect(response: UpgradeResponse) -> bool:
    """True if the reply redirects."""
    return response.status_code in _STATUSES


def is_public(host: str) -> bool:
    """True for a public address, or a name that may have one. False for hosts that only this machine or its networks
    reach: loopback, private, link-local and the like, and ``localhost`` (RFC 6761 section 6.3)."""
    name = host.lower().partition("%")[0].rstrip(".")
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        # getaddrinfo() accepts the short forms of inet_aton(): 127.1, 0x7f000001, 2130706433.
        last = name.rpartition(".")[2]
        looks_numeric = re.fullmatch(r"[0-9]+|0x[0-9a-f]*", last) is not None
        return not looks_numeric and name != "localhost" and not name.endswith(".localhost")
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or _nat64(address)
        if inner is not None:
            return is_public(str(inner))
        if any(address in network for network in _NOT_OF_INTERNET):
            return False
    return address.is_global and not address.is_multicast


def _nat64(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The address within one of RFC 6052 section 2.1."""
    if address not in ipaddress.IPv6Network("64:ff9b::/96"):
        return None
    return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)


class Redirects:
    """The servers that one attempt to connect has asked, and the next.

    :param process_redirect: decides instead of the reply's Location and of the rule about private addresses; the other
        rules hold for its result
    :param bound: the argument that the connection is bound to, if any: ``"sock"``, which is used up, or ``"path"`` of a
        Unix socket, ``"host"`` or ``"port"``, which are where no other origin is

    Attributes:
        uri: of the server to ask next.
        crossed: whether any redirect led to another origin. Then a client certificate is not to be used, and of the
            headers only those that `headers()` returns.

    """

    def __init__(
        self,
        uri: WebSocketURI,
        *,
        limit: int = MAX_REDIRECTS,
        process_redirect: ProcessRedirect | None = None,
        bound: str = "",
    ) -> None:
        self.uri = uri
        self.crossed = False
        self._limit = limit
        self._decide = process_redirect
        self._bound = bound
        self._seen = {_text(uri)}
        self._keeps_out = False  # of private networks

    def follow(self, rejection: InvalidStatus, peer: str | None) -> None:
        """Make the URI that the server redirects to the next one.

        :param peer: the address of the server that redirects, None if it is not known (behind a proxy)
        :raises SecurityError: it must not be followed
        :raises InvalidHeader: there is no Location, or none that can be followed
        :raises InvalidStatus: it is no redirect, or none is to be followed
        """
        response = rejection.response
        if not is_redirect(response) or self._limit == 0:
            raise rejection
        try:
            target = self._target(rejection)
            self._check(target)
            if is_public(self.uri.host if peer is None else peer):
                self._keeps_out = True
            if self._decide is None:
                self._check_host(target.host)
        except InvalidHandshake as exc:
            exc.response = exc.response or response
            raise
        self.crossed = self.crossed or not _same_origin(self.uri, target)
        self._seen.add(_text(target))
        self.uri = target

    def check_address(self, address: str) -> None:
        """Check an address of `uri` before anything is sent to it.

        :raises SecurityError: a public server redirects into a private network
        """
        if self._decide is None:
            self._check_host(address)

    def headers(self, headers: PlainHeaders | None) -> PlainHeaders | None:
        """The user's headers that may be sent to `uri`. A header is a secret unless it is known to be harmless."""
        if not self.crossed or headers is None:
            return headers
        pairs: Iterable[tuple[str, str]] = headers.items() if isinstance(headers, Mapping) else headers
        followed = []
        for name, value in pairs:
            if name.lower() == "sec-websocket-protocol":
                value = ", ".join(self.subprotocols([token.strip() for token in value.split(",")]) or ())
            elif not may_follow(name):
                continue
            if value:
                followed.append((name, value))
        return followed

    def subprotocols(self, subprotocols: Sequence[str] | None) -> Sequence[str] | None:
        """The subprotocols that may be offered to `uri`."""
        if not self.crossed or subprotocols is None:
            return subprotocols
        return [name for name in subprotocols if is_name(name)]

    def _target(self, rejection: InvalidStatus) -> WebSocketURI:
        if self._decide is None:
            return location(self.uri, rejection.response)
        decided = self._decide(rejection, self.uri)
        if isinstance(decided, Exception):
            raise decided
        return _without_credentials(self.uri, parse_uri(decided))

    def _check(self, target: WebSocketURI) -> None:
        if self.uri.secure and not target.secure:
            raise SecurityError(f"cannot follow the redirect from wss to {_origin(target)}")
        if self._bound == "sock" or (self._bound and not _same_origin(self.uri, target)):
            raise SecurityError(
                f"cannot follow the redirect to {_origin(target)}: {self._bound} says where to connect to"
            )
        if _text(target) in self._seen:
            raise SecurityError(f"the redirect to {_origin(target)} is a loop")
        if len(self._seen) > self._limit:
            raise SecurityError(f"more than {self._limit} redirects")

    def _check_host(self, host: str) -> None:
        if self._keeps_out and not is_public(host):
            raise SecurityError(f"cannot follow the redirect of a public server to {host}, which is private")


def location(current: WebSocketURI, response: UpgradeResponse) -> WebSocketURI:
    """The URI that the reply of `current` redirects to.

    :raises InvalidHeader: there is no Location, or none of a WebSocket server
    """
    return _from_location(current, _location(response))


def _location(response: UpgradeResponse) -> str:
    values = set(response.headers.getall("Location", []))
    if len(values) > 1:
        raise InvalidHeader("Location", f"{len(values)} different ones")
    if not values or values == {""}:
        raise InvalidHeader("Location", *values)
    return str(values.pop())


def _from_location(current: WebSocketURI, location: str) -> WebSocketURI:
    try:
        if _FORBIDDEN.search(location):
            raise InvalidURI(location, "it contains a space, a backslash or a control character")
        # A fragment means something to browsers only (RFC 9110 section 10.2.2).
        joined = urllib.parse.urljoin(_text(current), location.partition("#")[0])
        scheme, colon, rest = joined.partition(":")
        target = parse_uri(_SCHEMES.get(scheme.lower(), scheme) + colon + rest)
    except InvalidURI as exc:
        reason = exc.msg
    except ValueError:  # of urljoin; its text may repeat the input, credentials included
        reason = "not a URI"
    else:
        return _without_credentials(current, target)
    raise InvalidHeaderValue("Location", reason)


def _without_credentials(current: WebSocketURI, target: WebSocketURI) -> WebSocketURI:
    """Credentials are the program's to give: those it gave stay with the origin, and those of a server are not used."""
    same = _same_origin(current, target)
    username, password = (current.username, current.password) if same else (None, None)
    return dataclasses.replace(
        target, username=username, password=password, uri=_text(target), redirected=True
    )


def _same_origin(one: WebSocketURI, other: WebSocketURI) -> bool:
    return (one.secure, one.host, one.port) == (other.secure, other.host, other.port)


def _text(uri: WebSocketURI) -> str:
    """The URI without credentials."""
    return _origin(uri) + uri.resource_name


def _origin(uri: WebSocketURI) -> str:
    """The part of the URI that errors show: a server may have put a token into the path."""
    host = f"[{uri.host.replace('%', '%25', 1)}]" if ":" in uri.host else uri.host
    return f"{uri.scheme}://{host}:{uri.port}"
