"""The blocking client with a hostile server, without memory, under signals, and in a patched environment."""

import contextlib
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import zlib

import pytest
from support import HUNG
from support.blocking import Peer, scripted
from support.certificates import authority, server_context
from support.frames import BINARY, CONTINUATION, PING, PONG, TEXT, binary, close, frame, header, text
from support.kinds import kind_of

from wsfast.exceptions import (
    ConnectionClosedError,
    ConnectionClosedOK,
    InvalidText,
    PayloadTooBig,
    ProtocolError,
)
from wsfast.sync.client import connect
from wsfast.sync.connection import ClientConnection

ACCEPT = b"Sec-WebSocket-Extensions: permessage-deflate\r\n"


def deflated(data, opcode=BINARY):
    stream = zlib.compressobj(wbits=-15)
    return frame(opcode, (stream.compress(data) + stream.flush(zlib.Z_SYNC_FLUSH))[:-4], rsv=4)


# ---- what is judged after the end


@pytest.mark.parametrize("ends", ["server", "client"])
@pytest.mark.parametrize(
    ("bad", "cause"),
    [
        (text(b"\xff"), InvalidText),
        (deflated(b"z" * 5000), PayloadTooBig),
        (deflated(b"\xff", TEXT), InvalidText),
        (frame(BINARY, b"\xff" * 20, rsv=4), None),
    ],
    ids=["text", "a bomb", "compressed text", "no compressed data"],
)
def test_a_bad_message_in_the_queue_is_the_cause_of_the_end(bad, cause, ends):
    def script(peer):
        peer.accept(headers=ACCEPT)
        peer.send(text("first") + bad + text("last"))
        if ends == "server":
            peer.send(close(1000))
            peer.close_frame()
        else:
            peer.answer_close()

    with scripted(script) as server, connect(server.url, max_size=1000) as ws:
        assert ws.wait_closed() if ends == "server" else ws.close() is None
        assert ws.recv() == "first"
        for _ in range(2):
            with pytest.raises(ConnectionClosedError) as raised:
                ws.recv()
            assert kind_of(raised.value.__cause__) is cause or cause is None
            assert raised.value.__cause__ is not None


def test_a_violation_that_is_found_after_the_end_is_its_cause():
    """It lies in the buffer, behind a queue that was full, when a sender finds that the connection is broken."""
    was_reset = threading.Event()

    def script(peer):
        peer.accept()
        peer.send(text("first") + text("second") + b"\x83\x00")
        peer.frame()
        peer.reset()
        was_reset.set()

    with scripted(script) as server, connect(server.url, max_queue=1) as ws:
        assert ws.recv() == "first"
        ws.send("go on")
        assert was_reset.wait(HUNG)
        with pytest.raises(ConnectionClosedError):
            while True:
                ws.send("x")
        assert ws.recv() == "second"
        with pytest.raises(ConnectionClosedError) as raised:
            ws.recv()
        assert kind_of(raised.value.__cause__) is ProtocolError


def test_a_stream_that_ends_without_close_ends_by_eof():
    with scripted(lambda peer: peer.accept()) as server, connect(server.url) as ws:
        with pytest.raises(ConnectionClosedError) as raised:
            ws.recv()
        assert isinstance(raised.value.__cause__, EOFError)


def test_a_fin_while_a_sender_is_blocked():
    sent = threading.Event()

    def script(peer):
        peer.accept()
        peer.sock.shutdown(socket.SHUT_WR)
        assert sent.wait(HUNG)

    with scripted(script, buffer=4096) as server:
        ws = connect(server.url, close_timeout=None)
        with pytest.raises(ConnectionClosedError) as raised:
            while True:
                ws.send(bytes(1 << 20))
        assert isinstance(raised.value.__cause__, EOFError)
        sent.set()


# ---- sending nothing


@pytest.mark.parametrize("nothing", [None, 1, object(), b"x"[0]])
def test_none_in_an_iterable_is_no_message(nothing):
    def script(peer):
        peer.accept()
        return peer.answer_close().payload

    with scripted(script) as server, connect(server.url) as ws, pytest.raises(TypeError):
        ws.send([nothing])


@pytest.mark.parametrize("empty", [[], (), iter([])], ids=lambda empty: type(empty).__name__)
def test_an_empty_iterable_sends_nothing(empty):
    def script(peer):
        peer.accept()
        return peer.frame().payload

    with scripted(script) as server:
        with connect(server.url) as ws:
            assert ws.send(empty) is None
            ws.send(b"next")
    assert server.result() == b"next"


# ---- memory


