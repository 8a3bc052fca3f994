"""send(), send_many(), ping() and pong(): ready results, gathering, order, fragments, backpressure, cancellation."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

import pytest
from support import frames
from support.awaiting import awaitable, beside, feed, finished_at_once, turns
from support.frames import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, Parser, Sent
from support.servers import websockets_echo

from wsfast import ConnectionClosed, Tuning
from wsfast.asyncio.client import connect
from wsfast.exceptions import ConnectionClosedError

# Writes stay apart on such a socket.
PACKETS = {"kind": socket.SOCK_SEQPACKET}


def writes(far) -> list[list[bytes]]:
    """The payloads of each write since the last call."""
    found = []
    while True:
        try:
            data = far.sock.recv(1 << 20)
        except BlockingIOError:
            return found
        if not data:
            return found
        found.append([sent.payload for sent in far.parser.feed(data)])


# Ready results and gathering


async def test_send_with_room_to_write_ends_in_its_first_step_and_leaves_at_once():
    async with awaitable(**PACKETS) as (ws, far):
        assert finished_at_once(ws.send("x")) is None
        assert writes(far) == [[b"x"]]


async def test_the_first_send_of_an_iteration_leaves_at_once_and_the_others_together():
    async with awaitable(**PACKETS) as (ws, far):
        for _ in range(3):
            for number in range(5):
                await ws.send(str(number))
                assert writes(far) == ([[b"0"]] if number == 0 else [])
            await asyncio.sleep(0)
            assert writes(far) == [[b"1", b"2", b"3", b"4"]]


async def test_an_answer_to_every_message_leaves_at_once():
    async with awaitable(**PACKETS) as (ws, far):
        for number in range(20):
            receiving = asyncio.ensure_future(ws.recv())
            await asyncio.sleep(0)
            await feed(ws, frames.text("?"))
            await receiving
            await ws.send(str(number))
            assert writes(far) == [[str(number).encode()]]


async def test_a_send_that_is_followed_by_nothing_is_never_held():
    """Single sends with turns of the loop in between, and nothing received: each leaves before the next turn."""
    async with awaitable(**PACKETS) as (ws, far):
        for number in range(20):
            await ws.send(str(number))
            assert writes(far) == [[str(number).encode()]]
            await turns(2)
            assert writes(far) == []


async def test_tasks_that_send_in_one_iteration_share_a_write():
    """Whether two tasks run in the same iteration is known from the second one on, so that leaves at once as well."""
    async with awaitable(**PACKETS) as (ws, far):
        await asyncio.gather(*(ws.send(str(number)) for number in range(50)))
        await turns(2)
        found = writes(far)
        assert [payload for write in found for payload in write] == [
            str(number).encode() for number in range(50)
        ]
        assert len(found) <= 3


async def test_write_policy_immediate_waits_for_nothing():
    async with awaitable(**PACKETS, tuning=Tuning(write_policy="immediate")) as (ws, far):
        for number in range(5):
            await ws.send(str(number))
            assert writes(far) == [[str(number).encode()]]


async def test_nothing_is_reordered():
    async with awaitable() as (ws, far):
        big = frames.pattern(300_000)
        reading = asyncio.ensure_future(far.frames(10))
        await ws.send("0")
        await ws.send("1")
        await ws.ping(b"2")
        await ws.pong(b"3")
        await ws.send(["4", "5"])
        await ws.send(big)
        await ws.send_many([b"6", "7"])
        assert [sent[:2] for sent in await reading] == [
            (TEXT, b"0"), (TEXT, b"1"), (PING, b"2"), (PONG, b"3"), (TEXT, b"4"), (CONTINUATION, b"5"),
            (CONTINUATION, b""), (BINARY, big), (BINARY, b"6"), (TEXT, b"7"),
        ]  # fmt: skip


async def test_close_sends_what_was_gathered_first():
    async with awaitable(close_timeout=0.05) as (ws, far):
        for text in "abc":
            await ws.send(text)
        closing = asyncio.ensure_future(ws.close())
        assert [sent.payload for sent in await far.frames(4)] == [b"a", b"b", b"c", b"\x03\xe8"]
        await closing


async def test_what_is_sent_is_a_copy():
    async with awaitable() as (ws, far):
        buffer = bytearray(b"aaaa")
        for byte in b"bcd":
            await ws.send(buffer)
            buffer[:] = bytes([byte]) * 4
        await turns(2)
        assert [sent.payload for sent in await far.frames(3)] == [b"aaaa", b"bbbb", b"cccc"]


async def test_a_flood_of_ready_sends_lets_other_tasks_run():
    async with awaitable() as (ws, far), beside(far.drain()) as other:
        while other.turned < 3:  # for ever, if they are not
            await ws.send("x")


async def test_send_that_is_never_awaited_warns_and_sends_nothing():
    async with awaitable(**PACKETS) as (ws, far):
        with pytest.warns(RuntimeWarning, match="send' was never awaited"):
            ws.send("x")
        await turns(2)
        assert writes(far) == []


async def test_a_view_that_is_not_contiguous():
    async with awaitable() as (ws, far):
        await ws.send(memoryview(b"a-b-c-")[::2])
        await ws.send([memoryview(b"d-e-")[::2]])
        assert [sent.payload for sent in await far.frames(3)] == [b"abc", b"de", b""]


async def test_text_that_cannot_be_encoded_is_refused_and_harms_nothing():
    async with awaitable() as (ws, far):
        with pytest.raises(UnicodeEncodeError):
            await ws.send("\ud800")
        await ws.send("x")
        assert await far.frames(1) == [Sent(TEXT, b"x")]


# send_many


async def test_send_many_leaves_in_one_write():
    async with awaitable(**PACKETS) as (ws, far):
        await ws.send_many(["a", b"b", bytearray(b"c"), memoryview(b"d")])
        await ws.send_many(iter("ef"), text=False)
        await ws.send_many([])
        await asyncio.sleep(0)
        assert [payload for write in writes(far) for payload in write] == [b"a", b"b", b"c", b"d", b"e", b"f"]
        await ws.send_many(str(number) for number in range(100))
        assert len(writes(far)) == 1


@pytest.mark.parametrize("bad", [5, None, ["nested"]])
async def test_send_many_sends_what_came_before_a_message_that_is_refused(bad):
    async with awaitable() as (ws, far):
        with pytest.raises(TypeError, match="message must be"):
            await ws.send_many(["a", "b", bad, "c"])
        await ws.send("d")
        assert [sent.payload for sent in await far.frames(3)] == [b"a", b"b", b"d"]


@pytest.mark.parametrize("message", ["text", b"bytes", bytearray(b"bytes")])
async def test_send_many_of_one_message_is_a_mistake(message):
    async with awaitable() as (ws, _):
        with pytest.raises(TypeError, match="iterable of messages"):
            await ws.send_many(message)


async def test_send_many_of_more_than_the_write_buffer_holds_waits():
    async with awaitable(write_limit=10_000) as (ws, far):
        made = 0

        def messages():
            nonlocal made
            for number in range(5000):
                made += 1
                yield frames.pattern(1000, number % 251)

        sending = asyncio.ensure_future(ws.send_many(messages()))
        await turns(5)
        assert not sending.done()
        assert made < 1000
        got = await far.frames(5000)
        await sending
        assert all(sent.payload == frames.pattern(1000, number % 251) for number, sent in enumerate(got))


async def test_send_many_waits_for_its_last_write_too():
    async with awaitable(write_limit=10_000) as (ws, far):
        count = 0
        while not ws.protocol.write_buffer_size:
            sending = asyncio.ensure_future(ws.send_many([frames.pattern(1000)] * 50))
            await turns(5)
            count += 50
        assert not sending.done()
        assert {sent.payload for sent in await far.frames(count)} == {frames.pattern(1000)}
        await sending


async def test_send_many_on_a_closed_connection():
    async with awaitable() as (ws, _):
        ws.protocol.abort()
        with pytest.raises(ConnectionClosedError):
            await ws.send_many(["x"])


# Fragments


async def fragments_of(gate, *items):
    for item in items:
        yield item
        await gate.wait()


async def test_concurrent_senders_never_get_into_a_fragmented_message_but_control_frames_do():
    async with awaitable() as (ws, far):
        gate = asyncio.Event()
        tasks = [asyncio.ensure_future(ws.send(fragments_of(gate, *letters))) for letters in ("abc", "def")]
        await turns(2)
        tasks += [asyncio.ensure_future(ws.send("whole")), asyncio.ensure_future(ws.send_many(["ma", "ny"]))]
        tasks += [asyncio.ensure_future(ws.send(["g", "h"]))]
        await turns(2)
        await ws.ping(b"!")
        await ws.pong(b"?")
        gate.set()
        await asyncio.gather(*tasks)
        got = await far.frames(16)
        assert [sent[:3] for sent in got[:3]] == [(TEXT, b"a", False), (PING, b"!", True), (PONG, b"?", True)]
        messages, current = [], None
        for sent in got:
            if sent.opcode >= 8:
                continue
            assert (sent.opcode == CONTINUATION) == (current is not None)
            current = (current or b"") + sent.payload
            if sent.fin:
                messages.append(current)
                current = None
        assert sorted(messages) == [b"abc", b"def", b"gh", b"ma", b"ny", b"whole"]


async def test_a_cancelled_fragmented_message_closes_the_connection():
    """What follows would become part of it."""
    async with awaitable(close_timeout=0.05) as (ws, far):
        sending = asyncio.ensure_future(ws.send(fragments_of(asyncio.Event(), "a", "b")))
        await turns(3)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        with pytest.raises(ConnectionClosedError) as caught:
            await ws.send("x")
        assert caught.value.sent.code == 1011
        assert [sent.opcode for sent in await far.frames_until_eof()] == [TEXT, CLOSE]


async def test_cancelled_before_the_first_fragment_is_harmless():
    async with awaitable() as (ws, far):

        async def never():
            await asyncio.Event().wait()
            yield "a"

        sending = asyncio.ensure_future(ws.send(never()))
        await turns(3)
        sending.cancel()
        await asyncio.wait([sending])
        await ws.send("x")
        assert await far.frames(1) == [Sent(TEXT, b"x")]


async def test_cancelled_while_waiting_for_its_turn_is_harmless():
    async with awaitable() as (ws, far):
        gate = asyncio.Event()
        first = asyncio.ensure_future(ws.send(fragments_of(gate, "a", "b")))
        await turns(2)
        second = asyncio.ensure_future(ws.send("second"))
        await turns(2)
        second.cancel()
        await asyncio.wait([second])
        gate.set()
        await first
        await ws.send("third")
        assert [sent.payload for sent in await far.frames(4)] == [b"a", b"b", b"", b"third"]


# Backpressure


async def blocked(ws, far, size=100_000):
    """Send until send() waits; the number of messages and the one that waits."""
    count = 0
    while True:
        sending = asyncio.ensure_future(ws.send(frames.pattern(size, count % 251)))
        await turns(3)
        count += 1
        if not sending.done():
            return count, sending
        await sending


async def test_send_waits_while_the_write_buffer_is_full():
    async with awaitable(write_limit=50_000) as (ws, far):
        count, sending = await blocked(ws, far)
        assert ws.transport.get_write_buffer_size() > 50_000
        got = await far.frames(count)
        await sending
        assert all(sent.payload == frames.pattern(100_000, number % 251) for number, sent in enumerate(got))
        assert finished_at_once(ws.send("x")) is None


@pytest.mark.parametrize("write_limit", [1000, (1000, 0), (5000, 1000)])
async def test_write_limits(write_limit):
    async with awaitable(write_limit=write_limit) as (ws, _):
        high, low = write_limit if isinstance(write_limit, tuple) else (write_limit, write_limit // 4)
        assert ws.transport.get_write_buffer_limits() == (low, high)


async def test_a_cancelled_send_leaves_whole_and_corrupts_no_later_one():
    async with awaitable(write_limit=50_000) as (ws, far):
        count, sending = await blocked(ws, far)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        reading = asyncio.ensure_future(far.frames(count + 1))
        await ws.send("after")
        got = await reading
        assert all(sent.payload == frames.pattern(100_000, n % 251) for n, sent in enumerate(got[:count]))
        assert got[count] == Sent(TEXT, b"after")


async def test_many_blocked_senders_all_go_on():
    async with awaitable(write_limit=50_000) as (ws, far):
        count, sending = await blocked(ws, far)
        others = [asyncio.ensure_future(ws.send(str(number))) for number in range(10)]
        await turns(3)
        assert not any(task.done() for task in others)
        got = await far.frames(count + 10)
        await asyncio.gather(sending, *others)
        assert [sent.payload for sent in got[count:]] == [str(number).encode() for number in range(10)]


async def test_a_blocked_send_ends_with_the_connection():
    async with awaitable(write_limit=50_000) as (ws, far):
        _, sending = await blocked(ws, far)
        ws.protocol.abort()
        with pytest.raises(ConnectionClosedError):
            await sending


async def test_sending_and_receiving_at_once_with_full_buffers():
    """Both directions are full, and both go on."""
    async with websockets_echo() as url, connect(url, max_size=None, write_limit=1000) as ws:

        async def send():
            for number in range(200):
                await ws.send(frames.pattern(50_000, number))

        sending = asyncio.ensure_future(send())
        for number in range(200):
            assert await ws.recv() == frames.pattern(50_000, number)
        await sending


async def test_cancelled_close_goes_on_closing():
    async with awaitable(close_timeout=0.05) as (ws, far):
        closing = asyncio.ensure_future(ws.close())
        await turns(2)
        closing.cancel()
        await asyncio.wait([closing])
        with pytest.raises(ConnectionClosed):
            await ws.send("x")
        await ws.wait_closed()
        assert Parser().feed(b"") is not None
        assert [sent.opcode for sent in await far.frames_until_eof()] == [CLOSE]


async def test_cancelled_ping_and_drain_leave_the_connection_usable():
    async with awaitable(write_limit=1000) as (ws, far):
        count, sending = await blocked(ws, far)
        pinging = asyncio.ensure_future(ws.ping(b"!"))
        await turns(2)
        pinging.cancel()
        with suppress(asyncio.CancelledError):
            await pinging
        got = await far.frames(count + 1)
        await sending
        assert got[-1] == Sent(PING, b"!")
        await ws.send("x")
        assert await far.frames(1) == [Sent(TEXT, b"x")]
