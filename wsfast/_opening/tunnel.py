"""The handshake with an HTTP proxy: CONNECT (RFC 9110 section 9.3.6). No I/O.

It has the shape of the handshake with the server that follows it, `ClientHandshake`: whoever can send the one's request
and feed it what comes back can do so for the other's.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from typing import NoReturn

from wsfast._opening.handshake import MAX_BODY, MAX_HEADER, USER_AGENT, PlainHeaders
from wsfast._opening.proxy import Proxy
from wsfast._opening.reply import MALFORMED, Reply, end_of_header
from wsfast.exceptions import InvalidProxyMessage, InvalidProxyStatus
from wsfast.upgrade import UpgradeResponse

__all__ = ["TunnelHandshake"]

# What this module sets itself, or what would announce a body.
_RESERVED = ("host", "content-length", "transfer-encoding", "connection", "upgrade")

# How a TLS server answers what isn't TLS (RFC 8446 section 5.1).
_TLS_RECORDS = (21, 22)

# RFC 9110 sections 5.6.2, 7.1 and 5.5; surrogates cannot be encoded.
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET = re.compile(r"[\x21-\x7e]+")
_NOT_IN_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")

# Bytes of a refusal behind its header, framing included.
_MAX_FRAMED_BODY = MAX_BODY + MAX_HEADER


class TunnelHandshake:
    """One request for a tunnel: send ``request_bytes``, ``feed()`` what comes back.

    :param headers: added to the request; Proxy-Authorization and User-Agent replace what would be generated from
        `proxy` and `user_agent`
    :raises ValueError: `host` or a header cannot be sent; the text names the header and hides its value

    Attributes:
        request_bytes: the request, to be sent in one write.
        trailing: after success, the bytes that followed the reply: they are the server's.

    """

    def __init__(
        self,
        proxy: Proxy,
        host: str,
        port: int,
        *,
        headers: PlainHeaders | None = None,
        user_agent: str | None = USER_AGENT,
    ) -> None:
        name = host.partition("%")[0]  # a zone means nothing to the proxy
        target = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
        if not _TARGET.fullmatch(target):
            raise ValueError(
                f"host: {host!r} cannot be sent to a proxy: it must be a name or an address, in ASCII"
            )
        lines = [b"CONNECT %b HTTP/1.1" % target.encode("ascii")]
        lines += [b"%b: %b" % field for field in _fields(proxy, target, headers, user_agent)]
        self.request_bytes = b"\r\n".join(lines) + b"\r\n\r\n"
        self.trailing = b""
        self._received = bytearray()  # until the final reply's header is complete
        self._begin = 0  # of the reply that is being received, behind interim ones
        self._reply: Reply | None = None  # that refuses, and whose body is being received
        self._rejected: UpgradeResponse | None = None  # the same, for the user
        self._framed_size = 0  # of that body, in bytes
        self._over = False

    @property
    def rejection(self) -> InvalidProxyStatus | None:
        """What is to be raised if the rest of a refusal's body does not come in time."""
        if self._rejected is None or self._reply is None:
            return None
        self._rejected.body = bytes(self._reply.body[:MAX_BODY])
        error = InvalidProxyStatus(self._rejected)
        error.raw_header = bytes(self._received)
        error.raw_body = self._rejected.body
        return error

    def feed(self, data: bytes | bytearray | memoryview) -> UpgradeResponse | None:
        """Take what the proxy sent; return its reply once the tunnel stands, None before.

        :raises InvalidProxyStatus: the proxy refused, and the body is complete or has reached ``MAX_BODY`` bytes
        :raises InvalidProxyMessage: the reply is no HTTP, or its header is longer than ``MAX_HEADER`` bytes
        """
        if self._over:
            raise RuntimeError("the handshake is over")
        if not data:
            return None
        if self._reply is not None:
            self._read_body(self._reply, data)
            return None
        searched = len(self._received)
        self._received += data
        return self._read_header(searched)

    def feed_eof(self) -> NoReturn:
        """Take note that nothing more will come: raise InvalidProxyStatus if refused, otherwise InvalidProxyMessage,
        caused by an EOFError."""
        if self._over:
            raise RuntimeError("the handshake is over")
        self._over = True
        if self.rejection is not None:
            raise self.rejection
        error = self._invalid("connection closed before the proxy's reply was complete")
        raise error from EOFError(f"got {len(self._received)} bytes of the reply's header")

    def _read_header(self, searched: int) -> UpgradeResponse | None:
        if self._received[0] in _TLS_RECORDS:
            raise self._invalid("the proxy's reply is TLS, not HTTP: is it an https:// proxy?")
        if not self._received.startswith(b"HTTP/"[: len(self._received)]):
            raise self._invalid("the proxy's reply isn't HTTP")
        while True:
            end = end_of_header(self._received, max(self._begin, searched - 2), MAX_HEADER)
            if end < 0:
                if len(self._received) > MAX_HEADER:
                    raise self._invalid(f"the header of the proxy's reply is longer than {MAX_HEADER} bytes")
                return None
            reply = self._parse(bytes(self._received[self._begin : end]))
            self._begin = end
            if reply.status >= 200:
                break
            # An interim 1xx: the final reply follows it.
        rest = bytes(self._received[end:])
        del self._received[end:]
        response = UpgradeResponse(
            version=reply.version,
            status=reply.status,
            reason_phrase=reply.reason.decode("latin-1"),
            raw_headers=b"\r\n".join(b"%b: %b" % field for field in reply.fields),
        )
        if reply.status < 300:
            # Whatever the headers say about a body: there is none (RFC 9110 section 9.3.6).
            self._over = True
            self.trailing = rest
            return response
        self._reply, self._rejected = reply, response
        self._read_body(reply, rest)
        return None

    def _parse(self, header: bytes) -> Reply:
        try:
            reply = Reply(header)
        except MALFORMED as exc:
            raise self._invalid(f"the proxy's reply isn't valid HTTP: {exc}") from exc
        if reply.version not in (b"HTTP/1.0", b"HTTP/1.1"):
            raise self._invalid(f"unsupported HTTP version of the proxy: {reply.version.decode('ascii')}")
        if reply.status == 101:
            raise self._invalid("the proxy switches to another protocol, which nobody asked for")
        return reply

    def _read_body(self, reply: Reply, data: bytes | bytearray | memoryview) -> None:
        self._framed_size += len(data)
        broken = False
        try:
            reply.feed(data)
        except MALFORMED:
            broken = True  # the status matters more than the framing of its body
        full = len(reply.body) >= MAX_BODY or self._framed_size >= _MAX_FRAMED_BODY
        if broken or full or reply.complete:
            self._over = True
            assert self.rejection is not None
            raise self.rejection

    def _invalid(self, text: str) -> InvalidProxyMessage:
        self._over = True
        error = InvalidProxyMessage(text)
        error.raw_header = bytes(self._received[:MAX_HEADER])
        return error


