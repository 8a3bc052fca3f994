"""Sending one frame: what leaves, what is refused and with which words, and when."""

from __future__ import annotations

import array
import asyncio
import gc
import mmap
import platform
import re
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest
from support import frames
from support.frames import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, Sent
from support.mock import Wire

from wsfast import (
    ConnectionClosed,
    ConnectionClosedError,
    WSCloseCode,
    WSMsgType,
    WSTransport,
    mask_kernel,
)


@pytest.fixture
def wire(loop):
    wire = Wire(loop)
    yield wire
    wire.lose()


def mapped(data: bytes) -> mmap.mmap:
    area = mmap.mmap(-1, len(data))
    area[:] = data
    return area


class Name(str):
    __slots__ = ()


class Data(bytes):
    pass


# (name, message, bytes on the wire)
MESSAGES = [
    ("None", None, b""),
    ("empty str", "", b""),
    ("ASCII str", "plain", b"plain"),
    ("Latin-1 str", "Grüße", "Grüße".encode()),
    ("two-byte str", "日本", "日本".encode()),
    ("four-byte str", "a\U0001f600", "a\U0001f600".encode()),
    ("str with NUL", "a\0b", b"a\0b"),
    ("subclass of str", Name("é"), "é".encode()),
    ("bytes", b"\x00\xff", b"\x00\xff"),
    ("subclass of bytes", Data(b"ab"), b"ab"),
    ("bytearray", bytearray(b"abc"), b"abc"),
    ("memoryview", memoryview(b"abcdef")[2:5], b"cde"),
    ("memoryview of items", memoryview(array.array("i", [1, 2])), array.array("i", [1, 2]).tobytes()),
    ("memoryview of two dimensions", memoryview(bytes(range(6))).cast("B", (2, 3)), bytes(range(6))),
    ("array", array.array("d", [1.5]), array.array("d", [1.5]).tobytes()),
    ("mmap", mapped(b"mapped"), b"mapped"),
]


@pytest.mark.parametrize("msg_type", [WSMsgType.TEXT, WSMsgType.BINARY])
@pytest.mark.parametrize(
    ("message", "payload"), [row[1:] for row in MESSAGES], ids=[row[0] for row in MESSAGES]
)
def test_every_kind_of_message_is_sent_as_its_bytes(wire, msg_type, message, payload):
    wire.transport.send(msg_type, message)
    assert wire.sent() == [Sent(msg_type, payload)]


SIZES = [0, 1, 2, 3, 4, 5, 125, 126, 127, 65535, 65536, 300_000, 300_001, 1 << 20]
SIZES += [(128 << 10) + d for d in (-15, -14, -13, -9, -8, -1, 0, 1, 2, 3, 4)]
SIZES += [(256 << 10) + d for d in (-29, -28, -15, -14, -13, -1, 0, 1, 14)]


@pytest.mark.memory
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("corked", [False, True])
def test_a_message_of_any_size_arrives_intact_between_others(wire, size, corked):
    payload = frames.pattern(size)
    messages = [b"before", payload, b"after", payload, "end"]
    if corked:
        wire.transport.send_many(WSMsgType.BINARY, messages)
    else:
        for message in messages:
            wire.transport.send(WSMsgType.BINARY, message)
    assert [sent.payload for sent in wire.sent()] == [b"before", payload, b"after", payload, b"end"]


def test_one_frame_is_one_write(wire):  # up to 4 MiB: test_long_frames.py
    for size in (0, 125, 65536, (128 << 10) - 14, (128 << 10) - 13, 1 << 20):
        wire.transport.send(WSMsgType.BINARY, bytes(size))
        assert len(wire.mock.writes) == 1
        wire.sent()


def test_the_masks_of_frames_differ(wire):
    for _ in range(200):
        wire.transport.send(WSMsgType.BINARY, b"same")
    wire.sent()
    assert len(set(wire._parser.keys)) >= 199


def test_the_masks_of_two_runs_differ(tmp_path):
    import subprocess
    import sys
    from pathlib import Path

    code = (
        "import asyncio; from support.mock import Wire; wire = Wire(asyncio.new_event_loop()); "
        "[wire.transport.send(2, b'') for _ in range(20)]; print(b''.join(wire.mock.writes).hex())"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code], cwd=Path(__file__).parents[1], capture_output=True, check=True
        ).stdout
        for _ in range(2)
    }
    assert len(runs) == 2


