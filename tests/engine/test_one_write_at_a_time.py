"""Callbacks, finalizers and handlers that run during a write send, close and uncork, and tear no frame."""

from __future__ import annotations

import zlib

import pytest
from support import frames
from support.frames import BINARY, CLOSE, CONTINUATION, TEXT, Sent
from support.listeners import Scripted
from support.mock import Wire
from support.pair import pair

from wsfast import ConnectionClosed, WSMsgType, WSTransport
from wsfast._engine.sockets.socket import SocketTransport
from wsfast._engine.tuning import Tuning
from wsfast.deflate import AgreedDeflate, PerMessageDeflate

KIB = 1024
LONG_FRAME = 4 << 20  # of memory.pxd: a longer one leaves in several writes


def during_writes(wire: Wire, *actions) -> None:
    """Do one of the actions in each write, as a finalizer would that is run there."""
    original, left = wire.mock.write, list(actions)

    def write(data):
        original(data)
        if left:
            left.pop(0)()

    wire.mock.write = write


def payloads(wire: Wire) -> list[bytes]:
    return [sent.payload for sent in wire.sent()]


@pytest.fixture
def wire(loop):
    wire = Wire(loop)
    yield wire
    wire.lose()


@pytest.mark.memory
@pytest.mark.parametrize("late", [1, 60_000, 65_400, 128 * KIB - 14, 300_000])
@pytest.mark.parametrize("paused", [False, True], ids=["finalizer", "pause_writing"])
def test_what_is_sent_while_gathered_frames_are_written_comes_behind_the_next_one(loop, late, paused):
    def send(self=None):
        wire.transport.send(BINARY, bytes(late))

    wire = Wire(loop, Scripted(pause_writing=send))
    during_writes(wire, wire.transport.pause_writing if paused else send)
    with wire.transport.cork():
        wire.transport.send(BINARY, frames.pattern(50_000))
        wire.transport.send(BINARY, frames.pattern(131_000))
    assert payloads(wire) == [frames.pattern(50_000), frames.pattern(131_000), bytes(late)]
    wire.lose()


@pytest.mark.parametrize("how", ["send_close", "disconnect", "abort"])
@pytest.mark.parametrize("paused", [False, True], ids=["finalizer", "pause_writing"])
def test_close_during_a_write_is_the_last_frame(loop, how, paused):
    def end(self=None):
        getattr(wire.transport, how)()

    wire = Wire(loop, Scripted(pause_writing=end))
    during_writes(wire, wire.transport.pause_writing if paused else end)
    with wire.transport.cork():
        wire.transport.send(BINARY, bytes(50_000))
        wire.transport.send(BINARY, bytes(100_000))
        with pytest.raises(ConnectionClosed):
            wire.transport.send(BINARY, b"late")
    opcodes = [sent.opcode for sent in wire.sent()]
    if how == "abort":
        assert set(opcodes) <= {BINARY}
    else:
        assert opcodes == [BINARY, BINARY, CLOSE]
    wire.lose()


@pytest.mark.parametrize("first", ["send_close", "disconnect"])
@pytest.mark.parametrize("second", ["send_close", "disconnect"])
def test_there_is_one_close(wire, first, second):
    during_writes(wire, getattr(wire.transport, second))
    getattr(wire.transport, first)()
    assert [sent.opcode for sent in wire.sent()] == [CLOSE]


def test_a_data_frame_while_close_is_written_is_refused(loop):
    def late(self):
        with pytest.raises(ConnectionClosed):
            wire.transport.send(TEXT, "late")

    wire = Wire(loop, Scripted(pause_writing=late))
    during_writes(wire, wire.transport.pause_writing)
    wire.transport.send_close(1000)
    assert wire.listener.events == ["connected", "pause"]
    assert wire.sent() == [Sent(CLOSE, b"\x03\xe8")]
    wire.lose()


def test_fragments_that_are_sent_late_continue_the_message(wire):
    during_writes(wire, lambda: wire.transport.send(WSMsgType.CONTINUATION, "b"))
    wire.transport.send(TEXT, "a", fin=False)
    wire.transport.send(TEXT, "c")
    assert [(sent.opcode, sent.payload) for sent in wire.sent()] == [
        (TEXT, b"a"),
        (CONTINUATION, b"b"),
        (TEXT, b"c"),
    ]


def test_a_message_that_is_begun_between_those_of_send_many_is_noticed(wire):
    def messages():
        yield "a"
        wire.transport.send(TEXT, "b", fin=False)
        yield "c"

    with pytest.raises(ValueError, match="CONTINUATION"):
        wire.transport.send_many(TEXT, messages())
    assert payloads(wire) == [b"a", b"b"]