def _fields(
    proxy: Proxy, target: str, headers: PlainHeaders | None, user_agent: str | None
) -> list[tuple[bytes, bytes]]:
    fields = [(b"Host", target.encode("ascii"))]
    pairs = list(_pairs(headers))
    given = {name.lower() for name, _ in pairs}
    if user_agent is not None and "user-agent" not in given:
        fields.append((b"User-Agent", user_agent.encode("utf-8")))
    if proxy.user_info is not None and "proxy-authorization" not in given:
        fields.append((b"Proxy-Authorization", _basic_auth(*proxy.user_info)))
    for name, value in pairs:
        if name.lower() in _RESERVED:
            raise ValueError(f"proxy_headers: {name} is set by the handshake")
        if not _TOKEN.fullmatch(name) or _NOT_IN_VALUE.search(value):
            # The value may be a secret, so it isn't shown.
            raise ValueError(f"proxy_headers: {name!r} or its value cannot be sent")
        fields.append((name.encode("ascii"), value.strip(" \t").encode("utf-8")))
    return fields


def _pairs(headers: PlainHeaders | None) -> Iterable[tuple[str, str]]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
    try:
        for name, value in pairs:
            if not (isinstance(name, str) and isinstance(value, str)):
                raise TypeError("a name or a value is no str")
            yield name, value
    except (TypeError, ValueError):
        raise TypeError("proxy_headers must be a mapping or pairs, of str") from None


def _basic_auth(username: str, password: str) -> bytes:
    """The value of a Proxy-Authorization header (RFC 7617 section 2)."""
    return b"Basic " + base64.b64encode(f"{username}:{password}".encode())
