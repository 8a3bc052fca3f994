"""Each violation of RFC 6455 ends the connection with its code and exception, and nothing more is read."""

import struct

import pytest
from support import HUNG
from support.blocking import scripted
from support.frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    binary,
    close,
    frame,
    header,
    masked,
    pattern,
    text,
)

from wsfast.exceptions import (
    ConnectionClosedError,
    InvalidText,
    PayloadTooBig,
    ProtocolError,
)
from wsfast.sync.client import connect


def violate(data, call=lambda ws: ws.recv(), **options):
    """Send `data`; returns the code on the wire, its reason, and the exception."""

    def script(peer):
        peer.accept()
        peer.send(data + text("nobody reads this"))
        payload = peer.close_frame().payload
        assert peer.rest() == []
        return payload

    with scripted(script) as server, connect(server.url, **options) as ws:
        with pytest.raises(ConnectionClosedError) as raised:
            call(ws)
        with pytest.raises(ConnectionClosedError):
            ws.recv()
        assert raised.value.rcvd is None
        assert ws.close_code == 1006
    payload = server.result()
    assert raised.value.sent.code == struct.unpack("!H", payload[:2])[0]
    assert raised.value.sent.reason == payload[2:].decode()
    return raised.value.sent.code, payload[2:].decode(), raised.value.__cause__


@pytest.mark.parametrize(
    "data",
    [
        frame(TEXT, b"x", rsv=4),
        frame(TEXT, b"x", rsv=2),
        frame(TEXT, b"x", rsv=1),
        *(frame(opcode, b"") for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)),
        masked(TEXT, b"x"),
        frame(PING, b"", fin=False),
        frame(CLOSE, b"", fin=False),
        frame(PING, bytes(126)),
        frame(CONTINUATION, b"x"),
        frame(TEXT, b"x", fin=False) + frame(TEXT, b"x"),
        frame(TEXT, b"x", form=16),
        frame(TEXT, b"x", form=64),
        frame(BINARY, bytes(300), form=64),
        b"\x82\x7f" + b"\xff" * 8,
        b"\x82\x7f\x80" + bytes(7),
        frame(CLOSE, b"\x03"),
        *(close(code) for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535)),
    ],
    ids=lambda data: data[:12].hex(),
)
def test_violation(data):
    code, reason, cause = violate(data)
    assert code == 1002
    assert reason
    assert isinstance(cause, ProtocolError)
    assert str(cause) == reason


@pytest.mark.parametrize("code", [1000, 1001, 1003, 1007, 1011, 1012, 1013, 1014, 3000, 4999])
def test_close_codes_that_are_legal(code):
    def script(peer):
        peer.accept()
        peer.send(close(code, "é"))
        return peer.close_frame().payload

    with scripted(script) as server, connect(server.url) as ws:
        with pytest.raises(Exception, match="received") as raised:
            ws.recv()
        assert (raised.value.rcvd.code, raised.value.rcvd.reason, raised.value.__cause__) == (code, "é", None)
    assert server.result() == struct.pack("!H", code) + "é".encode()


BAD_TEXT = [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"caf\xc3"]


@pytest.mark.parametrize("bad", BAD_TEXT, ids=repr)
@pytest.mark.parametrize("decode", [None, True, False])
def test_text_that_is_not_utf8(bad, decode):
    for data in (
        text(bad),
        frame(TEXT, bad[:1], fin=False) + frame(CONTINUATION, bad[1:]),
        text(bad + bytes(2000)),
    ):
        code, reason, cause = violate(data, lambda ws: ws.recv(decode=decode))
        assert code == 1007
        assert reason
        assert isinstance(cause, InvalidText)


def test_binary_that_is_not_utf8_but_shall_be_decoded():
    """It is the caller who wanted text. The connection fails, and what has arrived remains."""

    def script(peer):
        peer.accept()
        peer.send(binary(b"\xff") + text("behind it"))
        return peer.close_frame().payload[:2], peer.rest()

    with scripted(script) as server, connect(server.url) as ws:
        with pytest.raises(ConnectionClosedError) as raised:
            ws.recv(decode=True)
        assert isinstance(raised.value.__cause__, InvalidText)
        assert raised.value.__cause__.start == 0
        assert ws.recv() == "behind it"
        with pytest.raises(ConnectionClosedError):
            ws.recv()
    assert server.result() == (struct.pack("!H", 1007), [])


