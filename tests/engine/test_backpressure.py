"""A server that does not read: what is queued is told, bounded where it can be, and never in the way of the end."""

from __future__ import annotations

import asyncio

import pytest
from support import frames
from support.frames import BINARY, CLOSE, PING, PONG, TEXT, Sent
from support.listeners import Scripted
from support.mock import Wire
from support.pair import pair

from wsfast import ConnectionClosedError, Tuning, WSMsgType

KIB = 1024


def fill(transport, payload: bytes = bytes(10_000)) -> int:
    """Send until the kernel takes no more; the bytes that were sent."""
    total = 0
    while transport.write_buffer_size == 0:
        transport.send(WSMsgType.BINARY, payload)
        total += len(payload) + len(frames.header(BINARY, len(payload))) + 4
    return total


@pytest.mark.parametrize("use_aiofastnet", [None, False])
async def test_write_buffer_size_is_what_was_sent_and_the_kernel_did_not_take(use_aiofastnet):
    async with pair(use_aiofastnet=use_aiofastnet) as (transport, _, far):
        total = fill(transport)
        transport.send(WSMsgType.BINARY, bytes(1000))
        total += 1008
        queued = transport.write_buffer_size
        assert queued > 1008
        assert len(far.read_available()) == total - queued


async def test_write_buffer_size_counts_what_is_gathered_behind_what_is_queued():
    async with pair(tuning=Tuning(write_policy="gather")) as (transport, _, far):
        total = fill(transport)
        with transport.cork():
            transport.send(WSMsgType.TEXT, "x" * 100)
            total += 106
            assert total - transport.write_buffer_size == len(far.read_available())


async def test_the_buffer_empties_when_the_server_reads_again():
    async with pair() as (transport, _, far):
        payload = frames.pattern(100_000)
        for _ in range(50):
            transport.send(WSMsgType.BINARY, payload)
        assert transport.write_buffer_size > 1_000_000
        received = await far.frames(50)
        assert received == [Sent(BINARY, payload)] * 50
        assert transport.write_buffer_size == 0


@pytest.mark.memory
@pytest.mark.parametrize("kind", [bytearray, memoryview])
async def test_a_buffer_may_be_overwritten_although_its_message_is_still_queued(kind):
    async with pair() as (transport, _, far):
        sent = []
        for number in range(100):
            buffer = bytearray(frames.pattern(20_000, number))
            sent.append(bytes(buffer))
            transport.send(WSMsgType.BINARY, kind(buffer))
            buffer[:] = b"\xee" * len(buffer)
        buffer = bytearray(14) + frames.pattern(20_000)
        transport.send_reuse_external_bytearray(WSMsgType.BINARY, buffer, 14)
        buffer[:] = b"\xee" * len(buffer)
        assert transport.write_buffer_size > 500_000
        received = await far.frames(101)
        assert [one.payload for one in received] == [*sent, frames.pattern(20_000)]


async def test_pause_and_resume_are_called_at_the_limits():
    sizes = []
    listener = Scripted(
        pause_writing=lambda self: sizes.append(self.transport.write_buffer_size),
        resume_writing=lambda self: sizes.append(self.transport.write_buffer_size),
    )
    async with pair(listener) as (transport, _, far):
        transport.set_write_buffer_limits(high=50_000, low=10_000)
        fill(transport)
        if transport.write_buffer_size < 50_000:
            transport.send(WSMsgType.BINARY, bytes(50_000 - transport.write_buffer_size - 8))
        assert transport.write_buffer_size == 50_000
        assert sizes == [], "the limit itself is allowed"
        transport.send(WSMsgType.BINARY, b"")
        assert sizes == [50_006]
        transport.send(WSMsgType.BINARY, bytes(10_000))
        assert len(sizes) == 1, "told once"
        await far.frames(5)
        while len(sizes) < 2:
            await far.read()
        assert sizes[1] <= 10_000
        assert listener.events == ["connected", "pause", "resume"]


