"""Frames that leave together: cork, send_many, and write_policy="gather"."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
from support import frames
from support.frames import BINARY, CLOSE, PING, PONG, TEXT, Sent
from support.listeners import Scripted
from support.mock import Wire

from wsfast import ConnectionClosed, WSMsgType
from wsfast._engine.tuning import Tuning

KIB = 1024


@pytest.fixture
def wire(loop):
    wire = Wire(loop)
    yield wire
    wire.lose()


def payloads(wire: Wire) -> list[bytes]:
    return [sent.payload for sent in wire.sent()]


# cork


def test_corked_frames_leave_in_one_write_at_the_end(wire):
    with wire.transport.cork():
        for number in range(100):
            wire.transport.send(WSMsgType.TEXT, str(number))
        assert wire.mock.writes == []
    assert len(wire.mock.writes) == 1
    assert payloads(wire) == [str(number).encode() for number in range(100)]


def test_only_the_outermost_of_nested_corks_writes(wire):
    with wire.transport.cork():
        wire.transport.send(WSMsgType.TEXT, "a")
        with wire.transport.cork():
            with wire.transport.cork():
                wire.transport.send(WSMsgType.TEXT, "b")
            wire.transport.send_many(WSMsgType.TEXT, ["c", "d"])
        assert wire.mock.writes == []
        wire.transport.send(WSMsgType.TEXT, "e")
    assert len(wire.mock.writes) == 1
    assert payloads(wire) == [b"a", b"b", b"c", b"d", b"e"]


def test_an_empty_cork_writes_nothing(wire):
    with wire.transport.cork():
        pass
    assert wire.mock.writes == []


def test_one_cork_object_may_be_used_again_and_inside_itself(wire):
    cork = wire.transport.cork()
    with cork, cork:
        wire.transport.send(WSMsgType.TEXT, "a")
        assert wire.mock.writes == []
    with cork:
        wire.transport.send(WSMsgType.TEXT, "b")
    assert payloads(wire) == [b"a", b"b"]


def test_what_was_sent_before_a_corked_block_raises_leaves(wire):
    def block():
        with wire.transport.cork():
            wire.transport.send(WSMsgType.TEXT, "a")
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        block()
    assert payloads(wire) == [b"a"]
    wire.transport.send(WSMsgType.TEXT, "not corked")
    assert payloads(wire) == [b"not corked"]


@pytest.mark.memory
def test_a_cork_writes_64_kib_at_a_time(wire):
    with wire.transport.cork():
        for number in range(1000):
            wire.transport.send(WSMsgType.BINARY, frames.pattern(1000, number % 251))
        assert len(wire.mock.writes) == 1000 * 1008 // (64 * KIB)
    assert all(64 * KIB <= len(data) < 65 * KIB for data in wire.mock.writes[:-1])
    assert payloads(wire) == [frames.pattern(1000, number % 251) for number in range(1000)]


@pytest.mark.memory
@pytest.mark.parametrize(
    "first", [1, 60 * KIB, 64 * KIB - 20, 64 * KIB, 100 * KIB, 128 * KIB - 14, 128 * KIB]
)
@pytest.mark.parametrize("second", [1, 60 * KIB, 64 * KIB, 128 * KIB - 14, 128 * KIB - 13, 300 * KIB])
def test_corked_frames_of_all_sizes_keep_their_order(wire, first, second):
    sizes = [10, first, second, 5, second, first]
    with wire.transport.cork():
        for seed, size in enumerate(sizes):
            wire.transport.send(WSMsgType.BINARY, frames.pattern(size, seed))
    assert payloads(wire) == [frames.pattern(size, seed) for seed, size in enumerate(sizes)]


def test_close_inside_a_cork_leaves_behind_what_was_sent(wire):
    with wire.transport.cork():
        wire.transport.send(WSMsgType.TEXT, "a")
        wire.transport.send_close(1000)
        with pytest.raises(ConnectionClosed):
            wire.transport.send(WSMsgType.TEXT, "b")
    assert wire.sent() == [Sent(TEXT, b"a"), Sent(CLOSE, b"\x03\xe8")]


def test_disconnect_inside_a_cork_lets_what_was_sent_leave(wire):
    with wire.transport.cork():
        wire.transport.send(WSMsgType.TEXT, "a")
        wire.transport.disconnect()
    assert wire.sent() == [Sent(TEXT, b"a"), Sent(CLOSE, b"\x03\xe8")]
    wire.feed(frames.close(1000))
    assert wire.mock.calls[-1] == "write_eof"


def test_abort_inside_a_cork_drops_what_was_sent(wire):
    with wire.transport.cork():
        wire.transport.send(WSMsgType.TEXT, "a")
        wire.transport.abort()
    assert wire.sent() == []
    assert wire.transport.write_buffer_size == 0


def test_a_connection_that_is_lost_inside_a_cork_writes_nothing(loop):
    wire = Wire(loop)
    with wire.transport.cork():
        wire.transport.send(WSMsgType.TEXT, "a")
        wire.lose()
        assert wire.transport.write_buffer_size == 0
    assert wire.mock.writes == []


def test_answers_to_pings_inside_a_cork_keep_their_order(wire):
    with wire.transport.cork():
        wire.transport.send(WSMsgType.TEXT, "a")
        wire.feed(frames.frame(PING, b"?"))
        wire.transport.send_ping(b"!")
    assert wire.sent() == [Sent(TEXT, b"a"), Sent(PONG, b"?"), Sent(PING, b"!")]


def test_a_close_from_the_server_inside_a_cork_is_answered(wire):
    with wire.transport.cork():
        wire.transport.send(WSMsgType.TEXT, "a")
        wire.feed(frames.close(1001))
    assert wire.sent() == [Sent(TEXT, b"a"), Sent(CLOSE, b"\x03\xe9")]


def test_gathered_bytes_count_as_buffered(wire):
    wire.mock.buffered = 1000
    with wire.transport.cork():
        wire.transport.send(WSMsgType.BINARY, b"x" * 100)
        assert wire.transport.write_buffer_size == 1106
    assert wire.transport.write_buffer_size == 1000


def test_a_cork_keeps_the_transport_only_as_long_as_it_lives(loop):
    wire = Wire(loop)
    cork = wire.transport.cork()
    alive = weakref.ref(wire.transport)
    wire.lose()
    gc.disable()
    try:
        del wire
        assert alive() is not None
        del cork
        assert alive() is None
    finally:
        gc.enable()


# send_many


@pytest.mark.parametrize(
    "messages",
    [
        ["a", b"b", bytearray(b"c")],
        ("a", "b", "c"),
        iter("abc"),
        {"a": 1, "b": 2, "c": 3},
        (c for c in "abc"),
    ],
    ids=["list", "tuple", "iterator", "dict", "generator"],
)
def test_send_many_sends_every_message_of_an_iterable_in_one_write(wire, messages):
    wire.transport.send_many(WSMsgType.TEXT, messages)
    assert len(wire.mock.writes) == 1
    assert wire.sent() == [Sent(TEXT, b"a"), Sent(TEXT, b"b"), Sent(TEXT, b"c")]


def test_send_many_of_nothing_writes_nothing(wire):
    wire.transport.send_many(WSMsgType.TEXT, [])
    assert wire.mock.writes == []


@pytest.mark.parametrize("bad", [5, object(), "\ud800", memoryview(b"abcd")[::2]])
def test_send_many_sends_what_came_before_a_message_that_is_refused(wire, bad):
    with pytest.raises((TypeError, ValueError)):
        wire.transport.send_many(WSMsgType.TEXT, ["a", "b", bad, "c"])
    assert payloads(wire) == [b"a", b"b"]
    wire.transport.send(WSMsgType.TEXT, "d")
    assert payloads(wire) == [b"d"]


def test_send_many_sends_what_came_before_a_generator_that_fails(wire):
    def messages():
        yield "a"
        yield "b"
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        wire.transport.send_many(WSMsgType.TEXT, messages())
    assert payloads(wire) == [b"a", b"b"]


def test_a_generator_may_use_the_transport(wire):
    def messages():
        yield "a"
        wire.transport.send(WSMsgType.BINARY, "b")
        wire.transport.send_many(WSMsgType.TEXT, ["c"])
        yield "d"
        wire.transport.disconnect()
        yield "e"

    with pytest.raises(ConnectionClosed):
        wire.transport.send_many(WSMsgType.TEXT, messages())
    assert payloads(wire) == [b"a", b"b", b"c", b"d", b"\x03\xe8"]


# write_policy="gather"


@pytest.fixture
def gathering(loop):
    wire = Wire(loop, tuning=Tuning(write_policy="gather"))
    yield wire
    wire.lose()


def test_the_first_frame_of_an_iteration_leaves_at_once_and_the_others_at_its_end(gathering):
    for _ in range(3):
        for number in range(5):
            gathering.transport.send(WSMsgType.TEXT, str(number))
        assert len(gathering.mock.writes) == 1
        gathering.iterate()
        assert len(gathering.mock.writes) == 2
        assert payloads(gathering) == [b"0", b"1", b"2", b"3", b"4"]
        gathering.iterate()
        assert gathering.mock.writes == []


def test_the_first_frame_after_a_read_leaves_at_once_too(gathering):
    for _ in range(3):
        gathering.feed(frames.text("?"))
        gathering.transport.send(WSMsgType.TEXT, "answer")
        assert payloads(gathering) == [b"answer"]


def test_the_immediate_policy_waits_for_nothing(wire):
    for number in range(5):
        wire.transport.send(WSMsgType.TEXT, str(number))
    assert len(wire.mock.writes) == 5


def test_gathered_frames_of_all_kinds_keep_their_order(gathering):
    transport = gathering.transport
    big = frames.pattern(300_000)
    transport.send(WSMsgType.TEXT, "0")
    transport.send(WSMsgType.TEXT, "1", fin=False)
    transport.send_ping(b"2")
    gathering.feed(frames.frame(PING, b"3"))
    transport.send(WSMsgType.CONTINUATION, "4")
    transport.send(WSMsgType.BINARY, big)
    with transport.cork():
        transport.send(WSMsgType.TEXT, "5")
    transport.send_reuse_external_bytearray(WSMsgType.BINARY, bytearray(14) + b"6", 14)
    transport.send_many(WSMsgType.TEXT, ["7", "8"])
    transport.send_close(1000)
    gathering.iterate()
    assert payloads(gathering) == [b"0", b"1", b"2", b"3", b"4", big, b"5", b"6", b"7", b"8", b"\x03\xe8"]


def sender(gathering: Wire) -> tuple[Callable[[str], None], list[int]]:
    """A function that sends, and how many writes there were after each of its calls."""

    def send(text: str) -> None:
        gathering.transport.send(WSMsgType.TEXT, text)
        left.append(len(gathering.mock.writes))

    left: list[int] = []
    return send, left


def test_the_first_frame_of_a_later_callback_leaves_at_once(gathering):
    send, left = sender(gathering)
    for text in "ab":
        gathering.loop.call_soon(send, text)
        gathering.iterate()
    assert left == [1, 2]


def test_an_iteration_that_gathered_leaves_no_trace_in_the_next(gathering):
    """Its first frame is one again, so that of another callback leaves at once, too."""
    send, left = sender(gathering)
    for text in "ab":
        send(text)
    gathering.iterate()
    for text in "cd":
        gathering.loop.call_soon(send, text)
    gathering.iterate()
    assert left == [1, 1, 3, 4]


def test_a_bytearray_that_leaves_first_is_the_first_frame_of_the_iteration(gathering):
    for text in (b"a", b"b", b"c"):
        gathering.transport.send_reuse_external_bytearray(WSMsgType.BINARY, bytearray(14) + text, 14)
    assert payloads(gathering) == [b"a"]
    gathering.iterate()
    assert payloads(gathering) == [b"b", b"c"]


def test_gathered_frames_leave_when_there_are_64_kib(gathering):
    for _ in range(200):
        gathering.transport.send(WSMsgType.BINARY, bytes(1000))
    assert len(gathering.mock.writes) == 1 + 199 * 1008 // (64 * KIB)
    gathering.iterate()
    assert len(payloads(gathering)) == 200


def test_a_cork_is_respected_by_the_end_of_the_iteration(gathering):
    gathering.transport.send(WSMsgType.TEXT, "a")
    gathering.transport.send(WSMsgType.TEXT, "b")
    with gathering.transport.cork():
        gathering.transport.send(WSMsgType.TEXT, "c")
        gathering.iterate()
        assert payloads(gathering) == [b"a"]
    assert payloads(gathering) == [b"b", b"c"]


def test_a_cork_amid_a_gathered_iteration_leaves_its_frames_to_the_end_of_it(gathering):
    gathering.transport.send(WSMsgType.TEXT, "a")
    gathering.transport.send(WSMsgType.TEXT, "b")
    with gathering.transport.cork():
        gathering.transport.send(WSMsgType.TEXT, "c")
    assert payloads(gathering) == [b"a"]
    gathering.iterate()
    assert payloads(gathering) == [b"b", b"c"]


def test_disconnect_sends_what_was_gathered_first(gathering):
    for text in "abc":
        gathering.transport.send(WSMsgType.TEXT, text)
    gathering.transport.disconnect()
    assert payloads(gathering) == [b"a", b"b", b"c", b"\x03\xe8"]
    gathering.iterate()
    assert gathering.mock.writes == []


def test_abort_drops_what_was_gathered(gathering):
    for text in "abc":
        gathering.transport.send(WSMsgType.TEXT, text)
    gathering.transport.abort()
    gathering.iterate()
    assert payloads(gathering) == [b"a"]


def test_a_connection_that_is_lost_before_the_end_of_the_iteration_writes_nothing_more(loop):
    wire = Wire(loop, tuning=Tuning(write_policy="gather"))
    for text in "abc":
        wire.transport.send(WSMsgType.TEXT, text)
    wire.lose()
    wire.iterate()
    assert payloads(wire) == [b"a"]


def test_the_server_s_end_of_stream_lets_what_was_gathered_leave(gathering):
    for text in "abc":
        gathering.transport.send(WSMsgType.TEXT, text)
    gathering.transport.eof_received()
    assert payloads(gathering) == [b"a", b"b", b"c"]


def test_gathered_frames_of_a_violated_connection_leave_before_the_close(gathering):
    for text in "abc":
        gathering.transport.send(WSMsgType.TEXT, text)
    gathering.feed(b"\xff")
    assert [sent.opcode for sent in gathering.sent()] == [TEXT, TEXT, TEXT, CLOSE]


def test_gathered_bytes_are_a_copy(gathering):
    buffer = bytearray(b"aaaa")
    gathering.transport.send(WSMsgType.BINARY, buffer)
    buffer[:] = b"bbbb"
    gathering.transport.send(WSMsgType.BINARY, buffer)
    buffer[:] = b"cccc"
    gathering.transport.send(WSMsgType.BINARY, memoryview(buffer))
    buffer[:] = b"dddd"
    gathering.iterate()
    assert gathering.sent() == [Sent(BINARY, b"aaaa"), Sent(BINARY, b"bbbb"), Sent(BINARY, b"cccc")]


def test_what_a_finalizer_sends_during_a_large_message_does_not_get_into_it(loop):
    """A large message is written in pieces; the mock's write() is where Python code runs between them."""
    wire = Wire(loop)
    original = wire.mock.write
    sent = []

    def write(data):
        original(data)
        if not sent:
            sent.append(True)
            wire.transport.send(WSMsgType.TEXT, "from a finalizer")

    wire.mock.write = write
    big = frames.pattern(400_000)
    wire.transport.send(WSMsgType.BINARY, big)
    assert payloads(wire) == [big, b"from a finalizer"]
    wire.lose()


