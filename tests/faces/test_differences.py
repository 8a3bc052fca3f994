"""The table of docs/migrating.md, "What stays different": what websockets raises or sends, and wsfast. A row that is no
longer a difference fails, too."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
import websockets
import websockets.sync.client
from support import frames
from support.faces import FACES, End
from support.servers import serve

import wsfast
import wsfast.sync.client
from wsfast.exceptions import ProtocolError

LIBRARIES = {
    "awaitable": (websockets, wsfast),
    "blocking": (websockets.sync.client, wsfast.sync.client),
}
TOO_LONG = frames.frame(frames.TEXT, b"x" * 3000)
REPLIES = {
    "a header line": b"HTTP/1.1 101 x\r\nA: " + b"a" * 9000 + b"\r\n\r\n",
    "headers": b"HTTP/1.1 101 x\r\n" + b"A: a\r\n" * 200 + b"\r\n",
    "elsewhere": b"HTTP/1.1 302 x\r\nLocation: ws://localhost:1/\r\nContent-Length: 0\r\n\r\n",
}


async def use(face, library, url, action, **options):
    """Connect, and do something. Returns the name of the exception, or what `action` returns."""
    options = {"compression": None, "close_timeout": 0.1, **options}
    try:
        if face == "awaitable":
            async with library.connect(url, **options) as ws:
                result = getattr(ws, action[0])(*action[1:])
                return await result if hasattr(result, "__await__") else result
        return await asyncio.to_thread(_blocking, library, url, action, options)
    except Exception as exc:
        return type(exc).__name__


def _blocking(library, url, action, options):
    with library.connect(url, **options) as ws:
        return getattr(ws, action[0])(*action[1:])


async def both(face, handler, action, **options):
    """The results of websockets and of wsfast, and the payloads of the CLOSE frames that they sent."""
    closes = []

    async def server(peer):
        with contextlib.suppress(EOFError, ConnectionError):
            await handler(peer)
            closes.extend(sent.payload for sent in await peer.rest() if sent.opcode == frames.CLOSE)

    results = []
    for library in LIBRARIES[face]:
        async with serve(server) as served:
            results.append(await use(face, library, served.url, action, **options))
            await served.result()
    return results, closes


def sends(data, *, ends=False):
    async def handler(peer):
        await peer.accept(glued=data)
        if ends:  # otherwise websockets waits twenty seconds for it
            peer.writer.write_eof()

    return handler


def replies(data):
    async def handler(peer):
        await peer.read_request()
        peer.send(data)

    return handler


faces = pytest.mark.parametrize("face", LIBRARIES)
on_asyncio = pytest.mark.asyncio(loop_factories=["asyncio"])


@on_asyncio
@faces
@pytest.mark.parametrize(
    ("data", "codes"),
    [
        (frames.frame(frames.CLOSE, b"\x03\xec\xff"), [1007, 1002]),
        (frames.frame(frames.TEXT, b"a", fin=False) + TOO_LONG, [1009, 1002]),
        (frames.frame(frames.CONTINUATION, b"x" * 3000), [1009, 1002]),
    ],
    ids=["close", "a message within another", "a continuation of nothing"],
)
async def test_two_violations_at_once(face, data, codes):
    results, closes = await both(face, sends(data, ends=True), ("recv",), max_size=1000)
    assert results == ["ConnectionClosedError"] * 2
    assert [int.from_bytes(payload[:2], "big") for payload in closes] == codes


@on_asyncio
@faces
@pytest.mark.parametrize(
    ("reply", "names"),
    [
        ("a header line", ["InvalidMessage", "HeaderLineTooLong"]),
        ("headers", ["InvalidMessage", "TooManyHeaders"]),
    ],
)
async def test_a_reply_that_is_too_large(face, reply, names):
    assert (await both(face, replies(REPLIES[reply]), ("recv",)))[0] == names


@on_asyncio
async def test_a_redirect_away_from_host():
    given = {"host": "127.0.0.1"}
    results, _ = await both("awaitable", replies(REPLIES["elsewhere"]), ("recv",), **given)
    assert results == ["ValueError", "SecurityError"]


@on_asyncio
@faces
@pytest.mark.parametrize(
    ("scheme", "name"), [("http", "ConnectionRefusedError"), ("socks5h", "ProxyConnectionError")]
)
async def test_a_proxy_that_is_not_there(face, scheme, name):
    given = {"proxy": f"{scheme}://127.0.0.1:1"}
    results = [await use(face, library, "ws://h/", ("recv",), **given) for library in LIBRARIES[face]]
    assert results == [name, "ProxyError"]


@on_asyncio
@faces
async def test_fragments_that_are_no_text_and_no_bytes(face):
    """If not even the first one is, nothing was sent, and the connection goes on until ``with`` closes it."""
    results, closes = await both(face, sends(b""), ("send", [5]))
    assert results == ["ConnectionClosedError", "TypeError"]
    assert closes[0] == b"\x03\xf3error in fragmented message"
    assert closes[1] == b"\x03\xf3"


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("reason", ["", "bye"])
async def test_a_server_that_echoes_the_reason_without_the_code(face, reason):
    """gevent-websocket does. Without a reason its answer is an empty CLOSE, which ends a connection normally. Otherwise
    the first two letters of the reason stand where the code has to be."""

    async def server(peer):
        await peer.accept()
        sent = (await peer.frames_until_close())[-1]
        peer.send(frames.frame(frames.CLOSE, sent.payload[2:]))

    async with serve(server) as served, FACES[face](served.url) as client:
        if face == "listener":
            client.transport.send_close(1000, reason)
        elif face == "awaitable":
            await client.ws.close(1000, reason)
        else:
            await client.call(client.ws.close, 1000, reason)
        with pytest.raises(End) as caught:
            await client.recv()
    if reason:
        assert isinstance(caught.value.cause, ProtocolError)
        assert "25209" in str(caught.value.cause)  # "by"
    else:
        assert (caught.value.received, caught.value.sent, caught.value.cause) == (1005, 1000, None)
