"""Replies of a proxy to CONNECT: whatever it says, and however it is cut, the verdict is one and the same.

Input: a byte that seeds the pieces, then the reply. What follows it must come out again, to the byte: it is the
server's.
"""

from __future__ import annotations

import pickle
from typing import Any

from support.kinds import kind_of

from fuzz import cut
from fuzz.handshake import check_is_over
from wsfast._opening.http.exchange import MAX_BODY, MAX_HEADER
from wsfast._opening.proxy.settings import parse_proxy
from wsfast._opening.proxy.tunnel import TunnelHandshake
from wsfast.exceptions import InvalidProxyMessage, InvalidProxyStatus, ProxyError

PROXY = parse_proxy("http://user:hunter2@proxy.example:3128")


def check(data: bytes) -> None:
    if not data:
        return
    seed, reply = data[0], data[1:]
    whole = verdict([reply])
    if len(reply) <= MAX_HEADER:  # beyond it, how long a header is shows earlier in pieces than what it says
        in_pieces = verdict(list(cut(reply, seed or 1)))
        assert in_pieces == whole, (in_pieces, whole)


def verdict(pieces: list[bytes]) -> Any:
    """What the handshake makes of it, in a form that can be compared."""
    handshake = TunnelHandshake(PROXY, "exchange.example", 443)
    reply = b"".join(pieces)
    try:
        for number, piece in enumerate(pieces):
            response = handshake.feed(piece)
            if response is not None:
                rest = handshake.trailing + b"".join(pieces[number + 1 :])
                assert reply.endswith(rest)
                assert 200 <= response.status_code < 300
                assert reply[: len(reply) - len(rest)].endswith((b"\n\n", b"\n\r\n"))
                assert handshake.rejection is None
                return "accepted", response.status_code, sorted(response.headers.items()), rest
        handshake.feed_eof()
    except ProxyError as exc:
        check_is_over(handshake)
        return refused(exc)
    raise AssertionError("feed_eof() returned")


def refused(exc: ProxyError) -> Any:
    assert kind_of(exc) in (InvalidProxyMessage, InvalidProxyStatus), "untyped"
    same = pickle.loads(pickle.dumps(exc))
    assert (type(same), str(same)) == (type(exc), str(exc))
    assert "hunter2" not in str(exc)
    assert exc.raw_header is None or len(exc.raw_header) <= MAX_HEADER
    if not isinstance(exc, InvalidProxyStatus):
        return type(exc), str(exc)
    assert exc.response.status_code >= 300
    assert exc.response.body is not None
    assert len(exc.response.body) <= MAX_BODY
    return type(exc), str(exc), exc.response.body, sorted(exc.response.headers.items())