def run_with_little_memory(script, *arguments):
    """Run `script` in a process of its own, whose `limit(MiB)` bounds what it may allocate from then on."""
    prelude = """
        import resource, sys
        from wsfast.sync.client import connect

        def limit(mib):
            with open("/proc/self/statm") as statm:
                size = int(statm.read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (size + (mib << 20), -1))

        def unlimited():
            resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
    """
    code = textwrap.dedent(prelude) + textwrap.dedent(script)
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout.split()


LARGE = 64 << 20


def large(peer):
    peer.accept()
    peer.send(header(BINARY, LARGE))
    for _ in range(LARGE >> 20):
        peer.send(bytes(1 << 20))
    peer.send(text("after"))
    peer.answer_close()


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS bounds what Linux maps")
@pytest.mark.parametrize("mib", [10, 40])
def test_no_memory_for_a_message(mib):
    """In a tenth of what a message takes, or in little more than the message: nothing is lost."""
    script = """
        ws = connect(sys.argv[1], max_size=None, ping_interval=None)
        limit(int(sys.argv[2]))
        for _ in range(2):
            try:
                ws.recv()
            except MemoryError:
                print("MemoryError")
        unlimited()
        print(len(ws.recv()), ws.recv())
        ws.close()
    """
    with scripted(large) as server:
        seen = run_with_little_memory(script, server.url, str(mib))
    assert seen == ["MemoryError"] * 2 + [str(LARGE), "after"]


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS bounds what Linux maps")
@pytest.mark.parametrize("how", ["recv", "stream"])
@pytest.mark.parametrize("compressed", [False, True, "stored"])
def test_no_memory_for_the_object_that_recv_makes(how, compressed):
    """The message is there, and only the copy for the user cannot be made; nor, if it is "stored", that for zlib."""

    def script(peer):
        peer.accept(headers=ACCEPT if compressed else b"")
        peer.send(text("before"))
        if compressed:
            stream = zlib.compressobj(0 if compressed == "stored" else 1, wbits=-15)
            data = stream.compress(bytes(LARGE)) + stream.flush(zlib.Z_SYNC_FLUSH)
            peer.send(frame(TEXT, data[:-4], rsv=4) + text("after"))
        else:
            peer.send(header(TEXT, LARGE) + bytes(LARGE) + text("after"))
        peer.send(frame(PONG, peer.frame().payload))
        peer.answer_close()

    client = """
        ws = connect(sys.argv[1], max_size=None, max_queue=None, ping_interval=None)
        assert ws.ping().wait()  # the answer is behind the messages: they are in the queue
        assert ws.recv() == "before"  # what they were read into is given back
        limit(180 if sys.argv[3] == "True" else 20)
        streaming = ws.recv_streaming() if sys.argv[2] == "stream" else None
        receive = ws.recv if streaming is None else streaming.__next__
        hog = []
        if sys.argv[3] == "True":
            limit(64 + 48)
        try:
            receive()
        except MemoryError:
            print("MemoryError")
        unlimited()
        print(len(receive()), ws.recv())
        ws.close()
    """
    with scripted(script) as server:
        seen = run_with_little_memory(client, server.url, how, str(compressed))
    assert seen == ["MemoryError", str(LARGE), "after"]


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS bounds what Linux maps")
def test_no_memory_to_send():
    """A server that reads nothing makes us keep the rest of a frame: if that cannot be kept, the connection is over."""
    done = threading.Event()

    def script(peer):
        peer.accept()
        assert done.wait(HUNG)

    client = """
        data = bytes(64 << 20)
        ws = connect(sys.argv[1], ping_interval=None)
        limit(20)
        for _ in range(2):
            try:
                ws.send(data)
            except Exception as exc:
                print(type(exc).__name__, type(exc.__cause__).__name__)
    """
    try:
        with scripted(script, buffer=4096) as server:
            try:
                seen = run_with_little_memory(client, server.url)
            finally:
                done.set()
    finally:
        done.set()
    assert seen == ["MemoryError", "NoneType", "ConnectionClosedError", "MemoryError"]


# ---- bytes held per connection, for each hostile feed

FEEDS = {
    "bombs": (True, deflated(bytes(900_000)) * 2000, 0),
    "emoji": (False, text("🐢" * 250_000) * 64, 0),
    "tiny frames": (False, binary(b"x") * 500_000, 0),
    "empty fragments": (
        False,
        frame(BINARY, b"", fin=False) + frame(CONTINUATION, b"", fin=False) * 1_000_000,
        1,
    ),
    "tiny fragments": (
        False,
        frame(BINARY, b"x", fin=False) + frame(CONTINUATION, b"x", fin=False) * 900_000,
        1,
    ),
    "pings": (False, frame(PING, bytes(125)) * 30_000, 1),
    "a huge frame": (False, header(BINARY, 1 << 40) + bytes(100), 1),
}
# TLS decrypts as much as was read at once.
OVER_TLS = ["emoji", "pings"]
# 16 MiB in the queue and a frame of 1 MiB behind it, twice that for the message that is put together, what is read at
# once, and what the interpreter, the allocator and these tests take.
BOUND = 24 << 20

