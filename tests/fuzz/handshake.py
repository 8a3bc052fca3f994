"""Replies to the upgrade request: whatever a server says, and however it is cut, the verdict is one and the same.

Input: a byte that seeds the pieces, then the reply. The key of the request is always the one of RFC 6455 section 1.3.
h11, which shares no code with httptools, is the oracle of what is HTTP: nothing that it refuses may pass, what both
take must say the same to both, and where llhttp refuses more there is a reason that is written here.
"""

from __future__ import annotations

import pickle
import re
from typing import Any
from unittest import mock

import h11
from support.kinds import kind_of

from fuzz import cut
from wsfast._common.upgrade import UpgradeResponse
from wsfast._opening.http.exchange import MAX_BODY, MAX_HEADER, Exchange
from wsfast._opening.http.handshake import ClientHandshake
from wsfast._opening.uri import parse_uri
from wsfast.exceptions import InvalidHandshake, SecurityError

KEY, ACCEPT = b"dGhlIHNhbXBsZSBub25jZQ==", b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
SUBPROTOCOLS = ["chat", "v2.superchat"]
EXTENSIONS = 'permessage-deflate; client_max_window_bits, x-other; note="a"'
URI = parse_uri("ws://localhost/chat")


def new_handshake() -> ClientHandshake:
    with mock.patch("wsfast._opening.http.handshake.generate_nonce", return_value=KEY):
        return ClientHandshake(
            URI, subprotocols=SUBPROTOCOLS, extra_headers={"Sec-WebSocket-Extensions": EXTENSIONS}
        )


def check(data: bytes) -> None:
    if not data:
        return
    seed, reply = data[0], data[1:]
    whole = verdict([reply])
    compare_with_h11(reply, whole)
    if len(reply) <= MAX_HEADER:  # beyond it, how long a header is shows earlier in pieces than what it says
        in_pieces = verdict(list(cut(reply, seed or 1)))
        assert in_pieces == whole, (in_pieces, whole)


def verdict(pieces: list[bytes]) -> Any:
    """The verdict of the handshake, in a form that can be compared."""
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
    assert kind_of(exc) is not InvalidHandshake, "untyped"
    same = pickle.loads(pickle.dumps(exc))
    assert type(same) is type(exc)
    assert str(same) == str(exc)
    assert exc.raw_header is None or len(exc.raw_header) <= MAX_HEADER
    assert exc.raw_body is None or len(exc.raw_body) <= MAX_BODY
    response = getattr(exc, "response", None)
    return type(exc), str(exc), exc.raw_body, None if response is None else described(response)


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


def check_is_over(handshake: Exchange) -> None:
    for call in (lambda: handshake.feed(b"x"), handshake.feed_eof):
        try:
            call()
        except RuntimeError:
            continue
        raise AssertionError("the handshake went on after its verdict")


# llhttp refuses these, and h11 takes them: a line that ends without CR, controls in a field or in the reason phrase, a
# length that is said twice, is beyond 64 bits, or is said of a chunked body.
_STRICTER = re.compile(rb"(?<!\r)\n|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|content-length", re.IGNORECASE)


def compare_with_h11(reply: bytes, ours: Any) -> None:
    """`ours`: what the verdict on the whole reply is."""
    if ours[0] == "accepted":
        described, trailing = ours[1], ours[4]
    else:
        kind, text, _, described = ours
        trailing = None
        if issubclass(kind, SecurityError) or text == "the server's reply isn't HTTP" or "TLS" in text:
            return
        if described is None:
            theirs = read_by_h11(reply)
            stricter = "isn't valid HTTP" in text and _STRICTER.search(reply)
            assert stricter or not isinstance(theirs, tuple), (ours, theirs)
            return
    theirs = read_by_h11(reply)
    assert isinstance(theirs, tuple), (ours, theirs)
    status, reason, headers, body, rest = theirs
    assert (status, reason, sorted(headers)) == (described[0], described[1], sorted(described[3])), (
        ours,
        theirs,
    )
    if trailing is not None:
        assert trailing == rest
    elif status >= 200 and described[2] is not None and len(described[2]) < MAX_BODY:
        # Where the framing of a body is broken, one of the two may have noticed later.
        shorter, longer = sorted((described[2], body), key=len)
        assert longer.startswith(shorter), (ours, theirs)


def read_by_h11(reply: bytes) -> Any:
    """Status, reason, headers, body, and what is left; or "refused", or "unfinished"."""
    http = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    http.send(h11.Request(method="GET", target="/", headers=[("Host", "a"), ("Upgrade", "websocket")]))
    http.send(h11.EndOfMessage())
    http.receive_data(reply)
    try:
        event = http.next_event()
        while isinstance(event, h11.InformationalResponse) and event.status_code != 101:
            event = http.next_event()
    except h11.RemoteProtocolError:
        return "refused"
    if event is h11.NEED_DATA:
        return "unfinished"
    assert isinstance(event, (h11.Response, h11.InformationalResponse))
    headers = [(name.decode(), decode(value)) for name, value in event.headers.raw_items()]
    head = event.status_code, decode(event.reason), headers
    body, whole = b"", False
    try:
        while head[0] != 101 and not whole:
            event = http.next_event()
            if event is h11.NEED_DATA:
                break
            whole = isinstance(event, h11.EndOfMessage)
            body += b"" if whole else event.data
    except h11.RemoteProtocolError:
        pass
    return *head, body, http.trailing_data[0]


def decode(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
