"""Listeners of whole messages: on_ws_message() gets what on_ws_frame() would have to put together."""

import asyncio
import gc
import logging
import weakref
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import frames
from support.frames import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, frame, text
from support.listeners import Recorder
from support.mock import Wire
from support.pair import pair

from wsfast import (
    InvalidText,
    PayloadTooBig,
    ProtocolError,
    WSListener,
    WSMsgType,
    WSProtocolError,
    ws_connect,
)
from wsfast.deflate import AgreedDeflate, PerMessageDeflate

RSV1 = 4


class Reader(Recorder):
    """Notes messages as it gets them, and control frames as any Recorder."""

    def __init__(self):
        super().__init__()
        self.messages = []
        self.lists = []

    def on_ws_message(self, transport, msg_type, payload):
        assert type(msg_type) is WSMsgType
        self.messages.append((msg_type, payload))
        self.note("message")

    @property
    def contents(self):
        return [bytes(p) if isinstance(p, memoryview) else p for _, p in self.messages]


class BytesReader(Reader):
    payload_type = bytes


class StrReader(Reader):
    payload_type = str


class ListReader(StrReader):
    """Gets the messages of a read at once."""

    on_ws_message = WSListener.on_ws_message

    def on_ws_messages(self, transport, messages):
        assert messages
        self.lists.append(len(messages))
        for payload in messages:
            msg_type = WSMsgType.TEXT if isinstance(payload, str) else WSMsgType.BINARY
            Reader.on_ws_message(self, transport, msg_type, payload)


READERS = pytest.mark.parametrize("reader", [Reader, BytesReader, StrReader, ListReader])


def agreed(**options):
    return PerMessageDeflate(**options).accept([])


class Deflating:
    """Compresses frames as a server does."""

    def __init__(self):
        self.stream = zlib.compressobj(wbits=-15)

    def __call__(self, data, fin=True):
        data = data.encode() if isinstance(data, str) else data
        deflated = self.stream.compress(data) + self.stream.flush(zlib.Z_SYNC_FLUSH)
        return deflated[:-4] if fin else deflated


def expected(reader, data, msg_type=WSMsgType.TEXT):
    return data.decode() if issubclass(reader, StrReader) and msg_type is WSMsgType.TEXT else data


# Whole messages


@READERS
@pytest.mark.parametrize("data", [b"", b"a", "żółw 🐢".encode(), b"x" * 70_000])
def test_a_message_in_one_frame(loop, reader, data):
    wire = Wire(loop, reader())
    wire.feed(frame(TEXT, data) + frame(BINARY, data))
    kinds = {"Reader": memoryview, "BytesReader": bytes, "StrReader": str, "ListReader": str}
    assert type(wire.listener.messages[0][1]) is kinds[reader.__name__]
    assert wire.listener.contents == [expected(reader, data), data]
    assert [msg_type for msg_type, _ in wire.listener.messages] == [WSMsgType.TEXT, WSMsgType.BINARY]
    assert not wire.listener.frames


@READERS
def test_a_character_anywhere_in_ascii(loop, reader):
    wire = Wire(loop, reader())
    texts = ["a" * size for size in range(200)]
    texts += [
        ("a" * at + "ż").ljust(size, "a") for size in (9, 15, 16, 17, 64, 81, 143) for at in range(size)
    ]
    wire.feed(b"".join(frame(TEXT, one.encode()) for one in texts))
    assert wire.listener.contents == [expected(reader, one.encode()) for one in texts]
    assert all(one.isascii() == ("ż" not in one) for one in wire.listener.contents if isinstance(one, str))


def test_nothing_is_copied_and_all_stays_valid(loop):
    wire = Wire(loop, Reader())
    for i in range(100):
        wire.feed(frame(BINARY, b"%d" % i * 500) + frame(BINARY, b"%d" % -i * 500))
    views = [payload for _, payload in wire.listener.messages]
    assert all(view.readonly and type(view.obj).__name__ == "WSFrame" for view in views)
    assert wire.listener.contents == [b"%d" % n * 500 for i in range(100) for n in (i, -i)]