@pytest.mark.memory
def test_a_buffer_may_be_reused_as_soon_as_send_returns(wire):
    buffer = bytearray(b"first")
    wire.transport.send(WSMsgType.BINARY, buffer)
    with wire.transport.cork():
        buffer[:] = b"other"
        wire.transport.send(WSMsgType.BINARY, memoryview(buffer))
        buffer[:] = b"wrong"
        buffer += b"and it may grow: nobody holds a view"
    assert wire.sent() == [Sent(BINARY, b"first"), Sent(BINARY, b"other")]


# Arguments that are refused: (name, a call, the exception, what it names)
def _strided(view: memoryview) -> memoryview:
    return view[::2]


REFUSED = [
    ("int as message", lambda t: t.send(2, 5), TypeError, "message"),
    ("list as message", lambda t: t.send(2, [b"a"]), TypeError, "message"),
    ("object as message", lambda t: t.send(1, object()), TypeError, "message"),
    ("non-contiguous message", lambda t: t.send(2, _strided(memoryview(b"abcdef"))), ValueError, "message"),
    ("lone surrogate", lambda t: t.send(1, "a\ud800"), UnicodeEncodeError, "surrogate"),
    ("str as msg_type", lambda t: t.send("text", b""), TypeError, "msg_type"),
    ("None as msg_type", lambda t: t.send(None, b""), TypeError, "msg_type"),
    ("float as msg_type", lambda t: t.send(1.5, b""), TypeError, "msg_type"),
    ("huge msg_type", lambda t: t.send(1 << 80, b""), (TypeError, ValueError), "msg_type"),
    ("reserved opcode 3", lambda t: t.send(3, b""), ValueError, "msg_type"),
    ("reserved opcode 11", lambda t: t.send(11, b""), ValueError, "msg_type"),
    ("opcode 16", lambda t: t.send(16, b""), ValueError, "msg_type"),
    ("opcode 0x81", lambda t: t.send(0x81, b""), ValueError, "msg_type"),
    ("negative opcode", lambda t: t.send(-1, b""), ValueError, "msg_type"),
    ("CLOSE by send()", lambda t: t.send(8, b""), ValueError, "send_close"),
    ("CONTINUATION of nothing", lambda t: t.send(0, b""), ValueError, "CONTINUATION"),
    ("fragmented PING", lambda t: t.send(9, b"", fin=False), ValueError, "fin"),
    ("fragmented PONG", lambda t: t.send(10, b"", False), ValueError, "fin"),
    ("long PING", lambda t: t.send(9, b"x" * 126), ValueError, "message"),
    ("long send_ping()", lambda t: t.send_ping(b"x" * 126), ValueError, "message"),
    ("long send_pong()", lambda t: t.send_pong("é" * 63), ValueError, "message"),
    ("int as ping payload", lambda t: t.send_ping(5), TypeError, "message"),
    ("rsv1", lambda t: t.send(1, b"", rsv1=True), ValueError, "rsv1"),
    ("rsv2", lambda t: t.send(1, b"", rsv2=True), ValueError, "rsv2"),
    ("rsv3", lambda t: t.send(2, b"", True, False, False, True), ValueError, "rsv3"),
    ("str as messages", lambda t: t.send_many(1, "abc"), TypeError, "messages"),
    ("bytes as messages", lambda t: t.send_many(2, b"abc"), TypeError, "messages"),
    ("bytearray as messages", lambda t: t.send_many(2, bytearray(b"abc")), TypeError, "messages"),
    ("memoryview as messages", lambda t: t.send_many(2, memoryview(b"abc")), TypeError, "messages"),
    ("int as messages", lambda t: t.send_many(2, 5), TypeError, "iterable"),
    ("CLOSE by send_many()", lambda t: t.send_many(8, []), ValueError, "msg_type"),
    ("str as msg_type of many", lambda t: t.send_many("text", []), TypeError, "msg_type"),
    *[
        (name, lambda t, args=args: t.send_reuse_external_bytearray(*args), error, argument)
        for name, args, error, argument in (
            ("None as buffer", (2, None, 14), TypeError, "buffer"),
            ("bytes as buffer", (2, bytes(20), 14), TypeError, "buffer"),
            ("msg_offset 13", (2, bytearray(20), 13), ValueError, "msg_offset"),
            ("msg_offset 0", (2, bytearray(20), 0), ValueError, "msg_offset"),
            ("negative msg_offset", (2, bytearray(20), -1), ValueError, "msg_offset"),
            ("msg_offset behind", (2, bytearray(20), 21), ValueError, "msg_offset"),
            ("external CLOSE", (8, bytearray(20), 14), ValueError, "msg_type"),
            ("external PING", (9, bytearray(20), 14), ValueError, "msg_type"),
            ("external opcode 3", (3, bytearray(20), 14), ValueError, "msg_type"),
            ("external str type", ("x", bytearray(20), 14), TypeError, "msg_type"),
            ("external rsv", (2, bytearray(20), 14, True, True), ValueError, "rsv1"),
        )
    ],
    *[
        (f"close code {code}", lambda t, code=code: t.send_close(code), ValueError, "close_code")
        for code in (-1, 1, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65536)
    ],
    ("str as close code", lambda t: t.send_close("1000"), TypeError, "close_code"),
    ("None as close code", lambda t: t.send_close(None), TypeError, "close_code"),
    ("huge close code", lambda t: t.send_close(1 << 80), (TypeError, ValueError), "close_code"),
    ("reason without code", lambda t: t.send_close(0, "why"), ValueError, "close_message"),
    ("long reason", lambda t: t.send_close(1000, "x" * 124), ValueError, "close_message"),
    ("long reason in bytes", lambda t: t.send_close(1000, ("é" * 62).encode()), ValueError, "close_message"),
    ("int as reason", lambda t: t.send_close(1000, 5), TypeError, "close_message"),
    ("list as reason", lambda t: t.send_close(1000, [65, 66]), TypeError, "close_message"),
    ("reason that is no UTF-8", lambda t: t.send_close(1000, b"\xff"), ValueError, "utf-8"),
]