async def test_the_limits_are_64_and_16_kib_unless_others_are_set():
    listener = Scripted()
    async with pair(listener) as (transport, _, _):
        total = fill(transport, bytes(1000))
        assert total
        while transport.write_buffer_size <= 64 * KIB:
            assert "pause" not in listener.events
            transport.send(WSMsgType.BINARY, bytes(1000))
        assert listener.events[-1] == "pause"


@pytest.mark.parametrize(("high", "low"), [(10, 20), (-1, None), (10, -1)])
async def test_limits_that_make_no_sense_are_refused(high, low):
    async with pair() as (transport, _, _):
        with pytest.raises(ValueError, match="high"):
            transport.set_write_buffer_limits(high, low)


async def test_what_pause_writing_sends_is_queued_behind():
    listener = Scripted(pause_writing=lambda self: self.transport.send(WSMsgType.TEXT, "paused"))
    async with pair(listener) as (transport, _, far):
        transport.send(WSMsgType.BINARY, frames.pattern(3_000_000))
        transport.send(WSMsgType.TEXT, "after")
        received = await far.frames(3)
        assert [one.payload for one in received] == [frames.pattern(3_000_000), b"paused", b"after"]


async def test_resume_writing_may_go_on_sending_for_ever():
    """A producer that sends from resume_writing(): everything arrives in order."""
    left = list(range(200))

    def produce(self):
        while left and not self.paused:
            self.transport.send(WSMsgType.BINARY, frames.pattern(20_000, left.pop(0)))

    def pause(self):
        self.paused = True

    def resume(self):
        self.paused = False
        produce(self)

    listener = Scripted(pause_writing=pause, resume_writing=resume)
    listener.paused = False
    async with pair(listener) as (transport, _, far):
        produce(listener)
        assert left, "the server does not read, so something is left"
        assert transport.write_buffer_size < 100_000
        received = await far.frames(200)
        assert [one.payload for one in received] == [frames.pattern(20_000, n) for n in range(200)]


async def test_a_ping_flood_owes_one_pong_while_the_server_does_not_read():
    """RFC 6455 section 5.5.3: only the last PING need be answered. The queue does not grow."""
    listener = Scripted()
    async with pair(listener) as (transport, _, far):
        while "pause" not in listener.events:
            fill(transport)
            transport.send(WSMsgType.BINARY, bytes(10_000))
        sent = transport.write_buffer_size
        for number in range(0, 20_000, 100):
            await far.send(b"".join(frames.frame(PING, str(number + i).encode()) for i in range(100)))
        await far.send(frames.text("end"))
        await listener.received(1)
        assert transport.write_buffer_size == sent
        received = []
        while not received or received[-1].opcode != PONG:
            received += await far.frames(1)
        assert [one for one in received if one.opcode == PONG] == [Sent(PONG, b"19999")]
        await far.send(frames.frame(PING, b"?"))
        assert await far.frames(1) == [Sent(PONG, b"?")]


async def test_pings_are_answered_while_little_is_queued():
    async with pair() as (transport, listener, far):
        fill(transport)
        await far.send(frames.frame(PING, b"1") + frames.frame(PING, b"2") + frames.text("end"))
        await listener.received(1)
        received = []
        while len([one for one in received if one.opcode == PONG]) < 2:
            received += await far.frames(1)
        assert [one.payload for one in received if one.opcode == PONG] == [b"1", b"2"]


# The end, with the socket blocked


async def blocked(transport) -> None:
    for _ in range(100):
        transport.send(WSMsgType.BINARY, bytes(100_000))
    assert transport.write_buffer_size > 1_000_000


@pytest.mark.parametrize("paused", [False, True], ids=["", "reads paused"])
@pytest.mark.parametrize("use_aiofastnet", [None, False])
async def test_abort_drops_what_is_queued_at_once(paused, use_aiofastnet):
    async with pair(close_timeout=None, use_aiofastnet=use_aiofastnet) as (transport, listener, _):
        if paused:
            transport.underlying_transport.pause_reading()
        await blocked(transport)
        transport.abort()
        await transport.wait_disconnected()
        assert transport.close_info == ("local", 1006, "", None)
        assert listener.events[-1] == "disconnected"
        assert transport.write_buffer_size == 0


