"""Frames and views that a listener keeps stay as they were across reads, and cost no more than documented."""

from __future__ import annotations

import gc
import os
import random

import pytest
from support import frames
from support.frames import binary, frame, text
from support.listeners import Scripted
from support.memory import mapped, resident, until_flat
from support.mock import Wire

import wsfast._engine.transport
from wsfast import WSFrame, WSListener, WSTransport

pytestmark = pytest.mark.memory


class Keeper(WSListener):
    """Keeps something of every frame."""

    def __init__(self, take) -> None:
        self.kept = []
        self.take = take

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        self.kept.append(self.take(frame))


TAKE = {
    "frames": lambda frame: frame,
    "memoryviews": lambda frame: frame.get_payload_as_memoryview(),
    "memoryviews of frames": memoryview,
    "slices of memoryviews": lambda frame: frame.get_payload_as_memoryview()[:],
    "views cast": lambda frame: frame.get_payload_as_memoryview().cast("c"),
}
take = pytest.mark.parametrize("take", TAKE.values(), ids=TAKE)


@take
@pytest.mark.parametrize("per_read", [1, 7, 1000])
@pytest.mark.parametrize("size", [1, 100, 2000, 20_000])
def test_thousands_kept_across_reads_stay_what_they_were(loop, take, per_read, size):
    count = min(5000, 20_000_000 // size)
    keeper = Keeper(take)
    wire = Wire(loop, keeper)
    payloads = [frames.pattern(size, seed) for seed in range(251)]
    batch = []
    for number in range(count):
        batch.append(binary(payloads[number % 251]))
        if len(batch) == per_read or number == count - 1:
            wire.feed(b"".join(batch))
            batch.clear()
    wire.lose()
    del wire
    # Others use the same memory now.
    other = Wire(loop)
    other.feed(*[binary(b"\xee" * 100_000)] * 10)
    other.lose()
    assert len(keeper.kept) == count
    for number, got in enumerate(keeper.kept):
        assert bytes(got) == payloads[number % 251]


@take
def test_what_is_kept_is_intact_when_it_is_looked_at_at_last(loop, take):
    keeper = Keeper(take)
    wire = Wire(loop, keeper)
    rng = random.Random(1)
    expected, stream = [], bytearray()
    for number in range(4000):
        payload = frames.pattern(rng.choice([0, 1, 10, 125, 126, 500, 3000, 20_000]), number % 251)
        expected.append(payload)
        stream += binary(payload)
    at = 0
    while at < len(stream):
        size = rng.choice([1, 5, 100, 5000, 60_000, 200_000])
        wire.feed(bytes(stream[at : at + size]))
        at += size
    wire.lose()
    kept = keeper.kept
    del wire, keeper
    gc.collect()
    assert len(kept) == len(expected)
    for got, payload in zip(kept, expected):
        assert bytes(got) == payload


def test_some_kept_and_some_dropped(loop):
    keeper = Keeper(lambda frame: frame)
    wire = Wire(loop, keeper)
    rng = random.Random(2)
    for number in range(3000):
        wire.feed(binary(frames.pattern(rng.randrange(3000), number % 251)))
        if rng.random() < 0.7:
            keeper.kept.pop(rng.randrange(len(keeper.kept)))
        else:
            got = keeper.kept[-1]
            assert got.get_payload_as_bytes() == frames.pattern(got.payload_size, number % 251)
    for got in keeper.kept:
        data = got.get_payload_as_bytes()
        seed = data[0] if data else 0
        assert data == frames.pattern(got.payload_size, seed)
    wire.lose()


def test_a_part_of_a_view_outlives_everything(loop):
    keeper = Keeper(lambda frame: frame.get_payload_as_memoryview()[10:20][2:4])
    wire = Wire(loop, keeper)
    wire.feed(binary(frames.pattern(100)))
    [part] = keeper.kept
    keeper.kept.clear()
    wire.feed(*[binary(b"\xee" * 1000)] * 100)
    wire.lose()
    del wire, keeper
    gc.collect()
    assert bytes(part) == frames.pattern(100)[12:14]


def test_a_large_frame_that_is_kept_stays_what_it_was(loop):
    keeper = Keeper(lambda frame: frame)
    wire = Wire(loop, keeper)
    for seed in range(20):
        data = binary(frames.pattern(300_000, seed)) + text("small")
        wire.feed(*[data[i : i + 70_000] for i in range(0, len(data), 70_000)])
    wire.lose()
    for seed in range(20):
        assert keeper.kept[2 * seed].get_payload_as_bytes() == frames.pattern(300_000, seed)
        assert keeper.kept[2 * seed + 1].get_payload_as_bytes() == b"small"


@pytest.mark.parametrize("kept", [False, True])
def test_a_callback_that_makes_another_connection_read_does_not_disturb_this_one(loop, kept):
    """Both use the thread's read buffer."""
    inner_keeper = Keeper(lambda frame: frame)
    inner = Wire(loop, inner_keeper)
    outer_kept = []

    def nested(self, transport, frame):
        before = frame.get_payload_as_bytes()
        inner.feed(binary(b"\xee" * 50_000) + binary(bytes([number[0] % 251]) * 1000) + b"\x82")
        inner.feed(b"\x02ab")
        assert frame.get_payload_as_bytes() == before
        number[0] += 1
        if kept:
            outer_kept.append(frame)
        else:
            inner_keeper.kept.clear()

    number = [0]
    outer = Wire(loop, Scripted(on_ws_frame=nested))
    expected = [frames.pattern(5000, seed) for seed in range(100)]
    stream = b"".join(binary(payload) for payload in expected)
    outer.feed(*[stream[i : i + 12_345] for i in range(0, len(stream), 12_345)])
    assert outer.listener.payloads == expected
    if kept:
        assert [got.get_payload_as_bytes() for got in outer_kept] == expected
        assert [got.get_payload_as_bytes() for got in inner_keeper.kept[1::3]] == [
            bytes([n % 251]) * 1000 for n in range(100)
        ]
    outer.lose()
    inner.lose()


def test_reads_nested_deeply_do_not_disturb_each_other(loop):
    wires: list[Wire] = []

    def nested(self, transport, frame):
        data = frame.get_payload_as_bytes()
        depth = wires.index(next(wire for wire in wires if wire.transport is transport))
        if depth + 1 < len(wires):
            wires[depth + 1].feed(binary(frames.pattern(3000, depth + 1)) + text("."))
        assert frame.get_payload_as_bytes() == data

    wires += [Wire(loop, Scripted(on_ws_frame=nested)) for _ in range(10)]
    for _ in range(3):
        wires[0].feed(binary(frames.pattern(3000)) + text("."))
    for wire in wires:
        wire.lose()
    assert wires[0].listener.payloads == [frames.pattern(3000), b"."] * 3
    assert wires[1].listener.payloads == [frames.pattern(3000, 1), b"."] * 6


def test_connections_with_half_frames_do_not_disturb_each_other(loop):
    """The beginning of a frame waits outside the buffer that all connections read into."""
    wires = [Wire(loop) for _ in range(50)]
    stream = [b"".join(binary(frames.pattern(size, n)) for size in (10, 1000, 20_000)) for n in range(50)]
    for at in range(0, max(map(len, stream)), 777):
        for wire, data in zip(wires, stream):
            if at < len(data):
                wire.feed(data[at : at + 777])
    for n, wire in enumerate(wires):
        assert wire.listener.payloads == [frames.pattern(size, n) for size in (10, 1000, 20_000)]
        wire.lose()


@pytest.mark.parametrize("size", [100, 1000, 10_000, 100_000])
@pytest.mark.parametrize("per_read", [1, 16])
def test_kept_frames_cost_about_the_bytes_that_were_received(loop, size, per_read):
    keeper = Keeper(lambda frame: frame)
    wire = Wire(loop, keeper)
    one_read = binary(b"x" * size) * per_read
    reads = max(40, min(4000, 16_000_000 // size) // per_read)
    wire.feed(one_read)
    before = resident(), mapped()
    for _ in range(reads):
        wire.feed(one_read)
    grown = resident() - before[0], mapped() - before[1]
    received = reads * len(one_read)
    objects = reads * per_read * 200
    # Twice that is fair: messages may not fit at the end of a buffer, and an allocator has pages.
    assert grown[0] < 2 * received + objects + (1 << 20), "resident memory"
    assert grown[1] < 2 * received + objects + (4 << 20), "address space"
    wire.lose()


@pytest.mark.skipif("ASAN_OPTIONS" in os.environ, reason="the sanitizer holds on to what is freed")
def test_a_stream_of_which_nothing_is_kept_costs_nothing(loop):
    wire = Wire(loop, Keeper(lambda frame: frame.get_payload_as_bytes()))
    data = binary(b"x" * 50_000)

    def some(count: int) -> None:
        for _ in range(count):
            wire.feed(data)
            wire.listener.kept.clear()

    some(100)
    for _ in until_flat(2 << 20):
        some(2000)
    wire.lose()


def test_an_exception_whose_traceback_holds_a_frame_keeps_it_intact(loop):
    def fail(self, transport, frame):
        raise LookupError("kept")

    wire = Wire(loop, Scripted(on_ws_frame=fail))
    wire.feed(binary(frames.pattern(100)) + text("not delivered"))
    other = Wire(loop)
    other.feed(*[binary(b"\xee" * 100_000)] * 10)
    error = wire.end()
    traceback = error.__traceback__
    while "frame" not in traceback.tb_frame.f_locals:
        traceback = traceback.tb_next
    assert traceback.tb_frame.f_locals["frame"].get_payload_as_bytes() == frames.pattern(100)
    other.lose()


def test_a_frame_keeps_its_bytes_when_the_connection_is_dropped_inside_the_callback(loop):
    wires = []

    def drop(self, transport, frame):
        wires.clear()
        del transport
        gc.collect()
        self.seen = frame.get_payload_as_bytes()

    listener = Scripted(on_ws_frame=drop)
    wires.append(Wire(loop, listener))
    transport = wires[0].transport
    transport.data_received(binary(b"abc") + frame(0xA, b"pong"))
    assert listener.seen == b"pong"
    transport.connection_lost(None)


@pytest.mark.skipif("ASAN_OPTIONS" not in os.environ, reason="for make test-asan")
def test_it_is_the_sanitized_modules_that_are_tested():
    assert "/asan/" in wsfast._engine.transport.__file__