@pytest.mark.parametrize(
    ("call", "error", "named"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_a_wrong_argument_is_refused_by_name_and_nothing_is_sent(wire, call, error, named):
    with pytest.raises(error, match=named):
        call(wire.transport)
    assert wire.sent() == []
    assert not wire.transport.is_close_frame_sent
    wire.transport.send(WSMsgType.TEXT, "fine")
    assert wire.sent() == [Sent(TEXT, b"fine")]


def test_negotiated_reserved_bits_can_be_set(loop):
    wire = Wire(loop, rsv_allowed=0x40)
    wire.transport.send(WSMsgType.TEXT, b"a", rsv1=True)
    wire.transport.send(WSMsgType.TEXT, b"b", False, True)
    wire.transport.send(WSMsgType.CONTINUATION, b"c")
    with pytest.raises(ValueError, match="rsv2"):
        wire.transport.send(WSMsgType.TEXT, b"d", rsv2=True)
    assert wire.sent() == [Sent(TEXT, b"a", True, 4), Sent(TEXT, b"b", False, 4), Sent(CONTINUATION, b"c")]
    wire.lose()


def test_fragments_are_sent_in_order_with_control_frames_between_them(wire):
    transport = wire.transport
    transport.send(WSMsgType.TEXT, "a", fin=False)
    transport.send_ping(b"?")
    transport.send(WSMsgType.CONTINUATION, "b", fin=False)
    transport.send_pong()
    transport.send(WSMsgType.CONTINUATION, "c")
    transport.send(WSMsgType.BINARY, "d")
    assert wire.sent() == [
        Sent(TEXT, b"a", False),
        Sent(PING, b"?"),
        Sent(CONTINUATION, b"b", False),
        Sent(PONG, b""),
        Sent(CONTINUATION, b"c"),
        Sent(BINARY, b"d"),
    ]


@pytest.mark.parametrize("msg_type", [WSMsgType.TEXT, WSMsgType.BINARY])
@pytest.mark.parametrize("fin", [True, False])
def test_a_message_cannot_begin_inside_another(wire, msg_type, fin):
    wire.transport.send(WSMsgType.TEXT, "a", fin=False)
    with pytest.raises(ValueError, match="CONTINUATION"):
        wire.transport.send(msg_type, "b", fin=fin)
    with pytest.raises(ValueError, match="CONTINUATION"):
        wire.transport.send_many(msg_type, ["b"])
    with pytest.raises(ValueError, match="CONTINUATION"):
        wire.transport.send_reuse_external_bytearray(msg_type, bytearray(20), 14)
    wire.transport.send(WSMsgType.CONTINUATION, "c")
    assert wire.sent() == [Sent(TEXT, b"a", False), Sent(CONTINUATION, b"c")]


def test_a_fragment_that_is_refused_begins_no_message(wire):
    with pytest.raises(TypeError):
        wire.transport.send(WSMsgType.TEXT, 5, fin=False)
    with pytest.raises(UnicodeEncodeError):
        wire.transport.send(WSMsgType.TEXT, "\ud800", fin=False)
    wire.transport.send(WSMsgType.TEXT, "a")
    assert wire.sent() == [Sent(TEXT, b"a")]


def test_large_fragments_keep_their_order(wire):
    big = frames.pattern(300_000)
    wire.transport.send(WSMsgType.BINARY, big, fin=False)
    wire.transport.send(WSMsgType.CONTINUATION, big)
    assert wire.sent() == [Sent(BINARY, big, False), Sent(CONTINUATION, big)]


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, (128 << 10) - 14, 300_000])
@pytest.mark.parametrize("offset", [14, 15, 17, 100])
def test_an_external_bytearray_is_sent_from_its_offset(wire, size, offset):
    payload = frames.pattern(size)
    wire.transport.send_reuse_external_bytearray(WSMsgType.BINARY, bytearray(offset) + payload, offset)
    assert wire.sent() == [Sent(BINARY, payload)]