def test_late_messages_are_compressed_in_their_order(loop):
    agreed = AgreedDeflate(False, False, 15, 15, PerMessageDeflate(threshold=0))
    wire = Wire(loop, compression=agreed)
    during_writes(wire, *[lambda: wire.transport.send(TEXT, "again " * 20)] * 3)
    wire.transport.send(TEXT, "again " * 20)
    inflater = zlib.decompressobj(-15)
    sent = wire.sent()
    assert len(sent) == 4
    for one in sent:
        assert inflater.decompress(one.payload + b"\0\0\xff\xff") == b"again " * 20
    wire.lose()


def test_a_cork_that_is_left_during_a_write_leaves_nothing_behind(wire):
    cork = wire.transport.cork()
    during_writes(wire, lambda: cork.__exit__(None, None, None))
    cork.__enter__()
    wire.transport.send(BINARY, bytes(60_000))
    wire.transport.send(BINARY, bytes(100_000))
    assert [len(payload) for payload in payloads(wire)] == [60_000, 100_000]


def test_a_bytearray_that_is_sent_between_the_pieces_of_a_long_frame_comes_behind_it(wire):
    late = bytearray(14) + b"late"
    during_writes(wire, lambda: wire.transport.send_reuse_external_bytearray(BINARY, late, 14))
    wire.transport.send(BINARY, bytes(LONG_FRAME + 1))
    assert len(wire.mock.writes) == 3
    assert [len(payload) for payload in payloads(wire)] == [LONG_FRAME + 1, 4]


def test_a_write_that_fails_ends_the_connection(wire):
    def fail():
        raise KeyboardInterrupt

    during_writes(wire, fail)
    with pytest.raises(KeyboardInterrupt):
        wire.transport.send(TEXT, "a")
    assert "abort" in wire.mock.calls


def test_pause_and_resume_within_a_write_are_not_told(loop):
    wire = Wire(loop)
    during_writes(wire, lambda: (wire.transport.pause_writing(), wire.transport.resume_writing()))
    wire.transport.send(TEXT, "a")
    assert wire.listener.events == ["connected"]
    wire.lose()


@pytest.mark.memory
@pytest.mark.parametrize("corked", [False, True])
async def test_whoever_resizes_a_buffer_while_it_is_sent_gets_buffer_error(corked):
    def resize(self):
        for change in (buffer.clear, lambda: buffer.extend(bytes(1 << 20)), lambda: buffer.pop()):
            with pytest.raises(BufferError):
                change()

    buffer = bytearray(14) + frames.pattern(120_000)
    async with pair(Scripted(pause_writing=resize)) as (transport, listener, far):
        transport.set_write_buffer_limits(1, 0)
        count = 0
        while transport.write_buffer_size == 0 and "pause" not in listener.events:
            buffer[14:] = frames.pattern(120_000)
            if corked:
                with transport.cork():
                    transport.send(BINARY, bytes(50_000))
                    transport.send_reuse_external_bytearray(BINARY, buffer, 14)
            else:
                transport.send_reuse_external_bytearray(BINARY, buffer, 14)
            count += 1
        assert "pause" in listener.events
        buffer.clear()
        received = [sent for sent in await far.frames(count * (1 + corked)) if len(sent.payload) == 120_000]
        assert [sent.payload for sent in received] == [frames.pattern(120_000)] * count


def test_a_cork_is_left_as_often_as_it_is_entered(wire):
    cork = wire.transport.cork()
    with pytest.raises(RuntimeError, match="left more often"):
        cork.__exit__(None, None, None)
    with cork:
        pass
    with pytest.raises(RuntimeError, match="left more often"):
        cork.__exit__(None, None, None)
    with pytest.raises(TypeError):
        type(cork)(None)
    wire.transport.send(TEXT, "not corked")
    assert payloads(wire) == [b"not corked"]


def test_what_was_not_initialised_raises():
    transport = WSTransport.__new__(WSTransport)
    calls = [
        lambda: transport.send(TEXT, "a"),
        lambda: transport.buffer_updated(1),
        lambda: transport.data_received(b"a"),
        lambda: transport._notify(None, "on_ws_connected") or transport.cork().__enter__(),
        lambda: transport.poll(0),
        lambda: transport.disconnect(),
        lambda: SocketTransport.__new__(SocketTransport),
    ]
    for call in calls:
        with pytest.raises((RuntimeError, AttributeError, TypeError, ConnectionClosed)):
            call()


@pytest.mark.parametrize("size", [-1, 1 << 30])
def test_more_bytes_than_were_asked_for_cannot_arrive(wire, size):
    wire.transport.get_buffer(-1)
    with pytest.raises(ValueError, match="received"):
        wire.transport.buffer_updated(size)
    wire.feed(frames.text("a"))
    assert wire.listener.payloads == [b"a"]


def test_connection_lost_counts_once(loop):
    wire = Wire(loop, tuning=Tuning(busy_poll=0.01))
    wire.lose()
    wire.lose()
    assert wire.listener.events == ["connected", "disconnected"]