@READERS
def test_fragments_are_put_together(loop, reader):
    data = "żółw 🐢".encode()
    wire = Wire(loop, reader())
    pieces = [frame(TEXT, data[:1], fin=False)]
    pieces += [frame(CONTINUATION, data[i : i + 1], fin=False) for i in range(1, len(data))]
    wire.feed(b"".join(pieces) + frame(PING, b"!") + frame(CONTINUATION) + frame(BINARY, b"next"))
    assert wire.listener.contents == [expected(reader, data), b"next"]
    assert [(sent.opcode, sent.payload) for sent in wire.sent()] == [(PONG, b"!")]


def test_control_frames_are_frames(loop):
    wire = Wire(loop, Reader(), auto_pong=False)
    wire.feed(frame(PING, b"1"), frame(PONG, b"2"), frame(TEXT, b"3"), frames.close(1000))
    assert [got.msg_type for got in wire.listener.frames] == [PING, PONG, CLOSE]
    assert wire.listener.contents == [b"3"]
    assert wire.end() is None
    assert wire.listener.events == ["connected", "frame", "frame", "message", "frame", "disconnected"]


def test_pause_and_resume_are_passed_on(loop):
    wire = Wire(loop, Reader())
    wire.transport.pause_writing()
    wire.transport.resume_writing()
    assert wire.listener.events == ["connected", "pause", "resume"]


def test_a_method_of_the_object_overrides_too(loop):
    listener, got = Recorder(), []
    listener.on_ws_message = lambda transport, msg_type, payload: got.append(bytes(payload))
    Wire(loop, listener).feed(text("a"))
    assert got == [b"a"]


def test_a_payload_type_that_is_none(loop):
    class Wrong(Reader):
        payload_type = bytearray

    with pytest.raises(TypeError, match="payload_type must be memoryview, bytes or str"):
        Wire(loop, Wrong())


def test_a_listener_of_frames_gets_frames(loop):
    assert WSListener.payload_type is memoryview
    wire = Wire(loop, Recorder())
    wire.feed(frame(TEXT, "a", fin=False) + frame(CONTINUATION, "b"))
    assert wire.listener.payloads == [b"a", b"b"]


@pytest.mark.parametrize("error", [ValueError("mine"), WSProtocolError(4001, "mine")])
@pytest.mark.parametrize("tolerant", [True, False])
def test_an_exception_of_on_ws_message(loop, error, tolerant):
    class Raising(Reader):
        def on_ws_message(self, transport, msg_type, payload):
            super().on_ws_message(transport, msg_type, payload)
            raise error

    log = logging.getLogger("wsfast.test.messages")
    log.propagate = False
    wire = Wire(loop, Raising(), disconnect_on_exception=not tolerant, logger=log)
    wire.feed(text("a") + text("b"))
    ends = not tolerant or isinstance(error, WSProtocolError)
    assert wire.listener.contents == ([b"a"] if ends else [b"a", b"b"])
    if ends:
        assert frames.parse_close(wire.sent()[-1].payload)[0] == getattr(error, "code", 1011)
    assert wire.end() is (error if ends else None)


def test_a_callback_may_drop_everything(loop):
    class Dropping(Reader):
        def on_ws_message(self, transport, msg_type, payload):
            super().on_ws_message(transport, msg_type, payload)
            transport.abort()

    wire = Wire(loop, Dropping())
    wire.feed(text("a") + text("b"))
    assert wire.listener.contents == [b"a"]
    wire.lose()
    gone = weakref.ref(wire.listener)
    wire.listener = None
    gc.collect()
    assert gone() is None


# Text (RFC 6455 section 8.1)


@READERS
@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("bad", [b"\xff", b"ok \xed\xa0\x80", b"ok \xc3"])
def test_text_that_is_not_utf8(loop, reader, compressed, bad):
    wire = Wire(loop, reader(), compression=agreed())
    first = frame(TEXT, Deflating()(bad), rsv=RSV1) if compressed else frame(TEXT, bad)
    wire.feed(text("ok") + first + text("never"))
    assert wire.listener.contents == [expected(reader, b"ok")]
    assert frames.parse_close(wire.sent()[-1].payload)[0] == 1007
    assert isinstance(wire.end(), InvalidText)


