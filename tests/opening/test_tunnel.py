"""The handshake with an HTTP proxy: each reply whole, byte by byte, and with bytes behind it."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wsfast._opening.http.exchange import MAX_BODY, MAX_HEADER
from wsfast._opening.proxy.settings import parse_proxy
from wsfast._opening.proxy.tunnel import TunnelHandshake
from wsfast.exceptions import InvalidProxyMessage, InvalidProxyStatus

PROXY = parse_proxy("http://proxy.example")
OK = b"HTTP/1.1 200 Connection established\r\n\r\n"


def handshake(proxy=PROXY, host="exchange.example", port=443, **arguments):
    return TunnelHandshake(proxy, host, port, **arguments)


def feed(shaking, data, piece):
    """The reply, or None."""
    for at in range(0, len(data), piece or len(data)):
        response = shaking.feed(data[at : at + piece] if piece else data)
        if response is not None:
            shaking.trailing += data[at + piece :] if piece else b""
            return response
    return None


pieces = pytest.mark.parametrize("piece", [0, 1, 7], ids=["whole", "bytes", "pieces"])


def headers(request):
    line, *lines = request.decode().removesuffix("\r\n\r\n").split("\r\n")
    return line, [tuple(text.split(": ", 1)) for text in lines]


# The request.


@pytest.mark.parametrize(
    ("host", "target"),
    [
        ("exchange.example", "exchange.example:443"),
        ("10.0.0.1", "10.0.0.1:443"),
        ("::1", "[::1]:443"),
        ("fe80::1%eth0", "[fe80::1]:443"),
    ],
)
def test_target(host, target):
    line, fields = headers(handshake(host=host, user_agent=None).request_bytes)
    assert line == f"CONNECT {target} HTTP/1.1"
    assert fields == [("Host", target)]


def test_basic_authentication():
    proxy = parse_proxy("http://k%C3%B6nig:p%3A@proxy.example")
    _, fields = headers(handshake(proxy, user_agent="me").request_bytes)
    value = "Basic " + base64.b64encode("könig:p:".encode()).decode()
    assert fields[1:] == [("User-Agent", "me"), ("Proxy-Authorization", value)]


def test_headers_of_the_user():
    proxy = parse_proxy("http://user:hunter2@proxy.example")
    given = [
        ("X-Country", "de"),
        ("proxy-authorization", "Bearer x"),
        ("User-agent", "mine"),
        ("X-Country", "ü"),
    ]
    _, fields = headers(handshake(proxy, headers=given).request_bytes)
    assert fields[1:] == given
    _, fields = headers(handshake(proxy, headers={"X-Country": "de"}, user_agent=None).request_bytes)
    assert ("X-Country", "de") in fields


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-A", "hunter2\r\nX-B: c"),
        ("X-A", "hunter2\0"),
        ("X-A", "hunter2\ud800\n"),
        ("X A", "hunter2"),
        ("X-A\r\nX-B", "hunter2"),
        ("", "hunter2"),
        ("Host", "hunter2"),
        ("content-length", "5"),
        ("Transfer-Encoding", "chunked"),
    ],
)
def test_headers_that_cannot_be_sent(name, value):
    with pytest.raises(ValueError, match="proxy_headers") as caught:
        handshake(headers=[(name, value)])
    assert "hunter2" not in str(caught.value)


def test_a_user_agent_that_cannot_be_sent():
    with pytest.raises(ValueError, match="user_agent_header"):
        handshake(user_agent="me\r\nX-Smuggled: b")


@pytest.mark.parametrize(
    "headers", [5, [("X-A", 5)], [("X-A", b"b")], [(b"X-A", "b")], ["X-A"], {"X-A": None}]
)
def test_headers_of_other_types(headers):
    with pytest.raises(TypeError, match="proxy_headers"):
        handshake(headers=headers)


# Replies that accept.


@pieces
@pytest.mark.parametrize("behind", [b"", b"behind", b"HTTP/1.1 403 Forbidden\r\n\r\n"])
@pytest.mark.parametrize(
    "reply",
    [
        OK,
        b"HTTP/1.0 200 Connection established\r\n\r\n",
        b"HTTP/1.1 200\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\nVia: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n" + OK,
        b"HTTP/1.1 200 OK\r\nX: " + 8000 * b"x" + b"\r\n\r\n",
    ],
)
def test_accepted(reply, behind, piece):
    shaking = handshake()
    response = feed(shaking, reply + behind, piece)
    assert 200 <= response.status_code < 300
    assert shaking.trailing == behind
    with pytest.raises(RuntimeError):
        shaking.feed(b"x")


def test_not_yet():
    shaking = handshake()
    assert feed(shaking, OK[:-1], 0) is None
    assert shaking.feed(b"") is None
    assert shaking.rejection is None
    assert shaking.feed(OK[-1:]).reason_phrase == "Connection established"


# Refusals.


@pieces
@pytest.mark.parametrize(
    ("reply", "status", "body"),
    [
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 6\r\n\r\ndenied", 403, b"denied"),
        (
            b"HTTP/1.1 502 Bad Gateway\r\nTransfer-Encoding: chunked\r\n\r\n6\r\ndenied\r\n0\r\n\r\n",
            502,
            b"denied",
        ),
        (b"HTTP/1.1 301 Moved\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", 301, b""),
        (b"HTTP/1.1 304 Not Modified\r\n\r\n", 304, b""),
        (b"HTTP/1.1 599 Whatever\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 599, b""),
    ],
)
def test_refused(reply, status, body, piece):
    shaking = handshake()
    with pytest.raises(InvalidProxyStatus) as caught:
        feed(shaking, reply, piece)
    error = caught.value
    assert error.response.status_code == status
    assert error.response.body == error.raw_body == body
    assert error.raw_header.startswith(b"HTTP/1.1 %d" % status)
    assert error.raw_header.endswith(b"\r\n\r\n")
    with pytest.raises(RuntimeError):
        shaking.feed(b"x")


@pieces
def test_the_challenge_is_visible(piece):
    reply = (
        b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=x\r\n"
        b"Proxy-Authenticate: Digest nonce=y\r\nContent-Length: 0\r\n\r\n"
    )
    with pytest.raises(InvalidProxyStatus, match="407") as caught:
        feed(handshake(), reply, piece)
    assert caught.value.response.headers.getall("proxy-authenticate") == ["Basic realm=x", "Digest nonce=y"]


def test_a_body_without_an_end():
    """The caller's deadline passes, or the proxy hangs up."""
    shaking = handshake()
    assert shaking.feed(b"HTTP/1.0 503 Full\r\n\r\ncome ") is None
    assert shaking.feed(b"later") is None
    assert shaking.rejection.response.body == b"come later"
    with pytest.raises(InvalidProxyStatus) as caught:
        shaking.feed_eof()
    assert caught.value.raw_body == b"come later"