@pytest.mark.parametrize("paused", [False, True], ids=["", "reads paused"])
@pytest.mark.parametrize("end", ["disconnect", "send_close"])
@pytest.mark.parametrize("use_aiofastnet", [None, False])
async def test_close_timeout_bounds_the_end_although_nothing_leaves(paused, end, use_aiofastnet):
    async with pair(close_timeout=0.05, use_aiofastnet=use_aiofastnet) as (transport, listener, _):
        if paused:
            transport.underlying_transport.pause_reading()
        await blocked(transport)
        getattr(transport, end)()
        await transport.wait_disconnected()
        assert isinstance(transport.close_info.cause, TimeoutError)
        assert transport.close_info[0] == "local"
        assert listener.events[-1] == "disconnected"


@pytest.mark.parametrize("use_aiofastnet", [None, False])
async def test_disconnect_lets_what_is_queued_arrive_and_then_close(use_aiofastnet):
    async with pair(use_aiofastnet=use_aiofastnet) as (transport, _, far):
        await blocked(transport)
        transport.underlying_transport.pause_reading()
        transport.disconnect()
        received = await far.frames(101)
        assert received[-1] == Sent(CLOSE, b"\x03\xe8")
        await far.send(frames.close(1000))
        assert await far.frames_until_eof() == []
        far.sock.close()
        await transport.wait_disconnected()
        assert transport.close_info == ("local", 1000, "", None)


async def test_a_close_of_the_server_is_answered_behind_what_is_queued():
    async with pair() as (transport, listener, far):
        await blocked(transport)
        await far.send(frames.close(1001))
        await listener.received(1)
        received = await far.frames(101)
        assert received[-1] == Sent(CLOSE, b"\x03\xe9")
        assert {one.opcode for one in received[:-1]} == {BINARY}


async def test_a_violation_ends_a_blocked_connection_too():
    async with pair(close_timeout=0.05) as (transport, _, far):
        await blocked(transport)
        await far.send(frames.header(TEXT, 1 << 63))
        with pytest.raises(Exception, match="top bit"):
            await transport.wait_disconnected()


async def test_after_the_kernel_refused_a_frame_nothing_can_be_sent():
    async with pair() as (transport, _, far):
        far.sock.close()
        transport.send(WSMsgType.TEXT, "refused: EPIPE")
        with pytest.raises(ConnectionClosedError):
            transport.send(WSMsgType.TEXT, "too late")
        await transport.wait_disconnected()
        assert isinstance(transport.close_info.cause, BrokenPipeError)


@pytest.mark.parametrize("use_aiofastnet", [None, False])
async def test_a_listener_may_abort_when_it_may_write_again(use_aiofastnet):
    """asyncio's own transport calls resume_writing() amid a write, and would close twice."""

    def abort(self):
        transport.abort()

    told: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: told.append(context))
    async with pair(Scripted(resume_writing=abort), use_aiofastnet=use_aiofastnet) as (transport, _, far):
        transport.set_write_buffer_limits(0)
        fill(transport)
        far.read_available()
        await transport.wait_disconnected()
        await asyncio.sleep(0)
    assert told == []


def test_limits_of_a_transport_that_is_closing_are_left_alone(loop):
    """asyncio's transport of TLS calls a protocol that it has let go of already."""
    wire = Wire(loop)
    wire.transport.set_write_buffer_limits(0)
    wire.mock.calls.append("close")
    wire.transport.set_write_buffer_limits(1)
    assert wire.mock.calls == ["limits 0 None", "close"]
    wire.end()
    wire.transport.set_write_buffer_limits(2)
    assert wire.mock.calls == ["limits 0 None", "close"]