@READERS
@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize(
    "pieces",
    [[b"\xff"], [b"ok", b"\xe2\x82\x28"], [b"\xe2", b"\x28"], [b"\xed", b"\xa0"], [b"\xf4", b"\x90"]],
)
def test_fragments_fail_as_soon_as_they_cannot_be_text(loop, reader, compressed, pieces):
    """The message goes on, but it is over."""
    wire, deflate = Wire(loop, reader(), compression=agreed()), Deflating()
    for i, piece in enumerate(pieces):
        assert not wire.sent()
        data = deflate(piece, False) if compressed else piece
        wire.feed(
            frame(CONTINUATION if i else TEXT, data, fin=False, rsv=RSV1 if compressed and not i else 0)
        )
    assert frames.parse_close(wire.sent()[-1].payload)[0] == 1007
    assert isinstance(wire.end(), InvalidText)


@READERS
def test_fragments_that_end_inside_a_character(loop, reader):
    for last in (b"", b"\xe2"):
        wire = Wire(loop, reader())
        wire.feed(frame(TEXT, b"\xe2\x82", fin=False))
        assert not wire.sent()
        wire.feed(frame(CONTINUATION, last))
        assert isinstance(wire.end(), InvalidText)


# Kept as a copy, and in buffers of its own.
@pytest.mark.parametrize("size", [100, 20_000, 200_000])
@pytest.mark.parametrize("before", [b"", b"a" * 50])
@READERS
def test_a_frame_fails_before_it_is_complete(loop, reader, before, size):
    wire = Wire(loop, reader())
    wire.feed(text("first") + frames.header(TEXT, size) + before)
    for fine in (b"\xe2", b"\x82", b"\xac", b"\xe2"):
        wire.feed(fine)
        assert not wire.sent()
    wire.feed(b"\x28 and so on")
    assert frames.parse_close(wire.sent()[-1].payload)[0] == 1007
    wire.feed(b"a" * size + text("never"))
    assert wire.listener.contents == [expected(reader, b"first")]
    error = wire.end()
    assert isinstance(error, InvalidText)
    assert (error.start, error.object[error.start :]) == (len(before) + 3, b"\xe2\x28 and so on")
    assert error.reason == "invalid continuation byte"


@pytest.mark.parametrize("size", [100, 20_000, 200_000])
@READERS
def test_a_fragment_fails_before_it_is_complete(loop, reader, size):
    wire = Wire(loop, reader())
    wire.feed(frame(TEXT, b"\xe2", fin=False) + frame(PING, b"\xff") + frames.header(CONTINUATION, size))
    wire.feed(b"\x82" + b"\xac" + b"a" * 60)
    assert [sent.opcode for sent in wire.sent()] == [PONG]
    wire.feed(b"\x82")
    assert frames.parse_close(wire.sent()[-1].payload)[0] == 1007
    error = wire.end()
    assert isinstance(error, InvalidText)
    assert error.reason == "invalid across fragments"  # where it is wrong, the fragment alone does not tell