MEASURE = """
    import os, ssl, threading, time
    from wsfast import TLS

    def resident():
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()

    kinds = {"rustls": TLS, "openssl": ssl.create_default_context}
    tls = {"ssl": kinds[sys.argv[4]](cadata=sys.argv[5])} if sys.argv[4:] else {}
    limit = None if sys.argv[3] == "huge" else 2**20
    with connect(sys.argv[1], max_size=limit, close_timeout=0.2, **tls) as ws:
        ws.send("go")
        before = resident()
        most = 0
        event = ws.ping()
        if sys.argv[2] == "1":
            try:
                ws.recv(timeout=1)
            except Exception:
                pass
        idle = 0
        while idle < 10:
            used = time.process_time()
            event.wait(0.05)
            idle = idle + 1 if time.process_time() - used < 0.005 else 0
            most = max(most, resident() - before)
        print(most)
        ws._abort()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("feed", "way"),
    [(feed, None) for feed in FEEDS] + [(feed, way) for feed in OVER_TLS for way in ("rustls", "openssl")],
)
def test_bytes_held_for_a_hostile_feed(feed, way):
    compressed, data, receives = FEEDS[feed]
    tls = [way, authority().cert_pem.bytes().decode()] if way else []

    def script(peer: Peer):
        peer.accept(headers=ACCEPT if compressed else b"")
        peer.frame()
        reading = threading.Thread(target=peer.rest)
        reading.start()
        with contextlib.suppress(OSError):
            peer.send(data)
        reading.join()

    with scripted(script, ssl_context=server_context() if way else None) as server:
        (most,) = run_with_little_memory(
            MEASURE, server.url, str(receives), feed.split()[1] if " " in feed else "", *tls
        )
    assert int(most) < BOUND


# ---- signals


def test_signals_while_connecting_without_a_time_limit():
    """A server that never reads, and a request that does not fit into the kernel."""

    class Alarm(Exception):  # noqa: N818
        pass

    def alarm(signum, stack):
        raise Alarm

    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    before = signal.signal(signal.SIGUSR1, alarm)
    main = threading.main_thread().ident
    timer = threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGUSR1))
    timer.start()
    try:
        with pytest.raises(Alarm):
            connect(
                f"ws://127.0.0.1:{listening.getsockname()[1]}/",
                open_timeout=None,
                additional_headers={"Cookie": "x" * 8_000_000},
            )
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
        listening.close()


# ---- half-made objects, and environments


def test_a_connection_cannot_be_made_of_anything_else():
    from wsfast._rust._native import ffi

    for handle in (None, 5, ffi.NULL, ffi.new("int *"), ffi.cast("wst_connection *", 0)):
        with pytest.raises(TypeError):
            ClientConnection.__new__(ClientConnection, handle)


@pytest.mark.parametrize("when", ["before", "after"])
def test_gevent_is_refused(when):
    pytest.importorskip("gevent")
    patch = "from gevent import monkey; monkey.patch_all()"
    load = "import wsfast.sync.client as client"
    first, second = (patch, load) if when == "before" else (load, patch)
    code = f"""
        import warnings
        warnings.simplefilter("ignore")
        try:
            exec({first!r})
            exec({second!r})
            client.connect("ws://127.0.0.1:1/")
        except RuntimeError as exc:
            print("refused" if "gevent" in str(exc) else exc)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "refused\n", done


def test_gevent_without_patching_is_fine():
    pytest.importorskip("gevent")

    def script(peer):
        peer.accept()
        peer.send(text("hello") + close(1000))
        peer.close_frame()

    code = "import sys, gevent.monkey\nfrom wsfast.sync.client import connect\n"
    code += "with connect(sys.argv[1]) as ws: print(ws.recv())"
    with scripted(script) as server:
        command = [sys.executable, "-W", "ignore", "-c", code, server.url]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "hello\n"


def test_the_end_is_still_normal():
    def script(peer):
        peer.accept()
        peer.send(close(1000))
        peer.close_frame()

    with scripted(script) as server, connect(server.url) as ws, pytest.raises(ConnectionClosedOK):
        ws.recv()