def test_a_stream_that_is_not_utf8():
    for data in (text(b"\xff"), frame(TEXT, b"a", fin=False) + frame(CONTINUATION, b"\xff")):
        assert violate(data, lambda ws: list(ws.recv_streaming()))[0] == 1007


def test_a_reason_that_is_not_utf8():
    code, _, cause = violate(close(1000, b"\xff"))
    assert code == 1007
    assert isinstance(cause, InvalidText)


FIRST_WRONG_BYTES = {
    b"\x83": "the opcode is reserved",
    b"\xf1": "a reserved bit is set that no extension has negotiated for this frame",
    b"\x80": "a continuation frame continues no message",
    b"\x81\x85": "a frame from the server is masked",
    b"\x89\x7e": "a control frame has more than 125 bytes of payload",
    b"\x88\x01": "a close frame has a payload of one byte, which is no close code",
    b"\x09": "a control frame is fragmented",
    b"\x82\x7f\x80": "the top bit of the 64-bit payload length is set",
    b"\x01\x01a\x81": "a new message starts inside an unfinished one",
}


@pytest.mark.parametrize("data", FIRST_WRONG_BYTES, ids=bytes.hex)
def test_a_header_is_refused_at_its_first_wrong_byte(data):
    """And in the words of the other clients: they are the core's."""

    def script(peer):
        peer.accept()
        peer.send(data)
        return peer.close_frame().payload

    with (
        scripted(script) as server,
        connect(server.url) as ws,
        pytest.raises(ConnectionClosedError) as raised,
    ):
        ws.recv()
    assert server.result() == struct.pack("!H", 1002) + FIRST_WRONG_BYTES[data].encode()
    assert str(raised.value.__cause__) == FIRST_WRONG_BYTES[data]


def test_a_length_that_is_too_big_by_its_first_byte():
    def script(peer):
        peer.accept()
        peer.send(b"\x82\x7f\x01")
        return peer.close_frame().payload[:2]

    with (
        scripted(script) as server,
        connect(server.url) as ws,
        pytest.raises(ConnectionClosedError) as raised,
    ):
        ws.recv()
    assert server.result() == struct.pack("!H", 1009)
    assert str(raised.value.__cause__) == "frame exceeds limit of 1048576 bytes"


def test_max_size():
    code, reason, cause = violate(header(BINARY, 2**20 + 1))
    assert (code, reason) == (1009, "a frame is larger than the receiver's limit")
    assert str(cause) == "frame with 1048577 bytes exceeds limit of 1048576 bytes"
    assert isinstance(cause, PayloadTooBig)
    assert (cause.size, cause.max_size, cause.current_size) == (2**20 + 1, 2**20, None)


def test_max_size_of_fragments_together():
    data = (
        frame(BINARY, bytes(6), fin=False)
        + frame(CONTINUATION, bytes(3), fin=False)
        + header(CONTINUATION, 2)
    )
    code, reason, cause = violate(data, max_size=10)
    assert (code, reason) == (1009, "a frame is larger than the receiver's limit")
    assert str(cause) == "frame with 2 bytes after reading 9 bytes exceeds limit of 10 bytes"
    assert (cause.size, cause.max_size, cause.current_size) == (2, 10, 9)


def test_max_size_of_a_fragment():
    assert violate(header(BINARY, 6), max_size=(10, 5))[0] == 1009
    data = frame(BINARY, bytes(5), fin=False) + frame(CONTINUATION, bytes(5))

    def script(peer):
        peer.accept()
        peer.send(data)
        peer.answer_close()

    with scripted(script) as server, connect(server.url, max_size=(10, 5)) as ws:
        assert ws.recv() == bytes(10)


def test_a_message_of_just_the_limit():
    def script(peer):
        peer.accept()
        peer.send(binary(bytes(1000)))
        peer.answer_close()

    with scripted(script) as server, connect(server.url, max_size=1000) as ws:
        assert ws.recv() == bytes(1000)


