"""Slow consumers: what each `overflow` drops and counts, and that nothing else is lost."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import zlib

import pytest
from support import frames
from support.awaiting import awaitable, feed, turns
from support.frames import BINARY, CONTINUATION, TEXT, frame, texts

import wsfast
from wsfast import ConnectionClosedError
from wsfast.exceptions import QueueOverflow

KEEPALIVE_OFF = {"ping_interval": None, "compression": None}


def bounded(overflow, max_queue=4, **options):
    if overflow == "conflate":
        options.setdefault("conflate_key", first_byte)
    return awaitable(overflow=overflow, max_queue=max_queue, **KEEPALIVE_OFF, **options)


def first_byte(payload):
    return payload[:1]


async def queued(ws):
    """All that waits."""
    return [await ws.recv() for _ in range(ws.backlog.depth)]


@pytest.mark.parametrize(
    ("overflow", "kept"), [("drop_oldest", ["7", "8", "9", "10"]), ("drop_newest", ["1", "2", "3", "4"])]
)
async def test_messages_beyond_the_queue_are_dropped_and_counted(overflow, kept):
    async with bounded(overflow) as (ws, _):
        await feed(ws, texts(*range(1, 4)))
        assert (ws.backlog.depth, ws.backlog.dropped) == (3, 0)
        await feed(ws, texts(*range(4, 11)))
        assert (ws.backlog.depth, ws.backlog.dropped, ws.backlog.paused) == (4, 6, False)
        assert await queued(ws) == kept
        assert ws.backlog == (0, 0, 0.0, 6, 0, False)


async def test_the_receiver_has_its_turn_before_anything_is_dropped():
    async with bounded("drop_oldest") as (ws, _):
        got = []

        async def receive():
            while len(got) < 7:
                got.append(await ws.recv())

        receiving = asyncio.ensure_future(receive())
        await turns(1)
        await feed(ws, texts(*range(7)))
        await receiving
        assert ws.backlog.dropped == 0


async def test_conflation_keeps_the_newest_of_each_key_in_the_place_of_the_first():
    async with bounded("conflate") as (ws, _):
        await feed(ws, texts("a1", "b1", "a2"))
        await feed(ws, texts("c1", "b2", "b3", "a3", "d1"))
        assert ws.backlog.paused is False
        assert (ws.backlog.depth, ws.backlog.dropped, ws.backlog.conflated) == (4, 4, 4)
        assert await queued(ws) == ["a3", "b3", "c1", "d1"]
        await feed(ws, texts("a4", "b4", "a5"))
        assert await queued(ws) == ["a5", "b4"]


async def test_nothing_passes_a_message_without_a_key():
    async with bounded("conflate", conflate_key=lambda data: None if data[:1] == b"!" else data[:1]) as (
        ws,
        _,
    ):
        await feed(ws, texts("a1", "a2", "!snapshot", "a3", "a4"))
        assert await queued(ws) == ["a2", "!snapshot", "a4"]


async def test_the_newest_of_no_key_is_dropped():
    """With more keys than places reading pauses, as without conflation."""
    async with bounded("conflate", (4, 2)) as (ws, far):
        await far.send(texts(*"abcdef"))
        while not ws.backlog.paused:
            await turns(1)
        await far.send(texts("a2", "g"))
        got = []
        while len(got) < 8:
            got.append(await ws.recv())
        assert got == ["a", "b", "c", "d", "e", "f", "a2", "g"]
        assert ws.backlog.dropped == 0


async def test_fail_ends_the_connection_after_what_had_arrived():
    async with bounded("fail") as (ws, far):
        await feed(ws, texts(*range(6)))
        assert [await ws.recv() for _ in range(6)] == list("012345")
        (close,) = await far.frames(1)
        assert frames.parse_close(close.payload) == (1011, "the receiver is too slow")
        ws.abort()
        with pytest.raises(ConnectionClosedError) as caught:
            await ws.recv()
        assert isinstance(caught.value.__cause__, QueueOverflow)
        assert str(caught.value.__cause__) == "the receiver is too slow: 6 messages wait for it"


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest", "conflate"])
async def test_a_message_is_dropped_whole_or_not_at_all(overflow):
    said = b"".join(
        frame(TEXT, letter, fin=False) + frame(CONTINUATION, "-", fin=False) + frame(CONTINUATION, letter)
        for letter in "abcdef"
    )
    async with bounded(overflow, 2, conflate_key=len if overflow == "conflate" else None) as (ws, _):
        parts = []

        async def stream():
            async for part in ws.recv_streaming():
                parts.append(part)

        for at in range(0, len(said), 5):
            if at == 20:
                streaming = asyncio.ensure_future(stream())
            await feed(ws, said[at : at + 5])
        rest = await queued(ws)
        await streaming
        assert all(len(message) == 3 and message[0] == message[2] for message in ["".join(parts), *rest])
        assert ws.backlog.dropped == 6 - 1 - len(rest)


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest", "conflate"])
async def test_a_burst_of_large_messages_costs_no_more_than_the_queue(overflow):
    async with bounded(overflow, 4) as (ws, far):
        sending = asyncio.ensure_future(far.send(frame(BINARY, bytes(600_000)) * 12))
        most = 0
        while not sending.done():
            await turns(1)
            most = max(most, ws.backlog.bytes)
        await sending
        while ws.backlog.depth + ws.backlog.dropped < 12:
            await turns(1)
        assert most <= (2 << 20) + 256
        assert len(await queued(ws)) + ws.backlog.dropped == 12


async def test_compressed_messages_are_dropped_like_others():
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    said = b""
    for number in range(10):
        data = stream.compress(b"%d" % number) + stream.flush(zlib.Z_SYNC_FLUSH)
        said += frame(TEXT, data[:-4], rsv=4)
    async with awaitable(
        overflow="drop_oldest",
        max_queue=2,
        ping_interval=None,
        headers=b"Sec-WebSocket-Extensions: permessage-deflate\r\n",
    ) as (ws, _):
        await feed(ws, said)
        assert await queued(ws) == ["8", "9"]


async def test_the_high_water_mark_is_told_once_until_the_low_one_is_reached():
    for overflow in ("pause", "drop_oldest", "drop_newest"):
        told = []
        async with bounded(overflow, (4, 1), on_high_water=told.append) as (ws, far):
            for _ in range(2):
                await far.send(texts(*range(6)))
                while not told:
                    await turns(1)
                await far.send(texts(*range(6)))
                await turns(3)
                assert told.pop() is ws
                assert not told
                while ws.backlog.depth:
                    await ws.recv()
                    await turns(2)
                assert not told or overflow == "pause"
                told.clear()


async def test_a_bug_of_the_high_water_callback_is_logged(caplog):
    async with bounded("drop_oldest", on_high_water=lambda ws: 1 / 0, logger="client") as (ws, _):
        await feed(ws, texts(*range(9)))
        await turns(2)
        assert [record.getMessage() for record in caplog.records] == ["exception in on_high_water()"]
        assert await queued(ws) == list("5678")


async def test_the_age_of_the_oldest():
    async with bounded("drop_newest") as (ws, _):
        await feed(ws, texts(1))
        first = ws.backlog.age
        assert 0 <= first < 5
        while ws.backlog.age < first + 0.001:
            await turns(1)
        await ws.recv()
        assert ws.backlog.age == 0
    async with bounded("pause") as (ws, _):
        assert ws.backlog.age is None


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest", "conflate", "fail"])
async def test_bad_text_ends_the_connection(overflow):
    async with bounded(overflow) as (ws, _):
        await feed(ws, texts("a", "b") + frame(TEXT, b"\xff") + texts("c"))
        assert await queued(ws) == ["a", "b"]
        ws.abort()
        with pytest.raises(ConnectionClosedError, match="1007"):
            await ws.recv()


class NoHash:
    __hash__ = None


def cancelled(data):
    raise asyncio.CancelledError


BUGS = {"raises": lambda data: 1 / 0, "cancels": cancelled, "no hash": lambda data: NoHash()}


@pytest.mark.parametrize("key", BUGS.values(), ids=BUGS)
async def test_a_bug_of_the_key_function_is_logged_once_and_loses_nothing(key, caplog):
    async with bounded("conflate", conflate_key=key, logger="client") as (ws, _):
        await feed(ws, texts("a1", "a2"))
        await feed(ws, texts("a3"))
        assert await queued(ws) == ["a1", "a2", "a3"]
        (record,) = caplog.records
        assert record.levelno == logging.ERROR
        assert record.getMessage() == "exception in conflate_key; further ones are not logged"


@pytest.mark.memory
@pytest.mark.parametrize("act", ["receive", "poll", "close", "abort", "collect", "send", "feed"])
async def test_the_key_function_may_do_anything(act):
    got = []
    fed = iter(range(3))

    class Key:
        """Its methods run whenever a dict looks at it."""

        def __init__(self, data):
            self.data = data

        def __hash__(self):
            do()
            return hash(self.data)

        def __eq__(self, other):
            do()
            return self.data == other.data

    def key(data):
        do()
        return Key(data[:1])

    def do():
        if act == "receive" and ws.backlog.depth:
            try:
                ws.recv().send(None)
            except StopIteration as stop:
                got.append(stop.value)
        elif act == "poll":
            if not ws.backlog.paused:
                ws.poll(0)
        elif act == "close":
            ws.protocol.send_close(1000)
        elif act == "abort":
            ws.abort()
        elif act == "collect":
            gc.collect()
        elif act == "send":
            ws.protocol.send(wsfast.WSMsgType.TEXT, "x")
        elif act == "feed" and next(fed, None) is not None:
            ws.protocol.data_received(texts("b7", "a8"))

    async with bounded("conflate", 100, conflate_key=key) as (ws, far):
        await far.send(texts("a1", "b1", "a2", "c1"))
        while not (ws.backlog.depth or ws.backlog.dropped or got):
            await turns(1)
        await far.send(texts("b2", "b3", "a3"))
        while act not in ("close", "abort") and ws.stats.frames_received < 7:
            await turns(1)
        await turns(5)
        got += await queued(ws)
        assert len(got) + ws.backlog.dropped == ws.stats.frames_received
        for letter in "abc":
            of_key = [message for message in got if message[0] == letter]
            if act != "feed":
                assert of_key == sorted(of_key)


class Slow:
    """A program that receives now and then, in every way that there is, and notes what it got."""

    def __init__(self, ws, rng):
        self.ws = ws
        self.rng = rng
        self.got = []

    async def some(self):
        way = self.rng.randrange(5)
        if way == 0:
            for _ in range(self.rng.randrange(6)):
                if self.ws.backlog.depth:
                    self.note(await self.ws.recv())
        elif way == 1:
            for _ in range(self.rng.randrange(200)):  # uses up the credit, so it yields now and then
                if self.ws.backlog.depth:
                    self.note(await self.ws.recv(decode=memoryview))
        elif way == 2 and self.ws.backlog.depth:
            async for part in self.ws.recv_streaming():
                self.note(part)
        elif way == 3:
            receiving = asyncio.ensure_future(self.ws.recv())
            await turns(self.rng.randrange(3))
            if not receiving.cancel():
                self.note(receiving.result())
        else:
            await turns(self.rng.randrange(3))

    def note(self, message):
        self.got.append(message if isinstance(message, str) else bytes(message).decode())


@pytest.mark.memory
@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest", "conflate"])
@pytest.mark.parametrize("seed", range(6))
async def test_what_arrives_is_received_or_dropped_and_counted(overflow, seed):
    rng = random.Random(seed)
    high = rng.choice([1, 2, 5, 40])
    sent = dict.fromkeys("abcdefgh", 0)
    fragments = 0
    async with bounded(overflow, high) as (ws, far):
        slow = Slow(ws, rng)
        receiving = asyncio.ensure_future(turns(1))
        for _ in range(120):
            said = b""
            for _ in range(rng.choice([0, 1, 3, 60])):
                letter = rng.choice("abcdefgh"[: rng.choice([2, 8])])
                sent[letter] += 1
                text = f"{letter}{sent[letter]:06}"
                if rng.random() < 0.3:
                    fragments += 1
                    said += frame(TEXT, text[:3], fin=False) + frame(CONTINUATION, text[3:])
                else:
                    said += frame(TEXT, text)
            await far.send(said)
            if receiving.done():
                await receiving
                receiving = asyncio.ensure_future(slow.some())
            await turns(rng.randrange(3))
        while ws.stats.frames_received < sum(sent.values()) + fragments or not receiving.done():
            await turns(1)
            if ws.backlog.paused and receiving.done():
                slow.note(await ws.recv())
        await receiving
        for message in await queued(ws):
            slow.note(message)
        assert len(slow.got) + ws.backlog.dropped == sum(sent.values())
        assert ws.backlog.conflated == (ws.backlog.dropped if overflow == "conflate" else 0)
        if overflow == "conflate":
            for letter in "abcdefgh":
                numbers = [int(message[1:]) for message in slow.got if message[0] == letter]
                assert numbers == sorted(set(numbers))
                assert not sent[letter] or numbers[-1] == sent[letter]