def test_pause_writing_during_a_large_message_is_told_after_it(loop):
    """Otherwise a frame that pause_writing() sends would get into the middle of the message."""

    def pause(self):
        self.transport.send(WSMsgType.TEXT, "paused")

    wire = Wire(loop, Scripted(pause_writing=pause))
    original = wire.mock.write

    def write(data):
        original(data)
        if wire.listener.events[-1] != "pause" and len(wire.mock.writes) == 1:
            wire.transport.pause_writing()

    wire.mock.write = write
    big = frames.pattern(400_000)
    wire.transport.send(WSMsgType.BINARY, big)
    assert payloads(wire) == [big, b"paused"]
    assert wire.listener.events == ["connected", "pause"]
    wire.lose()


def test_disconnect_in_pause_writing_comes_after_the_large_message_that_caused_it(loop):
    wire = Wire(loop, Scripted(pause_writing=lambda self: self.transport.disconnect()))
    original = wire.mock.write

    def write(data):
        original(data)
        if len(wire.mock.writes) == 1:
            wire.transport.pause_writing()

    wire.mock.write = write
    big = frames.pattern(400_000)
    wire.transport.send(WSMsgType.BINARY, big)
    wire.feed(frames.close(1000))
    assert wire.mock.calls[-1] == "write_eof"
    assert wire.sent() == [Sent(BINARY, big), Sent(CLOSE, b"\x03\xe8")]
    wire.lose()


def test_a_large_message_that_is_aborted_between_its_pieces_harms_nothing(loop):
    wire = Wire(loop)
    original = wire.mock.write

    def write(data):
        original(data)
        wire.transport.abort()

    wire.mock.write = write
    wire.transport.send(WSMsgType.BINARY, bytes(400_000))
    assert "abort" in wire.mock.calls
    wire.lose()
    assert wire.transport.close_info[:2] == ("local", 1006)
