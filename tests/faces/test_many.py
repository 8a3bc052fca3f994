"""Many messages with one call: recv_many() and batches() give what recv() and iteration give, in lists."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import zlib
from contextlib import suppress

import pytest
from support import HUNG, certificates, frames
from support.awaiting import awaitable, beside, feed, work
from support.certificates import WAYS
from support.faces import connected
from support.frames import BINARY, CONTINUATION, PING, TEXT, frame, texts
from support.servers import serve

from wsfast import Tuning
from wsfast.exceptions import ConcurrencyError, ConnectionClosed, ConnectionClosedOK

receiving = pytest.mark.parametrize("face", ["awaitable", "blocking"])
DEFLATED = b"Sec-WebSocket-Extensions: permessage-deflate\r\n"
MEBI = 1 << 20


def sending(*pieces, headers=b"", way="plain"):
    """A server that sends these bytes, in writes of their own, and then waits for the client to close."""

    async def handler(peer):
        await peer.accept(headers=headers)
        with suppress(ConnectionError):  # the client has refused some of them
            for piece in pieces:
                peer.send(piece)
                await peer.writer.drain()
                await asyncio.sleep(0)
        with suppress(EOFError, ConnectionError):
            await peer.frames_until_close()

    return serve(handler, ssl_context=certificates.server_context() if WAYS[way] else None)


def settings_of(way):
    return WAYS[way]() if WAYS[way] else None


async def lists_of(handle, count, **options):
    """So many messages, as recv_many() gives them."""
    lists = []
    while sum(map(len, lists)) < count:
        lists.append(await handle.call(handle.own.recv_many, **options))
    return lists


def chained(lists):
    return list(itertools.chain.from_iterable(lists))


@receiving
async def test_all_that_has_arrived_comes_in_one_list(face):
    async with sending(texts(*range(10))) as served, connected(face, served.url) as handle:
        one = await handle.call(handle.own.recv)
        two = await handle.call(handle.own.recv_many, 2)
        rest = await handle.call(handle.own.recv_many)
    assert [one, two, rest] == ["0", ["1", "2"], [str(number) for number in range(3, 10)]]


@receiving
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [0, 1, 100, 5000])
async def test_a_flood_comes_in_order_and_a_list_has_a_mebibyte_or_a_message_more(face, way, size):
    count = min(40_000, 4 * MEBI // (size + 2))
    data = b"".join(frame(BINARY, number.to_bytes(3, "big") + bytes(size)) for number in range(count))
    async with (
        sending(data, way=way) as served,
        connected(face, served.url, max_queue=None, context=settings_of(way)) as handle,
    ):
        await handle.call(handle.own.recv)
        await asyncio.sleep(0)
        lists = await lists_of(handle, count - 1)
    got = chained(lists)
    assert [int.from_bytes(message[:3], "big") for message in got] == list(range(1, count))
    assert all(sum(map(len, one[:-1])) < MEBI for one in lists)
    assert len(lists) < count / 3, "they are lists of one message"


@receiving
async def test_a_server_that_sends_a_byte_at_a_time(face):
    data = texts(*range(20)) + frame(TEXT, b"a", fin=False) + frame(PING, b"") + frame(CONTINUATION, b"b")
    pieces = [data[at : at + 1] for at in range(len(data))]
    async with sending(*pieces) as served, connected(face, served.url) as handle:
        lists = await lists_of(handle, 21)
    assert all(lists)
    assert chained(lists) == [*map(str, range(20)), "ab"]


# What recv() and recv_many() make of the same bytes


def stream(chance, compressed):
    """Messages of every kind, perhaps with one that breaks a rule, and the server's CLOSE."""
    deflater = zlib.compressobj(wbits=-15)
    data = b""
    for number in range(chance.randrange(1, 40)):
        payload = str(number).encode() * chance.choice([1, 1, 1, 40, 3000])
        opcode = chance.choice([TEXT, TEXT, BINARY])
        if opcode == BINARY and chance.random() < 0.3:
            payload = b"\xff" + payload
        rsv = 0
        if compressed and chance.random() < 0.5:
            payload, rsv = (deflater.compress(payload) + deflater.flush(zlib.Z_SYNC_FLUSH))[:-4], 4
        if chance.random() < 0.2:
            cut = chance.randrange(len(payload) + 1)
            data += frame(opcode, payload[:cut], fin=False, rsv=rsv)
            data += frame(PING, b"") if chance.random() < 0.5 else b""
            data += frame(CONTINUATION, payload[cut:])
        else:
            data += frame(opcode, payload, rsv=rsv)
        if chance.random() < 0.1:
            data += frame(PING, b"ping")
    bad = [
        b"",
        b"",
        frame(TEXT, b"\xff"),
        b"\x83\x00",
        frame(BINARY, bytes(70_000)),
        b"\x80\x00",
        b"\x81\x05\xff",
    ]
    return data + chance.choice(bad) + texts("behind") + frames.close(chance.choice([1000, 1011]))


