"""The request is what RFC 6455 section 4.1 asks for; the reply is judged as it says, however it is cut."""

from __future__ import annotations

import base64
import hashlib
import pickle
import sys
from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict
from support.kinds import kind_of

from wsfast._common.upgrade import UpgradeRequest, UpgradeResponse, WSUpgradeRequest, WSUpgradeResponse
from wsfast._opening.http.exchange import MAX_BODY, MAX_HEADER
from wsfast._opening.http.handshake import MAX_HEADERS, MAX_LINE, USER_AGENT, ClientHandshake
from wsfast._opening.uri import WebSocketURI, parse_uri
from wsfast.exceptions import (
    HeaderLineTooLong,
    InvalidHandshake,
    InvalidHeader,
    InvalidHeaderFormat,
    InvalidHeaderValue,
    InvalidMessage,
    InvalidStatus,
    InvalidUpgrade,
    NegotiationError,
    SecurityError,
    StatusLineTooLong,
    TooManyHeaders,
)

URI = parse_uri("ws://example.com/chat?room=1")
FRAMES = b"\x81\x05hello\r\n\r\n\x89\x00HTTP/1.1 200 OK\r\n\r\n"


def shake(uri: str | WebSocketURI = URI, **options) -> ClientHandshake:
    return ClientHandshake(parse_uri(uri) if isinstance(uri, str) else uri, **options)


def accept_token(handshake: ClientHandshake) -> bytes:
    key = handshake.request.headers["Sec-WebSocket-Key"].encode()
    return base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())