def test_a_length_of_almost_2_to_the_62_reserves_no_memory():
    def script(peer):
        peer.accept()
        peer.send(b"\x82\x7f\x3f" + b"\xff" * 7 + b"beginning")
        peer.answer_close()

    with scripted(script) as server, connect(server.url, max_size=None) as ws, pytest.raises(TimeoutError):
        ws.recv(timeout=0.05)


@pytest.mark.parametrize("receive", [lambda ws: ws.recv(), lambda ws: b"".join(ws.recv_streaming())])
@pytest.mark.parametrize("payload", [b"", b"x"])
def test_fragments_are_limited_by_bytes_alone(payload, receive):
    def script(peer):
        peer.accept()
        peer.send(
            frame(BINARY, payload, fin=False)
            + frame(CONTINUATION, payload, fin=False) * 99_998
            + frame(CONTINUATION, b"x")
        )
        peer.answer_close()

    with scripted(script) as server, connect(server.url) as ws:
        assert receive(ws) == payload * 99_999 + b"x"


@pytest.mark.parametrize("size", [64, 1024])
@pytest.mark.parametrize("mib", [4, 8])
def test_long_messages_in_small_fragments(size, mib):
    data = pattern(mib << 20)
    parts = [data[i : i + size] for i in range(0, len(data), size)]

    def script(peer):
        peer.accept()
        last = len(parts) - 1
        peer.send(
            b"".join(frame(CONTINUATION if i else BINARY, p, fin=i == last) for i, p in enumerate(parts))
        )
        peer.answer_close()

    with scripted(script) as server, connect(server.url, max_size=16 << 20) as ws:
        assert ws.recv() == data


def test_frames_before_the_bad_one_are_delivered():
    def script(peer):
        peer.accept()
        peer.send(text("good") + frame(3, b""))
        return peer.close_frame().payload[:2]

    with scripted(script) as server, connect(server.url) as ws:
        assert ws.recv() == "good"
        with pytest.raises(ConnectionClosedError):
            ws.recv()
    assert server.result() == b"\x03\xea"


@pytest.mark.parametrize("decode", [None, False])
@pytest.mark.parametrize("compressed", [True, False])
def test_what_was_queued_behind_the_bad_message_is_not_delivered(decode, compressed):
    deflate = b"Sec-WebSocket-Extensions: permessage-deflate\r\n"
    bad = frame(TEXT, b"\xfa\x0f\x00", rsv=4) if compressed else text(b"\xff")

    def script(peer):
        peer.accept(headers=deflate if compressed else b"")
        peer.frame()
        peer.send(text("good") + bad + text("after") + frame(PONG, b"both are there"))
        return peer.close_frame().payload[:2]

    with scripted(script) as server, connect(server.url) as ws:
        assert ws.ping(b"both are there").wait(HUNG)
        assert ws.recv() == "good"
        for _ in range(2):
            with pytest.raises(ConnectionClosedError) as raised:
                ws.recv(decode=decode)
            assert isinstance(raised.value.__cause__, InvalidText)
    assert server.result() == b"\x03\xef"


def test_what_follows_the_close_is_not_delivered():
    def script(peer):
        peer.accept()
        peer.send(text("before") + close(1000) + text("after"))
        peer.close_frame()

    with scripted(script) as server, connect(server.url) as ws:
        assert list(ws) == ["before"]


def test_pings_are_answered_in_order_with_their_payload():
    def script(peer):
        peer.accept()
        peer.send(frame(PING, b"1") + frame(PING, b"") + frame(PING, bytes(125)) + text("x"))
        pongs = [peer.frame() for _ in range(3)]
        peer.answer_close()
        return [pong.payload for pong in pongs]

    with scripted(script) as server, connect(server.url) as ws:
        assert ws.recv() == "x"
    assert server.result() == [b"1", b"", bytes(125)]


def test_mask_keys_differ():
    def script(peer):
        peer.accept()
        for _ in range(100):
            peer.frame()
        peer.answer_close()
        return peer.parser.keys

    with scripted(script) as server, connect(server.url) as ws:
        for _ in range(100):
            ws.send("x")
    assert len(set(server.result())) > 99
