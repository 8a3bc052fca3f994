"""Compressed connections of the asyncio faces, with real servers and scripted ones; every parameter, with all faces."""

import asyncio
import itertools
import random
import zlib

import pytest
import websockets
from support import frames
from support.awaiting import awaitable, compares, feed, turns
from support.faces import FACES
from support.frames import BINARY, CONTINUATION, PING, PONG, TEXT, frame
from support.kinds import kind_of
from support.listeners import Recorder
from support.pair import pair
from support.servers import COMPRESSING, serve
from websockets.extensions.permessage_deflate import (
    ClientPerMessageDeflateFactory as TheirClient,
)
from websockets.extensions.permessage_deflate import (
    ServerPerMessageDeflateFactory as TheirServer,
)

from wsfast import (
    ConnectionClosedError,
    InvalidText,
    NegotiationError,
    PayloadTooBig,
    ProtocolError,
    Tuning,
    ws_connect,
)
from wsfast.asyncio.client import connect
from wsfast.deflate import ClientPerMessageDeflateFactory, PerMessageDeflate
from wsfast.exceptions import InvalidParameterName

RSV1 = 4
ACCEPT = b"Sec-WebSocket-Extensions: permessage-deflate\r\n"


def conversation(seed=1, sizes=(0, 1, 20, 126, 500, 1023, 1024, 5000, 70_000)):
    """Messages of every kind and size, some of which resemble each other."""
    rng = random.Random(seed)
    for size in sizes:
        words = [rng.choice(["price", "żółw", "🐢", "0.00012", '"bid":']) for _ in range(size)]
        text = "".join(words)[:size]
        yield text
        yield text.encode()
        yield rng.randbytes(size)


class Collector(Recorder):
    payload_type = str

    def __init__(self):
        super().__init__()
        self.messages = []

    def on_ws_message(self, transport, msg_type, payload):
        self.messages.append(payload)
        self.note("message")


# The peers' servers


@pytest.mark.parametrize("peer", COMPRESSING)
@pytest.mark.parametrize("library", ["zlib", "zlib-ng", "isal", None])
async def test_an_awaitable_connection(peer, library):
    options = PerMessageDeflate(library=library)
    async with COMPRESSING[peer]() as url, connect(url, compression=options, max_size=None) as ws:
        assert ws.compression is not None
        for compress, message in itertools.product((None, True, False), conversation()):
            await ws.send(message, compress=compress)
            assert await ws.recv() == message
        messages = list(conversation(2))
        await ws.send_many(messages, compress=True)
        assert [await ws.recv() for _ in messages] == messages
        await ws.send(["żół", "w 🐢" * 100, ""])
        assert await ws.recv() == "żółw 🐢" + "w 🐢" * 99


@pytest.mark.parametrize("peer", COMPRESSING)
async def test_a_listener(peer):
    async with COMPRESSING[peer]() as url:
        transport, listener = await ws_connect(Collector, url, compression="deflate")
        assert transport.compression.inflating == "zlib-ng"
        messages = list(conversation())
        for message in messages:
            transport.send(TEXT if isinstance(message, str) else BINARY, message)
        await listener.until(lambda: len(listener.messages) == len(messages))
        assert listener.messages == messages
        transport.disconnect()
        await transport.wait_disconnected()


@pytest.mark.asyncio(loop_factories=["asyncio"])
@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("server_takeover", [True, False])
@pytest.mark.parametrize("client_takeover", [True, False])
@pytest.mark.parametrize("server_bits", [None, 9, 12])
@pytest.mark.parametrize("client_bits", [None, 9, 12])
async def test_every_parameter(face, server_takeover, client_takeover, server_bits, client_bits):
    """The server wants it so, and then the client asks for it, too."""

    async def echo(connection):
        async for message in connection:
            await connection.send(message)

    wanted = (not server_takeover, not client_takeover, server_bits)
    offers = [PerMessageDeflate(threshold=0), PerMessageDeflate(*wanted, client_bits or True, threshold=0)]
    agreed = (*wanted[:2], server_bits or 15, client_bits or 15)
    theirs = TheirServer(*wanted, client_bits)
    async with websockets.serve(echo, "127.0.0.1", 0, extensions=[theirs], max_size=None) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        for offer in offers:
            async with FACES[face](url, compression=offer) as client:
                deal = client.compression
                assert agreed == (
                    deal.server_no_context_takeover,
                    deal.client_no_context_takeover,
                    deal.server_max_window_bits,
                    deal.client_max_window_bits,
                )
                for message in conversation(sizes=(0, 1, 500, 5000, 500)):
                    await client.send(message)
                    assert await client.recv() == message
                await client.close()