def reply_101(
    handshake: ClientHandshake, *more: bytes, status: bytes = b"HTTP/1.1 101 Switching Protocols"
) -> bytes:
    lines = [
        status,
        b"Upgrade: websocket",
        b"Connection: Upgrade",
        b"Sec-WebSocket-Accept: " + accept_token(handshake),
        *more,
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def feed_all(handshake: ClientHandshake, *pieces: bytes) -> UpgradeResponse | None:
    """Feed until the handshake succeeds; what is left of the pieces would go to the frame decoder."""
    for number, piece in enumerate(pieces):
        response = handshake.feed(piece)
        if response is not None:
            handshake.trailing += b"".join(pieces[number + 1 :])
            return response
    return None


def failure(handshake: ClientHandshake, *pieces: bytes, eof: bool = False) -> InvalidHandshake:
    with pytest.raises(InvalidHandshake) as caught:  # noqa: PT012
        feed_all(handshake, *pieces)
        assert eof, "no failure before the end"
        handshake.feed_eof()
    return caught.value


def splits(data: bytes) -> list[list[bytes]]:
    """Cut ``data`` in two at every place, and into single bytes."""
    return [[data]] + [[data[:i], data[i:]] for i in range(1, len(data))] + [[bytes([byte]) for byte in data]]


# The request


def test_request() -> None:
    handshake = shake(user_agent="agent/1")
    key = handshake.request.headers["Sec-WebSocket-Key"]
    assert handshake.request_bytes == (
        b"GET /chat?room=1 HTTP/1.1\r\n"
        b"Host: example.com\r\n"
        b"Upgrade: websocket\r\n"
        b"Connection: Upgrade\r\n"
        b"Sec-WebSocket-Key: " + key.encode() + b"\r\n"
        b"Sec-WebSocket-Version: 13\r\n"
        b"User-Agent: agent/1\r\n"
        b"\r\n"
    )


def test_request_object_has_picows_attributes() -> None:
    extra_headers = [("X-A", "1"), ("X-A", "2"), ("X-Empty", ""), ("X-E", "é")]
    request = shake(extra_headers=extra_headers).request
    assert type(request) is UpgradeRequest is WSUpgradeRequest
    assert (request.method, request.path, request.version) == (b"GET", b"/chat?room=1", b"HTTP/1.1")
    assert isinstance(request.headers, CIMultiDict)
    assert request.headers is request.headers
    assert request.headers["host"] == "example.com"
    assert request.headers.getall("x-a") == ["1", "2"]
    assert request.headers["x-empty"] == ""
    assert request.headers["x-e"] == "é"


def test_request_can_be_pickled() -> None:
    request = shake().request
    assert pickle.loads(pickle.dumps(request)).headers == request.headers


def test_request_is_kept_as_bytes_until_headers_are_asked_for() -> None:
    handshake = shake()
    assert handshake.request._raw is handshake.request_bytes
    assert handshake.request._headers is None


def test_key_is_16_fresh_bytes() -> None:
    keys = [base64.b64decode(shake().request.headers["Sec-WebSocket-Key"], validate=True) for _ in range(100)]
    assert {len(key) for key in keys} == {16}
    assert len(set(keys)) == 100


def test_key_is_from_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.urandom", lambda size: b"k" * size)
    assert shake().request.headers["Sec-WebSocket-Key"] == base64.b64encode(b"k" * 16).decode()


@pytest.mark.parametrize(
    ("uri", "host"),
    [
        ("ws://example.com", "example.com"),
        ("ws://example.com:8080", "example.com:8080"),
        ("wss://example.com:443", "example.com"),
        ("wss://[2001:db8::1]:9/", "[2001:db8::1]:9"),
        ("ws://[fe80::1%25eth0]/", "[fe80::1]"),
        ("ws://user:secret@example.com:81/", "example.com:81"),
    ],
)
def test_host(uri: str, host: str) -> None:
    assert shake(uri).request.headers.getall("Host") == [host]


@pytest.mark.parametrize("name", ["Host", "host", "HOST"])
def test_host_can_be_replaced(name: str) -> None:
    assert shake(extra_headers={name: "other:1"}).request.headers.getall("Host") == ["other:1"]


def test_host_twice() -> None:
    with pytest.raises(ValueError, match="extra_headers: Host is given twice"):
        shake(extra_headers=[("Host", "a"), ("host", "b")])


def test_userinfo_becomes_basic_authentication() -> None:
    handshake = shake("ws://us%C3%A9r:s%3Aecret@host/")
    assert (
        handshake.request.headers["Authorization"]
        == "Basic " + base64.b64encode("usér:s:ecret".encode()).decode()
    )
    assert b"ecret@" not in handshake.request_bytes


def test_authorization_of_the_caller_wins() -> None:
    handshake = shake("ws://user:secret@host/", extra_headers={"authorization": "Bearer t"})
    assert handshake.request.headers.getall("Authorization") == ["Bearer t"]


def test_no_authorization_without_userinfo() -> None:
    assert "Authorization" not in shake().request.headers


def test_origin() -> None:
    assert "Origin" not in shake().request.headers
    assert shake(origin="https://example.com").request.headers["Origin"] == "https://example.com"


def test_origin_twice() -> None:
    with pytest.raises(ValueError, match="origin: extra_headers has Origin"):
        shake(origin="https://a", extra_headers={"origin": "https://b"})


def test_user_agent() -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert shake().request.headers["User-Agent"] == USER_AGENT
    assert USER_AGENT.startswith("wsfast/")
    assert USER_AGENT.endswith(f" Python/{version}")
    assert "User-Agent" not in shake(user_agent=None).request.headers
    assert shake(extra_headers={"user-agent": "mine"}).request.headers.getall("User-Agent") == ["mine"]


PAIRS = [("X-A", "1"), ("X-B", "2"), ("x-a", "3")]


@pytest.mark.parametrize(
    ("extra_headers", "expected"),
    [
        (None, []),
        ({}, []),
        ((), []),
        (dict(PAIRS[:2]), PAIRS[:2]),
        (CIMultiDict(PAIRS), PAIRS),
        (PAIRS, PAIRS),
        ([list(pair) for pair in PAIRS], PAIRS),
        (iter(PAIRS), PAIRS),
        ([("X-A", " \t1\t ")], [("X-A", "1")]),
        ([("X-A", "a\tb c")], [("X-A", "a\tb c")]),
    ],
    ids=lambda given: "iterator" if hasattr(given, "__next__") else repr(given),
)
def test_extra_headers(extra_headers, expected: list) -> None:
    headers = shake(extra_headers=extra_headers, user_agent=None).request.headers
    assert list(headers.items())[5:] == expected


@pytest.mark.parametrize(
    "extra_headers",
    [
        "X-A: 1",
        ["X-A: 1"],
        ["ab"],
        5,
        [5],
        [("X-A",)],
        [("X-A", "1", "2")],
        [(b"X-A", "1")],
        [("X-A", b"1")],
        {"X-A": 1},
        {"X-A": None},
        {1: "1"},
    ],
    ids=repr,
)
def test_extra_headers_of_a_wrong_type(extra_headers) -> None:
    with pytest.raises(TypeError, match="extra_headers"):
        shake(extra_headers=extra_headers)


@pytest.mark.parametrize(
    "name",
    [
        "Upgrade",
        "Connection",
        "Sec-WebSocket-Key",
        "Sec-WebSocket-Version",
        "Sec-WebSocket-Accept",
        "Content-Length",
        "Transfer-Encoding",
    ],
)
@pytest.mark.parametrize("spell", [str, str.lower, str.upper])
def test_reserved_headers(name: str, spell) -> None:
    with pytest.raises(ValueError, match=f"(?i)extra_headers: {name}"):
        shake(extra_headers={spell(name): "x"})


CONTROLS = ["\r", "\n", "\0", "\r\nX: y", "\x0b", "\x0c", "\x1f", "\x7f", "\ud800"]


@pytest.mark.parametrize("control", CONTROLS, ids=ascii)
@pytest.mark.parametrize("place", ["{}x", "x{}", "x{}y"])
@pytest.mark.parametrize(
    ("argument", "options"),
    [
        ("extra_headers", lambda text: {"extra_headers": {"X-A": text}}),
        ("extra_headers", lambda text: {"extra_headers": {text: "x"}}),
        ("extra_headers", lambda text: {"extra_headers": {"Host": text}}),
        ("extra_headers", lambda text: {"extra_headers": {"Sec-WebSocket-Protocol": text}}),
        ("extra_headers", lambda text: {"extra_headers": {"Sec-WebSocket-Extensions": text}}),
        ("subprotocols", lambda text: {"subprotocols": ["a", text]}),
        ("origin", lambda text: {"origin": text}),
        ("user_agent", lambda text: {"user_agent": text}),
    ],
)
def test_control_characters_are_refused(argument: str, options, place: str, control: str) -> None:
    with pytest.raises(ValueError, match=f"^{argument}"):
        shake(**options(place.format(control)))


@pytest.mark.parametrize("name", ["", "a b", "a:", "é", "(a)"])
def test_header_names_are_tokens(name: str) -> None:
    with pytest.raises(ValueError, match=r"^extra_headers: "):
        shake(extra_headers={name: "x"})


def test_a_refused_value_is_not_shown() -> None:
    with pytest.raises(ValueError, match="Authorization") as caught:
        shake(extra_headers={"Authorization": "Bearer secret\n"})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("options", [{"origin": b"x"}, {"user_agent": 1}], ids=repr)
def test_wrong_types(options: dict) -> None:
    with pytest.raises(TypeError, match=f"^{next(iter(options))}(_header)? must be str"):
        shake(**options)


@pytest.mark.parametrize(
    "uri",
    [
        WebSocketURI(False, "host", 80, "/a\r\nX: y", ""),
        WebSocketURI(False, "host", 80, "/a b", ""),
        WebSocketURI(False, "host", 80, "/é", ""),
        WebSocketURI(False, "host\r\nX: y", 80, "/", ""),
    ],
)
def test_a_uri_made_by_hand_is_checked_too(uri: WebSocketURI) -> None:
    with pytest.raises(ValueError, match=r"^uri"):
        shake(uri)


@pytest.mark.parametrize(
    ("subprotocols", "header"), [(["a"], "a"), (("a", "b.c"), "a, b.c"), (iter(["a", "b"]), "a, b")]
)
def test_subprotocols(subprotocols, header: str) -> None:
    assert shake(subprotocols=subprotocols).request.headers.getall("Sec-WebSocket-Protocol") == [header]


def test_no_subprotocols() -> None:
    assert "Sec-WebSocket-Protocol" not in shake().request.headers
    assert "Sec-WebSocket-Protocol" not in shake(subprotocols=[]).request.headers


@pytest.mark.parametrize("subprotocols", ["chat", [b"chat"], [1]], ids=repr)
def test_subprotocols_of_a_wrong_type(subprotocols) -> None:
    with pytest.raises(TypeError, match=r"^subprotocols must be a sequence of str"):
        shake(subprotocols=subprotocols)


@pytest.mark.parametrize("subprotocol", ["", "a b", "a,b", "é", '"a"', " a"])
def test_subprotocols_are_tokens(subprotocol: str) -> None:
    with pytest.raises(ValueError, match=r"^subprotocols: .* isn't a token"):
        shake(subprotocols=[subprotocol])


def test_subprotocols_are_unique() -> None:
    with pytest.raises(ValueError, match=r"^subprotocols: 'a' is offered twice"):
        shake(subprotocols=["a", "b", "a"])


@pytest.mark.parametrize(
    "extra_headers",
    [
        {"sec-websocket-protocol": "a,b ,  c"},
        [("Sec-WebSocket-Protocol", "a, b"), ("sec-websocket-protocol", "c")],
    ],
)
def test_subprotocols_by_hand(extra_headers) -> None:
    handshake = shake(extra_headers=extra_headers)
    assert handshake.request.headers.getall("Sec-WebSocket-Protocol") == ["a, b, c"]
    handshake.feed(reply_101(handshake, b"Sec-WebSocket-Protocol: c"))
    assert handshake.subprotocol == "c"


@pytest.mark.parametrize("value", ["a, a", "", "a,,b", "a b"])
def test_subprotocols_by_hand_are_checked(value: str) -> None:
    with pytest.raises(ValueError, match=r"^extra_headers"):
        shake(extra_headers={"Sec-WebSocket-Protocol": value})


def test_subprotocols_given_both_ways() -> None:
    with pytest.raises(ValueError, match=r"^subprotocols: "):
        shake(subprotocols=["a"], extra_headers={"Sec-WebSocket-Protocol": "b"})


# The reply


def test_success() -> None:
    handshake = shake()
    response = handshake.feed(reply_101(handshake, b"Server: x", b"Set-Cookie: a=1", b"set-cookie: b=2"))
    assert type(response) is UpgradeResponse is WSUpgradeResponse
    assert response.version == b"HTTP/1.1"
    assert response.status is HTTPStatus.SWITCHING_PROTOCOLS
    assert (response.status_code, type(response.status_code)) == (101, int)
    assert response.reason_phrase == "Switching Protocols"
    assert response.body is None
    assert isinstance(response.headers, CIMultiDict)
    assert response.headers is response.headers
    assert response.headers["SERVER"] == "x"
    assert response.headers.getall("set-cookie") == ["a=1", "b=2"]
    assert [name for name, _ in response.headers.items()][4:] == ["Set-Cookie", "set-cookie"]
    assert repr(response) == "<UpgradeResponse 101 'Switching Protocols'>"
    assert (handshake.subprotocol, handshake.extensions_header, handshake.trailing) == (None, None, b"")


def test_response_is_kept_as_bytes_until_headers_are_asked_for() -> None:
    handshake = shake()
    response = handshake.feed(reply_101(handshake))
    assert response is not None
    assert type(response._raw_headers) is bytes
    assert response._headers is None


def test_response_can_be_pickled() -> None:
    handshake = shake()
    response = handshake.feed(reply_101(handshake))
    assert response is not None
    double = pickle.loads(pickle.dumps(response))
    assert (double.status, double.headers, double.body) == (response.status, response.headers, None)


def test_a_response_without_headers() -> None:
    error = failure(shake(), b"HTTP/1.1 204\r\n\r\n")
    assert error.response is not None
    assert len(error.response.headers) == 0


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"caf\xc3\xa9", "café"),
        (b"caf\xe9", "café"),
        (b"a: b", "a: b"),
        (b" \ta\t ", "a"),
        (b"", ""),
        (b"a\r\n  b", "a b"),
    ],
)
def test_header_values(raw: bytes, value: str) -> None:
    handshake = shake()
    response = handshake.feed(reply_101(handshake, b"X-A:" + raw))
    assert response is not None
    assert response.headers["X-A"] == value