def test_a_body_is_cut():
    shaking = handshake()
    shaking.feed(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 10000000\r\n\r\n")
    for _ in range(MAX_BODY // 1024 - 1):
        shaking.feed(1024 * b"x")
    with pytest.raises(InvalidProxyStatus) as caught:
        shaking.feed(5000 * b"x")
    assert caught.value.response.body == MAX_BODY * b"x"


# Rubbish.


@pieces
@pytest.mark.parametrize(
    "reply",
    [
        b"\x15\x03\x03\x00\x02\x02\x50",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded: first\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + (MAX_HEADER + 1) * b"x",
        b"HTTP/1.1 200 OK\r\nX: " + MAX_HEADER * b"x" + b"\r\n\r\n",
        1000 * b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
        b"HTTP/1.1 403 Forbidden\r\nContent-Length: a\r\n\r\n",
        b"\x00",
    ],
)
def test_rubbish(reply, piece):
    shaking = handshake()
    with pytest.raises(InvalidProxyMessage) as caught:
        feed(shaking, reply, piece)
    assert reply.startswith(caught.value.raw_header)
    assert 0 < len(caught.value.raw_header) <= MAX_HEADER
    with pytest.raises(RuntimeError):
        shaking.feed(b"x")


@pytest.mark.parametrize("size", range(len(OK)))
def test_cut_short(size):
    shaking = handshake()
    assert shaking.feed(OK[:size]) is None
    with pytest.raises(InvalidProxyMessage) as caught:
        shaking.feed_eof()
    assert isinstance(caught.value.__cause__, EOFError)
    with pytest.raises(RuntimeError):
        shaking.feed_eof()


# Replies made at random: however they are cut, the outcome is the same, and in the exception tree.

LINES = [
    b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 403 No\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 407 \r\n",
    b"Content-Length: 5\r\n", b"Content-Length: -1\r\n", b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: x\r\n",
    b"Proxy-Authenticate: Basic\r\n", b"X: \xff\xfe\r\n", b"5\r\nhello\r\n0\r\n\r\n", b"hello", b"\r\n", b"\r\n\r\n",
    b"\n",
]  # fmt: skip


def outcome(reply, cuts):
    shaking = handshake()
    ends = [*sorted(cut for cut in cuts if cut < len(reply)), len(reply)]
    at = 0
    try:
        for end in ends:
            response = shaking.feed(reply[at:end])
            at = end
            if response is not None:
                return int(response.status), shaking.trailing + reply[end:]
        shaking.feed_eof()
    except InvalidProxyStatus as exc:
        return int(exc.response.status), list(exc.response.headers.items())
    except InvalidProxyMessage:
        return None


@given(
    st.lists(st.sampled_from(LINES) | st.binary(max_size=20), max_size=8).map(b"".join),
    st.sets(st.integers(1, 100), max_size=5),
)
def test_random_replies(reply, cuts):
    assert outcome(reply, cuts) == outcome(reply, ())