@pytest.mark.parametrize("size", [100, 20_000, 200_000])
@READERS
def test_incomplete_frames_that_are_not_text(loop, reader, size):
    """Whether it is shows the first frame of a message; what is compressed is not known before it is inflated."""
    wire = Wire(loop, reader(), compression=agreed())
    half = b"\xff" * (size // 2)
    deflated = Deflating()(b"x", fin=False)
    wire.feed(frames.header(BINARY, size) + half, half)
    wire.feed(frame(BINARY, fin=False) + frames.header(CONTINUATION, size) + half, half)
    wire.feed(frames.header(PING, 100) + b"\xff" * 50, b"\xff" * 50)
    wire.feed(frame(TEXT, deflated, fin=False, rsv=RSV1) + frames.header(CONTINUATION, size) + half)
    assert wire.listener.contents == [half * 2] * 2
    assert [sent.opcode for sent in wire.sent()] == [PONG]
    wire.lose()
    wire = Wire(loop, reader(), compression=agreed())
    wire.feed(frames.header(TEXT, size, rsv=RSV1) + half)
    assert not wire.sent()
    wire.lose()


@pytest.mark.parametrize("size", [100, 20_000, 200_000])
@READERS
def test_text_in_pieces_of_any_size(loop, reader, size):
    """One frame of it, and then two, each of which begins and ends inside a character."""
    data = ("żółw 🐢 €" * size).encode()[:size]
    data = data.decode(errors="ignore").encode()
    whole = text(data) + frame(TEXT, data[:21], fin=False) + frame(CONTINUATION, data[21:]) + text("end")
    for piece in (1, 7, 1000, 4096, 65_537) if size < 1000 else (1000, 4096, 65_537):
        wire = Wire(loop, reader())
        wire.feed(*(whole[at : at + piece] for at in range(0, len(whole), piece)))
        assert wire.listener.contents == [expected(reader, one) for one in (data, data, b"end")]
        wire.lose()


@pytest.mark.parametrize("size", [100, 200_000])
def test_nothing_is_checked_that_is_not_delivered(loop, size):
    for before in (b"", frames.header(TEXT, size)):
        wire = Wire(loop, Reader())
        wire.feed(before)
        wire.transport.disconnect()
        wire.feed(frames.header(TEXT, size)[len(before) :] + b"\xff", b"\xff" * (size // 2))
        wire.feed(b"\xff" * (size - size // 2 - 1) + frames.close(1000))
        assert wire.end() is None
        assert wire.transport.close_handshake.recv.code == 1000


def test_binary_messages_are_not_text(loop):
    wire = Wire(loop, StrReader())
    wire.feed(frame(BINARY, b"\xff", fin=False) + frame(CONTINUATION, b"\xff") + frame(BINARY, b"\xff"))
    assert wire.listener.contents == [b"\xff\xff", b"\xff"]


# Compression


@READERS
@pytest.mark.parametrize("feed", ["whole", "bytes"])
def test_compressed_messages(loop, reader, feed):
    wire, deflate = Wire(loop, reader(), compression=agreed()), Deflating()
    data = "żółw 🐢 ".encode() * 20
    stream = (
        frame(TEXT, deflate(data), rsv=RSV1) + frame(BINARY, data) + frame(BINARY, deflate(data), rsv=RSV1)
    )
    stream += frame(TEXT, deflate(data[:41], False), fin=False, rsv=RSV1) + frame(PING)
    stream += frame(CONTINUATION, deflate(data[41:])) + frame(TEXT, data[:41], fin=False)
    stream += frame(CONTINUATION, data[41:]) + frame(TEXT, b"\x00", rsv=RSV1) + text("end")
    wire.feed(*([stream] if feed == "whole" else [stream[i : i + 1] for i in range(len(stream))]))
    both = [expected(reader, data)] * 2
    assert wire.listener.contents == [
        both[0],
        data,
        data,
        *both,
        expected(reader, b""),
        expected(reader, b"end"),
    ]
    assert wire.end() is None


def test_what_lies_behind_a_compressed_frame_is_left_alone(loop):
    """The tail is put behind the payload, where the next frames already lie."""
    deflate = Deflating()
    wire = Wire(loop, Reader(), compression=agreed())
    payloads = [b"%d" % i for i in range(300)]
    wire.feed(
        b"".join(
            frame(BINARY, deflate(data), rsv=RSV1) if i % 3 else frame(BINARY, data)
            for i, data in enumerate(payloads)
        )
    )
    assert wire.listener.contents == payloads


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (frame(BINARY, b"\xff\xff\xff", rsv=RSV1), "decompression failed"),
        (frame(BINARY, b"", rsv=2), ""),
        (frame(BINARY, b"", rsv=1), ""),
        (frame(BINARY, b"\x00\x00", fin=False, rsv=RSV1) + frame(CONTINUATION, b"\x00", rsv=RSV1), ""),
        (frame(PING, b"", rsv=RSV1), ""),
    ],
)
def test_frames_that_break_the_extension(loop, data, reason):
    wire = Wire(loop, Reader(), compression=agreed())
    wire.feed(data + text("never"))
    assert not wire.listener.messages
    code, said = frames.parse_close(wire.sent()[-1].payload)
    assert (code, said.startswith(reason)) == (1002, True)
    assert isinstance(wire.end(), ProtocolError)


def test_without_compression_the_bit_is_refused(loop):
    wire = Wire(loop, Reader())
    wire.feed(frame(BINARY, b"\x00", rsv=RSV1))
    assert isinstance(wire.end(), ProtocolError)


class Ponging(Reader):
    def is_user_specific_pong(self, frame):
        return frame.get_payload_as_bytes() == b"pong"


async def test_a_pong_of_the_user_s_is_a_message_of_one_plain_frame():
    """A compressed one cannot be left out: later ones may refer to it."""
    wire, deflate = Wire(asyncio.get_running_loop(), Ponging(), compression=agreed()), Deflating()
    measuring = asyncio.ensure_future(wire.transport.measure_roundtrip_time(1))
    await asyncio.sleep(0)
    wire.feed(
        frame(TEXT, b"po", fin=False) + frame(CONTINUATION, b"pong") + frame(TEXT, deflate(b"pong"), rsv=RSV1)
    )
    assert wire.listener.contents == [b"popong", b"pong"]
    assert not measuring.done()
    wire.feed(text(b"pong"), text(b"next"))
    assert wire.listener.contents == [b"popong", b"pong", b"next"]
    assert len(await measuring) == 1
    wire.lose()


# Limits


@READERS
@pytest.mark.parametrize("limit", [0, 10, 1000])
def test_max_frame_size_is_that_of_a_message(loop, reader, limit):
    def outcome(*pieces):
        wire = Wire(loop, reader(), max_frame_size=limit, compression=agreed())
        wire.feed(*pieces)
        sent, error = wire.sent(), wire.end()
        if error is None:
            return len(wire.listener.contents[0])
        assert frames.parse_close(sent[-1].payload)[0] == 1009
        assert isinstance(error, PayloadTooBig)
        assert error.max_size == limit
        return None

    for size in (limit, limit + 1, limit + 2):
        for data in (b"x" * size, bytes(range(97, 119)) * (size // 22) + b"y" * (size % 22)):
            whole = size if size == limit else None
            cut = min(3, size)
            deflate = Deflating()
            assert outcome(frame(TEXT, data)) == whole
            assert outcome(frame(TEXT, deflate(data), rsv=RSV1)) == whole
            assert outcome(frame(TEXT, data[:cut], fin=False), frame(CONTINUATION, data[cut:])) == whole
            deflate = Deflating()
            pieces = [frame(TEXT, deflate(data[:cut], False), fin=False, rsv=RSV1)]
            assert outcome(*pieces, frame(CONTINUATION, deflate(data[cut:]))) == whole


def test_a_message_may_be_longer_on_the_wire_than_its_limit(loop):
    data = zlib.compress(bytes(range(256)) * 8)[10:110]  # which cannot be compressed once more
    wire = Wire(loop, BytesReader(), max_frame_size=len(data), compression=agreed())
    deflated = Deflating()(data)
    assert len(deflated) > len(data)
    wire.feed(frame(BINARY, deflated, rsv=RSV1))
    assert wire.listener.contents == [data]


def test_a_frame_far_over_the_limit_is_refused_by_its_header(loop):
    wire = Wire(loop, Reader(), max_frame_size=1000, compression=agreed())
    wire.feed(frames.header(BINARY, 1 << 40, rsv=RSV1))
    error = wire.end()
    assert isinstance(error, PayloadTooBig)
    assert (error.size, error.max_size) == (1 << 40, 1000)


@pytest.mark.parametrize("compressed", [True, False])
def test_fragments_are_limited_by_their_bytes_alone(loop, compressed):
    reader = Reader()
    wire = Wire(loop, reader, compression=agreed())
    wire.feed(frame(BINARY, b"", fin=False, rsv=RSV1 if compressed else 0))
    for _ in range(10):
        wire.feed(frame(CONTINUATION, fin=False) * 10_000)
    wire.feed(frame(CONTINUATION, b"\x00" if compressed else b""))
    assert not wire.sent()
    assert [bytes(payload) for _, payload in reader.messages] == [b""]
    wire.end()


# Sending


def inflated(sent, stream):
    """The payload that a server reads out of a frame."""
    if not sent.rsv & RSV1:
        return sent.payload
    return stream.decompress(sent.payload + b"\x00\x00\xff\xff")


def test_messages_are_compressed_from_the_threshold_on(loop):
    wire = Wire(loop, Reader(), compression=agreed(threshold=100))
    stream = zlib.decompressobj(wbits=-15)
    short, long = b"x" * 99, b"x" * 100
    send = wire.transport.send
    for message, compress in (
        (short, None),
        (long, None),
        (short, True),
        (long, False),
        (long, True),
        (b"", True),
    ):
        send(WSMsgType.BINARY, message, compress=compress)
    sent = wire.sent()
    assert [frame.rsv for frame in sent] == [0, RSV1, RSV1, 0, RSV1, RSV1]
    assert [inflated(frame, stream) for frame in sent] == [short, long, short, long, long, b""]
    assert all(len(frame.payload) < 20 for frame in sent if frame.rsv)
    send(WSMsgType.PING, b"x" * 100, compress=True)
    send(WSMsgType.TEXT, "ż" * 50)
    ping, last = wire.sent()
    assert (ping.opcode, ping.rsv, ping.payload) == (PING, 0, b"x" * 100)
    assert inflated(last, stream) == "ż".encode() * 50


def test_what_leaves_together_is_compressed_in_order(loop):
    wire = Wire(loop, Reader(), compression=agreed(threshold=10))
    stream = zlib.decompressobj(wbits=-15)
    messages = [b"message %d" % i * (i % 4) for i in range(200)]
    with wire.transport.cork():
        wire.transport.send_many(WSMsgType.BINARY, messages)
        wire.transport.send_many(WSMsgType.BINARY, messages, compress=True)
        wire.transport.send_many(WSMsgType.BINARY, messages, compress=False)
        buffer = bytearray(14) + b"reused" * 10
        wire.transport.send_reuse_external_bytearray(WSMsgType.BINARY, buffer, 14)
    assert len(wire.mock.writes) == 1
    wire.transport.send_reuse_external_bytearray(WSMsgType.BINARY, bytearray(14) + b"reused" * 10, 14)
    sent = wire.sent()
    assert [inflated(frame, stream) for frame in sent] == [*messages * 3, *[b"reused" * 10] * 2]
    assert [bool(frame.rsv) for frame in sent] == (
        [len(message) >= 10 for message in messages] + [True] * 200 + [False] * 200 + [True] * 2
    )


@pytest.mark.parametrize("compress", [None, True, False])
def test_the_first_fragment_decides(loop, compress):
    wire = Wire(loop, Reader(), compression=agreed())
    stream = zlib.decompressobj(wbits=-15)
    send = wire.transport.send
    send(WSMsgType.TEXT, "a" * 20, fin=False, compress=compress)
    send(WSMsgType.CONTINUATION, "b" * 20, fin=False, compress=not compress)
    send(WSMsgType.PING, b"ping")
    send(WSMsgType.CONTINUATION, "", compress=not compress)
    send(WSMsgType.TEXT, "after", compress=True)
    first, second, ping, last, after = wire.sent()
    compressed = compress is not False
    assert [frame.rsv for frame in (first, second, ping, last, after)] == [RSV1 * compressed, 0, 0, 0, RSV1]
    payload = first.payload + second.payload + last.payload
    assert (
        stream.decompress(payload + b"\x00\x00\xff\xff") if compressed else payload
    ) == b"a" * 20 + b"b" * 20
    assert inflated(after, stream) == b"after"


def test_a_large_message_is_compressed(loop):
    wire = Wire(loop, Reader(), compression=agreed())
    data = bytes(range(256)) * 4000
    wire.transport.send(WSMsgType.BINARY, data)
    (sent,) = wire.sent()
    assert inflated(sent, zlib.decompressobj(wbits=-15)) == data


def test_reserved_bits_are_not_the_user_s(loop):
    wire = Wire(loop, Reader(), compression=agreed())
    with pytest.raises(ValueError, match="rsv1"):
        wire.transport.send(WSMsgType.TEXT, "", rsv1=True)


@pytest.fixture
def failing(monkeypatch):
    """Functions that run, one after the other, when a message has been compressed to its end."""
    new_stream, failures = AgreedDeflate.compressor, []

    class Stream:
        def __init__(self, stream):
            self.compress, self._flush = stream.compress, stream.flush

        def flush(self, mode):
            if failures:
                failures.pop()()
                raise MemoryError("no")
            return self._flush(mode)

    monkeypatch.setattr(AgreedDeflate, "compressor", lambda self: Stream(new_stream(self)))
    return failures


def test_what_is_not_sent_is_not_referred_to(loop, failing):
    """A message that could not be compressed to its end must not be missed by the next one."""
    wire = Wire(loop, Reader(), compression=agreed(threshold=0))
    stream = zlib.decompressobj(wbits=-15)
    wire.transport.send(WSMsgType.BINARY, b"one, two, three")
    failing.append(lambda: None)
    with pytest.raises(MemoryError, match="no"):
        wire.transport.send(WSMsgType.BINARY, b"four, five, six")
    wire.transport.send(WSMsgType.BINARY, b"four, five, six")
    assert [inflated(frame, stream) for frame in wire.sent()] == [b"one, two, three", b"four, five, six"]


def test_a_first_fragment_that_is_not_sent_begins_no_message(loop, failing):
    wire = Wire(loop, Reader(), compression=agreed(threshold=0))
    failing.append(lambda: None)
    with pytest.raises(MemoryError, match="no"):
        wire.transport.send(WSMsgType.BINARY, b"a", fin=False)
    with pytest.raises(ValueError, match="no fragmented message was begun"):
        wire.transport.send(WSMsgType.CONTINUATION, b"b")
    wire.transport.send(WSMsgType.BINARY, b"c")
    assert [inflated(frame, zlib.decompressobj(wbits=-15)) for frame in wire.sent()] == [b"c"]


def test_a_first_fragment_that_is_not_sent_while_others_wait_behind_it_ends_the_connection(loop, failing):
    wire = Wire(loop, Reader(), compression=agreed(threshold=0))
    failing.append(lambda: wire.transport.send(WSMsgType.CONTINUATION, b"b"))
    with pytest.raises(MemoryError, match="no"):
        wire.transport.send(WSMsgType.BINARY, b"a", fin=False)
    assert "abort" in wire.mock.calls
    assert wire.sent() == []


def test_a_server_whose_window_zlib_cannot_keep_to_gets_all_uncompressed(loop):
    wire = Wire(loop, Reader(), compression=PerMessageDeflate().accept([("client_max_window_bits", "8")]))
    wire.transport.send(WSMsgType.BINARY, bytes(5000), compress=True)
    (sent,) = wire.sent()
    assert (sent.rsv, sent.payload) == (0, bytes(5000))
    wire.feed(frame(BINARY, Deflating()(b"inflated"), rsv=RSV1))
    assert wire.listener.contents == [b"inflated"]


# Anything, cut anywhere


PIECES = st.lists(
    st.tuples(
        st.sampled_from(["", "a", "żółw 🐢", "price: 43000.12; " * 30]),
        st.booleans(),  # text
        st.booleans(),  # compressed
        st.lists(st.integers(0, 600), max_size=3),  # where it is cut into fragments
        st.booleans(),  # a ping between them
    ),
    max_size=8,
)


@READERS
@settings(max_examples=60, deadline=None)
@given(pieces=PIECES, cuts=st.lists(st.integers(1, 400), max_size=12), empty=st.booleans())
def test_any_messages_in_any_reads(loop_factory, reader, pieces, cuts, empty):
    loop = loop_factory()
    wire, deflate, stream, want = Wire(loop, reader(), compression=agreed()), Deflating(), b"", []
    for content, is_text, compressed, where, ping in pieces:
        data = content.encode()
        payload = deflate(data) if compressed else data
        ends = sorted(at % (len(payload) + 1) for at in where)
        starts = [0, *ends]
        for i, (start, end) in enumerate(zip(starts, [*ends, len(payload)])):
            opcode = CONTINUATION if i else TEXT if is_text else BINARY
            rsv = RSV1 if compressed and not i else 0
            stream += frame(opcode, payload[start:end], fin=i == len(ends), rsv=rsv)
            stream += frame(PING) if ping else b""
        want.append(content if is_text and issubclass(reader, StrReader) else data)
    at = 0
    for size in [*cuts, len(stream)]:
        wire.feed(stream[at : at + size])
        at += size
    assert wire.listener.contents == want
    assert wire.end() is None


@pytest.fixture(scope="module")
def loop_factory():
    loop = asyncio.new_event_loop()
    yield lambda: loop
    loop.close()


# Opening


async def test_compression_is_for_listeners_of_messages():
    with pytest.raises(TypeError, match="Recorder overrides neither on_ws_message"):
        async with pair(Recorder(), compression="deflate"):
            pass
    with pytest.raises(ValueError, match="unsupported compression"):
        await ws_connect(Reader, "ws://localhost/", compression="gzip")


async def test_a_server_may_decline():
    async with pair(Reader(), compression="deflate") as (transport, _, far):
        assert b"Sec-WebSocket-Extensions" in transport.request._raw
        assert transport.compression is None
        transport.send(WSMsgType.BINARY, bytes(5000), compress=True)
        assert (await far.frames(1))[0].rsv == 0


# Lists of messages


class Acting(ListReader):
    """Does something amid a list."""

    def __init__(self, act):
        super().__init__()
        self.act = act

    def on_ws_messages(self, transport, messages):
        super().on_ws_messages(transport, messages)
        self.act(transport)


def test_a_list_has_the_messages_of_one_read(loop):
    wire = Wire(loop, ListReader())
    data = frames.texts(*range(5))
    wire.feed(data[:-1])
    assert (wire.listener.contents, wire.listener.lists) == (["0", "1", "2", "3"], [4])
    wire.feed(data[-1:] + frame(TEXT, b"a", fin=False))
    wire.feed(frame(CONTINUATION, b"b") + frames.texts("c"))
    assert (wire.listener.contents[4:], wire.listener.lists) == (["4", "ab", "c"], [4, 1, 2])


def test_four_mebibytes_in_one_read(loop):
    wire = Wire(loop, ListReader())
    message = frame(BINARY, bytes(126))
    wire.feed(message * ((4 << 20) // len(message)))
    assert len(wire.listener.messages) == (4 << 20) // len(message)


@pytest.mark.parametrize("end", ["disconnect", "abort"])
def test_nothing_is_delivered_behind_a_list_that_ends_the_connection(loop, end):
    wire = Wire(loop, Acting(lambda transport: getattr(transport, end)()))
    wire.feed(frames.texts(1, 2) + frame(PONG, b"") + frames.texts(3) + frame(CLOSE, b""))
    assert (wire.listener.contents, wire.listener.frames) == (["1", "2"], [])


def test_a_list_that_is_answered_before_the_rule_is_broken(loop):
    wire = Wire(loop, Acting(lambda transport: transport.send(WSMsgType.TEXT, "answer")))
    wire.feed(frames.texts(1, 2) + b"\x83\x00")
    assert wire.listener.contents == ["1", "2"]
    assert wire.sent()[0].payload == b"answer"
    assert isinstance(wire.end(), ProtocolError)


@pytest.mark.parametrize("tolerant", [False, True])
def test_an_exception_of_on_ws_messages(loop, tolerant, caplog):
    def fail(transport):
        raise LookupError("mine")

    wire = Wire(loop, Acting(fail), disconnect_on_exception=not tolerant)
    wire.feed(frames.texts(1, 2) + frame(PONG, b"x") + frames.texts(3))
    if tolerant:
        assert wire.listener.contents == ["1", "2", "3"]
        assert [got.payload for got in wire.listener.frames] == [b"x"]
        assert "exception in" in caplog.text
    else:
        assert wire.listener.contents == ["1", "2"]
        assert not wire.listener.frames
        assert isinstance(wire.end(), LookupError)


async def test_a_callback_that_polls_amid_a_read_gets_the_rest_of_it():
    seen = []

    class Polling(ListReader):
        def on_ws_messages(self, transport, messages):
            seen.extend(messages)
            if messages == ["1"]:
                transport.poll(0)
                seen.append("polled")

    async with pair(Polling()) as (_, listener, far):
        await far.send(frames.texts(1) + frame(PONG, b"") + frames.texts(2))
        await listener.until(lambda: listener.frames)
        assert seen == ["1", "2", "polled"]


class Both(Reader):
    def on_ws_messages(self, transport, messages):
        pass


async def test_a_listener_gets_messages_or_lists_of_them():
    for listener in (Both(), ListReader()):
        if type(listener) is ListReader:
            listener.on_ws_message = print
        with pytest.raises(TypeError, match="overrides on_ws_message.. and on_ws_messages"):
            async with pair(listener):
                pass