def test_cut_everywhere_with_frames_after_it() -> None:
    for number in range(len(splits(reply_101(shake()) + FRAMES))):
        handshake = shake()
        pieces = splits(reply_101(handshake) + FRAMES)[number]
        response = feed_all(handshake, *pieces)
        assert response is not None
        assert response.status == 101
        assert handshake.trailing == FRAMES


def test_a_megabyte_after_it() -> None:
    handshake = shake()
    data = bytes(range(256)) * 4096
    assert handshake.feed(reply_101(handshake) + data) is not None
    assert handshake.trailing == data
    assert type(handshake.trailing) is bytes


@given(st.data(), st.binary(max_size=200))
def test_cut_anyhow_with_anything_after_it(data: st.DataObject, trailing: bytes) -> None:
    handshake = shake(subprotocols=["a"])
    interim = data.draw(st.sampled_from([b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"]))
    stream = interim + reply_101(handshake, b"Sec-WebSocket-Protocol: a") + trailing
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    pieces = [stream[i:j] for i, j in zip([0, *cuts], [*cuts, len(stream)])]
    assert feed_all(handshake, *pieces) is not None
    assert handshake.subprotocol == "a"
    assert handshake.trailing == trailing


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_taken(kind: type) -> None:
    handshake = shake()
    assert handshake.feed(kind(reply_101(handshake))) is not None


def test_an_empty_read_means_nothing() -> None:
    handshake = shake()
    assert handshake.feed(b"") is None
    assert handshake.feed(reply_101(handshake)) is not None


@pytest.mark.parametrize(
    ("status", "phrase"),
    [
        (b"HTTP/1.1 101 Switching Protocols", "Switching Protocols"),
        (b"HTTP/1.1 101 null", "null"),
        (b"HTTP/1.1 101 ", ""),
        (b"HTTP/1.1 101", ""),
        (b"HTTP/1.1 101 Web Socket Protocol Handshake", "Web Socket Protocol Handshake"),
        (b"HTTP/1.1 101 \xc3\xa9", "é"),
        (b"HTTP/1.1 101 \xe9", "é"),
    ],
)
def test_any_reason_phrase(status: bytes, phrase: str) -> None:
    handshake = shake()
    response = handshake.feed(reply_101(handshake, status=status))
    assert response is not None
    assert response.reason_phrase == phrase


TOKENS = b"Upgrade: websocket\r\nConnection: Upgrade\r\n"


@pytest.mark.parametrize(
    "tokens",
    [
        b"Upgrade: WebSocket\r\nConnection: Upgrade\r\n",
        b"UPGRADE: WEBSOCKET\r\nCONNECTION: UPGRADE\r\n",
        b"upgrade:websocket\r\nconnection:upgrade\r\n",
        b"Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n",
        b"Upgrade: websocket\r\nConnection: uPGRADE ,keep-alive,\r\n",
        b"Connection: Upgrade\r\nConnection: keep-alive\r\nUpgrade: websocket\r\n",
        b"Connection: keep-alive\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n",
        b"Connection: \xe9, Upgrade\r\nUpgrade: websocket\r\n",
    ],
)
def test_tokens_without_regard_to_case(tokens: bytes) -> None:
    handshake = shake()
    assert handshake.feed(reply_101(handshake).replace(TOKENS, tokens)) is not None


@pytest.mark.parametrize(
    ("tokens", "name", "value"),
    [
        (b"Connection: Upgrade\r\n", "Upgrade", None),
        (b"Connection: Upgrade\r\nUpgrade:\r\n", "Upgrade", ""),
        (b"Connection: Upgrade\r\nUpgrade: h2c\r\n", "Upgrade", "h2c"),
        (b"Connection: Upgrade\r\nUpgrade: \xff\r\n", "Upgrade", "ÿ"),
        (b"Connection: Upgrade\r\nUpgrade: websoc\xe2\x84\xaaet\r\n", "Upgrade", "websoc\u212aet"),
        (b"Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n", "Upgrade", "websocket, h2c"),
        (b"Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n", "Upgrade", "websocket, h2c"),
        (b"Upgrade: websocket\r\n", "Connection", None),
        (b"Upgrade: websocket\r\nConnection: keep-alive\r\n", "Connection", "keep-alive"),
        (b"Upgrade: websocket\r\nConnection: upgraded\r\n", "Connection", "upgraded"),
        (b"Upgrade: websocket\r\nConnection: \xe9\r\n", "Connection", "é"),
    ],
)
def test_wrong_upgrade(tokens: bytes, name: str, value: str | None) -> None:
    handshake = shake()
    data = reply_101(handshake).replace(TOKENS, tokens)
    error = failure(handshake, data + FRAMES)
    assert kind_of(error) is InvalidUpgrade
    assert (error.name, error.value) == (name, value)
    assert error.raw_header == data
    assert error.response is not None
    assert error.response.status == 101


def wrong_accept(token: bytes) -> list[bytes]:
    flipped = bytes([token[0] ^ 1]) + token[1:]
    return [
        b"x",
        token.lower(),
        token.upper(),
        token + b"x",
        token[:-1],
        flipped,
        b'"' + token + b'"',
        b"\xe9",
    ]


@pytest.mark.parametrize("number", range(8))
def test_wrong_accept(number: int) -> None:
    handshake = shake()
    token = accept_token(handshake)
    wrong = wrong_accept(token)[number]
    error = failure(handshake, reply_101(handshake).replace(token, wrong))
    assert kind_of(error) is InvalidHeaderValue
    assert error.name == "Sec-WebSocket-Accept"
    assert error.value == wrong.decode("latin-1")


def test_missing_accept() -> None:
    handshake = shake()
    error = failure(handshake, reply_101(handshake).replace(b"Sec-WebSocket-Accept", b"X-Accept"))
    assert kind_of(error) is InvalidHeader
    assert str(error) == "missing Sec-WebSocket-Accept header"


def test_accept_twice() -> None:
    handshake = shake()
    error = failure(handshake, reply_101(handshake, b"Sec-WebSocket-Accept: " + accept_token(handshake)))
    assert kind_of(error) is InvalidHeader
    assert error.name == "Sec-WebSocket-Accept"


def test_accept_of_another_key() -> None:
    assert kind_of(failure(shake(), reply_101(shake()))) is InvalidHeaderValue


def test_picked_subprotocol() -> None:
    handshake = shake(subprotocols=["a", "b"])
    handshake.feed(reply_101(handshake, b"Sec-WebSocket-Protocol: b"))
    assert handshake.subprotocol == "b"


def test_no_picked_subprotocol() -> None:
    handshake = shake(subprotocols=["a", "b"])
    assert handshake.feed(reply_101(handshake)) is not None
    assert handshake.subprotocol is None


@pytest.mark.parametrize("offered", [None, ["a", "b"]])
@pytest.mark.parametrize("picked", [b"c", b"A", b"a, b", b"", b"bearer.hidden"])
def test_a_subprotocol_that_was_not_offered(offered: list | None, picked: bytes) -> None:
    handshake = shake(subprotocols=offered)
    error = failure(handshake, reply_101(handshake, b"Sec-WebSocket-Protocol: " + picked))
    assert kind_of(error) is NegotiationError
    assert repr("***" if b"hidden" in picked else picked.decode()) in str(error)
    assert error.response is not None


def test_two_subprotocols() -> None:
    handshake = shake(subprotocols=["a", "b"])
    two = [b"Sec-WebSocket-Protocol: a", b"Sec-WebSocket-Protocol: b"]
    error = failure(handshake, reply_101(handshake, *two))
    assert kind_of(error) is InvalidHeader
    assert error.name == "Sec-WebSocket-Protocol"


@pytest.mark.parametrize("offered", [None, {"Sec-WebSocket-Extensions": "x-a; p, x-b"}])
@pytest.mark.parametrize(
    "header", [b"x-c", b"x-c; p=1", b"x-a, x-c", b"X-A", b'x-a; p="1, x-b", x-c', b"\xe9"]
)
def test_an_unsolicited_extension(offered: dict | None, header: bytes) -> None:
    handshake = shake(extra_headers=offered)
    error = failure(handshake, reply_101(handshake, b"Sec-WebSocket-Extensions: " + header))
    if header in (b"\xe9", b'x-a; p="1, x-b", x-c'):
        assert kind_of(error) is InvalidHeaderFormat
    else:
        assert kind_of(error) is NegotiationError
        assert "extension that wasn't offered" in str(error)


def test_an_unsolicited_extension_in_a_first_header() -> None:
    handshake = shake(extra_headers={"Sec-WebSocket-Extensions": "x-a"})
    headers = [b"Sec-WebSocket-Extensions: x-b", b"Sec-WebSocket-Extensions: x-a"]
    assert "'x-b'" in str(failure(handshake, reply_101(handshake, *headers)))


OFFER = 'permessage-deflate; client_max_window_bits, permessage-deflate, x-a; p="1"'


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], None),
        ([b""], None),
        ([b"permessage-deflate"], "permessage-deflate"),
        (
            [b'permessage-deflate ;server_max_window_bits="10"'],
            'permessage-deflate ;server_max_window_bits="10"',
        ),
        ([b'x-a; p="\\3", permessage-deflate'], 'x-a; p="\\3", permessage-deflate'),
        ([b"x-a", b"permessage-deflate"], "x-a, permessage-deflate"),
    ],
)
def test_extensions_by_hand(headers: list[bytes], expected: str | None) -> None:
    handshake = shake(extra_headers={"sec-websocket-extensions": OFFER})
    assert handshake.request.headers.getall("Sec-WebSocket-Extensions") == [OFFER]
    assert b"\r\nsec-websocket-extensions: " + OFFER.encode() + b"\r\n" in handshake.request_bytes
    reply = reply_101(handshake, *[b"Sec-WebSocket-Extensions: " + header for header in headers])
    assert handshake.feed(reply) is not None
    assert handshake.extensions_header == expected


