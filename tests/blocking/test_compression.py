"""Compressed connections of the blocking client."""

import random
import signal
import sys
import threading
import zlib

import pytest
from support import HUNG
from support.blocking import in_thread, scripted
from support.frames import BINARY, CONTINUATION, PING, TEXT, frame, text
from support.servers import COMPRESSING

from wsfast import ConnectionClosedError, InvalidText, NegotiationError, PayloadTooBig, ProtocolError
from wsfast.deflate import ClientPerMessageDeflateFactory, PerMessageDeflate
from wsfast.exceptions import ConcurrencyError
from wsfast.sync.client import connect

RSV1 = 4
ACCEPT = b"Sec-WebSocket-Extensions: permessage-deflate\r\n"
# aiohttp inflates large messages in threads, which outlive its server.
SIZES = (0, 1, 126, 1023, 1024, 5000)


def conversation(seed=1):
    rng = random.Random(seed)
    for size in SIZES:
        message = "".join(rng.choice(["price", "żółw", "🐢", '"bid":']) for _ in range(size))[:size]
        yield message
        yield message.encode()[:size]
        yield rng.randbytes(size // 2)


@pytest.mark.parametrize("peer", COMPRESSING)
@pytest.mark.parametrize("library", ["zlib", "zlib-ng", "isal", None])
def test_servers(peer, library):
    with (
        in_thread(COMPRESSING[peer]) as url,
        connect(url, compression=PerMessageDeflate(library=library)) as ws,
    ):
        assert ws.compression.inflating == (library or "zlib-ng")
        for compress in (None, True, False):
            for message in conversation():
                ws.send(message, compress=compress)
                assert ws.recv() == message
        ws.send(bytearray(b"x" * 5000))
        assert ws.recv(timeout=HUNG) == b"x" * 5000
        ws.send(["żół", "w 🐢", ""])
        assert ws.recv(decode=False) == "żółw 🐢".encode()


def deflated(*fragments, kind=TEXT):
    """The frames of a compressed message."""
    stream = zlib.compressobj(wbits=-15)
    out = b""
    for i, data in enumerate(fragments):
        last = i == len(fragments) - 1
        payload = stream.compress(data) + stream.flush(zlib.Z_SYNC_FLUSH)
        payload = payload[:-4] if last else payload
        out += frame(CONTINUATION if i else kind, payload, fin=last, rsv=0 if i else RSV1)
    return out


def last_frame(frames):
    """The last of some short ones."""
    while frames:
        last = frames
        frames = (
            frames[2 + frames[1] :] if frames[1] < 126 else frames[4 + int.from_bytes(frames[2:4], "big") :]
        )
    return last


def sends(*data):
    """A server that accepts compression and sends; its result is what the client closed with."""

    def script(peer):
        peer.read_request()
        peer.send(peer.reply(ACCEPT))
        for piece in data:
            peer.send(piece)
        return peer.answer_close()

    return scripted(script)


def test_what_a_server_sends():
    turtle = "żółw 🐢".encode()
    messages = deflated(turtle) + text("plain") + deflated(turtle[:3], b"", turtle[3:]) + frame(PING)
    messages += deflated(turtle, kind=BINARY) + deflated(turtle) + frame(BINARY, b"\xff") + deflated(b"")
    with sends(messages) as server, connect(server.url) as ws:
        got = [ws.recv() for _ in range(4)] + [ws.recv(decode=False), ws.recv(timeout=HUNG), ws.recv()]
        assert got == [turtle.decode(), "plain", turtle.decode(), turtle, turtle, b"\xff", ""]


@pytest.mark.parametrize("decode", [None, True, False])
def test_fragments_one_by_one(decode):
    turtle = "żółw 🐢".encode()
    with sends(deflated(turtle[:1], turtle[1:7], b"", turtle[7:]) + deflated(turtle)) as server:
        with connect(server.url) as ws:
            pieces = list(ws.recv_streaming(decode))
            assert pieces == (
                [turtle[:1], turtle[1:7], b"", turtle[7:]] if decode is False else ["", "żółw", "", " 🐢"]
            )
            assert list(ws.recv_streaming(decode)) == [turtle if decode is False else turtle.decode()]


@pytest.mark.parametrize("receive", [lambda ws: ws.recv(), lambda ws: list(ws.recv_streaming())])
@pytest.mark.parametrize("pieces", [1, 4])
@pytest.mark.parametrize("size", [999, 1000, 1001, 1002])
def test_limits(receive, pieces, size):
    data = b"x" * size
    step = -(-size // pieces)
    message = deflated(*(data[i : i + step] for i in range(0, size, step)))
    with sends(message) as server, connect(server.url, max_size=1000, close_timeout=1) as ws:
        if size <= 1000:
            assert "".join(receive(ws)) == data.decode()
            return
        with pytest.raises(ConnectionClosedError) as caught:
            receive(ws)
        assert isinstance(caught.value.__cause__, PayloadTooBig)
        assert caught.value.__cause__.max_size == 1000
        assert caught.value.sent.code == 1009


@pytest.mark.parametrize(
    ("message", "cause", "code"),
    [
        (frame(TEXT, b"\xff\xff", rsv=RSV1), ProtocolError, 1002),
        (frame(TEXT, b"", rsv=2), ProtocolError, 1002),
        (frame(TEXT, b"\x00", fin=False, rsv=RSV1) + frame(CONTINUATION, b"", rsv=RSV1), ProtocolError, 1002),
        (deflated(b"bad \xff"), InvalidText, 1007),
        (deflated(b"bad \xe2", b"\x82"), InvalidText, 1007),
    ],
)
@pytest.mark.parametrize("receive", [lambda ws: ws.recv(), lambda ws: ws.recv(decode=False)])
def test_what_ends_the_connection(message, cause, code, receive):
    with sends(message) as server, connect(server.url, close_timeout=1) as ws:
        with pytest.raises(ConnectionClosedError) as caught:
            receive(ws)
        assert isinstance(caught.value.__cause__, cause)
        assert caught.value.sent.code == code


RANDOM = random.Random(1).randbytes(1 << 20)


@pytest.mark.parametrize(
    ("first", "cause", "code"),
    [
        (deflated(b"bad \xff", b"never sent"), InvalidText, 1007),
        (deflated(b"bad \xe2(", b"never sent"), InvalidText, 1007),
        (deflated(bytes(10 << 20), b"never sent"), PayloadTooBig, 1009),
        (
            frame(TEXT, b"\xff\xff", fin=False, rsv=RSV1) + frame(CONTINUATION, b"never sent"),
            ProtocolError,
            1002,
        ),
    ],
    ids=["not UTF-8", "a character cut short", "a bomb", "nothing inflates it"],
)
@pytest.mark.parametrize("decode", [None, False])
def test_the_first_fragment_is_refused_before_the_second_comes(first, cause, code, decode):
    first = first[: len(first) - len(last_frame(first))]
    with sends(first) as server, connect(server.url, close_timeout=1) as ws:
        with pytest.raises(ConnectionClosedError) as caught:
            ws.recv(timeout=HUNG, decode=decode)
        assert isinstance(caught.value.__cause__, cause)
        assert caught.value.sent.code == code


@pytest.mark.parametrize("receive", [lambda ws: ws.recv(), lambda ws: b"".join(ws.recv_streaming())])
@pytest.mark.parametrize("size", [999, 1000, 1001, 1002])
def test_it_is_inflated_bytes_that_count(receive, size):
    """Each byte costs seven or so compressed ones here."""
    message = deflated(*(RANDOM[i : i + 1] for i in range(size)), kind=BINARY)
    assert len(message) > 6000
    with sends(message) as server, connect(server.url, max_size=1000, close_timeout=1) as ws:
        if size <= 1000:
            assert receive(ws) == RANDOM[:size]
            return
        with pytest.raises(ConnectionClosedError) as caught:
            receive(ws)
        assert isinstance(caught.value.__cause__, PayloadTooBig)
        assert (caught.value.__cause__.max_size, caught.value.__cause__.current_size) == (1000, 1000)


@pytest.mark.parametrize("size", [99, 100, 101, 102])
def test_the_limit_of_a_fragment_is_that_of_what_it_inflates_to(size):
    message = deflated(b"x" * 100, b"x" * size, kind=BINARY)
    with sends(message) as server, connect(server.url, max_size=(1000, 100), close_timeout=1) as ws:
        if size <= 100:
            assert ws.recv() == b"x" * (100 + size)
            return
        with pytest.raises(ConnectionClosedError) as caught:
            ws.recv()
        assert isinstance(caught.value.__cause__, PayloadTooBig)


@pytest.mark.parametrize("receive", [lambda ws: ws.recv(), lambda ws: "".join(ws.recv_streaming())])
def test_fragments_are_not_counted(receive):
    message = deflated(*[b""] * 10_000, b"x")
    with sends(message) as server, connect(server.url, close_timeout=1) as ws:
        assert receive(ws) == "x"


@pytest.mark.parametrize(
    "receive",
    [lambda ws: ws.recv(), lambda ws: "".join(ws.recv_streaming())],
    ids=["recv", "recv_streaming"],
)
@pytest.mark.parametrize("compressed", [True, False])
def test_the_beginning_is_kept_when_time_is_over(receive, compressed):
    pieces = ["żółw 🐢"[:2].encode() + b"\xc5", b"\x82", "w 🐢".encode()]
    if compressed:
        message = deflated(*pieces)
    else:
        message = b"".join(frame(CONTINUATION if i else TEXT, p, fin=i == 2) for i, p in enumerate(pieces))
    cut = len(message) - len(last_frame(message))

    def script(peer):
        peer.read_request()
        peer.send(peer.reply(ACCEPT if compressed else b"") + message[:cut])
        peer.frame()
        peer.send(message[cut:] + frame(TEXT, b"next, ", fin=False) + frame(CONTINUATION, b"whole"))
        peer.answer_close()

    with scripted(script) as server, connect(server.url) as ws:
        with pytest.raises(TimeoutError):
            ws.recv(timeout=0.05)
        ws.send("go on")
        assert receive(ws) == "".join(["żó", "ł", "w 🐢"])
        assert ws.recv() == "next, whole"


def test_text_that_is_streamed_is_checked_even_if_it_is_not_wanted():
    with sends(deflated(b"bad \xe2", b"\x28")) as server, connect(server.url, close_timeout=1) as ws:
        pieces = ws.recv_streaming(decode=False)
        assert next(pieces) == b"bad \xe2"
        with pytest.raises(ConnectionClosedError) as caught:
            next(pieces)
        assert caught.value.sent.code == 1007


def test_what_was_not_offered():
    def script(peer):
        peer.read_request()
        peer.send(peer.reply(ACCEPT))
        peer.rest()

    with scripted(script) as server, pytest.raises(NegotiationError, match="extension that wasn't offered"):
        connect(server.url, compression=None)
    wanted = [ClientPerMessageDeflateFactory(server_max_window_bits=9)]
    with scripted(script) as server, pytest.raises(NegotiationError, match="server_max_window_bits"):
        connect(server.url, extensions=wanted)


def collects(count):
    """A server that inflates what it gets, and whose result are the messages."""

    def script(peer):
        peer.read_request()
        peer.send(peer.reply(ACCEPT))
        stream, messages = zlib.decompressobj(wbits=-15), [b""]
        while len(messages) <= count:
            sent = peer.frame()
            if sent.opcode != CONTINUATION:
                compressed = sent.rsv == RSV1
            data = sent.payload + (b"\x00\x00\xff\xff" if sent.fin else b"")
            messages[-1] += stream.decompress(data) if compressed else sent.payload
            if sent.fin:
                messages.append(b"")
        peer.answer_close()
        return messages[:-1]

    return scripted(script)


def test_threads_send_in_the_order_of_the_stream():
    with collects(400) as server, connect(server.url) as ws:

        def send(thread):
            for i in range(100):
                ws.send(f"thread {thread} message {i} " * 3, compress=i % 4 != 3)

        threads = [threading.Thread(target=send, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    got = server.result()
    for n in range(4):
        assert [m for m in got if m.startswith(b"thread %d " % n)] == [
            f"thread {n} message {i} ".encode() * 3 for i in range(100)
        ]


def test_a_message_amid_the_fragments_of_another():
    """It is refused, and neither is spoilt."""
    with collects(2) as server, connect(server.url) as ws:

        def fragments():
            yield "one, "
            with pytest.raises(ConcurrencyError):
                ws.send("amid", compress=True)
            yield "two"

        ws.send(fragments())
        ws.send("three", compress=True)
    assert server.result() == [b"one, two", b"three"]


@pytest.mark.parametrize("library", ["zlib", "zlib-ng", "isal", None])
@pytest.mark.parametrize("takeover", [True, False])
def test_no_python_runs_between_a_frame_and_its_message(library, takeover):
    """There the handler of a signal would run, and if it raised, what was taken from the stream would be lost."""
    tick = b"a tick of one and a half KB " * 54
    messages = [tick] * 40 if takeover else [b"", tick]
    stream, data = zlib.compressobj(wbits=-15), b""
    for message in messages:
        stream = stream if takeover else zlib.compressobj(wbits=-15)
        payload = stream.compress(message) + stream.flush(zlib.Z_SYNC_FLUSH)
        data += frame(TEXT, payload[:9], fin=False, rsv=RSV1) + frame(CONTINUATION, payload[9:-4])
    extension = ACCEPT if takeover else ACCEPT.replace(b"\r", b"; server_no_context_takeover\r")
    called = []

    def note(stack, event, argument):
        if event == "call":
            called.append(stack.f_code)

    def script(peer):
        peer.read_request()
        peer.send(peer.reply(extension) + data)
        return peer.answer_close()

    options = PerMessageDeflate(library=library, server_no_context_takeover=not takeover)
    with scripted(script) as server, connect(server.url, compression=options) as ws:
        sys.setprofile(note)
        got = [ws.recv() for _ in messages]
        sys.setprofile(None)
        assert got == [message.decode() for message in messages]
        assert ws.compression.inflating == (library or ("isal" if takeover else "zlib-ng"))
    assert [code for code in called if code.co_name != "<listcomp>"] == []


def test_the_handler_of_a_signal_may_send(monkeypatch):
    """Its message is not one of the stream's, and leaves before the one it interrupts."""
    with collects(3) as server, connect(server.url) as ws:
        put = ws._send_plain

        def interrupted(head, data):
            monkeypatch.undo()
            signal.raise_signal(signal.SIGUSR1)
            put(head, data)

        before = signal.signal(signal.SIGUSR1, lambda *_: ws.send("from the handler", compress=True))
        try:
            ws.send("one, two, three", compress=True)
            monkeypatch.setattr(ws, "_send_plain", interrupted)
            ws.send("one, two, three, four", compress=True)
        finally:
            signal.signal(signal.SIGUSR1, before)
    assert server.result() == [b"one, two, three", b"from the handler", b"one, two, three, four"]


def test_a_server_whose_window_zlib_cannot_keep_to():
    def script(peer):
        peer.read_request()
        peer.send(peer.reply(ACCEPT[:-2] + b"; client_max_window_bits=8\r\n"))
        got = peer.frame()
        peer.answer_close()
        return got

    with scripted(script) as server, connect(server.url) as ws:
        ws.send("x" * 5000, compress=True)
    assert server.result().rsv == 0
