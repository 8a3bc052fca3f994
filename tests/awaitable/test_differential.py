"""The same script, run with websockets and with wsfast against the same server, comes to the same end.

A script notes results, exceptions, codes and states; the two lists of notes must be equal. Exceptions are compared by
name, and ConnectionClosed by the codes of both CLOSE frames and their order as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import websockets.asyncio.client
import websockets.asyncio.server
import websockets.exceptions
from support import frames
from support.awaiting import compares
from support.frames import BINARY, CONTINUATION, TEXT
from support.servers import Peer, serve

import wsfast.asyncio.client
import wsfast.exceptions

pytestmark = compares

CONNECTS = [websockets.asyncio.client.connect, wsfast.asyncio.client.connect]
CLOSED = (websockets.exceptions.ConnectionClosed, wsfast.exceptions.ConnectionClosed)

Script = Callable[["Notes", Any], Awaitable[None]]


def described(exc: BaseException) -> tuple[Any, ...]:
    if isinstance(exc, CLOSED):
        codes = [None if close is None else int(close.code) for close in (exc.rcvd, exc.sent)]
        return type(exc).__name__, *codes, exc.rcvd_then_sent
    return (type(exc).__name__,)


class Notes:
    """What happened, in an order that does not depend on the library."""

    def __init__(self, connect: Any, url: str) -> None:
        self.connect = connect
        self.url = url
        self.happened: list[Any] = []

    def __call__(self, *what: Any) -> None:
        self.happened.append(what)

    async def outcome(self, awaitable: Awaitable[Any], *errors: str) -> None:
        """Note what comes of it. An error that is none of these, by its class or a base, fails the test: a script that
        is wrong in itself raises the same in both libraries."""
        try:
            self("returned", await awaitable)
        except Exception as exc:
            if not {cls.__name__ for cls in type(exc).__mro__} & set(errors):
                raise
            self(*described(exc))

    def state(self, ws: Any) -> None:
        self(ws.state.name, ws.close_code, ws.close_reason)


@asynccontextmanager
async def server(handler: Any) -> AsyncIterator[str]:
    """websockets' server. A handler that raises because the client is gone ends quietly."""

    async def handle(ws: Any) -> None:
        with suppress(websockets.exceptions.ConnectionClosed):
            await handler(ws)

    options: Any = {"compression": None, "max_size": None, "ping_interval": None, "close_timeout": 1}
    async with websockets.asyncio.server.serve(handle, "127.0.0.1", 0, **options) as running:
        yield f"ws://127.0.0.1:{running.sockets[0].getsockname()[1]}/path?query"


@asynccontextmanager
async def scripted(handler: Any) -> AsyncIterator[str]:
    """A server that says any bytes."""

    async def handle(peer: Peer) -> None:
        await peer.accept()
        await handler(peer)

    async with serve(handle) as served:
        yield served.url
        while not served.results.empty():
            served.results.get_nowait()


async def compare(running: Any, handler: Any, script: Script, **options: Any) -> list[Any]:
    """Run `script(note, ws)` with both libraries."""
    happened = []
    for connect in CONNECTS:
        async with running(handler) as url:
            note = Notes(connect, url)
            async with await connect(url, compression=None, proxy=None, **options) as ws:
                await script(note, ws)
            note.state(ws)
            happened.append(note.happened)
    assert happened[0] == happened[1]
    return happened[1]


async def echo(ws: Any) -> None:
    async for message in ws:
        await ws.send(message)


def sends(*data: bytes) -> Callable[[Peer], Awaitable[None]]:
    """A scripted server that says this, and then answers the CLOSE."""

    async def handler(peer: Peer) -> None:
        for piece in data:
            peer.send(piece)
        await peer.answer_close()

    return handler


# recv


@pytest.mark.parametrize("decode", [None, True, False])
async def test_recv_gives_text_and_bytes(decode):
    async def handler(ws):
        for message in ("text", "", "żółw 🐢", b"bytes", b"", ["frag", "mented"], [b"frag", b"mented"]):
            await ws.send(message)

    async def script(note, ws):
        for _ in range(7):
            await note.outcome(ws.recv(decode))
        await note.outcome(ws.recv(decode=decode), "ConnectionClosedOK")

    await compare(server, handler, script)