@pytest.mark.parametrize("header", ['x-a; p="3', 'x-a; p="3, 4"', "x-a x-b", "x-a;", 'x-a; p="\\"'])
def test_malformed_extensions_by_hand(header: str) -> None:
    """They are judged as those of permessage-deflate are: RFC 6455 section 9.1 wants tokens, quoted or not."""
    with pytest.raises(
        ValueError, match=r"^extra_headers\['Sec-WebSocket-Extensions'\] is malformed: .* at \d+ in x-a"
    ):
        shake(extra_headers={"Sec-WebSocket-Extensions": header})
    handshake = shake(extra_headers={"Sec-WebSocket-Extensions": "x-a"})
    error = failure(handshake, reply_101(handshake, b"Sec-WebSocket-Extensions: " + header.encode()))
    assert kind_of(error) is InvalidHeaderFormat


def test_extensions_in_two_headers() -> None:
    offers = [("Sec-WebSocket-Extensions", "x-a"), ("Sec-WebSocket-Extensions", "x-b")]
    handshake = shake(extra_headers=offers)
    assert handshake.request.headers.getall("Sec-WebSocket-Extensions") == ["x-a", "x-b"]
    assert handshake.feed(reply_101(handshake, b"Sec-WebSocket-Extensions: x-b")) is not None


