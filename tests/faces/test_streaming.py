"""recv_streaming() of both clients: a piece for each fragment, wherever compressed bytes and characters are cut."""

from __future__ import annotations

import asyncio
import codecs
import zlib
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

import picows
import picows.websockets
import pytest
import websockets.asyncio.client
import websockets.sync.client
from hypothesis import given, settings
from hypothesis import strategies as st
from support import frames
from support.faces import FACES
from support.frames import BINARY, CONTINUATION, PING, PONG, TEXT, frame
from support.servers import Peer, serve

import wsfast
import wsfast.asyncio.client
import wsfast.sync.client
from wsfast.deflate import PerMessageDeflate

RSV1 = 4
TAIL = b"\x00\x00\xff\xff"
ACCEPT = b"Sec-WebSocket-Extensions: permessage-deflate\r\n"


class Message(NamedTuple):
    """A message, and how it is sent and received."""

    payload: bytes
    opcode: int
    compressed: bool
    flush: tuple[int, int]  # where a deflate block ends within it, and how
    cuts: list[tuple[int, bytes]]  # where a fragment ends, and the control frames that follow
    decode: bool | None

    def deflate(self, stream) -> bytes:
        at, how = self.flush
        deflated = stream.compress(self.payload[:at]) + stream.flush(how) + stream.compress(self.payload[at:])
        deflated += stream.flush(zlib.Z_SYNC_FLUSH)
        # A stream that has nothing new says nothing (RFC 7692 section 7.2.3.6).
        return deflated.removesuffix(TAIL) or b"\x00"

    def fragments(self, stream) -> list[bytes]:
        data = self.deflate(stream) if self.compressed else self.payload
        edges = [0, *sorted(at % (len(data) + 1) for at, _ in self.cuts), len(data)]
        return [data[a:b] for a, b in zip(edges, edges[1:])]  # noqa: RUF007 - two of them

    def frames(self, fragments: list[bytes]) -> bytes:
        data = b""
        for n, (one, (_, control)) in enumerate(zip(fragments, [*self.cuts, (0, b"")])):
            rsv = RSV1 if self.compressed and n == 0 else 0
            opcode = CONTINUATION if n else self.opcode
            data += frame(opcode, one, fin=n == len(self.cuts), rsv=rsv) + control
        return data

    def pieces(self, fragments: list[bytes], stream) -> list:
        """What Python makes of them."""
        decode = self.opcode == TEXT if self.decode is None else self.decode
        decoder = codecs.getincrementaldecoder("utf-8")()
        pieces = []
        for n, piece in enumerate(fragments):
            last = n == len(self.cuts)
            if self.compressed:
                piece = stream.decompress(piece + TAIL if last else piece)
            pieces.append(decoder.decode(piece, last) if decode else piece)
        return pieces


controls = st.lists(st.sampled_from([frame(PING, b"?"), frame(PONG)]), max_size=2).map(b"".join)
messages = st.builds(
    Message,
    payload=st.builds(
        lambda text, times: text.encode() * times, st.text("aé€🐢", max_size=20), st.integers(1, 50)
    ),
    opcode=st.sampled_from([TEXT, BINARY]),
    compressed=st.sampled_from([True, True, False]),
    flush=st.tuples(
        st.integers(0, 100),
        st.sampled_from(
            [zlib.Z_NO_FLUSH, zlib.Z_BLOCK, zlib.Z_PARTIAL_FLUSH, zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH]
        ),
    ),
    cuts=st.lists(st.tuples(st.integers(0, 5000), controls), max_size=8),
    decode=st.sampled_from([None, True, False]),
)


async def awaitable(url: str, decodes: list, **options) -> list:
    received = []
    async with wsfast.asyncio.client.connect(url, **options) as ws:
        for decode in decodes:
            received.append([piece async for piece in ws.recv_streaming(decode)])
    return received


async def blocking(url: str, decodes: list, **options) -> list:
    def receive() -> list:
        with wsfast.sync.client.connect(url, **options) as ws:
            return [list(ws.recv_streaming(decode)) for decode in decodes]

    with ThreadPoolExecutor(1) as executor:
        return await asyncio.get_running_loop().run_in_executor(executor, receive)