@compares
@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (True,),
        (False, True),
        (False, False, 9),
        (False, False, 15, 9),
        (True, True, 8, None),
        (False, False, None, 12),
    ],
)
async def test_offers_are_those_of_websockets(arguments):
    """Each is answered by websockets' server, to our client and to theirs."""
    answers = []

    async def handler(connection):
        answers.append(connection.response.headers.get("Sec-WebSocket-Extensions"))
        await connection.send("compressed " * 100)

    async with websockets.serve(handler, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        async with connect(url, extensions=[ClientPerMessageDeflateFactory(*arguments)]) as ws:
            offers = [ws.request.headers["Sec-WebSocket-Extensions"]]
            assert await ws.recv() == "compressed " * 100
        async with websockets.connect(url, extensions=[TheirClient(*arguments)]) as ws:
            offers.append(ws.request.headers["Sec-WebSocket-Extensions"])
            assert await ws.recv() == "compressed " * 100
    assert offers[0] == offers[1]
    assert answers[0] == answers[1]


# The opening


async def test_compression_is_offered_unless_it_is_turned_off():
    async with awaitable() as (ws, _):
        assert ws.request.headers["Sec-WebSocket-Extensions"] == "permessage-deflate; client_max_window_bits"
        assert ws.compression is None
    async with awaitable(compression=None) as (ws, _):
        assert "Sec-WebSocket-Extensions" not in ws.request.headers
    with pytest.raises(ValueError, match="compression: additional_headers has Sec-WebSocket-Extensions, too"):
        connect("ws://localhost/", additional_headers={"Sec-WebSocket-Extensions": "x"})


@pytest.mark.parametrize(
    ("answer", "exception"),
    [
        (b"x-unknown", NegotiationError),
        (b"permessage-deflate, permessage-deflate", NegotiationError),
        (b"permessage-deflate; unknown", InvalidParameterName),
    ],
)
async def test_an_answer_that_is_wrong_fails_the_opening(answer, exception):
    async def handler(peer):
        await peer.accept(headers=b"Sec-WebSocket-Extensions: " + answer + b"\r\n")
        await peer.rest()

    async with serve(handler) as served:
        for opening in (
            connect(served.url)._connect(),
            ws_connect(Collector, served.url, compression="deflate"),
        ):
            with pytest.raises(NegotiationError) as caught:
                await opening
            assert kind_of(caught.value) is exception
            assert caught.value.response.status == 101


async def test_by_hand_nothing_is_inflated():
    async with pair(Recorder(), extra_headers={"Sec-WebSocket-Extensions": "x"}) as (transport, _, _):
        assert transport.compression is None


# What a server sends


def deflated(*fragments, bits=15):
    """The frames of a compressed text message."""
    stream = zlib.compressobj(wbits=-bits)
    out = b""
    for i, data in enumerate(fragments):
        last = i == len(fragments) - 1
        payload = stream.compress(data) + stream.flush(zlib.Z_SYNC_FLUSH)
        payload = payload[:-4] if last else payload
        out += frame(CONTINUATION if i else TEXT, payload, fin=last, rsv=0 if i else RSV1)
    return out


@pytest.mark.parametrize("decode", [None, True, False])
async def test_fragments_are_received_one_by_one(decode):
    turtle = "żółw 🐢".encode()
    async with awaitable(headers=ACCEPT) as (ws, _):
        message = deflated(turtle[:1], turtle[1:7], b"", turtle[7:])
        await feed(ws, message)
        pieces = [piece async for piece in ws.recv_streaming(decode)]
        assert pieces == (
            [turtle[:1], turtle[1:7], b"", turtle[7:]] if decode is False else ["", "żółw", "", " 🐢"]
        )
        await feed(ws, deflated(turtle))
        joined = "".join if decode is not False else b"".join
        assert joined([piece async for piece in ws.recv_streaming(decode)]) == (
            turtle if decode is False else turtle.decode()
        )


async def test_control_frames_between_compressed_fragments():
    async with awaitable(headers=ACCEPT) as (ws, far):
        message = deflated(b"one, ", b"two")
        first = 2 + message[1]
        await feed(ws, message[:first] + frame(PING, b"!") + message[first:])
        assert await ws.recv() == "one, two"
        assert (await far.frames(1))[0][:2] == (PONG, b"!")


@pytest.mark.parametrize("decode", [None, False])
@pytest.mark.parametrize(
    "fragments", [[b"bad \xff"], [b"bad ", b"\xff"], [b"\xe2\x82", b""], [b"\xe2", b"\x28"]]
)
async def test_compressed_text_that_is_not_utf8(decode, fragments):
    async with awaitable(headers=ACCEPT, close_timeout=0.05) as (ws, far):
        await feed(ws, deflated(b"good") + deflated(*fragments) + deflated(b"never"))
        assert frames.parse_close((await far.frames_until_eof())[0].payload)[0] == 1007
        assert await ws.recv() == "good"
        with pytest.raises(ConnectionClosedError) as caught:
            await ws.recv(decode)
        assert isinstance(caught.value.__cause__, InvalidText)


async def test_bombs_that_nobody_takes_cost_what_a_queue_and_a_read_hold():
    """A megabyte each, and a thousand of them would fit into one read."""
    async with awaitable(headers=ACCEPT, max_queue=4, max_size=1 << 20) as (ws, far):
        sending = asyncio.ensure_future(far.send(deflated(bytes(1 << 20)) * 400))
        while not ws.listener.paused:
            await turns(1)
        assert ws.listener.frames < 4 + 1 + (32 << 10) // 1000
        for _ in range(400):
            assert len(await ws.recv()) == 1 << 20
        await sending


@pytest.mark.parametrize("size", [999, 1000, 1001, 1002])
@pytest.mark.parametrize("pieces", [1, 3])
async def test_max_size_is_that_of_inflated_messages(size, pieces):
    data = b"x" * size
    step = -(-size // pieces)
    async with awaitable(headers=ACCEPT, max_size=1000, close_timeout=0.05) as (ws, far):
        await feed(ws, deflated(*(data[i : i + step] for i in range(0, size, step))))
        if size <= 1000:
            assert await ws.recv() == data.decode()
            return
        with pytest.raises(ConnectionClosedError, match="exceeds limit of 1000 bytes") as caught:
            await ws.recv()
        cause = caught.value.__cause__
        assert isinstance(cause, PayloadTooBig)
        assert (cause.max_size, cause.current_size) == (1000, None if pieces == 1 else 2 * step)
        assert frames.parse_close((await far.frames_until_eof())[0].payload)[0] == 1009


async def test_max_size_of_a_fragment_is_that_of_an_inflated_one():
    async with awaitable(headers=ACCEPT, max_size=(1000, 100), close_timeout=0.05) as (ws, _):
        await feed(ws, deflated(b"x" * 100, b"y" * 100) + deflated(b"x" * 100, b"y" * 101))
        assert await ws.recv() == "x" * 100 + "y" * 100
        with pytest.raises(ConnectionClosedError) as caught:
            await ws.recv()
        assert caught.value.sent.code == 1009


async def test_data_that_is_not_compressed():
    async with awaitable(headers=ACCEPT, close_timeout=0.05) as (ws, _):
        await feed(ws, frame(TEXT, b"\xff\xff", rsv=RSV1))
        with pytest.raises(ConnectionClosedError) as caught:
            await ws.recv()
        assert isinstance(caught.value.__cause__, ProtocolError)
        assert caught.value.sent.code == 1002


# What the client sends


async def test_a_cancelled_send_takes_nothing_away():
    """What was compressed leaves; the server knows what the next message refers to."""
    async with awaitable(headers=ACCEPT, write_limit=1, compression=PerMessageDeflate(threshold=0)) as (
        ws,
        far,
    ):
        stream = zlib.decompressobj(wbits=-15)
        noise = random.Random(1).randbytes(3_000_000)
        sending = asyncio.ensure_future(ws.send(noise))
        await asyncio.sleep(0)
        assert not sending.done()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        last = asyncio.ensure_future(ws.send(noise[-1000:]))
        sent = await far.frames(2)
        await last
        assert [stream.decompress(f.payload + b"\x00\x00\xff\xff") for f in sent] == [noise, noise[-1000:]]
        assert len(sent[1].payload) < 100


@pytest.mark.parametrize("policy", ["gather", "immediate"])
async def test_what_is_sent_by_many_tasks_stays_in_order(policy):
    options = {"tuning": Tuning(write_policy=policy), "compression": PerMessageDeflate(threshold=10)}
    async with COMPRESSING["websockets"]() as url, connect(url, **options) as ws:
        messages = [f"message {i} " * (i % 5) for i in range(300)]
        await asyncio.gather(*(ws.send(message) for message in messages))
        assert [await ws.recv() for _ in messages] == messages