# Interim replies


INTERIM = (
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\nHTTP/1.1 199\r\n\r\n"
)


def test_interim_replies_cut_everywhere() -> None:
    for number in range(len(splits(INTERIM + reply_101(shake()) + FRAMES))):
        handshake = shake()
        response = feed_all(handshake, *splits(INTERIM + reply_101(handshake) + FRAMES)[number])
        assert response is not None
        assert "Link" not in response.headers
        assert handshake.trailing == FRAMES


def test_interim_replies_before_a_rejection() -> None:
    error = failure(shake(), INTERIM + b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno")
    assert kind_of(error) is InvalidStatus
    assert (error.response.status, error.response.body) == (403, b"no")


def test_interim_replies_without_end() -> None:
    handshake = shake()
    interim = b"HTTP/1.1 103 Early Hints\r\n\r\n"
    for _ in range(MAX_HEADER // len(interim)):
        assert handshake.feed(interim) is None
    assert kind_of(failure(handshake, interim)) is SecurityError


def test_an_interim_reply_and_a_half_header_share_the_limit() -> None:
    handshake = shake()
    assert handshake.feed(b"HTTP/1.1 103 x\r\nLink: " + b"a" * 10000 + b"\r\n\r\n") is None
    assert kind_of(failure(handshake, b"HTTP/1.1 403 " + b"a" * 10000)) is SecurityError


# Rejections


CHUNKED = (
    b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"4\r\nbody\r\n3;x=y\r\n123\r\n0\r\nTrailer: t\r\n\r\n"
)
REJECTIONS = [
    (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 7\r\nX-A: b\r\n\r\nbody123", 403, b"body123", False),
    (b"HTTP/1.1 404 \r\nContent-Length: 0\r\n\r\n", 404, b"", False),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nbody123", 200, b"body123", False),
    (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", False),
    (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 304, b"", False),
    (CHUNKED, 503, b"body123", False),
    (b"HTTP/1.1 500 Oops\r\n\r\nbody123", 500, b"body123", True),
    (b"HTTP/1.1 500 Oops\r\n\r\n", 500, b"", True),
    (b"HTTP/1.1 429 Slow down\r\nContent-Length: 99\r\n\r\nbody123", 429, b"body123", True),
    (CHUNKED[: CHUNKED.index(b"23")], 503, b"body1", True),
    (b"HTTP/1.1 520 \r\nContent-Length: 2\r\n\r\nno", 520, b"no", False),
    (b"HTTP/1.1 599 Mine\r\nContent-Length: 2\r\n\r\nno", 599, b"no", False),
    (b"HTTP/1.1 999 Mine\r\nContent-Length: 2\r\n\r\nno", 999, b"no", False),
]


@pytest.mark.parametrize(
    ("data", "status", "body", "eof"), REJECTIONS, ids=[repr(case[0][:30]) for case in REJECTIONS]
)
def test_rejection_cut_everywhere(data: bytes, status: int, body: bytes, eof: bool) -> None:
    for pieces in splits(data):
        error = failure(shake(), *pieces, eof=eof)
        assert kind_of(error) is InvalidStatus
        assert error.response.status == error.response.status_code == status
        assert error.response.body == error.raw_body == body
        assert error.raw_header == data[: data.index(b"\r\n\r\n") + 4]
        assert str(error) == f"server rejected WebSocket connection: HTTP {status}"


@pytest.mark.parametrize(("status", "kind"), [(429, HTTPStatus), (520, int), (599, int)])
def test_status_is_a_member_if_python_knows_it(status: int, kind: type) -> None:
    error = failure(shake(), b"HTTP/1.1 %d x\r\nContent-Length: 0\r\n\r\n" % status)
    assert type(error.response.status) is kind


def test_a_rejection_has_headers_and_can_be_pickled() -> None:
    error = failure(shake(), b"HTTP/1.1 429 Slow down\r\nRetry-After: 3\r\nContent-Length: 2\r\n\r\nno")
    double = pickle.loads(pickle.dumps(error))
    for response in (error.response, double.response):
        assert response.headers["retry-after"] == "3"
        assert response.reason_phrase == "Slow down"
        assert response.body == b"no"


def test_headers_have_what_programs_for_websockets_call() -> None:
    error = failure(shake(), b"HTTP/1.1 403 No\r\nA: b\r\nX: y\r\na: c\r\nContent-Length: 0\r\n\r\n")
    headers = error.response.headers
    assert list(headers.raw_items())[:3] == [("A", "b"), ("X", "y"), ("a", "c")]
    assert (headers.get_all("a"), headers.get_all("none")) == (["b", "c"], [])
    assert pickle.loads(pickle.dumps(headers)).get_all("A") == ["b", "c"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_has_its_location(status: int) -> None:
    error = failure(shake(), b"HTTP/1.1 %d Moved\r\nlocation: /new\r\nContent-Length: 0\r\n\r\n" % status)
    assert kind_of(error) is InvalidStatus
    assert error.response.headers["Location"] == "/new"


@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: 3000000\r\n\r\n",
        b"Content-Length: 1048576\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n200000\r\n",
        b"\r\n",
    ],
)
def test_a_body_is_cut_at_its_limit(framing: bytes) -> None:
    handshake = shake()
    body = bytes(range(256)) * (MAX_BODY // 256)
    assert handshake.feed(b"HTTP/1.1 403 No\r\n" + framing) is None
    for start in range(0, MAX_BODY - 4096, 4096):
        assert handshake.feed(body[start : start + 4096]) is None
    assert failure(handshake, body[-4096:]).response.body == body


def test_a_body_over_its_limit_in_one_piece() -> None:
    error = failure(shake(), b"HTTP/1.1 403 No\r\n\r\n" + b"x" * (MAX_BODY + 1))
    assert error.response.body == b"x" * MAX_BODY


@pytest.mark.parametrize("tail", [b"zz\r\n", b"4\r\nbodyXX", b"x" * (MAX_HEADER + 1)])
def test_a_body_with_broken_framing_keeps_the_rejection(tail: bytes) -> None:
    error = failure(shake(), b"HTTP/1.1 403 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n" + tail)
    assert kind_of(error) is InvalidStatus
    assert error.response.body[:2] == b"no"
    assert error.__cause__ is not None


def test_a_caller_who_will_not_wait_for_the_body() -> None:
    handshake = shake()
    assert handshake.feed(b"HTTP/1.1 403 No\r\n\r\npart") is None
    with pytest.raises(InvalidStatus) as caught:
        handshake.feed_eof()
    assert caught.value.response.body == b"part"


# No replies


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.0 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nX-A: b\r\n\r\n",
        b"HTTP/2.0 101 Switching Protocols\r\n\r\n",
    ],
)
def test_another_http_version(data: bytes) -> None:
    error = failure(shake(), data)
    assert kind_of(error) is InvalidMessage
    assert "unsupported HTTP version" in str(error)
    assert error.raw_header == data
    assert error.response is not None
    assert error.response.version == data[:8]
    assert error.response.status == int(data[9:12])


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"220 mail.example.com ESMTP\r\n",
        b"x",
        b"\r\n",
        b"\x00",
        b"HTTQ",
        b"http/1.1 101 Switching Protocols\r\n\r\n",
        b" HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"<html>",
        FRAMES,
    ],
    ids=repr,
)
def test_garbage_is_told_at_once(data: bytes) -> None:
    for pieces in splits(data):
        error = failure(shake(), *pieces)
        assert kind_of(error) is InvalidMessage
        assert str(error) == "the server's reply isn't HTTP"
        assert data.startswith(error.raw_header)
        assert error.response is None