@pytest.mark.asyncio(loop_factories=["asyncio"])
@pytest.mark.parametrize("receive", [awaitable, blocking])
@settings(max_examples=150)
@given(
    sent=st.lists(messages, min_size=1, max_size=8),
    level=st.sampled_from([0, 1, 6]),
    library=st.sampled_from(["zlib", "zlib-ng", "isal", None]),
    write=st.integers(1, 500),
)
async def test_every_fragment_is_a_piece(receive, sent, level, library, write):
    deflating, inflating = zlib.compressobj(level, wbits=-15), zlib.decompressobj(wbits=-15)
    data, expected = b"", []
    for message in sent:
        fragments = message.fragments(deflating)
        data += message.frames(fragments)
        expected.append(message.pieces(fragments, inflating))

    async def server(peer):
        await peer.accept(headers=ACCEPT)
        for at in range(0, len(data), write):
            peer.send(data[at : at + write])
            await asyncio.sleep(0)  # the client may read it
        await peer.answer_close()

    async with serve(server) as served:
        received = await receive(
            served.url, [message.decode for message in sent], compression=PerMessageDeflate(library=library)
        )
    assert received == expected


@pytest.mark.parametrize("face", FACES.values(), ids=FACES)
async def test_what_is_not_utf_8_is_told_to_the_server_in_the_same_words(face):
    told = []

    async def say(peer):
        await peer.accept()
        peer.send(frame(TEXT, b"\xff"))
        told.append((await peer.answer_close()).payload)

    async with serve(say) as server:
        async with face(server.url) as client:
            await client.rest()
        await server.result()
    assert told == [(1007).to_bytes(2, "big") + b"invalid start byte at position 0"]


PINGS = {"ping_interval": 0.6, "ping_timeout": 0.6}
ENOUGH = 3  # unanswered pings; a client that wants pongs drops the connection after one or two


async def stream_without_pongs(peer: Peer) -> str:
    """Send a message every 10 ms. The result tells whether the client went away first, or ENOUGH pings came first."""
    await peer.accept()
    pings = 0

    async def count_pings() -> str:
        nonlocal pings
        with suppress(EOFError, ConnectionError):
            while (await peer.frame()).opcode == frames.PING:
                pings += 1
                if pings == ENOUGH:
                    return "alive"
        return "dropped"

    counting = asyncio.create_task(count_pings())
    while not counting.done():
        peer.send(frames.text("tick"))
        await asyncio.wait([counting], timeout=0.01)
    peer.send(frames.close(1000))
    return counting.result()


async def iterate(connect: Callable[..., object], url: str) -> None:
    with suppress(Exception):  # each client has its own for a missing pong
        async with connect(url, **PINGS, compression=None) as ws:
            async for _ in ws:
                pass


async def block(connect: Callable[..., object], url: str) -> None:
    def run() -> None:
        with suppress(Exception), connect(url, **PINGS, compression=None) as ws:
            for _ in ws:
                pass

    await asyncio.to_thread(run)


async def listen(library: object, url: str) -> None:
    transport, _ = await library.ws_connect(
        library.WSListener,
        url,
        enable_auto_ping=True,
        auto_ping_idle_timeout=PINGS["ping_interval"],
        auto_ping_reply_timeout=PINGS["ping_timeout"],
        auto_ping_strategy=library.WSAutoPingStrategy.PING_PERIODICALLY,
    )
    with suppress(Exception):
        await transport.wait_disconnected()


CLIENTS: dict[str, tuple[str, Callable[[str], Awaitable[None]]]] = {
    "wsfast listener": ("alive", lambda url: listen(wsfast, url)),
    "wsfast awaitable": ("alive", lambda url: iterate(wsfast.connect, url)),
    "wsfast blocking": ("alive", lambda url: block(wsfast.sync.client.connect, url)),
    "picows": ("dropped", lambda url: listen(picows, url)),
    "picows.websockets": ("dropped", lambda url: iterate(picows.websockets.connect, url)),
    "websockets": ("dropped", lambda url: iterate(websockets.asyncio.client.connect, url)),
    "websockets.sync": ("dropped", lambda url: block(websockets.sync.client.connect, url)),
}


async def outcome(client: str) -> object:
    async with serve(stream_without_pongs) as server:
        await CLIENTS[client][1](server.url)
        return await server.result()


async def test_which_clients_drop_a_server_that_streams_without_pongs():
    outcomes = await asyncio.gather(*map(outcome, CLIENTS))
    assert dict(zip(CLIENTS, outcomes)) == {client: expected for client, (expected, _) in CLIENTS.items()}
