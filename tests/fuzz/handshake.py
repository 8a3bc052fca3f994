"""Replies to the upgrade request: whatever a server says, and however it is cut, the verdict is one and the same.

Input: a byte that seeds the pieces, then the reply. The key of the request is always the one of RFC 6455 section 1.3.
"""

from __future__ import annotations

import pickle
from typing import Any
from unittest import mock

from fuzz.pieces import cut
from wsfast.exceptions import InvalidHandshake
from wsfast.handshake import MAX_BODY, MAX_HEADER, ClientHandshake, UpgradeResponse
from wsfast.uri import parse_uri

KEY, ACCEPT = b"dGhlIHNhbXBsZSBub25jZQ==", b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
SUBPROTOCOLS = ["chat", "v2.superchat"]
EXTENSIONS = 'permessage-deflate; client_max_window_bits, x-other; note="a, b"'
URI = parse_uri("ws://localhost/chat")


def new_handshake() -> ClientHandshake:
    with mock.patch("wsfast.handshake.generate_nonce", return_value=KEY):
        return ClientHandshake(
            URI, subprotocols=SUBPROTOCOLS, extra_headers={"Sec-WebSocket-Extensions": EXTENSIONS}
        )


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
    handshake = new_handshake()
    try:
        for number, piece in enumerate(pieces):
            response = handshake.feed(piece)
            if response is not None:
                rest = handshake.trailing + b"".join(pieces[number + 1 :])
                check_accepted(handshake, response, b"".join(pieces), rest)
                outcome = (
                    "accepted",
                    described(response),
                    handshake.subprotocol,
                    handshake.extensions_header,
                    rest,
                )
                check_is_over(handshake)
                return outcome
        handshake.feed_eof()
    except InvalidHandshake as exc:
        check_is_over(handshake)
        return refused(exc)
    raise AssertionError("feed_eof() returned")


def described(response: UpgradeResponse) -> Any:
    return response.status_code, response.reason_phrase, response.body, sorted(response.headers.items())


def refused(exc: InvalidHandshake) -> Any:
    assert type(exc) is not InvalidHandshake, "untyped"
    same = pickle.loads(pickle.dumps(exc))
    assert type(same) is type(exc)
    assert str(same) == str(exc)
    assert exc.raw_header is None or len(exc.raw_header) <= MAX_HEADER
    assert exc.raw_body is None or len(exc.raw_body) <= MAX_BODY
    response = getattr(exc, "response", None)
    text = str(exc).partition(" isn't valid HTTP:")[0]  # h11's words depend on when it is asked
    return type(exc), text, exc.raw_body, None if response is None else described(response)


def check_accepted(handshake: ClientHandshake, response: UpgradeResponse, reply: bytes, rest: bytes) -> None:
    """RFC 6455 section 4.1, read off the bytes of the reply."""
    header = reply[: len(reply) - len(rest)]
    assert len(header) <= MAX_HEADER
    assert header.endswith((b"\r\n\r\n", b"\n\n", b"\n\r\n"))
    assert response.status_code == 101
    assert response.body is None
    assert response.version == b"HTTP/1.1"
    assert response.headers["upgrade"].lower() == "websocket"
    assert (
        "upgrade" in response.headers["connection"].lower() or len(response.headers.getall("connection")) > 1
    )
    assert response.headers.getall("sec-websocket-accept") == [ACCEPT.decode()]
    assert ACCEPT in header
    assert handshake.subprotocol in [None, *SUBPROTOCOLS]
    assert handshake.subprotocol == response.headers.get("sec-websocket-protocol")
    for extension in (handshake.extensions_header or "").split(","):
        name = extension.partition(";")[0].strip()
        assert name in ("", "permessage-deflate", "x-other") or '"' in (handshake.extensions_header or "")


def check_is_over(handshake: ClientHandshake) -> None:
    for call in (lambda: handshake.feed(b"x"), handshake.feed_eof):
        try:
            call()
        except RuntimeError:
            continue
        raise AssertionError("the handshake went on after its verdict")