@pytest.mark.parametrize("record", [b"\x15\x03\x01\x00\x02\x02\x46", b"\x16\x03\x03\x00\x7a\x02"])
def test_tls_instead_of_http(record: bytes) -> None:
    error = failure(shake(), record)
    assert kind_of(error) is InvalidMessage
    assert "wss" in str(error)
    assert error.raw_header == record


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 1O1 x\r\n\r\n",
        b"HTTP/1.1 099 x\r\n\r\n",
        b"HTTP/1.1  101 x\r\n\r\n",
        b"HTTP/11 101 x\r\n\r\n",
        b"HTTP/1.1 101 x\r\nNo colon\r\n\r\n",
        b"HTTP/1.1 101 x\r\nA : b\r\n\r\n",
        b"HTTP/1.1 101 x\r\nA: b\x00\r\n\r\n",
        b"HTTP/1.1 101 x\r\nA: b\rc\r\n\r\n",
        b"HTTP/1.1 101 x\r\n: b\r\n\r\n",
        b"HTTP/1.1 101 x\r\n folded\r\n\r\n",
        b"HTTP/1.1 403 x\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 403 x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 403 x\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 103 x\r\n\r\nHTTQ/1.1 101 x\r\n\r\n",
    ],
    ids=repr,
)
def test_malformed_http(data: bytes) -> None:
    error = failure(shake(), data)
    assert kind_of(error) is InvalidMessage
    assert str(error).startswith("the server's reply isn't valid HTTP: ")
    assert error.raw_header == data
    assert error.__cause__ is not None


