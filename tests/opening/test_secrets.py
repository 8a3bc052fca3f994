"""No text of wsfast's has a secret of a URL or of a header, however the opening fails: no exception, log record,
representation or traceback. Every face opens URLs with secrets in each of their parts against each failure."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import re
import traceback

import pytest
from support import frames
from support.faces import FACES, End
from support.servers import serve

import wsfast
from opening.test_redirecting import headers_of
from opening.test_through_proxies import options, proxy
from wsfast import Network
from wsfast._opening.uri import parse_uri
from wsfast.exceptions import SecurityError

faces = pytest.mark.parametrize("face", FACES)

SECRET = "S3" + "CR3T"  # in two parts, because a traceback quotes this file
LONG = SECRET * 6
# Each of them is sent. What hides it must know it decoded, as it was written, and in Base64.
PASSWORDS = [SECRET, f"{SECRET}%40", f"%53{SECRET[1:]}\u00fc", f"@{SECRET}".replace("@", "%2F")]
TARGETS = [
    f"?token={SECRET}",
    f"a/{LONG}/b",
    f"%C3%BC;jsessionid={SECRET}",
    f"\u00fc?{SECRET}",
    f"?a=b@{SECRET}&c",
    "?=" + SECRET,
]
SECRETS = re.compile(
    "|".join(
        [f"[S5]3CR3T|3{SECRET[2:]}"]
        + [
            re.escape(base64.b64encode(f"me:{password}".encode()).decode())
            for password in (SECRET, f"{SECRET}@", f"{SECRET}\u00fc", f"/{SECRET}")
        ]
    )
)
HEADERS = dict.fromkeys(("Cookie", "X-Ticket", "DPoP", "Api_Hash", "Referer"), SECRET)
SUBPROTOCOLS = ["v1", f"bearer.{SECRET}", f"ticket.{SECRET}"]


def urls(url):
    """Pairs in which each password and each target stands at least once."""
    for i, target in enumerate(TARGETS):
        yield url.replace("//", f"//me:{PASSWORDS[i % len(PASSWORDS)]}@") + target


def texts_of(exc):
    """All that can be read of an exception and of those that led to it."""
    yield from traceback.format_exception(exc)
    while exc is not None:
        yield from (str(exc), repr(exc), repr(exc.args), *getattr(exc, "__notes__", ()))
        yield repr(getattr(exc, "response", None))
        exc = exc.__cause__ or exc.__context__


def texts_of_log(records):
    for record in records:
        yield record.getMessage()
        yield from (repr(value) for value in vars(record).values())
        yield logging.Formatter().format(record)


async def fail(face, url, caplog, **given):
    """Connect, and look at all texts until the connection has ended; returns the exception."""
    caplog.set_level(logging.DEBUG)
    caplog.clear()
    given = {**headers_of(face, HEADERS), "subprotocols": SUBPROTOCOLS, "open_timeout": 5, **given}
    failed = None
    try:
        async with FACES[face](url, **given) as client:
            own = client.transport if face == "listener" else client.ws
            for text in (repr(own), repr(own.request), repr(own.response)):
                assert not SECRETS.search(text)
            await client.recv()
    except End as end:
        failed = end.cause or end
    except Exception as exc:
        failed = exc
    assert failed is not None
    for text in (*texts_of(failed), *texts_of_log(caplog.records)):
        assert not SECRETS.search(text), text
    return failed


def location(text):
    return (
        f"HTTP/1.1 302 Go\r\nLocation: {text}\r\nSet-Cookie: a={SECRET}\r\nContent-Length: 0\r\n\r\n".encode()
    )


def refusal(status):
    return (
        f"HTTP/1.1 {status} No\r\nWWW-Authenticate: Basic realm={SECRET}\r\nX-Trace: {SECRET}\r\n"
        f"Retry-After: 1\r\nContent-Length: {len(SECRET)}\r\n\r\n{SECRET}"
    ).encode()


# Replies of a server; {} is the target of the request, {port} the server's own.
FAILURES = {
    "refused": refusal(401),
    "unavailable": refusal(503),
    "nothing": b"",
    "garbage": b"SSH-2.0 hello\r\n\r\n",
    "tls": b"\x15\x03\x03\x00\x02\x02\x28",
    "half a header": b"HTTP/1.1 101 Switching\r\nX-Token: " + SECRET.encode(),
    "no HTTP": f"HTTP/1.1 101 Fine\r\nX-{SECRET}\r\n\r\n".encode(),
    "too long": b"HTTP/1.1 101 Fine\r\nX-A: " + SECRET.encode() * 4000,
    "no upgrade": b"HTTP/1.1 101 Fine\r\n\r\n",
    "loop": location("{}"),
    "port": location(f"ws://h:99999/{SECRET}"),
    "userinfo": location(f"ws://eve:{SECRET}@127.0.0.1:x/"),
    "backslash": location(f"ws:\\\\{SECRET}\\x"),
    "fragment": location(f"ws://127.0.0.1:1/{SECRET}#{SECRET}"),
    "dead": location(f"ws://127.0.0.1:1/{SECRET}?{SECRET}"),
    "dead IPv6": location(f"ws://[::1]:1/{SECRET}"),
    "unicode": location(f"//127.0.0.1:1/\u00fc/{SECRET}"),
    "brackets": location(f"//[::1/{SECRET}"),
    "scheme": location(f"ftp://x/{SECRET}"),
    "two": location(f"/a\r\nLocation: /{SECRET}"),
    "no location": b"HTTP/1.1 302 Go\r\nContent-Length: 0\r\n\r\n",
}


@faces
@pytest.mark.parametrize("failure", FAILURES)
async def test_by_the_reply(face, failure, caplog):
    async def answer(peer):
        with contextlib.suppress(EOFError, ConnectionError):
            target = (await peer.read_request()).split(b" ")[1]
            peer.send(FAILURES[failure].replace(b"{}", target))

    async with serve(answer) as server:
        for url in urls(server.url):
            await fail(face, url, caplog)


@faces
@pytest.mark.parametrize(
    "picked", [f"bearer.{SECRET}, v1", f"ticket.{SECRET}x", f"v1\r\nSec-WebSocket-Protocol: t.{SECRET}"]
)
async def test_by_the_subprotocol(face, picked, caplog):
    async def answer(peer):
        await peer.accept(headers=f"Sec-WebSocket-Protocol: {picked}\r\n".encode())

    async with serve(answer) as server:
        await fail(face, server.url, caplog)


@faces
@pytest.mark.parametrize(
    "payload", [frames.frame(frames.CLOSE, b"\x03\xf0no"), b"\xff\xff", b""], ids=["close", "bad", "eof"]
)
async def test_after_a_redirect(face, payload, caplog):
    """The path of a redirect is a secret as a whole, also in the log and in what the connection says of itself."""
    seen = []

    async def answer(peer):
        request = await peer.read_request()
        seen.append(request)
        if request.split(b" ")[1].startswith(b"/x/"):
            peer.send(peer.reply(f"Set-Cookie: {SECRET}\r\n".encode()) + payload)
        else:
            peer.send(location(f"ws://localhost:{server.port}/x/{SECRET}?{SECRET}"))

    async with serve(answer) as server:
        for url in urls(server.url):
            await fail(face, url, caplog)
            lines = [record.getMessage() for record in caplog.records]
            assert [line for line in lines if line.startswith("> GET")][1:] == ["> GET /*** HTTP/1.1"]
            # To the other origin went nothing but the path that the server chose.
            head, rest = seen[-1].decode().split("\r\n", 1)
            assert SECRET in head
            assert not SECRETS.search(rest)
            assert "Sec-WebSocket-Protocol: v1\r\n" in rest


@faces
async def test_an_endless_chain(face, caplog):
    count = 0

    async def answer(peer):
        nonlocal count
        count += 1
        await peer.read_request()
        peer.send(location(f"/{SECRET}{count}"))

    async with serve(answer) as server:
        failed = await fail(face, server.url, caplog)
    assert isinstance(failed, SecurityError)


PROXIES = [
    ("http", {"refusal": refusal(407)}),
    ("http", {"rubbish": "request"}),
    ("http", {"drop": "request"}),
    ("https", {"refusal": refusal(403)}),
    ("https", {"drop": "request"}),
    ("socks5h", {"code": 2}),
    ("socks5h", {"auth": ("you", "word")}),
    ("socks5h", {"rubbish": "greeting"}),
]


@faces
@pytest.mark.parametrize("by", ["argument", "environment"])
@pytest.mark.parametrize(("scheme", "behaviour"), PROXIES)
async def test_by_a_proxy(face, scheme, behaviour, by, caplog, monkeypatch):
    password = SECRET if scheme.startswith("socks") else PASSWORDS[2]
    if scheme != "socks5h":
        behaviour = {**behaviour, "auth": ("me", f"{SECRET}\u00fc")}
    with proxy(scheme, **behaviour) as served:
        url = f"{scheme}://me:{password}@127.0.0.1:{served.port}"
        given = options(face, scheme, url)
        if by == "environment":
            monkeypatch.setenv("all_proxy", given.pop("proxy"))
        for target in urls("ws://exchange.test/"):
            await fail(face, target, caplog, **given)


@faces
@pytest.mark.parametrize(
    "wrong",
    [
        f"me:{SECRET}@127.0.0.1:1", f"http://me:{SECRET}@127.0.0.1:x", f"http://{SECRET}@127.0.0.1:1",
        f"http://me:{SECRET}@127.0.0.1:1/?{SECRET}", f"socks4://me:{SECRET}@127.0.0.1:1", f"ftp://me:{SECRET}@x",
        f"socks5://me:{SECRET}\u00fc@x", f"http://me:1/{SECRET}@x", f"http://me:{SECRET}\\@x",
    ],
)  # fmt: skip
@pytest.mark.parametrize("by", ["argument", "environment"])
async def test_by_the_url_of_a_proxy(face, wrong, by, caplog, monkeypatch):
    if by == "environment":
        monkeypatch.setenv("all_proxy", wrong)
    given = {"proxy": wrong} if by == "argument" else {}
    await fail(face, "ws://127.0.0.1:1/", caplog, **given)


WRONG = [
    "ws://me:{}@h:x/", "ws://me:1/{}@h/", "ws://me:a/{}@h/", "ws://me:{}", "ws://{}@h/", "http://me:{}@h/?{}",
    "ws://me:{}#@h/", "ws://h:99999/?t={}", "ws://h:99999/?t=a@{}", "ws://me:a@{}@h/", "ws://me:%FF{}@h/", "ws://h/#{}",
    "ws://me: {}@h/", "ws://me:\\{}@h/", "ws://me\uff1a{}\uff20h/", "ws://[::1]:{}/", "ws://a%3Ab:{}@h/", "ws://h\\?{}",
    "me:{}@h", "data:{}", "ws://me:{}@[::1", "ws://me:{}@a..b/", "ws://me:x\n{}@h/", "\u00fc:{}@h/", "//me:{}@h/",
]  # fmt: skip


@faces
@pytest.mark.parametrize("wrong", WRONG, ids=ascii)
async def test_by_the_url(face, wrong, caplog):
    await fail(face, wrong.replace("{}", SECRET), caplog, open_timeout=0.01)


@faces
@pytest.mark.parametrize(
    "given",
    [
        {"subprotocols": [f"{SECRET} x"]},
        {"subprotocols": [SECRET, SECRET]},
        {"headers": {"X-Key": f"{SECRET}\n"}},
        {"headers": {f"X-Key: {SECRET}": ""}},
        {"headers": {"Host": SECRET, "host": SECRET}},
        {"origin": f"https://{SECRET}\n"},
        {"proxy": f"http://me:{SECRET}@127.0.0.1:1", "network": Network(proxy_headers={"X": f"{SECRET}\n"})},
        {"proxy": f"http://me:{SECRET}@127.0.0.1:1".encode()},
    ],
    ids=str,
)
async def test_by_the_arguments(face, given, caplog):
    given = dict(given)
    headers = headers_of(face, given.pop("headers")) if "headers" in given else {}
    for url in urls("ws://127.0.0.1:1/"):
        assert isinstance(await fail(face, url, caplog, **headers, **given), (TypeError, ValueError))


async def test_by_swapped_arguments(caplog):
    for url in (f"ws://me:{SECRET}@h/", f"ws://me:{SECRET}@h/".encode()):
        for given in (
            (url, wsfast.WSListener),
            (wsfast.WSListener, url.encode() if isinstance(url, str) else url),
        ):
            with pytest.raises(TypeError) as caught:
                await wsfast.ws_connect(*given)
            assert not any(SECRETS.search(text) for text in texts_of(caught.value))


def test_a_parsed_url_can_be_shown():
    for url in urls("ws://127.0.0.1:8/"):
        uri = parse_uri(url)
        assert not SECRETS.search(f"{uri} {uri!r}")
        assert repr(uri).startswith("WebSocketURI('ws://***@127.0.0.1:8/")


async def test_a_loop_that_reconnects_and_a_loop_in_debug_mode(caplog):
    """Both write lines of their own."""
    asyncio.get_running_loop().set_debug(True)
    caplog.set_level(logging.DEBUG)
    bodies = [location("{}"), refusal(503)]

    async def answer(peer):
        with contextlib.suppress(EOFError, ConnectionError):
            target = (await peer.read_request()).split(b" ")[1]
            peer.send(bodies[-1].replace(b"{}", target))
            bodies.pop()

    async with serve(answer) as server:
        (url, *_) = urls(server.url)
        with pytest.raises(SecurityError):
            async for _ in wsfast.connect(
                url, reconnect_delays=lambda: iter([0, 0, 0]), additional_headers=HEADERS
            ):
                pass
    assert any("connect failed" in record.getMessage() for record in caplog.records)
    for text in texts_of_log(caplog.records):
        assert not SECRETS.search(text), text


def test_arguments_of_a_wrong_type_are_not_repeated():
    """A backup that is not set, say, or the credentials themselves as `netrc`."""
    url = f"wss://me:{SECRET}@localhost/?{SECRET}"
    for urls in ([url, None], url.encode(), {url.encode()}):
        with pytest.raises(TypeError, match="url must be") as raised:
            wsfast.supervise(urls)
        assert not SECRETS.search("".join(texts_of(raised.value)))
    with pytest.raises(TypeError, match="listener_factory must be") as raised:
        wsfast.supervise(wsfast.WSListener, url)
    assert not SECRETS.search("".join(texts_of(raised.value)))
    for netrc in ("me", SECRET), {"me": SECRET}:
        with pytest.raises(TypeError, match="netrc must be") as raised:
            wsfast.sync.client.connect(url, network=Network(netrc=netrc))
        assert not SECRETS.search("".join(texts_of(raised.value)))
