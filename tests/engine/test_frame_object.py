"""WSFrame: what a received frame tells about itself, and what can be got out of it."""

from __future__ import annotations

import pytest
from support import frames
from support.frames import BINARY, CONTINUATION, PING, PONG, TEXT, binary, frame, header, text
from support.listeners import Scripted
from support.mock import Wire

from wsfast import InvalidText, WSCloseCode, WSFrame, WSMsgType, WSProtocolError


def receive(loop, *pieces: bytes, **options) -> list[WSFrame]:
    """The frames themselves, kept."""
    kept = []
    wire = Wire(loop, Scripted(on_ws_frame=lambda self, transport, frame: kept.append(frame)), **options)
    wire.feed(*pieces)
    wire.lose()
    return kept


@pytest.mark.parametrize("opcode", [TEXT, BINARY, PING, PONG])
def test_msg_type_is_a_member_of_the_enum(loop, opcode):
    [got] = receive(loop, frame(opcode, b"x"), auto_pong=False)
    assert got.msg_type is WSMsgType(opcode)


def test_fin_is_false_for_all_fragments_but_the_last(loop):
    got = receive(loop, text("a", fin=False) + frame(0, b"b", fin=False) + frame(0, b"c"))
    assert [one.fin for one in got] == [False, False, True]
    assert got[1].msg_type is WSMsgType.CONTINUATION is WSMsgType(CONTINUATION)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536])
def test_payload_size_is_that_of_the_payload(loop, size):
    [got] = receive(loop, binary(b"x" * size))
    assert got.payload_size == size


def test_reserved_bits_are_false_unless_they_are_set(loop):
    plain, first, third = receive(loop, text("") + frame(TEXT, rsv=4) + frame(TEXT, rsv=1), rsv_allowed=0x70)
    assert (plain.rsv1, plain.rsv2, plain.rsv3) == (False, False, False)
    assert (first.rsv1, first.rsv2, first.rsv3) == (True, False, False)
    assert (third.rsv1, third.rsv2, third.rsv3) == (False, False, True)


A, B, LONG = text("a"), frame(PONG, b"bb"), binary(b"x" * 126)
# (what arrives in one read, tail_size of each frame, last_in_buffer of each frame)
TAILS = [
    ("a frame alone", A, [0], [True]),
    ("two frames", A + B, [4, 0], [False, True]),
    ("three frames", A + LONG + B, [134, 4, 0], [False, False, True]),
    ("half a header behind", A + b"\x82", [1], [True]),
    ("half a 16-bit header behind", A + b"\x82\x7e\x00", [3], [True]),
    ("half a 64-bit header behind", A + b"\x82\x7f" + b"\x00" * 7, [9], [True]),
    ("a header without its payload behind", A + b"\x82\x02", [2], [True]),
    ("all but one byte behind", A + LONG[:-1], [129], [True]),
    ("a frame and a half behind", A + B + LONG[:-1], [133, 129], [False, True]),
    ("an empty frame behind", A + text(""), [2, 0], [False, True]),
    ("a fragment behind", text("a", fin=False) + frame(0, b"b"), [3, 0], [False, True]),
    ("a control frame behind a fragment", text("a", fin=False) + B, [4, 0], [False, True]),
    ("a bad frame behind", A + b"\x83\x00", [2], [True]),
    ("a huge frame behind", A + header(BINARY, 1 << 40), [10], [True]),
]


@pytest.mark.parametrize(("data", "tails", "last"), [row[1:] for row in TAILS], ids=[row[0] for row in TAILS])
def test_tail_size_and_last_in_buffer_tell_what_had_arrived_behind_the_frame(loop, data, tails, last):
    noted = []

    def note(self, transport, frame):
        noted.append((frame.tail_size, frame.last_in_buffer))

    wire = Wire(loop, Scripted(on_ws_frame=note))
    wire.feed(data)
    wire.lose()
    assert noted == list(zip(tails, last))


def test_payload_as_bytes_is_a_copy_each_time(loop):
    [got] = receive(loop, binary(frames.pattern(300)))
    assert got.get_payload_as_bytes() == frames.pattern(300)
    assert got.get_payload_as_bytes() is not got.get_payload_as_bytes()


