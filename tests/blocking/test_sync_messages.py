"""Messages to and from real servers, in every shape, plain and over TLS."""

import threading
from contextlib import contextmanager

import pytest
from support.certificates import WAYS, server_context
from support.frames import BINARY, CONTINUATION, PING, PONG, TEXT, binary, frame, pattern, text, texts
from support.servers import PEERS
from sync_support.servers import echo, in_thread, scripted

from wsfast.exceptions import ConcurrencyError, ConnectionClosedError, ConnectionClosedOK
from wsfast.sync import ending
from wsfast.sync.client import connect

# Around every change of the length's form, of a buffer, of a TLS record, and of what is sent in one piece.
SIZES = (0, 1, 125, 126, 1023, 1024, 1025, 16383, 16384, 65535, 65536, 131072, 262144, 300_001)


@contextmanager
def serving(peer, tls):
    with in_thread(lambda: PEERS[peer](server_context() if WAYS[tls] else None)) as url:
        yield url, WAYS[tls]() if WAYS[tls] else None


@pytest.fixture(scope="module", params=[(peer, tls) for peer in PEERS for tls in WAYS], ids=str)
def ws(request):
    with serving(*request.param) as (url, context), connect(url, ssl=context, max_size=None) as ws:
        yield ws


@pytest.fixture(params=[(peer, tls) for peer in PEERS for tls in WAYS], ids=str)
def server(request):
    """A server of the test's own: it is gone, with its end of all connections, when the test is over."""
    with serving(*request.param) as served:
        yield served