@pytest.mark.parametrize(
    ("opcode", "payload", "decode"),
    [
        (TEXT, b"\xff", None),
        (TEXT, b"\xc3", None),
        (TEXT, b"\xed\xa0\x80", None),
        (BINARY, b"\xff", True),
    ],
)
async def test_recv_of_text_that_is_not_utf8(opcode, payload, decode):
    async def script(note, ws):
        await note.outcome(ws.recv(decode), "ConnectionClosedError")
        note(type(ws.close_code).__name__ != "NoneType")

    await compare(scripted, sends(frames.frame(opcode, payload), frames.text("next")), script)


async def test_recv_of_fragments_whose_text_is_split_inside_characters():
    data = "żółw 🐢".encode()
    pieces = [frames.frame(TEXT, data[:1], fin=False)]
    pieces += [frames.frame(CONTINUATION, data[i : i + 1], fin=False) for i in range(1, len(data))]
    pieces += [frames.frame(CONTINUATION, b"")]

    async def script(note, ws):
        await note.outcome(ws.recv())

    assert (await compare(scripted, sends(*pieces), script))[0] == ("returned", "żółw 🐢")


async def test_recv_after_the_server_s_close_gives_what_was_queued_first():
    async def handler(ws):
        await ws.send("1")
        await ws.send("2")
        await ws.close(4001, "enough")

    async def script(note, ws):
        await ws.wait_closed()
        for _ in range(4):
            await note.outcome(ws.recv(), "ConnectionClosedError")

    await compare(server, handler, script)


async def test_two_recv_at_once_are_refused():
    async def script(note, ws):
        first = asyncio.ensure_future(ws.recv())
        await asyncio.sleep(0)
        await note.outcome(ws.recv(), "ConcurrencyError")
        await note.outcome(anext_of(ws.recv_streaming()), "ConcurrencyError")
        await ws.send("x")
        await note.outcome(first)
        await ws.send("y")
        await note.outcome(ws.recv())

    await compare(server, echo, script)


async def anext_of(iterator):
    return await iterator.__anext__()


# recv_streaming


@pytest.mark.parametrize("decode", [None, True, False])
async def test_recv_streaming_gives_fragments(decode):
    data = "żółw".encode()
    said = [
        frames.frame(TEXT, data[:1], fin=False),
        frames.frame(CONTINUATION, data[1:3], fin=False),
        frames.frame(CONTINUATION, data[3:]),
        frames.binary(b"whole"),
        frames.text("after"),
    ]

    async def script(note, ws):
        for _ in range(2):
            note([fragment async for fragment in ws.recv_streaming(decode)])
        await note.outcome(ws.recv())

    await compare(scripted, sends(*said), script)


async def test_recv_streaming_that_is_not_used_up_blocks_recv():
    said = [frames.frame(TEXT, b"a", fin=False), frames.frame(CONTINUATION, b"b")]

    async def script(note, ws):
        fragments = ws.recv_streaming()
        note(await fragments.__anext__())
        await note.outcome(ws.recv(), "ConcurrencyError")
        note([fragment async for fragment in fragments])

    await compare(scripted, sends(*said, frames.text("next")), script)


async def test_recv_streaming_of_text_that_is_not_utf8():
    said = [frames.frame(TEXT, b"a", fin=False), frames.frame(CONTINUATION, b"\xff")]

    async def script(note, ws):
        fragments = ws.recv_streaming()
        note(await fragments.__anext__())
        await note.outcome(fragments.__anext__(), "ConnectionClosedError")

    await compare(scripted, sends(*said), script)


async def test_recv_streaming_of_a_connection_that_closes():
    async def handler(peer):
        peer.send(frames.frame(TEXT, b"a", fin=False))

    async def script(note, ws):
        fragments = ws.recv_streaming()
        note(await fragments.__anext__())
        await note.outcome(fragments.__anext__(), "ConnectionClosedError")

    await compare(scripted, handler, script)


# async for