@pytest.mark.parametrize(
    "string", ["", "a", "Grüße", "日本", "\U0001f600" * 50, "\x00", "\ud7ff\ue000\U0010ffff"]
)
def test_payload_as_utf8_text_is_the_text(loop, string):
    [got] = receive(loop, text(string))
    assert got.get_payload_as_utf8_text() == string


# RFC 3629: (what is wrong, bytes)
NOT_UTF8 = [
    ("a byte that never occurs", b"\xff"),
    ("a continuation alone", b"\x80"),
    ("cut inside a character", b"\xe2\x82"),
    ("an overlong slash", b"\xc0\xaf"),
    ("a surrogate", b"\xed\xa0\x80"),
    ("above U+10FFFF", b"\xf4\x90\x80\x80"),
]


@pytest.mark.parametrize("payload", [row[1] for row in NOT_UTF8], ids=[row[0] for row in NOT_UTF8])
def test_payload_as_utf8_text_refuses_what_is_not_utf8(loop, payload):
    [got] = receive(loop, text(b"ok " + payload))
    with pytest.raises(InvalidText) as info:
        got.get_payload_as_utf8_text()
    assert isinstance(info.value, UnicodeDecodeError)
    assert isinstance(info.value, WSProtocolError)
    assert info.value.code == 1007
    assert info.value.start == 3


def test_payload_as_ascii_text_is_the_text_or_refuses(loop):
    good, bad = receive(loop, text("plain") + text("é"))
    assert good.get_payload_as_ascii_text() == "plain"
    with pytest.raises(UnicodeDecodeError):
        bad.get_payload_as_ascii_text()


@pytest.mark.memory
def test_payload_as_memoryview_is_a_read_only_window(loop):
    [got] = receive(loop, binary(frames.pattern(300)))
    for view in (got.get_payload_as_memoryview(), memoryview(got)):
        assert view.readonly
        assert view.nbytes == 300
        assert view == frames.pattern(300)
        with pytest.raises(TypeError):
            view[0] = 1
    assert bytes(got) == frames.pattern(300)
    assert bytearray(got) == frames.pattern(300)


def test_a_writable_buffer_of_a_frame_is_refused(loop):
    import ctypes

    [got] = receive(loop, binary(b"x"))
    with pytest.raises(TypeError):
        (ctypes.c_char * 1).from_buffer(got)


# (CLOSE frame, code, its type, message, reason)
CLOSES = [
    (frames.close(), WSCloseCode.NO_INFO, WSCloseCode, None, None),
    (frames.close(1000), WSCloseCode.OK, WSCloseCode, None, None),
    (frames.close(1001, "bye"), WSCloseCode.GOING_AWAY, WSCloseCode, b"bye", "bye"),
    (frames.close(1014, "é"), WSCloseCode.BAD_GATEWAY, WSCloseCode, "é".encode(), "é"),
    (frames.close(3000), 3000, int, None, None),
    (frames.close(4999, "x" * 123), 4999, int, b"x" * 123, "x" * 123),
]


@pytest.mark.parametrize(("data", "code", "kind", "message", "reason"), CLOSES)
def test_a_close_frame_has_a_code_and_a_reason(loop, data, code, kind, message, reason):
    [got] = receive(loop, data)
    assert got.msg_type is WSMsgType.CLOSE
    assert got.get_close_code() == code
    assert type(got.get_close_code()) is kind
    assert got.get_close_message() == message
    assert got.get_close_reason() == reason


@pytest.mark.parametrize("method", ["get_close_code", "get_close_message", "get_close_reason"])
def test_only_a_close_frame_has_a_code_and_a_reason(loop, method):
    [got] = receive(loop, text("abc"))
    with pytest.raises(ValueError, match="TEXT"):
        getattr(got, method)()


def test_repr_names_the_type_the_bits_and_the_sizes_but_shows_no_payload(loop):
    [got] = receive(loop, frame(TEXT, b"secret", rsv=4), rsv_allowed=0x40)
    assert repr(got) == "<WSFrame TEXT fin rsv1 payload_size=6 tail_size=0>"


def test_attributes_are_read_only(loop):
    [got] = receive(loop, text("a"))
    for name in ("msg_type", "payload_size", "tail_size", "fin", "rsv1", "rsv2", "rsv3", "last_in_buffer"):
        with pytest.raises(AttributeError):
            setattr(got, name, 0)