@pytest.mark.memory
def test_bytes_of_an_external_bytearray_before_the_header_are_left_alone(wire):
    buffer = bytearray(b"\xaa" * 100) + b"x" * 200
    wire.transport.send_reuse_external_bytearray(WSMsgType.BINARY, buffer, 100)
    assert buffer[:92] == b"\xaa" * 92
    buffer[:] = bytes(len(buffer))
    assert wire.sent() == [Sent(BINARY, b"x" * 200)]


def test_an_external_bytearray_may_be_a_fragment(wire):
    wire.transport.send_reuse_external_bytearray(WSMsgType.TEXT, bytearray(14) + b"a", 14, fin=False)
    wire.transport.send_reuse_external_bytearray(WSMsgType.CONTINUATION, bytearray(14) + b"b", 14)
    assert wire.sent() == [Sent(TEXT, b"a", False), Sent(CONTINUATION, b"b")]


@pytest.mark.memory
def test_an_external_bytearray_waits_its_turn_in_a_cork(wire):
    buffer = bytearray(14) + b"second"
    with wire.transport.cork():
        wire.transport.send(WSMsgType.TEXT, "first")
        wire.transport.send_reuse_external_bytearray(WSMsgType.TEXT, buffer, 14)
        buffer[:] = bytes(20)
        wire.transport.send(WSMsgType.TEXT, "third")
    assert [sent.payload for sent in wire.sent()] == [b"first", b"second", b"third"]


# Every method, for the states in which none may send.
SENDS = {
    "send": lambda t: t.send(WSMsgType.TEXT, "x"),
    "send of a large message": lambda t: t.send(WSMsgType.TEXT, "x" * 300_000),
    "send of a fragment": lambda t: t.send(WSMsgType.TEXT, "x", fin=False),
    "send_many": lambda t: t.send_many(WSMsgType.TEXT, ["x"]),
    "send_ping": lambda t: t.send_ping(),
    "send_pong": lambda t: t.send_pong(b"x"),
    "send_reuse_external_bytearray": lambda t: t.send_reuse_external_bytearray(
        WSMsgType.TEXT, bytearray(20), 14
    ),
}
sends = pytest.mark.parametrize("send", SENDS.values(), ids=SENDS)