@pytest.mark.parametrize("code", [1000, 1001, 1008, 4000])
async def test_iteration_ends_or_raises_by_the_code(code):
    async def handler(ws):
        await ws.send("1")
        await ws.send(b"2")
        await ws.close(code)

    async def script(note, ws):
        try:
            async for message in ws:
                note(message)
            note("ended")
        except Exception as exc:
            note(*described(exc))

    await compare(server, handler, script)


# send


async def fragments_of(*items):
    for item in items:
        await asyncio.sleep(0)
        yield item


@pytest.mark.parametrize("text", [None, True, False])
@pytest.mark.parametrize(
    "make",
    [
        lambda: "żółw",
        lambda: "",
        lambda: b"bytes",
        lambda: bytearray(b"bytearray"),
        lambda: memoryview(b"memoryview"),
        lambda: ["a", "b", "c"],
        lambda: (b"a", bytearray(b"b"), memoryview(b"c")),
        lambda: (c for c in "generator"),
        lambda: {"of": "dict"}.keys(),
        lambda: fragments_of("a", "b"),
        lambda: fragments_of(b"a", b"b"),
    ],
    ids=[
        "str",
        "empty",
        "bytes",
        "bytearray",
        "memoryview",
        "list",
        "tuple",
        "generator",
        "keys",
        "async-str",
        "async-bytes",
    ],
)
async def test_send_of_all_types(make, text):
    async def script(note, ws):
        await note.outcome(ws.send(make(), text=text))
        await note.outcome(ws.recv())

    await compare(server, echo, script)


@pytest.mark.parametrize("make", [list, lambda: fragments_of()], ids=["iterable", "async"])
async def test_send_of_no_fragments_sends_nothing(make):
    async def script(note, ws):
        await note.outcome(ws.send(make()))
        await ws.send("next")
        await note.outcome(ws.recv())

    await compare(server, echo, script)


@pytest.mark.parametrize(
    "message", [5, None, {"a": "dict"}, object()], ids=lambda message: type(message).__name__
)
async def test_send_of_a_wrong_type(message):
    async def script(note, ws):
        await note.outcome(ws.send(message), "TypeError")
        await note.outcome(ws.send("still open"))
        await note.outcome(ws.recv())

    await compare(server, echo, script)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ["a", b"b"],
        lambda: [b"a", "b"],
        lambda: ["a", 5],
        lambda: fragments_of("a", b"b"),
    ],
    ids=["str-bytes", "bytes-str", "str-int", "async-str-bytes"],
)
async def test_send_of_fragments_of_wrong_types_closes(make):
    async def script(note, ws):
        await note.outcome(ws.send(make()), "TypeError")
        await note.outcome(ws.send("more"), "ConnectionClosedError")
        await note.outcome(ws.recv(), "ConnectionClosedError")

    await compare(server, echo, script)


async def test_send_of_fragments_whose_iterator_fails_closes():
    def failing():
        yield "a"
        raise LookupError("mine")

    async def script(note, ws):
        await note.outcome(ws.send(failing()), "LookupError")
        await note.outcome(ws.send("more"), "ConnectionClosedError")

    await compare(server, echo, script)


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_send_of_what_another_connection_says_until_it_ends(asynchronous):
    """The iterable raises ConnectionClosed, and this connection is not the one that is closed."""

    async def script(note, ws):
        exceptions = wsfast.exceptions if type(ws).__module__.startswith("wsfast") else websockets.exceptions

        def relayed():
            yield "a"
            raise exceptions.ConnectionClosedError(None, None)

        async def relayed_asynchronously():
            for chunk in relayed():
                yield chunk

        await note.outcome(
            ws.send(relayed_asynchronously() if asynchronous else relayed()), "ConnectionClosedError"
        )
        await note.outcome(ws.send("more"), "ConnectionClosedError")

    await compare(server, echo, script)


async def in_halves(more):
    """A message in two fragments, the second after `more`."""
    yield "a"
    await more.wait()
    yield "b"