def long_header(size: int) -> bytes:
    head, tail = b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n", b"\r\n\r\n"
    line = b"X-A: " + b"a" * 4000 + b"\r\n"
    lines, rest = divmod(size - len(head) - len(tail) - len(b"X-B: "), len(line))
    return head + line * lines + b"X-B: " + b"b" * rest + tail


def test_a_header_at_its_limit() -> None:
    assert kind_of(failure(shake(), long_header(MAX_HEADER))) is InvalidStatus


@pytest.mark.parametrize(
    "data", [long_header(MAX_HEADER + 1), long_header(1 << 20)[:-4], b"HTTP/1.1 403 " + b"a" * 20000]
)
@pytest.mark.parametrize("step", [1 << 20, 1000, MAX_HEADER])
def test_a_header_over_its_limit(data: bytes, step: int) -> None:
    handshake = shake()
    error = failure(handshake, *[data[start : start + step] for start in range(0, len(data), step)])
    assert kind_of(error) is SecurityError
    assert str(MAX_HEADER) in str(error)
    assert error.raw_header == data[:MAX_HEADER]
    assert len(handshake._received) <= MAX_HEADER + step


# (the limit that the last of these lines breaks, that line)
LINES = [
    (HeaderLineTooLong, b"X-A", b"a" * (MAX_LINE - 3), b"a"),
    (HeaderLineTooLong, b"X" * (MAX_LINE - 1), b"a", b"a"),
]