@sends
@pytest.mark.parametrize("corked", [False, True])
def test_sending_after_close_raises_what_was_sent_and_sends_nothing(wire, send, corked):
    wire.transport.send_close(WSCloseCode.GOING_AWAY, "bye")
    wire.sent()
    with wire.transport.cork() if corked else nullcontext(), pytest.raises(ConnectionClosedError) as info:
        send(wire.transport)
    assert (info.value.sent.code, info.value.sent.reason) == (1001, "bye")
    assert info.value.rcvd is None
    assert wire.sent() == []


@sends
def test_sending_after_an_error_code_raises_the_error(wire, send):
    wire.feed(frames.close(1011, "broken"))
    with pytest.raises(ConnectionClosedError) as info:
        send(wire.transport)
    assert info.value.code == 1011
    assert info.value.reason == "broken"
    assert info.value.rcvd_then_sent is True


@sends
@pytest.mark.parametrize("end", ["abort", "disconnect", "lose", "violation"])
def test_sending_after_the_end_raises(loop, send, end):
    wire = Wire(loop)
    if end == "violation":
        wire.feed(b"\xff")
    elif end == "lose":
        wire.lose()
    else:
        getattr(wire.transport, end)()
    wire.sent()
    with pytest.raises(ConnectionClosed):
        send(wire.transport)
    if end != "lose":
        wire.lose()
    with pytest.raises(ConnectionClosed):
        send(wire.transport)
    assert wire.sent() == []


METHODS = {
    **SENDS,
    "cork": lambda t: t.cork().__enter__(),
    "send_close": lambda t: t.send_close(1000),
    "disconnect": lambda t: t.disconnect(),
    "disconnect(False)": lambda t: t.disconnect(False),
    "abort": lambda t: t.abort(),
    "notify_user_specific_pong_received": lambda t: t.notify_user_specific_pong_received(),
    "write_buffer_size": lambda t: t.write_buffer_size,
    "set_write_buffer_limits": lambda t: t.set_write_buffer_limits(10),
    "wait_disconnected": lambda t: asyncio.run(t.wait_disconnected()),
    "measure_roundtrip_time": lambda t: asyncio.run(t.measure_roundtrip_time(1)),
}


@pytest.mark.parametrize("call", METHODS.values(), ids=METHODS)
def test_a_method_called_from_a_wrong_thread_raises_and_does_nothing(wire, call):
    raised = []

    def run():
        try:
            call(wire.transport)
        except BaseException as exc:
            raised.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    [error] = raised
    assert type(error) is RuntimeError
    instead = "send_threadsafe()" if "WSTransport.send()" in str(error) else "loop.call_soon_threadsafe()"
    assert str(error).endswith(f"called from a wrong thread: use {instead}")
    assert wire.mock.writes == []
    assert wire.mock.calls == []
    assert not wire.transport.is_close_frame_sent


def test_a_transport_is_a_client_and_cannot_be_changed(wire):
    assert isinstance(wire.transport, WSTransport)
    assert wire.transport.is_client_side is True
    assert wire.transport.is_secure is False
    assert wire.transport.close_info is None
    assert wire.transport.close_handshake is None
    assert wire.transport.is_disconnected is False
    assert "open" in repr(wire.transport)
    for name in ("is_client_side", "is_secure", "close_info", "request", "underlying_transport"):
        with pytest.raises(AttributeError):
            setattr(wire.transport, name, None)


def test_what_a_failed_send_held_is_released(wire):
    """A view that is not released would make the bytearray's resizing fail."""
    buffer = bytearray(b"x" * 126)
    with pytest.raises(ValueError, match="message"):
        wire.transport.send_ping(buffer)
    wire.transport.send_close()
    with pytest.raises(ConnectionClosed):
        wire.transport.send(WSMsgType.BINARY, buffer)
    buffer.clear()
    gc.collect()
    assert [sent.opcode for sent in wire.sent()] == [CLOSE]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors have one kernel")
def test_the_processor_chooses_the_kernel_that_masks():
    """And not the compiler: its library may know nothing of processors, as zig's, which builds wheels."""
    flags = set(re.findall(r"\w+", Path("/proc/cpuinfo").read_text()))
    best = "avx2" if "avx2" in flags else "scalar"
    assert mask_kernel == ("avx512" if {"avx512f", "avx512bw", "avx512_vbmi2"} <= flags else best)