async def test_send_waits_for_an_open_fragmented_message():
    async def script(note, ws):
        more = asyncio.Event()
        fragmented = asyncio.ensure_future(ws.send(in_halves(more)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        whole = asyncio.ensure_future(ws.send("whole"))
        also = asyncio.ensure_future(ws.send(["al", "so"]))
        await (await ws.ping())
        note(fragmented.done(), whole.done(), also.done())
        more.set()
        await asyncio.gather(fragmented, whole, also)
        note([await ws.recv() for _ in range(3)])

    await compare(server, echo, script)


@pytest.mark.parametrize("who", ["client", "server"])
async def test_everything_after_the_end_raises(who):
    async def handler(ws):
        if who == "server":
            await ws.close(1001, "away")
        await ws.wait_closed()

    async def script(note, ws):
        if who == "client":
            await ws.close(4002, "mine")
        await ws.wait_closed()
        for awaitable in (
            ws.send("x"),
            ws.send(["x"]),
            ws.recv(),
            ws.ping(),
            ws.pong(),
            ws.send(fragments_of("x")),
        ):
            await note.outcome(awaitable, "ConnectionClosed")
        await note.outcome(anext_of(ws.recv_streaming()), "ConnectionClosed")
        await note.outcome(ws.wait_closed())
        await note.outcome(ws.close())

    await compare(server, handler, script)


# ping and pong


async def test_ping_gives_a_latency():
    async def script(note, ws):
        note(ws.latency)
        for data in (None, "text", b"bytes", bytearray(b"bytearray"), memoryview(b"memoryview"), "x" * 125):
            latency = await (await ws.ping(data))
            note(type(latency).__name__, 0 <= latency < 5, ws.latency == latency)

    await compare(server, echo, script)


async def test_pings_that_are_refused():
    async def handler(peer):  # answers no ping
        await peer.answer_close()

    async def script(note, ws):
        waiting = await ws.ping("same")
        await note.outcome(ws.ping("same"), "ConcurrencyError")
        await note.outcome(ws.ping(b"same"), "ConcurrencyError")
        await note.outcome(ws.ping("x" * 126), "ProtocolError")
        await note.outcome(ws.ping(5), "TypeError")
        await note.outcome(ws.pong("x" * 126), "ProtocolError")
        await note.outcome(ws.pong(None), "TypeError")
        await ws.close()
        await note.outcome(waiting, "ConnectionClosedOK")

    await compare(scripted, handler, script)


async def test_a_pong_answers_earlier_pings_too():
    async def handler(peer):
        pings = [await peer.frame() for _ in range(3)]
        peer.send(frames.frame(frames.PONG, b"unsolicited"))
        peer.send(frames.frame(frames.PONG, pings[1].payload))
        await peer.answer_close()

    async def script(note, ws):
        pongs = [await ws.ping(str(number)) for number in range(3)]
        await asyncio.wait(pongs[:2])
        note([pong.done() for pong in pongs])

    await compare(scripted, handler, script)


async def test_pong_is_sent():
    async def handler(peer):
        await peer.frame()
        peer.send(frames.text((await peer.frame()).payload))
        await peer.answer_close()

    async def script(note, ws):
        await note.outcome(ws.pong())
        await note.outcome(ws.pong("heart"))
        await note.outcome(ws.recv())

    await compare(scripted, handler, script)


# close


@pytest.mark.parametrize("arguments", [(), (1001,), (4999, "reason"), (3000, "ż" * 61), (1011,)])
async def test_close_with_codes(arguments):
    async def script(note, ws):
        await note.outcome(ws.close(*arguments))
        note.state(ws)
        await note.outcome(ws.close())
        await note.outcome(ws.recv(), "ConnectionClosed")

    await compare(server, echo, script)


@pytest.mark.parametrize(
    "arguments", [(0,), (1005,), (1006,), (1015,), (999,), (5000,), (1000, "x" * 124), (None, "x")]
)
async def test_close_with_codes_and_reasons_that_must_not_be_sent(arguments):
    async def script(note, ws):
        await note.outcome(ws.close(*arguments), "ProtocolError")
        note.state(ws)
        await ws.send("still open")
        await note.outcome(ws.recv())

    await compare(server, echo, script)


async def test_close_during_a_fragmented_message():
    async def script(note, ws):
        more = asyncio.Event()
        fragmented = asyncio.ensure_future(ws.send(in_halves(more)))
        await (await ws.ping())
        closing = asyncio.ensure_future(ws.close())
        await closing
        more.set()
        await note.outcome(fragmented, "ConnectionClosedError")
        await note.outcome(ws.recv(), "ConnectionClosedError")

    await compare(server, echo, script)


async def test_an_exception_in_the_body_closes_with_1011():
    happened = []
    for connect in CONNECTS:
        ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def handler(ws, ended=ended):
            await ws.wait_closed()
            ended.set_result((ws.close_code, ws.close_reason))

        async with server(handler) as url:
            with pytest.raises(LookupError):
                async with connect(url, compression=None, proxy=None):
                    raise LookupError("mine")
            happened.append(await ended)
    assert happened[0] == happened[1] == (1011, "")


async def test_close_wakes_recv():
    async def script(note, ws):
        receiving = asyncio.ensure_future(ws.recv())
        await asyncio.sleep(0)
        await ws.close()
        await note.outcome(receiving, "ConnectionClosedOK")

    await compare(server, echo, script)


async def test_a_server_that_drops_the_connection():
    async def handler(peer):
        peer.send(frames.text("last words"))

    async def script(note, ws):
        await note.outcome(ws.recv())
        await note.outcome(ws.recv(), "ConnectionClosedError")
        await note.outcome(ws.send("x"), "ConnectionClosedError")

    await compare(scripted, handler, script)


async def test_a_server_that_resets_the_connection():
    async def handler(peer):
        await peer.frame()
        peer.reset()

    async def script(note, ws):
        await ws.send("x")
        await note.outcome(ws.recv(), "ConnectionClosedError")
        await note.outcome(ws.ping(), "ConnectionClosedError")

    await compare(scripted, handler, script)


async def test_a_server_that_does_not_answer_the_close():
    async def handler(peer):
        await peer.rest()

    async def script(note, ws):
        await note.outcome(ws.close())
        note.state(ws)
        await note.outcome(ws.recv(), "ConnectionClosedError")

    await compare(scripted, handler, script, close_timeout=0.1)


async def test_an_empty_close_frame():
    async def handler(peer):
        peer.send(frames.close())
        await peer.frame()

    async def script(note, ws):
        note([message async for message in ws])
        await note.outcome(ws.recv(), "ConnectionClosedOK")

    await compare(scripted, handler, script, close_timeout=1)


# limits and violations


@pytest.mark.parametrize(
    "limit", [10, (10, None), (10, 7), (None, 7), (20, 10), None, (None, None)], ids=repr
)
@pytest.mark.parametrize(
    "sizes", [[7], [10], [11], [7, 3], [7, 4], [3, 3, 3, 1], [3, 3, 3, 2], [8, 1], [0, 0, 10]]
)
async def test_max_size(limit, sizes):
    *first, last = sizes
    opcodes = [BINARY] + [CONTINUATION] * len(first)
    said = [frames.frame(op, bytes(size), fin=False) for op, size in zip(opcodes, first)]
    said.append(frames.frame(opcodes[-1], bytes(last)))

    async def script(note, ws):
        await note.outcome(ws.recv(), "ConnectionClosedError")

    async def handler(peer):
        for piece in said:
            peer.send(piece)
        note_sent = await peer.answer_close()
        assert frames.parse_close(note_sent.payload)[0] in (1000, 1009)

    await compare(scripted, handler, script, max_size=limit)


@pytest.mark.parametrize(
    "bad",
    [
        frames.frame(CONTINUATION, b"x"),
        frames.frame(TEXT, b"x", rsv=4),
        frames.frame(3, b"x"),
        frames.frame(frames.PING, b"x", fin=False),
        frames.frame(TEXT, b"x", fin=False) + frames.text("y"),
        frames.frame(frames.CLOSE, b"\x03"),
        frames.close(1005),
        frames.close(1000, b"\xff"),
        frames.masked(TEXT, b"masked"),
    ],
    ids=[
        "continuation",
        "rsv",
        "opcode",
        "ping-fin",
        "interleaved",
        "close-1",
        "close-1005",
        "close-utf8",
        "masked",
    ],
)
async def test_violations_end_the_connection_after_what_came_before(bad):
    async def script(note, ws):
        await note.outcome(ws.recv())
        await note.outcome(ws.recv(), "ConnectionClosedError")
        await note.outcome(ws.send("x"), "ConnectionClosedError")

    async def handler(peer):
        peer.send(frames.text("before") + bad + frames.text("after"))
        await peer.frames_until_close()

    await compare(scripted, handler, script, close_timeout=1)


# attributes and connecting


async def test_attributes():
    async def script(note, ws):
        note(ws.request.path, ws.request.headers["Upgrade"].lower(), ws.request.headers["X-Mine"])
        note(ws.response.status_code, ws.response.reason_phrase, ws.response.headers["Connection"])
        note(ws.subprotocol, ws.state, ws.close_code, ws.close_reason, type(ws.id).__name__)
        note(ws.remote_address[0], len(ws.local_address), ws.local_address[0])
        note(ws.transport.get_extra_info("peername") == ws.remote_address)
        note(hasattr(ws.logger, "info"))

    await compare(server, echo, script, additional_headers={"X-Mine": "yes"})


async def outcomes_of_connecting(running: Any, handler: Any, *arguments: Any, **options: Any) -> Any:
    happened = []
    for connect in CONNECTS:
        async with running(handler) as url:
            note = Notes(connect, url)

            async def connecting(connect=connect, url=url):
                async with connect(
                    *(arguments or [url]), proxy=None, **{"compression": None, **options}
                ) as ws:
                    return ws.subprotocol, ws.response.status_code

            await note.outcome(connecting(), "InvalidURI", "TypeError", "ValueError")
            happened.append(note.happened)
    assert happened[0] == happened[1]
    return happened[1][0]


@pytest.mark.parametrize("uri", ["http://localhost/", "ws://localhost/#fragment", "ws:///", "localhost"])
async def test_invalid_uris(uri):
    assert await outcomes_of_connecting(server, echo, uri) == ("InvalidURI",)


async def test_wrong_arguments():
    assert await outcomes_of_connecting(server, echo, compression="gzip") == ("ValueError",)
    assert await outcomes_of_connecting(server, echo, ssl=True) == ("ValueError",)
    assert await outcomes_of_connecting(server, echo, "wss://localhost/", ssl=None) == ("ValueError",)
    assert await outcomes_of_connecting(server, echo, subprotocols="chat") == ("TypeError",)


async def test_a_rejection():
    def reject(connection, request):
        return connection.respond(403, "no entry\n")

    for connect in CONNECTS:
        async with websockets.asyncio.server.serve(echo, "127.0.0.1", 0, process_request=reject) as running:
            url = f"ws://127.0.0.1:{running.sockets[0].getsockname()[1]}/"
            with pytest.raises(Exception, match="HTTP 403") as caught:
                await connect(url, proxy=None)
            assert type(caught.value).__name__ == "InvalidStatus"
            assert caught.value.response.status_code == 403
            assert caught.value.response.body == b"no entry\n"


async def test_nobody_listens(unused_tcp_port):
    happened = []
    for connect in CONNECTS:
        with pytest.raises(OSError) as caught:  # noqa: PT011
            await connect(f"ws://127.0.0.1:{unused_tcp_port}/", proxy=None)
        happened.append(caught.type.__name__)
    assert happened[0] == happened[1] == "ConnectionRefusedError"


async def test_a_server_that_says_nothing():
    async def silent(peer):
        await peer.read_request()
        await peer.rest()

    for connect in CONNECTS:
        async with serve(silent) as served:
            with pytest.raises(TimeoutError):
                await connect(served.url, proxy=None, open_timeout=0.05)


async def test_a_server_that_drops_the_connection_before_the_reply():
    async def rude(peer):
        await peer.read_request()

    for connect in CONNECTS:
        async with serve(rude) as served:
            with pytest.raises(Exception) as caught:  # noqa: PT011
                await connect(served.url, proxy=None)
            assert caught.type.__name__ == "InvalidMessage"
            assert isinstance(caught.value.__cause__, EOFError)


async def test_subprotocols():
    for connect in CONNECTS:
        async with websockets.asyncio.server.serve(echo, "127.0.0.1", 0, subprotocols=["b", "c"]) as running:
            url = f"ws://127.0.0.1:{running.sockets[0].getsockname()[1]}/"
            async with connect(url, proxy=None, subprotocols=["a", "b"]) as ws:
                assert ws.subprotocol == "b"