@pytest.mark.parametrize(("exception", "name", "value", "more"), LINES)
def test_a_line_at_its_limit_and_over_it(exception, name: bytes, value: bytes, more: bytes) -> None:
    reply = b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n%b: %b\r\n\r\n"
    assert kind_of(failure(shake(), reply % (name, value))) is InvalidStatus
    error = failure(shake(), reply % (name, value + more))
    assert kind_of(error) is exception
    assert str(MAX_LINE) in str(error)


def test_a_status_line_at_its_limit_and_over_it() -> None:
    reply = b"HTTP/1.1 403 %b\r\nContent-Length: 0\r\n\r\n"
    assert kind_of(failure(shake(), reply % (b"a" * MAX_LINE))) is InvalidStatus
    assert kind_of(failure(shake(), reply % (b"a" * (MAX_LINE + 1)))) is StatusLineTooLong


def test_as_many_headers_as_are_allowed_and_one_more() -> None:
    reply = b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n%b\r\n"
    assert kind_of(failure(shake(), reply % (b"A: b\r\n" * (MAX_HEADERS - 1)))) is InvalidStatus
    error = failure(shake(), reply % (b"A: b\r\n" * MAX_HEADERS))
    assert kind_of(error) is TooManyHeaders
    assert str(MAX_HEADERS) in str(error)


@pytest.mark.parametrize("received", [b"", b"H", b"HTTP/1.1 101 Swi", b"HTTP/1.1 101 x\r\nA: b\r\n", INTERIM])
def test_the_end_before_a_reply(received: bytes) -> None:
    handshake = shake()
    assert handshake.feed(received) is None
    with pytest.raises(InvalidMessage, match="connection closed") as caught:
        handshake.feed_eof()
    assert isinstance(caught.value.__cause__, EOFError)
    assert caught.value.raw_header == (received or None)


def test_feeding_after_the_end() -> None:
    handshake = shake()
    handshake.feed(reply_101(handshake))
    with pytest.raises(RuntimeError, match="over"):
        handshake.feed(b"x")
    with pytest.raises(RuntimeError, match="over"):
        handshake.feed_eof()


def test_feeding_after_a_failure() -> None:
    handshake = shake()
    failure(handshake, b"garbage")
    with pytest.raises(RuntimeError, match="over"):
        handshake.feed(b"x")


def try_to_fail(handshake: ClientHandshake, pieces: list[bytes]) -> None:
    """Feed what may be anything: it succeeds, or fails as an InvalidHandshake of bounded size."""
    error = None
    try:
        if feed_all(handshake, *pieces) is None:
            handshake.feed_eof()
    except InvalidHandshake as caught:
        error = caught
    assert error is None or str(error)
    assert error is None or len(error.raw_header or b"") <= MAX_HEADER


@given(st.lists(st.binary(max_size=100), max_size=5))
def test_fuzz_bytes(pieces: list[bytes]) -> None:
    try_to_fail(shake(), pieces)
    try_to_fail(shake(), [b"HTTP/1.1 101 x\r\n", *pieces, b"\r\n\r\n"])
    try_to_fail(shake(), [b"HTTP/1.1 403 x\r\nTransfer-Encoding: chunked\r\n\r\n", *pieces])


LINES = [
    b"Upgrade: websocket",
    b"Connection: Upgrade",
    b"Connection: close",
    b"Content-Length: 3",
    b"Content-Length: 99999999999999999999999",
    b"Transfer-Encoding: chunked",
    b"Sec-WebSocket-Accept: ",
    b"Sec-WebSocket-Protocol: a",
    b"Sec-WebSocket-Extensions: x",
    b"HTTP/1.1 100 x",
    b"HTTP/1.1 200",
    b" folded",
    b"",
    b"0",
    b"3",
    b"abc",
    b"\x00",
]


@given(
    st.sampled_from([100, 101, 200, 204, 304, 599]),
    st.lists(st.one_of(st.sampled_from(LINES), st.binary(max_size=20))),
)
def test_fuzz_lines(status: int, lines: list[bytes]) -> None:
    data = b"\r\n".join([b"HTTP/1.1 %d x" % status, *lines]) + b"\r\n\r\n"
    try_to_fail(shake(), [data])
    try_to_fail(shake(), [data[i : i + 7] for i in range(0, len(data), 7)])


@given(st.data())
def test_fuzz_a_good_reply(data: st.DataObject) -> None:
    handshake = shake(subprotocols=["a"], extra_headers={"Sec-WebSocket-Extensions": "x"})
    reply = bytearray(reply_101(handshake, b"Sec-WebSocket-Protocol: a", b"Sec-WebSocket-Extensions: x"))
    for _ in range(data.draw(st.integers(1, 3))):
        reply[data.draw(st.integers(0, len(reply) - 1))] = data.draw(st.integers(0, 255))
    try_to_fail(handshake, [bytes(reply)])
