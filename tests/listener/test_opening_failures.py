"""ws_connect() that fails: rejected, too slow, cut off, cancelled anywhere. It says why, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl

import pytest
from support import all_at_once, certificates, frames
from support.faces import FACES
from support.frames import text
from support.kinds import kind_of
from support.listeners import Recorder, Scripted
from support.servers import Peer, echo, serve

from wsfast import (
    InvalidHeader,
    InvalidMessage,
    InvalidStatus,
    InvalidUpgrade,
    NegotiationError,
    WSMsgType,
    ws_connect,
)


def never() -> Recorder:
    raise AssertionError("the listener is made only when the server has agreed")


# Rejections


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 503, 520, 200, 300, 304])
@pytest.mark.parametrize("framing", ["length", "chunked", "end of stream"])
async def test_a_rejection_has_status_headers_and_body(status, framing):
    body = b'{"error": "no"}'
    head = f"HTTP/1.1 {status} Whatever\r\nRetry-After: 7\r\n".encode()

    async def handler(peer: Peer) -> None:
        await peer.read_request()
        if framing == "length":
            peer.send(head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        elif framing == "chunked":
            peer.send(head + b"Transfer-Encoding: chunked\r\n\r\n" + b"f\r\n" + body + b"\r\n0\r\n\r\n")
        else:
            peer.send(head + b"\r\n" + body)
            peer.writer.write_eof()
        await peer.rest()

    async with serve(handler) as server:
        with pytest.raises(InvalidStatus) as info:
            await ws_connect(never, server.url)
    response = info.value.response
    assert response.status_code == status
    assert response.headers["retry-after"] == "7"
    assert response.body == (b"" if status == 304 else body)
    assert str(status) in str(info.value)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirects_are_followed_if_none_are_wanted(status):
    async def handler(peer: Peer) -> None:
        await peer.read_request()
        peer.send(f"HTTP/1.1 {status} Go\r\nLocation: ws://other/\r\nContent-Length: 0\r\n\r\n".encode())
        await peer.rest()

    async with serve(handler) as server:
        with pytest.raises(InvalidStatus) as info:
            await ws_connect(never, server.url, max_redirects=0)
    assert info.value.response.status_code == status


# Replies that are wrong: (name, how to make it of the right one, the exception)
WRONG = [
    ("no HTTP", lambda reply: b"SSH-2.0-x\r\n", InvalidMessage),
    ("HTTP/1.0", lambda reply: reply.replace(b"HTTP/1.1", b"HTTP/1.0"), InvalidMessage),
    ("no Upgrade", lambda reply: reply.replace(b"Upgrade: websocket\r\n", b""), InvalidUpgrade),
    ("another Upgrade", lambda reply: reply.replace(b": websocket", b": h2c"), InvalidUpgrade),
    ("no Connection", lambda reply: reply.replace(b"Connection: Upgrade\r\n", b""), InvalidUpgrade),
    ("wrong Accept", lambda reply: reply.replace(b"Accept: ", b"Accept: x"), InvalidHeader),
    (
        "unasked subprotocol",
        lambda reply: reply[:-2] + b"Sec-WebSocket-Protocol: x\r\n\r\n",
        NegotiationError,
    ),
    (
        "unasked extension",
        lambda reply: reply[:-2] + b"Sec-WebSocket-Extensions: x\r\n\r\n",
        NegotiationError,
    ),
]


@pytest.mark.parametrize(("change", "error"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
async def test_a_wrong_reply_fails_the_handshake_and_drops_the_connection(change, error):
    async def handler(peer: Peer) -> list:
        await peer.read_request()
        peer.send(change(peer.reply()) + text("never delivered"))
        return await peer.rest()

    async with serve(handler) as server:
        with pytest.raises(error):
            await ws_connect(never, server.url)
        assert await server.result() == [], "no frame is sent on a connection that did not open"


# The server goes away


@pytest.mark.parametrize("sent", [0, 1, 20, 100, 128])
@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_server_that_goes_away_inside_the_reply_is_an_error_with_a_type(sent, how):
    async def handler(peer: Peer) -> None:
        await peer.read_request()
        peer.send(peer.reply()[:sent])
        await peer.writer.drain()
        if how == "reset":
            peer.reset()

    async with serve(handler) as server:
        with pytest.raises(InvalidMessage if how == "close" else (ConnectionResetError, InvalidMessage)):
            await ws_connect(never, server.url)


async def test_a_server_that_closes_before_the_request_is_an_error_with_a_type():
    async def handler(peer: Peer) -> None:
        peer.reset()

    async with serve(handler) as server:
        with pytest.raises((ConnectionError, InvalidMessage)):
            await ws_connect(never, server.url)


async def test_nobody_listens():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError):
            await ws_connect(never, f"ws://127.0.0.1:{taken.getsockname()[1]}/")


async def test_a_name_that_does_not_exist():
    with pytest.raises(socket.gaierror):
        await ws_connect(never, "ws://no-such-host.invalid/")


# Deadlines

TIMEOUTS = [{"open_timeout": 1}, {"websocket_handshake_timeout": 0.02}]
timeouts = pytest.mark.parametrize("options", TIMEOUTS, ids=[next(iter(options)) for options in TIMEOUTS])


@timeouts
async def test_a_server_that_stops_inside_the_reply_is_too_slow(options):
    async def stops(sent: int) -> None:
        async def handler(peer: Peer) -> object:
            await peer.read_request()
            peer.send(peer.reply()[:sent])
            return await peer.rest()

        async with serve(handler) as server:
            with pytest.raises(TimeoutError, match="the WebSocket handshake with .* took too long"):
                await ws_connect(never, server.url, **options)
            assert await server.result() == []

    await all_at_once(stops, [(0,), (1,), (100,), (128,)])


async def test_a_rejection_whose_body_never_ends_is_cut_at_the_deadline():
    async def handler(peer: Peer) -> None:
        await peer.read_request()
        peer.send(b"HTTP/1.1 403 No\r\nContent-Length: 100\r\n\r\nhalf")
        await peer.rest()

    async def is_cut(option: str) -> None:
        async with serve(handler) as server:
            with pytest.raises(InvalidStatus) as caught:
                await ws_connect(never, server.url, **{option: 2})
        assert caught.value.response.body == b"half"

    await all_at_once(is_cut, [("open_timeout",), ("websocket_handshake_timeout",)])


async def test_a_server_that_drips_its_reply_does_not_extend_the_deadline():
    async def handler(peer: Peer) -> None:
        await peer.read_request()
        peer.send(b"HTTP/1.1 101 Switching Protocols\r\n")
        with contextlib.suppress(ConnectionError):
            while not peer.reader.at_eof():
                peer.send(b"X: y\r\n")
                await peer.writer.drain()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(peer.reader.read(1), 0.005)

    async with serve(handler) as server:
        with pytest.raises(TimeoutError):
            await ws_connect(never, server.url, open_timeout=0.05)


async def silent(peer: Peer) -> None:
    """Reads, and never answers."""
    with contextlib.suppress(ConnectionError):
        while await peer.reader.read(1 << 16):
            pass


by_both = pytest.mark.parametrize("settings", [certificates.client_context, certificates.client_settings])


@by_both
async def test_a_silent_tls_server_is_too_slow(settings):
    async with serve(silent) as server:
        url = server.url.replace("ws:", "wss:")
        with pytest.raises(
            TimeoutError, match="the TLS handshake with .* took too long: open_timeout is 1 s"
        ):
            await ws_connect(never, url, ssl_context=settings(), open_timeout=1)


@by_both
async def test_a_server_that_is_silent_after_tls_is_too_slow(settings):
    async with serve(silent, ssl_context=certificates.server_context()) as server:
        context = settings()
        with pytest.raises(TimeoutError, match="the WebSocket handshake with .* took too long"):
            await ws_connect(never, server.url, ssl_context=context, websocket_handshake_timeout=0.02)


async def test_the_handshake_s_deadline_does_not_count_tcp_and_tls():
    """A timeout of its own begins when the request is sent; here TLS takes longer than that."""

    async def handler(peer: Peer) -> None:
        await peer.accept()
        await peer.answer_close()

    async with serve(handler, ssl_context=certificates.server_context()) as server:

        async def slow_socket(uri):
            await asyncio.sleep(2.1)

        transport, _ = await ws_connect(
            Recorder,
            server.url,
            ssl_context=certificates.client_context(),
            socket_factory=slow_socket,
            websocket_handshake_timeout=2,
        )
        transport.disconnect()
        await transport.wait_disconnected()


async def test_a_slow_socket_factory_is_too_slow():
    async def forever(uri):
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError, match="socket_factory took too long"):
        await ws_connect(never, "ws://127.0.0.1:1/", socket_factory=forever, open_timeout=0.01)


async def test_a_timeout_of_the_caller_s_own_is_not_taken_for_ours():
    class MyTimeoutError(TimeoutError):
        pass

    async def fail(uri):
        raise MyTimeoutError("mine")

    with pytest.raises(MyTimeoutError, match="mine"):
        await ws_connect(never, "ws://127.0.0.1:1/", socket_factory=fail)


async def test_no_deadline_can_be_asked_for():
    async with serve(echo) as server:
        transport, _ = await ws_connect(
            Recorder, server.url, open_timeout=None, websocket_handshake_timeout=None, close_timeout=None
        )
        transport.disconnect()
        await transport.wait_disconnected()


async def test_a_deadline_of_zero_is_over_at_once():
    async with serve(silent) as server:
        with pytest.raises(TimeoutError):
            await ws_connect(never, server.url, open_timeout=0)


# Cancellation


async def connect_and_cancel_after(steps: int, *args, **kwargs) -> bool:
    """Cancel ws_connect() in the given iteration of the loop; True if it had not ended before."""
    task = asyncio.ensure_future(ws_connect(*args, **kwargs))
    for _ in range(steps):
        await asyncio.sleep(0)
        if task.done():
            break
    cancelled = task.cancel()
    try:
        transport, _ = await task
    except asyncio.CancelledError:
        return True
    transport.disconnect()
    await transport.wait_disconnected()
    return cancelled


class Balanced(Recorder):
    """Hears of the end if it heard of the beginning."""

    made: list[Balanced] = []  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self.made.append(self)


@pytest.mark.parametrize("tls", certificates.WAYS.values(), ids=certificates.WAYS)
@pytest.mark.parametrize("use_aiofastnet", [None, False], ids=["aiofastnet", "the loop's"])
@pytest.mark.parametrize("factory", [False, True], ids=["", "socket_factory"])
async def test_ws_connect_can_be_cancelled_in_every_iteration_of_the_loop(tls, use_aiofastnet, factory):
    async def late(uri):
        await asyncio.sleep(0)
        return socket.socket()

    Balanced.made.clear()
    options = {
        "ssl_context": tls and tls(),
        "use_aiofastnet": use_aiofastnet,
        "socket_factory": late if factory else None,
    }
    async with serve(echo, ssl_context=certificates.server_context() if tls else None) as server:
        completed = steps = 0
        while completed < 3:
            assert steps < 300, "ws_connect() does not come to an end"
            completed += not await connect_and_cancel_after(steps, Balanced, server.url, **options)
            steps += 1
        assert steps > 5
        # Connections opened and cancelled in the same moment are aborted: wait until the listeners have heard of it.
        for listener in Balanced.made:
            if "connected" in listener.events:
                await listener.until(lambda listener=listener: "disconnected" in listener.events)


async def test_cancelling_while_a_name_is_looked_up_leaves_nothing():
    task = asyncio.ensure_future(ws_connect(never, "ws://localhost:1/"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancelled_handshake_drops_the_connection():
    async def handler(peer: Peer) -> object:
        await peer.read_request()
        asked.set()
        return await peer.rest()

    asked = asyncio.Event()
    async with serve(handler) as server:
        task = asyncio.ensure_future(ws_connect(never, server.url))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await server.result() == []


async def test_a_handshake_that_failed_may_be_tried_again():
    replies = [b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", None]

    async def handler(peer: Peer) -> None:
        await peer.read_request()
        reply = replies.pop(0)
        peer.send(reply or peer.reply())
        if reply is None:
            await peer.answer_close()

    async with serve(handler) as server:
        with pytest.raises(InvalidStatus):
            await ws_connect(Recorder, server.url)
        transport, listener = await ws_connect(Recorder, server.url)
        transport.disconnect()
        await transport.wait_disconnected()
        assert listener.events == ["connected", "disconnected"]


async def test_what_on_ws_connected_sends_leaves_before_ws_connect_returns():
    async def handler(peer: Peer) -> list:
        await peer.accept()
        got = await peer.frames_until_close()
        peer.send(frames.close(1000))
        return [sent.payload for sent in got]

    def greet(self, transport):
        transport.send(WSMsgType.TEXT, "first")

    async with serve(handler) as server:
        transport, _ = await ws_connect(lambda: Scripted(on_ws_connected=greet), server.url)
        transport.send(WSMsgType.TEXT, "second")
        transport.disconnect()
        await transport.wait_disconnected()
        assert await server.result() == [b"first", b"second", b"\x03\xe8"]


# ---- a server that does not speak TLS: the same words by every face, and none in the log of the loop (conftest looks)


async def sends_http(peer):
    peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await peer.reader.read()


async def sends_nothing(peer):
    await peer.reader.read(1)


@pytest.mark.parametrize(
    ("handler", "kind", "words"),
    [
        (sends_http, ssl.SSLError, "the server does not speak TLS: is it a ws:// server?"),
        (
            sends_nothing,
            ssl.SSLEOFError,
            "the server closed the connection during the TLS handshake: is it a ws:// server?",
        ),
    ],
)
@pytest.mark.parametrize(
    "options", [{"face": name} for name in FACES] + [{"face": "listener", "use_aiofastnet": False}]
)
async def test_wss_to_a_server_without_tls_says_so(options, handler, kind, words):
    options = dict(options)
    face = FACES[options.pop("face")]
    async with serve(handler) as server:
        with pytest.raises(kind) as caught:
            async with face(server.url.replace("ws:", "wss:"), **options):
                pass
    assert kind_of(caught.value) is kind
    assert caught.value.args[1] == words


async def sends_an_alert(peer):
    peer.send(b"\x15\x03\x01\x00\x02\x02\x46")
    await peer.reader.read()


@pytest.mark.parametrize("face", FACES)
async def test_ws_to_a_server_with_tls_says_so(face):
    async with serve(sends_an_alert) as server:
        with pytest.raises(InvalidMessage, match=r"is TLS, not HTTP: is it a wss:// server"):
            async with FACES[face](server.url):
                pass


async def test_a_factory_that_raises_stop_iteration():
    async def handler(peer: Peer) -> None:
        await peer.accept()
        await peer.rest()

    async with serve(handler) as server:
        with pytest.raises(RuntimeError, match="StopIteration"):
            await ws_connect(lambda: next(iter(())), server.url)