async def outcome(handle, receive):
    """The messages, and every error; a program may go on after one."""
    got = []
    while len(got) < 3 or not all(isinstance(one, tuple) for one in got[-3:]):
        try:
            got.extend(await handle.call(receive))
        except ConnectionClosed as exc:
            cause = exc.__cause__
            got.append((type(exc), exc.rcvd, exc.sent, type(cause), str(cause)))
    return got


@receiving
@pytest.mark.parametrize("way", ["plain", "rustls"])
@pytest.mark.parametrize("seed", range(30))
async def test_it_gives_what_recv_gives(face, way, seed):
    chance = random.Random(seed)
    compressed, decode = chance.random() < 0.4, chance.choice([None, None, True, False, memoryview])
    data, cuts = stream(chance, compressed), chance.choice([1, 1, 5])
    pieces = [data[at : at + len(data) // cuts + 1] for at in range(0, len(data), len(data) // cuts + 1)]
    options = {"compression": "deflate", "max_size": 60_000, "max_queue": chance.choice([1, 16, None])}
    both = []
    for many in (False, True):
        headers = DEFLATED if compressed else b""
        async with (
            sending(*pieces, headers=headers, way=way) as served,
            connected(face, served.url, context=settings_of(way), **options) as handle,
        ):

            def receive(own=handle.own, many=many):
                if many:
                    return own.recv_many(chance.choice([None, 1, 2, 7]), decode=decode)
                return one(own.recv(decode=decode))

            both.append(await outcome(handle, receive))
    assert both[0] == both[1]
    assert [type(one) for one in both[0]] == [type(one) for one in both[1]]


def one(received):
    """A list of what recv() gives."""

    async def awaited():
        return [await received]

    return awaited() if asyncio.iscoroutine(received) or hasattr(received, "__await__") else [received]


# Iterating


@receiving
@pytest.mark.parametrize(("code", "error"), [(1000, None), (1011, "1011")])
async def test_batches_end_as_the_iteration_over_messages_does(face, code, error):
    async def iterate(own):
        return [batch async for batch in own.batches(3, decode=False)]

    async with (
        sending(texts(*range(7)) + frames.close(code)) as served,
        connected(face, served.url) as handle,
    ):
        own = handle.own
        if error is not None:
            with pytest.raises(ConnectionClosed, match=error):
                await handle.call(
                    (lambda: list(own.batches())) if face == "blocking" else lambda: iterate(own)
                )
            return
        if face == "blocking":
            batches = await handle.call(lambda: list(own.batches(3, decode=False)))
        else:
            batches = await iterate(own)
        assert [len(batch) for batch in batches] == [3, 3, 1]
        assert chained(batches) == [str(number).encode() for number in range(7)]
        with pytest.raises(ConnectionClosedOK):
            await handle.call(own.recv_many)


# Waiting


@receiving
async def test_a_time_out_loses_nothing(face):
    go = asyncio.Event()

    async def handler(peer):
        await peer.accept()
        peer.send(frame(TEXT, b"a", fin=False))
        await go.wait()
        peer.send(frame(CONTINUATION, b"b") + texts("c"))
        await peer.rest()

    async with serve(handler) as served, connected(face, served.url) as handle:
        for timeout in (0, 0.01, 0.02):
            with pytest.raises(TimeoutError, match="timed out in 0.0s"):
                await handle.call(handle.own.recv_many, timeout=timeout)
        go.set()
        assert chained(await lists_of(handle, 2, timeout=HUNG)) == ["ab", "c"]


@receiving
@pytest.mark.parametrize(
    ("options", "error"),
    [
        *(({"max": bad}, ValueError) for bad in (0, -1)),
        *(({"max": bad}, TypeError) for bad in (True, 1.5, "a")),
        *(({"timeout": bad}, ValueError) for bad in (-1, math.nan)),
        ({"timeout": "a"}, TypeError),
    ],
)
async def test_what_is_no_number_is_refused_at_the_call(face, options, error):
    async with sending(texts(1)) as served, connected(face, served.url) as handle:
        with pytest.raises(error):
            await handle.call(lambda: bool(handle.own.recv_many(**options)))
        if "max" in options:
            with pytest.raises(error):
                await handle.call(lambda: bool(handle.own.batches(**options)))
        assert await handle.call(handle.own.recv_many) == ["1"]


@receiving
async def test_one_receives_at_a_time(face):
    data = frame(TEXT, b"a", fin=False), frame(TEXT, b"", fin=False)[:1]
    async with sending(*data) as served, connected(face, served.url) as handle:
        own = handle.own

        def begin_streaming():
            streaming = own.recv_streaming()
            return streaming, next(streaming)

        if face == "blocking":
            _, first = await handle.call(begin_streaming)
        else:
            streaming = own.recv_streaming()
            first = await streaming.__anext__()
        assert first == "a"
        with pytest.raises(ConcurrencyError, match="recv_many while another"):
            await handle.call(own.recv_many)


@receiving
async def test_last_message_is_that_of_the_last_one_of_the_list(face):
    data = frame(TEXT, b"a") + frame(BINARY, b"b") + frame(TEXT, b"c")
    async with (
        sending(data) as served,
        connected(face, served.url, tuning=Tuning(timestamps="user")) as handle,
    ):
        assert await handle.call(handle.own.recv_many, 2) == ["a", b"b"]
        info = handle.own.last_message
        assert (info.msg_type, info.last_in_buffer, info.compressed) == (BINARY, False, False)
        assert await handle.call(handle.own.recv_many, 2) == ["c"]
        assert (handle.own.last_message.msg_type, handle.own.last_message.last_in_buffer) == (TEXT, True)
        assert handle.own.last_message.recv_time_ns >= info.recv_time_ns > 0


# The awaitable client alone


async def test_cancelled_it_loses_nothing():
    async with awaitable(compression=None) as (ws, _):
        for number in range(3):
            receiving = asyncio.ensure_future(ws.recv_many(timeout=HUNG))
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_soon(ws.protocol.data_received, texts(number, number))
            asyncio.get_running_loop().call_soon(receiving.cancel)
            try:
                got = await receiving
            except asyncio.CancelledError:
                got = await ws.recv_many()
            assert got == [str(number)] * 2
        receiving = asyncio.ensure_future(ws.recv_many(timeout=HUNG))
        await asyncio.sleep(0)
        with pytest.raises(ConcurrencyError):
            await ws.recv()
        receiving.cancel()
        await asyncio.wait([receiving])
        with pytest.raises(TimeoutError):
            await ws.recv_many(timeout=0.01)
        await feed(ws, texts("next"))
        assert await ws.recv_many() == ["next"]
        with pytest.warns(RuntimeWarning, match="recv_many' was never awaited"):
            ws.recv_many()


@pytest.mark.parametrize(
    ("overflow", "kept"),
    [("drop_oldest", range(6, 10)), ("drop_newest", range(4)), ("pause", range(10)), ("conflate", [8, 9])],
)
async def test_the_queue_is_as_it_is_for_recv(overflow, kept):
    options = {"conflate_key": lambda message: int(message) % 2} if overflow == "conflate" else {}
    async with awaitable(compression=None, overflow=overflow, max_queue=4, **options) as (ws, _):
        await feed(ws, texts(*range(10)))
        assert ws.backlog.paused is (overflow == "pause")
        assert await ws.recv_many() == [str(number) for number in kept]
        assert (ws.backlog.depth, ws.backlog.bytes, ws.backlog.paused) == (0, 0, False)
        receiving = asyncio.ensure_future(ws.recv_many())
        await asyncio.sleep(0)
        await feed(ws, texts(*range(10)))
        got = await receiving
        assert got == [str(number) for number in range(10)], (
            "the receiver has its turn before anything is dropped"
        )


async def test_lists_let_other_tasks_run():
    async with awaitable(compression=None, max_queue=None) as (ws, _):
        await feed(ws, texts(*range(20_000)))

        async def receive():
            return sum([len(await ws.recv_many(10)) for _ in range(2000) if not work(0.000_01)])

        async with beside() as other:
            assert await receive() == 20_000
            assert other.turned > 10
