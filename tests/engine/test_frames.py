"""Receiving: what is delivered, however the bytes are split, and how every violation of RFC 6455 ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from support import frames
from support.frames import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, Sent, binary, frame, header, text
from support.kinds import kind_of
from support.listeners import Got, Scripted
from support.mock import Wire

from wsfast import PayloadTooBig, ProtocolError, WSProtocolError


def ways(data: bytes) -> Iterator[list[bytes]]:
    """Whole, byte by byte, and in every two parts."""
    yield [data]
    yield [data[i : i + 1] for i in range(len(data))]
    for at in range(1, len(data)):
        yield [data[:at], data[at:]]


def tr(
    loop: asyncio.AbstractEventLoop, data: bytes, expected: list[Got], answers: tuple[Sent, ...] = ()
) -> None:
    """`data` is delivered as `expected` and answered with `answers`, whatever its pieces, and so is what follows."""
    for pieces in ways(data):
        wire = Wire(loop)
        wire.feed(*pieces)
        assert wire.listener.frames == expected, pieces
        assert wire.sent() == list(answers)
        wire.lose()

    for trailing in (b"\x82\x01!", b"\x82", b"\x8a"):
        wire = Wire(loop)
        wire.feed(data + trailing)
        complete = [Got(BINARY, b"!")] if len(trailing) == 3 else []
        assert wire.listener.frames == expected + complete, trailing
        if not complete:
            wire.feed(b"\x00" if trailing == b"\x8a" else b"\x00\x82\x01!")
            assert len(wire.listener.frames) == len(expected) + (1 if trailing == b"\x8a" else 2)
        wire.lose()


# Sections 5.2, 5.4, 5.5 and 5.7, with its examples. (name, bytes, delivered)
LEGAL = [
    ("an unmasked text message", bytes.fromhex("81 05 48 65 6c 6c 6f"), [Got(TEXT, b"Hello")]),
    (
        "a fragmented unmasked text message",
        bytes.fromhex("01 03 48 65 6c 80 02 6c 6f"),
        [Got(TEXT, b"Hel", False), Got(CONTINUATION, b"lo")],
    ),
    ("a pong", bytes.fromhex("8a 05 48 65 6c 6c 6f"), [Got(PONG, b"Hello")]),
    ("an empty text message", text(""), [Got(TEXT, b"")]),
    ("an empty binary message", binary(b""), [Got(BINARY, b"")]),
    ("an empty pong", frame(PONG), [Got(PONG, b"")]),
    ("the longest control frame", frame(PONG, b"x" * 125), [Got(PONG, b"x" * 125)]),
    ("one byte", binary(b"\x00"), [Got(BINARY, b"\x00")]),
    ("the longest 7-bit length", binary(b"x" * 125), [Got(BINARY, b"x" * 125)]),
    ("the shortest 16-bit length", binary(b"x" * 126), [Got(BINARY, b"x" * 126)]),
    ("another 16-bit length", binary(b"x" * 127), [Got(BINARY, b"x" * 127)]),
    ("bytes that look like headers", binary(b"\x81\xff" * 40), [Got(BINARY, b"\x81\xff" * 40)]),
    ("text that is no UTF-8, which is checked when it is decoded", text(b"\xff"), [Got(TEXT, b"\xff")]),
    (
        "control frames between fragments",
        text("a", fin=False)
        + frame(PONG, b"1")
        + frame(CONTINUATION, b"b", fin=False)
        + frame(PONG)
        + frame(0, b"c"),
        [
            Got(TEXT, b"a", False),
            Got(PONG, b"1"),
            Got(0, b"b", False),
            Got(PONG, b""),
            Got(CONTINUATION, b"c"),
        ],
    ),
    (
        "empty fragments",
        binary(b"", fin=False) + frame(CONTINUATION, fin=False) + frame(CONTINUATION),
        [Got(BINARY, b"", False), Got(CONTINUATION, b"", False), Got(CONTINUATION, b"")],
    ),
    (
        "many messages at once",
        b"".join(binary(bytes([i])) for i in range(30)),
        [Got(BINARY, bytes([i])) for i in range(30)],
    ),
]


@pytest.mark.parametrize(("data", "delivered"), [row[1:] for row in LEGAL], ids=[row[0] for row in LEGAL])
def test_legal_frames_are_delivered_however_they_are_split(loop, data, delivered):
    tr(loop, data, delivered)


def test_a_ping_is_answered_at_once_with_its_payload_and_not_delivered(loop):
    tr(loop, bytes.fromhex("89 05 48 65 6c 6c 6f"), [], (Sent(PONG, b"Hello"),))
    tr(loop, frame(PING, b"\x00" * 125), [], (Sent(PONG, b"\x00" * 125),))


def test_a_ping_between_fragments_is_answered_and_leaves_the_message_open(loop):
    data = text("a", fin=False) + frame(PING, b"?") + frame(CONTINUATION, b"b")
    tr(loop, data, [Got(TEXT, b"a", False), Got(CONTINUATION, b"b")], (Sent(PONG, b"?"),))


def test_without_auto_pong_a_ping_is_delivered_and_not_answered(loop):
    wire = Wire(loop, auto_pong=False)
    wire.feed(frame(PING, b"?"))
    assert wire.listener.frames == [Got(PING, b"?")]
    assert wire.sent() == []
    wire.lose()


# The lengths at which something changes: the header's form, the buffers' sizes (16, 128, 256 KiB), a long frame's own.
SIZES = [0, 1, 125, 126, 127, 65535, 65536, 1 << 20, 300_000]
SIZES += [size + d for size in (16 << 10, 128 << 10, 256 << 10) for d in (-15, -10, -4, -2, -1, 0, 1, 2)]


@pytest.mark.memory
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("piece", [1 << 30, 1000, 65536, 65537, 128 * 1024, 256 * 1024])
def test_a_frame_of_any_size_arrives_intact_in_pieces_of_any_size(loop, size, piece):
    payload = frames.pattern(size)
    data = binary(b"before") + binary(payload) + binary(b"after") + binary(payload) + text("end")
    wire = Wire(loop)
    wire.feed(*[data[i : i + piece] for i in range(0, len(data), piece)])
    assert wire.listener.payloads == [b"before", payload, b"after", payload, b"end"]
    wire.lose()


def test_what_has_arrived_of_a_long_frame_is_not_copied_again(loop):
    """With every read, that would be 128 GiB for the pieces of this one: more than the deadline of a test."""
    wire = Wire(loop)
    payload = frames.pattern(32 << 20)
    whole = binary(payload) + text("behind")
    wire.feed(*(whole[at : at + 4096] for at in range(0, len(whole), 4096)))
    assert wire.listener.frames == [Got(BINARY, payload), Got(TEXT, b"behind")]
    wire.lose()


@pytest.mark.parametrize("size", [16 * 1024 + 20, 130 * 1024])
def test_a_frame_of_which_a_long_beginning_arrived_is_completed_by_single_bytes(loop, size):
    payload = frames.pattern(size)
    data = binary(payload) + text("next")
    wire = Wire(loop)
    wire.feed(data[: size - 20], *[data[i : i + 1] for i in range(size - 20, len(data))])
    assert wire.listener.payloads == [payload, b"next"]
    wire.lose()


# Violations: (name, rsv bits that were negotiated, bytes, close code, what the error says)
BAD = [
    ("RSV1 was not negotiated", 0, frame(TEXT, rsv=4), 1002, "reserved bit"),
    ("RSV2 was not negotiated", 0, frame(BINARY, b"x", rsv=2), 1002, "reserved bit"),
    ("RSV3 was not negotiated", 0, frame(TEXT, b"x" * 200, rsv=1), 1002, "reserved bit"),
    ("RSV2 where only RSV1 was negotiated", 0x40, frame(TEXT, rsv=6), 1002, "reserved bit"),
    ("RSV on a control frame", 0x70, frame(PING, rsv=4), 1002, "reserved bit"),
    *[
        (f"opcode {n:X} is reserved", 0, frame(n), 1002, "opcode")
        for n in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)
    ],
    ("a masked frame", 0, frames.masked(TEXT, b"Hello"), 1002, "masked"),
    ("an empty masked frame", 0, frames.masked(BINARY, b""), 1002, "masked"),
    ("a masked PING", 0, frames.masked(PING, b""), 1002, "masked"),
    ("a fragmented PING", 0, frame(PING, fin=False), 1002, "fragmented"),
    ("a fragmented PONG", 0, frame(PONG, fin=False), 1002, "fragmented"),
    ("a fragmented CLOSE", 0, frame(CLOSE, fin=False), 1002, "fragmented"),
    ("a PING of 126 bytes", 0, frame(PING, b"x" * 126), 1002, "125"),
    ("a PONG of 65536 bytes", 0, header(PONG, 65536), 1002, "125"),
    ("a CLOSE of 126 bytes", 0, frame(CLOSE, b"\x03\xe8" + b"x" * 124), 1002, "125"),
    ("a PING with a 16-bit length", 0, frame(PING, b"x", form=16), 1002, "125"),
    ("16 bits for 0", 0, header(BINARY, 0, form=16), 1002, "fewest"),
    ("16 bits for 125", 0, header(BINARY, 125, form=16), 1002, "fewest"),
    ("64 bits for 0", 0, header(BINARY, 0, form=64), 1002, "fewest"),
    ("64 bits for 65535", 0, header(BINARY, 65535, form=64), 1002, "fewest"),
    ("a 64-bit length with its top bit", 0, header(BINARY, 1 << 63), 1002, "top bit"),
    ("a 64-bit length of ones", 0, b"\x82\x7f" + b"\xff" * 8, 1002, "top bit"),
    ("a continuation of nothing", 0, frame(CONTINUATION, b"x"), 1002, "continues no message"),
    (
        "a continuation of nothing, more to come",
        0,
        frame(CONTINUATION, fin=False),
        1002,
        "continues no message",
    ),
    ("a CLOSE of one byte", 0, frame(CLOSE, b"\x03"), 1002, "one byte"),
    *[
        (f"close code {n}", 0, frames.close(n), 1002, f"close code {n}")
        for n in (0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535)
    ],
    ("a close reason that is no UTF-8", 0, frames.close(1000, b"\xff"), 1007, "utf-8"),
    ("a close reason cut inside a character", 0, frames.close(1000, "é".encode()[:1]), 1007, "utf-8"),
    ("a surrogate in a close reason", 0, frames.close(1000, b"\xed\xa0\x80"), 1007, "utf-8"),
]


def assert_violation(wire: Wire, code: int, message: str) -> BaseException:
    """The violation was answered with CLOSE, and everybody who asks hears of it."""
    [sent] = wire.sent()
    assert sent.opcode == CLOSE
    assert frames.parse_close(sent.payload)[0] == code
    assert wire.transport.is_close_frame_sent
    error = wire.end()
    assert isinstance(error, WSProtocolError)
    assert error.code == code
    assert message in str(error)
    assert wire.transport.close_info.cause is error
    assert wire.transport.close_info[:2] == ("local", code)
    return error


@pytest.mark.parametrize(
    ("rsv", "data", "code", "message"), [row[1:] for row in BAD], ids=[row[0] for row in BAD]
)
def test_a_violation_ends_the_connection_after_what_came_before_it(loop, rsv, data, code, message):
    before, after = text("before"), text("after")
    for pieces in (
        ([before + data + after], *ways(before + data[:30])) if len(data) < 40 else [[before + data + after]]
    ):
        wire = Wire(loop, rsv_allowed=rsv)
        wire.feed(*pieces)
        wire.feed(after)
        assert wire.listener.payloads == [b"before"]
        error = assert_violation(wire, code, message)
        assert isinstance(error, ProtocolError) or code == 1007


@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_a_new_message_inside_an_unfinished_one_is_a_violation(loop, opcode):
    wire = Wire(loop)
    wire.feed(text("a", fin=False), frame(PONG), frame(CONTINUATION, b"b", fin=False), frame(opcode, b"c"))
    assert wire.listener.payloads == [b"a", b"", b"b"]
    assert_violation(wire, 1002, "inside an unfinished one")


def test_a_finished_message_cannot_be_continued(loop):
    wire = Wire(loop)
    wire.feed(text("a", fin=False), frame(CONTINUATION, b"b"), frame(CONTINUATION, b"c"))
    assert wire.listener.payloads == [b"a", b"b"]
    assert_violation(wire, 1002, "continues no message")


@pytest.mark.parametrize("rsv", [0x40, 0x20, 0x10, 0x70])
def test_negotiated_reserved_bits_are_delivered(loop, rsv):
    bits = []

    def note(self, transport, frame):
        bits.append(frame.rsv1 << 2 | frame.rsv2 << 1 | frame.rsv3)

    wire = Wire(loop, Scripted(on_ws_frame=note), rsv_allowed=rsv)
    wire.feed(frame(TEXT, b"x", rsv=rsv >> 4))
    assert bits == [rsv >> 4]
    assert wire.end() is None


# max_frame_size, its neighbours, and the forms of the length field.
LIMITS = [1, 125, 126, 65535, 65536, 70_000, 200_000, 300_000]


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("excess", [-1, 0])
def test_a_frame_up_to_the_limit_is_delivered(loop, limit, excess):
    wire = Wire(loop, max_frame_size=limit)
    payload = frames.pattern(limit + excess)
    wire.feed(binary(payload))
    assert wire.listener.payloads == [payload]
    assert wire.end() is None


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("excess", [1, 2, 1 << 40])
def test_a_frame_over_the_limit_ends_the_connection_as_soon_as_its_header_is_known(loop, limit, excess):
    for pieces in ways(header(BINARY, limit + excess)):
        wire = Wire(loop, max_frame_size=limit)
        wire.feed(text("a"), *pieces)
        assert wire.listener.payloads == [b"a"]
        error = assert_violation(wire, 1009, str(limit))
        assert kind_of(error) is PayloadTooBig


def test_the_limit_is_for_a_frame_not_for_a_message(loop):
    wire = Wire(loop, max_frame_size=10)
    fragments = [b"x" * 10] * 5
    wire.feed(
        binary(fragments[0], fin=False), *[frame(0, part, fin=False) for part in fragments[1:]], frame(0)
    )
    assert wire.listener.payloads == [*fragments, b""]
    assert wire.end() is None


def test_a_control_frame_may_be_longer_than_the_limit(loop):
    wire = Wire(loop, max_frame_size=1)
    wire.feed(frame(PONG, b"x" * 125))
    assert wire.listener.payloads == [b"x" * 125]
    assert wire.end() is None


def test_a_frame_that_no_memory_can_hold_ends_the_connection(loop):
    wire = Wire(loop)
    wire.feed(text("a"), header(BINARY, 1 << 61) + bytes(20_000))
    assert wire.listener.payloads == [b"a"]
    assert isinstance(wire.end(), MemoryError)


def test_a_frame_that_no_memory_can_hold_ends_the_connection_that_survives_exceptions(loop):
    class Logger:
        """Stops an endless loop."""

        def __init__(self):
            self.calls = 0

        def error(self, *args, **kwargs):
            self.calls += 1
            if self.calls > 3:
                raise RuntimeError("the same error was logged again and again")

        warning = error

    wire = Wire(loop, disconnect_on_exception=False, logger=Logger())
    wire.feed(text("a"), header(BINARY, 1 << 61) + bytes(20_000))
    assert wire.listener.payloads == [b"a"]
    assert isinstance(wire.end(), MemoryError)


def test_what_arrives_in_a_memoryview_or_a_bytearray_is_taken_too(loop):
    wire = Wire(loop)
    wire.feed(bytearray(text("a")), memoryview(text("b")))
    assert wire.listener.payloads == [b"a", b"b"]
    wire.lose()


def test_bytes_that_arrive_through_the_buffer_interface_are_the_same(loop):
    wire = Wire(loop)
    data = text("a") + binary(frames.pattern(300_000)) + text("b")
    while data:
        with memoryview(wire.transport.get_buffer(-1)) as buffer:
            size = min(len(buffer), len(data), 100_000)
            buffer[:size] = data[:size]
        wire.transport.buffer_updated(size)
        data = data[size:]
    assert wire.listener.payloads == [b"a", frames.pattern(300_000), b"b"]
    wire.lose()
