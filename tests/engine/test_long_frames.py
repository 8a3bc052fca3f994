"""The memory that a thread's connections read into and write from: where it lies, how it grows while long frames come,
that it shrinks, and that what is kept stays what it was."""

from __future__ import annotations

import ctypes
import gc
import os
import random
import sys
import tracemalloc

import pytest
from support.frames import BINARY, CLOSE, TEXT, binary, frame, header, pattern
from support.listeners import Scripted
from support.mock import Wire

from wsfast import WSFrame, WSListener, WSMsgType, WSTransport

pytestmark = pytest.mark.memory

KIB = 1024
MEBI = 1 << 20
USUAL = 256 * KIB  # what is read at once
SHORT_AFTER = 1024  # reads or writes, after which long frames have ended
LINE = 64


class Forgetful(WSListener):
    """Counts frames."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        self.sizes.append(frame.payload_size)


class TakingMessages(WSListener):
    def on_ws_message(self, transport, msg_type, payload):
        raise AssertionError("no message was complete")


def area(wire: Wire) -> tuple[int, int]:
    """The address and the size of the memory that the next read would go to."""
    view = wire.transport.get_buffer(-1)
    return ctypes.addressof(ctypes.c_char.from_buffer(view)), len(view)


@pytest.fixture
def wire(loop):
    """A connection in a thread that has read nothing before, as far as one can tell."""
    gc.collect()
    made = Wire(loop, Forgetful())
    calm(made)
    yield made
    if made.transport.close_info is None:
        made.lose()


def calm(wire: Wire) -> None:
    """Short reads and writes until memory for long frames is given back, by the connection and then by the thread."""
    for _ in range(2 * SHORT_AFTER + 10):
        wire.feed(binary(b""))
        wire.transport.send(WSMsgType.BINARY, b"")
    wire.sent()


# ---- where


@pytest.mark.parametrize("payload", [3000, 60 * KIB, 100 * KIB, 200 * KIB, 300 * KIB, MEBI, 5 * MEBI])
@pytest.mark.parametrize("grown", [False, True])
def test_every_read_goes_to_a_cache_line(wire, payload, grown):
    """But for those that go on with a long frame where it lies."""
    if grown:
        wire.feed(binary(bytes(MEBI)))
    whole = binary(pattern(payload))
    for cut in (1, 2, 3, 9, 10, 11, 63, 64, 65, 1000, 16 * KIB - 1, 16 * KIB):
        if cut >= len(whole):
            break
        wire.feed(whole[:cut])
        if cut < 16 * KIB:
            assert area(wire)[0] % LINE == 0, cut
        wire.feed(whole[cut:])
        assert area(wire)[0] % LINE == 0, cut
    assert set(wire.listener.sizes) <= {0, payload, MEBI}


def test_a_long_frame_in_a_buffer_of_its_own_is_continued_at_a_cache_line(wire):
    whole = binary(bytes(3 * MEBI))
    wire.feed(whole[: 100 * KIB + 7])
    assert area(wire)[0] % LINE == 0


# ---- growing and shrinking


@pytest.mark.parametrize("size", [300 * KIB, MEBI, 4 * MEBI])
def test_the_next_long_frame_is_read_at_once_and_where_the_last_one_was(wire, size):
    assert area(wire)[1] == USUAL
    whole = binary(bytes(size))
    wire.feed(whole)
    places = set()
    for _ in range(5):
        assert area(wire)[1] >= len(whole)
        places.add(area(wire)[0])
        wire.feed(whole)
        wire.feed(whole[: len(whole) // 2])  # and where it is begun
        begun = area(wire)[0]
        assert min(places) < begun < min(places) + len(whole)
        wire.feed(whole[len(whole) // 2 :])
    assert len(places) == 1
    assert set(wire.listener.sizes) == {0, size}


def test_a_frame_longer_than_that_leaves_nothing_behind(wire):
    wire.feed(binary(bytes(4 * MEBI + 5)))
    assert area(wire)[1] == USUAL


def test_a_frame_that_is_announced_only_makes_nothing_grow(wire):
    before = area(wire)[1]
    other = Wire(wire.loop, Forgetful())
    other.feed(header(BINARY, 4 * MEBI) + bytes(20 * KIB))
    assert area(wire)[1] == before == USUAL
    other.lose()
    assert area(wire)[1] == USUAL


def test_a_limit_of_the_program_is_kept(loop):
    wire = Wire(loop, Forgetful())
    wire.transport._read_at_most(100 * KIB)
    for _ in range(3):
        wire.feed(binary(bytes(MEBI))[: 500 * KIB])
        assert area(wire)[1] == 100 * KIB  # in the frame's own buffer
        wire.feed(binary(bytes(MEBI))[500 * KIB :])
        assert area(wire)[1] == 100 * KIB
    wire.lose()


@pytest.mark.parametrize(("grown", "size"), [(False, 100 * KIB), (True, 200 * KIB)])
def test_a_frame_that_is_not_long_is_not_continued_in_the_buffer_of_all(wire, grown, size):
    """For it would keep the others out of a buffer that is much larger than the frame."""
    if grown:
        wire.feed(binary(bytes(MEBI)))
    other = Wire(wire.loop, Forgetful())
    before = area(other)[0]
    wire.feed(binary(bytes(size))[: 20 * KIB])
    assert area(other)[0] == before
    other.lose()


@pytest.mark.parametrize(
    "begun", [b"", binary(bytes(MEBI))[: 20 * KIB]], ids=["between frames", "in a frame"]
)
def test_impossible_numbers_of_bytes_are_refused(loop, begun):
    wire = Wire(loop, Forgetful())
    wire.feed(begun)
    for impossible in (-1, 3 * MEBI):
        area(wire)
        with pytest.raises(ValueError, match="cannot have been received"):
            wire.transport.buffer_updated(impossible)
    wire.lose()


def test_text_that_is_wrong_ends_a_long_frame_at_once_and_gives_its_buffer_back(loop):
    other = Wire(loop, Forgetful())
    usual = area(other)
    wire = Wire(loop, TakingMessages())
    wire.feed(header(TEXT, MEBI) + b"a" * 20 * KIB)
    assert wire.sent() == []
    assert area(wire) != usual
    wire.feed(b"\xff")
    (close,) = wire.sent()
    assert (close.opcode, close.payload[:2]) == (CLOSE, b"\x03\xef")
    assert area(wire) == usual
    wire.lose()
    other.lose()


def test_an_area_that_a_finalizer_has_moved_is_not_given(loop):
    """A memoryview is made for the area. That may collect garbage, and a finalizer may read, and keep what it reads."""
    kept: list[WSFrame] = []
    wire = Wire(loop, Scripted(on_ws_frame=lambda self, transport, frame: kept.append(frame)))

    class Garbage:
        def __del__(self):
            gc.set_threshold(*usual)
            wire.feed(binary(b"kept"))

    usual = gc.get_threshold()
    garbage = Garbage()
    garbage.itself = garbage
    del garbage
    try:
        gc.set_threshold(1)
        given = area(wire)
    finally:
        gc.set_threshold(*usual)
    gc.collect()  # from CPython 3.12 on, where no allocation collects
    assert [bytes(frame) for frame in kept] == [b"kept"]
    if sys.version_info < (3, 12):
        assert given == area(wire)
    wire.lose()


def traced() -> int:
    return tracemalloc.get_traced_memory()[0]


@pytest.fixture
def tracing():
    tracemalloc.start()
    yield
    tracemalloc.stop()


def test_reading_shrinks_when_long_frames_come_no_more(wire, tracing):
    before = traced()
    whole = binary(bytes(2 * MEBI))
    wire.feed(whole)
    wire.feed(whole)
    assert traced() - before > 2 * MEBI
    assert area(wire)[1] > 2 * MEBI
    # A long frame now and then keeps it.
    for _ in range(3):
        for _ in range(SHORT_AFTER // 2):
            wire.feed(binary(b""))
        assert area(wire)[1] > 2 * MEBI
        wire.feed(whole)
    assert area(wire)[1] > 2 * MEBI
    wire.listener.sizes.clear()
    calm(wire)
    wire.listener.sizes.clear()
    assert area(wire)[1] == USUAL
    assert traced() - before - len(whole) < MEBI


def test_reading_long_frames_allocates_nothing(wire, tracing):
    whole = binary(bytes(MEBI))
    half = len(whole) // 2
    parts = [whole[:half], whole[half:], whole]
    for part in parts:
        wire.transport.data_received(part)
    tracemalloc.reset_peak()
    before = traced()
    for _ in range(5):
        for part in parts:
            wire.transport.data_received(part)
    assert tracemalloc.get_traced_memory()[1] - before < 64 * KIB


def test_writing_grows_and_shrinks(wire, tracing):
    payload = bytes(3 * MEBI)
    before = traced()
    wire.transport.send(WSMsgType.BINARY, payload)
    assert [len(write) for write in wire.mock.writes] == [14 + len(payload)]
    wire.mock.writes.clear()
    assert traced() - before > 3 * MEBI
    for _ in range(SHORT_AFTER):
        wire.transport.send(WSMsgType.BINARY, b"")
    wire.transport.send(WSMsgType.BINARY, payload[: 200 * KIB])
    for _ in range(SHORT_AFTER):
        wire.transport.send(WSMsgType.BINARY, b"")
    wire.mock.writes.clear()
    assert traced() - before > 3 * MEBI, "a long frame was among them"
    wire.transport.send(WSMsgType.BINARY, b"")
    wire.mock.writes.clear()
    assert traced() - before < MEBI


@pytest.mark.parametrize("size", [(4 << 20) - 1, 4 << 20, (4 << 20) + 1, 9 << 20])
def test_a_very_long_frame_is_written_4_mebibytes_at_a_time(wire, size):
    payload = pattern(size)
    wire.transport.send(WSMsgType.BINARY, payload)
    writes = [len(write) for write in wire.mock.writes]
    assert len(writes) == -(-size // (4 << 20))
    assert writes[0] == 14 + min(size, 4 << 20)
    assert max(writes[1:], default=0) <= 4 << 20
    [sent] = wire.sent()
    assert sent.payload == payload


# ---- and all that while others read, and frames are kept


def random_stream(rng: random.Random, size: int) -> tuple[bytes, list[tuple[int, int]]]:
    """Frames of about `size` bytes in all, and the size and the seed of each payload."""
    stream, made = bytearray(), []
    while len(stream) < size:
        longest = rng.choice([10, 1000, 20 * KIB, 120 * KIB, 300 * KIB, 1200 * KIB])
        payload = rng.randrange(longest)
        seed = rng.randrange(251)
        made.append((payload, seed))
        stream += frame(BINARY, pattern(payload, seed))
    return bytes(stream), made


class Connection:
    """One of several connections of a thread. Its callback keeps frames, lets go of others, and has others read."""

    def __init__(self, loop, rng: random.Random, everybody: list[Connection]) -> None:
        self.rng = rng
        self.everybody = everybody
        self.stream, self.expected = random_stream(rng, 4 * MEBI)
        self.at = self.delivered = 0
        self.busy = False
        self.kept: list[tuple[object, int, int]] = []
        self.wire = Wire(loop, Scripted(on_ws_frame=self.on_frame))

    def on_frame(self, listener, transport, frame) -> None:
        size, seed = self.expected[self.delivered]
        self.delivered += 1
        assert frame.payload_size == size
        view = frame.get_payload_as_memoryview()
        if self.rng.random() < 0.3:
            self.kept.append((frame if self.rng.random() < 0.5 else view, size, seed))
        while len(self.kept) > self.rng.randrange(1, 12):
            self.check(self.kept.pop(self.rng.randrange(len(self.kept))))
        if self.rng.random() < 0.2:
            self.rng.choice(self.everybody).read()
        assert bytes(view) == pattern(size, seed)
        listener.frames.clear()

    @staticmethod
    def check(kept: tuple[object, int, int]) -> None:
        what, size, seed = kept
        assert bytes(what) == pattern(size, seed)  # type: ignore[call-overload]

    def read(self) -> bool:
        """One read of some size. Not while a read of this connection is being delivered."""
        if self.at == len(self.stream):
            return False
        if not self.busy:
            self.busy = True
            size = self.rng.choice([1, 13, 500, 5000, 16 * KIB, 70_000, 200_000, 600_000, 2 * MEBI])
            piece = self.stream[self.at : self.at + size]
            self.at += len(piece)
            self.wire.feed(piece)
            self.busy = False
        return True


@pytest.mark.parametrize("seed", range(3 if "ASAN_OPTIONS" in os.environ else 8))
def test_what_is_kept_stays_while_long_frames_come_in_parts_to_several_connections(loop, seed):
    rng = random.Random(seed)
    everybody: list[Connection] = []
    everybody += [Connection(loop, rng, everybody) for _ in range(3)]
    while any(one.read() for one in rng.sample(everybody, len(everybody))):
        pass
    for one in everybody:
        assert one.delivered == len(one.expected)
        for kept in one.kept:
            one.check(kept)
        one.wire.lose()


@pytest.mark.parametrize("kept", [False, True])
def test_connections_go_on_with_halves_of_long_frames_behind_each_other(loop, kept):
    """In one buffer: what was promised to one of them is not read into by another."""
    wires = [
        Wire(loop, Scripted(on_ws_frame=lambda self, transport, frame: kept and all_kept.append(frame)))
        for _ in range(3)
    ]
    all_kept: list[WSFrame] = []
    wires[0].feed(binary(bytes(3 * MEBI // 2)))  # the buffer grows, to twice that
    all_kept.clear()
    payloads = [pattern(size, seed) for seed, size in enumerate((2 * MEBI, MEBI, 200 * KIB))]
    streams = [binary(payload) for payload in payloads]
    for at in range(0, len(streams[0]), 70_000):
        for wire, stream in zip(wires, streams):
            if at < len(stream):
                wire.feed(stream[at : at + 70_000])
    for wire, payload in zip(wires, payloads):
        assert wire.listener.payloads[-1] == payload
        wire.lose()
    assert sorted(map(bytes, all_kept), key=len) == (payloads[::-1] if kept else [])


def test_a_long_frame_is_not_continued_where_a_nested_read_went(loop):
    """The callback of one connection completes a frame of another in the same buffer, which thus is the thread's again,
    and has a third read into it."""
    kept: list[WSFrame] = []
    third = Wire(loop, Scripted(on_ws_frame=lambda self, transport, frame: kept.append(frame)))
    second = Wire(loop)

    def nested(self, transport, frame):
        if frame.payload_size == 2:
            second.feed(long[200 * KIB :])
            third.feed(binary(pattern(1000, 3)))

    first = Wire(loop, Scripted(on_ws_frame=nested))
    first.feed(binary(bytes(3 * MEBI // 2)))  # the buffer grows, to twice that
    long = binary(pattern(MEBI, 5))
    second.feed(long[: 200 * KIB])
    first.feed(binary(b"go") + long[: 200 * KIB])
    first.feed(long[200 * KIB :])
    assert first.listener.payloads[-1] == second.listener.payloads[-1] == pattern(MEBI, 5)
    assert [bytes(frame) for frame in kept] == [pattern(1000, 3)]
    for wire in (first, second, third):
        wire.lose()