@pytest.mark.parametrize("size", SIZES)
def test_sizes(ws, size):
    data = pattern(size)
    ws.send(data)
    assert ws.recv() == data
    ws.send("é" * (size // 2) + "a" * (size % 2))
    assert ws.recv() == "é" * (size // 2) + "a" * (size % 2)


def test_a_large_message(ws):
    data = pattern(5_000_000)
    ws.send(data)
    assert ws.recv(timeout=20) == data


def test_types(ws):
    for data in (b"bytes", bytearray(b"bytearray"), memoryview(b"memoryview"), memoryview(b"strided!")[::2]):
        ws.send(data)
        assert ws.recv() == bytes(data)
    ws.send(memoryview(b"12345678").cast("I"))
    assert ws.recv() == b"12345678"
    ws.send(b"as text", text=True)
    assert ws.recv() == "as text"
    ws.send(bytearray(b"as text"), text=True)
    assert ws.recv() == "as text"
    ws.send("as binary", text=False)
    assert ws.recv() == b"as binary"
    ws.send("é" * 1000)
    assert ws.recv(decode=False) == ("é" * 1000).encode()
    ws.send("é".encode())
    assert ws.recv(decode=True) == "é"


def test_many_at_once(ws):
    for number in range(300):
        ws.send(str(number))
    assert [ws.recv() for _ in range(300)] == [str(number) for number in range(300)]


def test_fragments(server):
    url, context = server
    with connect(url, ssl=context) as ws:
        ws.send(["sp", "l", "", "it"])
        assert ws.recv() == "split"
        ws.send(iter([b"sp", bytearray(b"l"), memoryview(b"it")]))
        assert ws.recv() == b"split"
        ws.send([b"a", b"b"], text=True)
        assert ws.recv() == "ab"
        ws.send(["a", "b"], text=False)
        assert ws.recv() == b"ab"
        ws.send([])
        ws.send("next")
        assert ws.recv() == "next"


def test_closing(server):
    url, context = server
    with connect(url, ssl=context) as ws:
        ws.close(3333, "why not")
        # aiohttp answers every CLOSE with 1000.
        assert (ws.close_code, ws.close_reason) in ((3333, "why not"), (1000, ""))
        for call in (ws.recv, lambda: ws.send("x"), ws.ping, ws.pong):
            with pytest.raises(ConnectionClosedError) as raised:
                call()
            assert raised.value.sent.code == 3333
            assert raised.value.rcvd_then_sent is False
        ws.close()
        assert ws.wait_closed(0)


@pytest.mark.parametrize("peer", ["websockets", "aiohttp"])
def test_ping(peer):
    with in_thread(PEERS[peer]) as url, connect(url) as ws:
        assert ws.latency == 0
        assert ws.ping().wait()
        assert 0 < ws.latency < 10
        first, second = ws.ping(b"1"), ws.ping("2")
        with pytest.raises(ConcurrencyError):
            ws.ping(b"1")
        ws.send("message")
        assert second.wait(10)
        assert first.is_set()
        assert ws.recv() == "message"
        ws.pong()
        ws.pong("heartbeat")
        waits = ws.ping(ack_on_close=True)
        never = ws.ping()
    assert waits.is_set()
    never.wait(0)


# ---- what real servers do not do


def test_iteration():
    def script(peer):
        peer.accept()
        peer.send(text("1") + binary(b"2") + frame(8, b"\x03\xe8"))
        peer.close_frame()

    with scripted(script) as server, connect(server.url) as ws:
        assert list(ws) == ["1", b"2"]
        assert list(ws) == []
        assert ws.close_code == 1000


def test_iteration_raises_after_an_error():
    def script(peer):
        peer.accept()
        peer.send(text("1") + frame(8, b"\x03\xf3oops"))
        peer.close_frame()

    got = []
    with (
        scripted(script) as server,
        connect(server.url) as ws,
        pytest.raises(ConnectionClosedError, match="oops"),
    ):
        got.extend(ws)
    assert not got or got == ["1"]


def test_streaming():
    def script(peer):
        peer.accept()
        first, second = "ß水".encode()[:3], "ß水".encode()[3:]
        peer.send(frame(TEXT, first, fin=False) + frame(PING, b"between") + frame(CONTINUATION, second))
        assert peer.frame().opcode == PONG
        peer.send(frame(BINARY, b"a", fin=False) + frame(CONTINUATION, b"", fin=False))
        peer.send(frame(CONTINUATION, b"b") + text("whole") + text("end"))
        peer.answer_close()

    with scripted(script) as server, connect(server.url) as ws:
        assert list(ws.recv_streaming()) == ["ß", "水"]
        assert list(ws.recv_streaming()) == [b"a", b"", b"b"]
        assert list(ws.recv_streaming(decode=False)) == [b"whole"]
        assert ws.recv() == "end"


def test_a_stream_that_is_not_used_up():
    def script(peer):
        peer.accept()
        peer.send(frame(TEXT, b"a", fin=False) + frame(CONTINUATION, b"b"))
        peer.answer_close()

    with scripted(script) as server, connect(server.url) as ws:
        for _ in ws.recv_streaming():
            break
        with pytest.raises(ConcurrencyError, match="recv while"):
            ws.recv()
        with pytest.raises(ConcurrencyError, match="recv_streaming while"):
            next(ws.recv_streaming())


def test_a_stream_whose_last_fragment_is_taken_needs_no_more():
    def script(peer):
        peer.accept()
        peer.send(text("a") + text("b"))
        peer.answer_close()

    with scripted(script) as server, connect(server.url) as ws:
        assert next(ws.recv_streaming()) == "a"
        assert ws.recv() == "b"


def test_the_stream_ends_with_the_connection():
    def script(peer):
        peer.accept()
        peer.send(frame(TEXT, b"a", fin=False))

    with scripted(script) as server, connect(server.url) as ws:
        stream = ws.recv_streaming()
        assert next(stream) == "a"
        with pytest.raises(ConnectionClosedError):
            next(stream)
        with pytest.raises(ConnectionClosedError):
            ws.recv()


def test_errors_in_fragments_end_the_connection():
    def script(peer):
        peer.accept()
        return peer.answer_close().payload

    for fragments, error in (
        (["a", b"b"], TypeError),
        ((1 // (1 - n) and "x" for n in range(3)), ZeroDivisionError),
    ):
        with scripted(script) as server, connect(server.url) as ws:
            with pytest.raises(error):
                ws.send(fragments)
            with pytest.raises(ConnectionClosedError) as raised:
                ws.send("more")
            assert raised.value.sent.code == 1011
        assert server.result() == b"\x03\xf3error in fragmented message"


@pytest.mark.parametrize("way", WAYS)
def test_messages_that_had_arrived_outlive_an_error_in_fragments(way):
    """They lie in the kernel, and nothing has been read yet."""
    make = WAYS[way]
    arrived = threading.Event()

    def script(peer):
        peer.accept()
        assert peer.frame().payload == b"go"
        peer.send(texts("one", "two") + frame(TEXT, "thr", fin=False))
        peer.send(frame(CONTINUATION, "ee"))
        arrived.set()
        peer.close_frame()

    options = {"ssl": make()} if make else {}
    context = server_context() if make else None
    with scripted(script, ssl_context=context) as server, connect(server.url, **options) as ws:
        ws.send("go")
        assert arrived.wait(20)
        with pytest.raises(TypeError):
            ws.send(["a", 5])
        assert [ws.recv() for _ in range(3)] == ["one", "two", "three"]
        with pytest.raises(ConnectionClosedError) as raised:
            ws.recv()
        assert raised.value.sent.code == 1011


def test_wrong_types():
    with scripted(echo) as server, connect(server.url) as ws:
        for wrong in (1, None, {"a": "b"}, [1]):
            with pytest.raises(TypeError):
                ws.send(wrong)
        for wrong in ("\ud800", ["\ud800", "a"]):
            with pytest.raises(UnicodeEncodeError):
                ws.send(wrong)
        with pytest.raises(TypeError):
            ws.ping(1)
        with pytest.raises(TypeError):
            ws.pong(1)
        for code, reason in ((1005, ""), (999, ""), (5000, ""), (1000, "x" * 124), (None, "x")):
            with pytest.raises(Exception, match="close|reason"):
                ws.close(code, reason)
        with pytest.raises(Exception, match="126 bytes"):
            ws.ping(b"x" * 126)
        ws.send("still open")
        assert ws.recv() == "still open"


def test_messages_glued_to_the_reply():
    def script(peer):
        peer.accept(glued=text("first") + binary(b"second"))
        peer.answer_close()

    with scripted(script) as server, connect(server.url) as ws:
        assert (ws.recv(), ws.recv()) == ("first", b"second")


def test_every_split_of_reply_and_message():
    """A piece is sent when the client has proved, by nothing but time-outs of its own, that it copes with the last."""
    size = 0

    def script(peer):
        nonlocal size
        peer.read_request()
        data = peer.reply() + text("first")
        size = len(data)
        at = min(len(server.results) * 7, size)
        peer.send(data[:at])
        peer.send(data[at:])
        peer.answer_close()

    with scripted(script, connections=30) as server:
        for _ in range(30):
            with connect(server.url) as ws:
                assert ws.recv() == "first"
    assert size // 7 < 30


def test_byte_by_byte():
    def script(peer):
        peer.accept()
        data = text("é" * 80) + frame(PING, b"ping") + binary(pattern(300)) + frame(TEXT, b"a", fin=False)
        for byte in data + frame(CONTINUATION, b"b"):
            peer.send(bytes([byte]))
        sent = peer.frame()
        peer.answer_close()
        return sent

    with scripted(script) as server, connect(server.url) as ws:
        assert (ws.recv(), ws.recv(), ws.recv()) == ("é" * 80, pattern(300), "ab")
    assert server.result() == (PONG, b"ping", True, 0)


def test_the_answer_to_a_close_is_its_echo():
    def script(peer):
        peer.accept()
        peer.send(frame(8))
        return peer.close_frame().payload

    with scripted(script) as server, connect(server.url) as ws:
        with pytest.raises(ConnectionClosedOK) as raised:
            ws.recv()
        assert raised.value.rcvd_then_sent is True
        assert raised.value.rcvd.code == raised.value.sent.code == 1005
        assert (ws.close_code, ws.close_reason) == (1005, "")
    assert server.result() == b""


def test_attributes():
    def script(peer):
        peer.accept(headers=b"X-Reply: yes\r\nSec-WebSocket-Protocol: b\r\n")
        peer.answer_close()
        return peer.sock.getpeername()

    with scripted(script) as server:
        uri = f"{server.url}path?query"
        with connect(uri, subprotocols=["a", "b"], additional_headers={"X-Request": "yes"}, origin="o") as ws:
            assert ws.subprotocol == "b"
            assert (ws.request.path, ws.request.headers["X-Request"]) == ("/path?query", "yes")
            assert ws.request.headers["Origin"] == "o"
            assert (ws.response.status_code, ws.response.headers["x-reply"]) == (101, "yes")
            assert ws.remote_address == ("127.0.0.1", server.port)
            local = ws.local_address
            assert (ws.state.name, ws.close_code, ws.close_reason) == ("OPEN", None, None)
            assert ws.id == ws.id
            assert ws.logger.extra["websocket"] == ws
            assert ws.socket.getsockname() == local
            assert "OPEN" in repr(ws)
        assert (ws.state.name, ws.close_code) == ("CLOSED", 1000)
        assert ws.socket.fileno() == -1
    assert server.result() == local


def test_a_closed_connection_that_is_asked_again_does_not_ask_the_crate_how_it_ended(monkeypatch):
    with scripted(echo) as server, connect(server.url) as ws:
        ws.close()
        with pytest.raises(ConnectionClosedOK) as first:
            ws.recv()
        monkeypatch.setattr(ending, "describe", None)
        for call in (ws.recv, lambda: next(ws.recv_streaming()), lambda: ws.send("x")):
            with pytest.raises(ConnectionClosedOK) as again:
                call()
            assert str(again.value) == str(first.value)
