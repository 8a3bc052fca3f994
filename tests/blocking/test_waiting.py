"""Waiting: time-outs that lose nothing, keepalive, servers that stall or reset, signals and forks."""

import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from support import HUNG
from support.blocking import echo, running, scripted
from support.certificates import WAYS, server_context
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
    pattern,
    text,
)

from wsfast import Tuning
from wsfast.exceptions import ConnectionClosedError, ConnectionClosedOK, KeepaliveTimeout
from wsfast.sync.client import connect

# More than the buffers of both ends hold together.
BLOCKS = 32 << 20

TLS = pytest.mark.parametrize("tls", WAYS.values(), ids=WAYS)


def contexts(tls):
    return ({"ssl_context": server_context()}, {"ssl": tls()}) if tls else ({}, {})


@pytest.fixture
def done():
    """Set when the test is over with the server's silence."""
    event = threading.Event()
    yield event
    event.set()


# ---- time-outs


@TLS
@pytest.mark.parametrize("timeout", [0, 0.01, 0.06])
def test_a_timeout_loses_nothing(tls, timeout):
    """After every few bytes the client times out; the bytes are of frames of every kind."""
    server_options, options = contexts(tls)
    more = threading.Semaphore(0)
    data = (
        text("é" * 10)
        + frame(PING, b"x")
        + binary(pattern(300))
        + frame(TEXT, b"a", fin=False)
        + frame(0, b"b")
    )

    def script(peer):
        peer.accept()
        for at in range(0, len(data), 40):
            assert more.acquire(timeout=HUNG)
            peer.send(data[at : at + 40])
        peer.answer_close()

    got = []
    with scripted(script, **server_options) as server, connect(server.url, **options) as ws:
        while len(got) < 3:
            try:
                got.append(ws.recv(timeout=timeout))
            except TimeoutError:
                more.release()
    assert got == ["é" * 10, pattern(300), "ab"]


def test_timeouts_are_about_right(done):
    def script(peer):
        peer.accept()
        done.wait()

    with scripted(script) as server, connect(server.url, close_timeout=0) as ws:
        for timeout in (0, 0.005, 0.03, 0.1, 0.25):
            took = math.inf
            while took > timeout + 1:  # a busy machine may be late, but not each time
                start = time.monotonic()
                with pytest.raises(TimeoutError, match=f"timed out in {timeout:.1f}s"):
                    ws.recv(timeout)
                took = time.monotonic() - start
                assert timeout <= took
        done.set()


def test_a_message_that_is_there_is_taken_without_waiting():
    def script(peer):
        peer.accept()
        peer.frame()
        peer.send(text("1") + text("2") + text("3"))
        peer.answer_close()

    with scripted(script) as server, connect(server.url) as ws:
        with pytest.raises(TimeoutError):
            ws.recv(timeout=0)
        ws.send("go")
        assert ws.recv(timeout=HUNG) == "1"
        assert ws.recv(timeout=0) == "2"
        assert ws.recv(timeout=0) == "3"


@pytest.mark.parametrize("timeout", [math.nan, -1, -math.inf])
def test_a_time_that_is_none_is_refused(timeout):
    """NaN would wait for ever."""
    with scripted(echo) as server, connect(server.url) as ws:
        with pytest.raises(ValueError, match="timeout must not be negative"):
            ws.recv(timeout)
        with pytest.raises(ValueError, match="timeout must not be negative"):
            ws.ping().wait(timeout)
        ws.send("x")
        assert ws.recv(timeout=HUNG) == "x"


def test_times_beyond_reason():
    with scripted(echo) as server:
        with connect(server.url, ping_interval=1e30, close_timeout=1e30, open_timeout=1e9) as ws:
            ws.send("x")
            assert ws.recv(timeout=1e30) == "x"
            ws.send("y")
            assert ws.recv(timeout=float("inf")) == "y"
    for far in (1e19, float("inf")):
        options = dict.fromkeys(("open_timeout", "ping_interval", "ping_timeout", "close_timeout"), far)
        options["tuning"] = Tuning(busy_poll=far)
        with scripted(echo) as server, connect(server.url, **options) as ws:
            ws.send("x")
            assert ws.recv(timeout=far) == "x"
            with pytest.raises(TimeoutError):
                ws.recv(timeout=0.01)


@pytest.mark.parametrize("busy_poll", [0.01, 5])
@TLS
def test_busy_poll(busy_poll, tls):
    server_options, options = contexts(tls)
    with (
        scripted(echo, **server_options) as server,
        connect(server.url, tuning=Tuning(busy_poll=busy_poll), **options) as ws,
    ):
        for size in (10, 1000, 100_000):
            ws.send(bytes(size))
            assert ws.recv() == bytes(size)
        for timeout in (0, 0.02):
            with pytest.raises(TimeoutError):
                ws.recv(timeout)


# ---- keepalive


def test_an_idle_connection_stays_alive():
    """The server closes a connection that says nothing: the client's pings, sent from recv(), keep it."""

    def script(peer):
        peer.accept()
        for _ in range(5):
            ping = peer.frame()
            assert ping.opcode == PING
            peer.send(frame(PONG, ping.payload))
        peer.send(text("still there"))
        peer.answer_close()

    with scripted(script) as server, connect(server.url, ping_interval=0.02, ping_timeout=HUNG) as ws:
        assert ws.recv() == "still there"
        assert 0 < ws.latency < HUNG


def test_any_byte_is_a_sign_of_life():
    """No ping is answered, but the server sends; that is enough."""
    pings = 0

    def script(peer):
        nonlocal pings
        peer.accept()
        while pings < 4:
            pings += peer.frame().opcode == PING
            peer.send(text("busy"))
        peer.send(text("end"))
        peer.answer_close()

    with scripted(script) as server, connect(server.url, ping_interval=0.05, ping_timeout=1) as ws:
        while ws.recv() != "end":
            pass


@TLS
def test_a_missed_pong_ends_the_connection(done, tls):
    server_options, options = contexts(tls)

    def script(peer):
        peer.accept()
        done.wait()

    with scripted(script, **server_options) as server:
        with connect(server.url, ping_interval=0.02, ping_timeout=0.05, close_timeout=HUNG, **options) as ws:
            with pytest.raises(ConnectionClosedError) as raised:
                ws.recv()
            assert isinstance(raised.value.__cause__, KeepaliveTimeout)
            assert raised.value.sent.code == 1011
            assert raised.value.sent.reason == "keepalive ping timeout"
            done.set()


def test_a_program_that_was_busy_finds_the_pong_when_it_looks():
    """The pong came in time, and nobody looked until long after."""
    answered = threading.Event()

    def script(peer):
        peer.accept()
        ping = peer.frame()
        peer.send(frame(PONG, ping.payload))
        answered.set()
        while (sent := peer.frame()).opcode == PING:
            peer.send(frame(PONG, sent.payload))
        peer.send(text("alive"))
        peer.answer_close()

    with scripted(script) as server, connect(server.url, ping_interval=0.01, ping_timeout=2) as ws:
        while not answered.is_set():
            with pytest.raises(TimeoutError):
                ws.recv(timeout=0.02)
        time.sleep(2.1)
        ws.send("here I am")
        assert ws.recv() == "alive"


def test_pings_are_off(done):
    with scripted(echo) as server, connect(server.url, ping_interval=None) as ws:
        with pytest.raises(TimeoutError):
            ws.recv(timeout=0.05)
        assert ws.latency == 0


# ---- a server that stalls, or breaks off


@TLS
@pytest.mark.parametrize(
    "beginning",
    [b"", b"\x82", b"\x82\x7e\x01", header(BINARY, 300) + b"beginning"],
    ids=["nothing", "1", "3", "payload"],
)
def test_closing_though_the_server_stalls(done, tls, beginning):
    server_options, options = contexts(tls)

    def script(peer):
        peer.accept()
        peer.send(beginning)
        done.wait()

    with scripted(script, **server_options) as server:
        ws = connect(server.url, close_timeout=0.1, **options)
        with pytest.raises(TimeoutError):
            ws.recv(timeout=0.01)
        start = time.monotonic()
        ws.close()
        assert time.monotonic() - start > 0.09
        done.set()
        with pytest.raises(ConnectionClosedError) as raised:
            ws.recv()
        assert isinstance(raised.value.__cause__, TimeoutError)


def test_closing_is_bounded_whatever_the_server_sends():
    """It sends on and on, and never its CLOSE."""

    def script(peer):
        peer.accept()
        try:
            while True:
                peer.send(binary(pattern(60_000)))
        except OSError:
            return True

    with scripted(script) as server:
        ws = connect(server.url, close_timeout=0.2)
        ws.close()
    assert server.result() is True


def test_a_server_that_answers_close_and_keeps_the_connection(done):
    def script(peer):
        peer.accept()
        peer.answer_close()
        done.wait()

    with scripted(script) as server:
        ws = connect(server.url, close_timeout=0.1)
        ws.close()
        done.set()
        with pytest.raises(ConnectionClosedOK):
            ws.recv()


def test_the_end_of_the_stream_without_a_close():
    with scripted(lambda peer: peer.accept(glued=text("last"))) as server, connect(server.url) as ws:
        assert ws.recv() == "last"
        with pytest.raises(ConnectionClosedError) as raised:
            ws.recv()
        assert isinstance(raised.value.__cause__, EOFError)
        assert (raised.value.rcvd, raised.value.sent) == (None, None)
        assert (ws.close_code, ws.close_reason) == (1006, "")


@TLS
def test_a_reset(tls):
    server_options, options = contexts(tls)

    def script(peer):
        peer.accept()
        peer.frame()
        peer.reset()

    with scripted(script, **server_options) as server, connect(server.url, **options) as ws:
        ws.send("x")
        with pytest.raises(ConnectionClosedError) as raised:
            ws.recv()
        assert isinstance(raised.value.__cause__, (ConnectionResetError, EOFError))


def test_sending_finds_the_connection_broken():
    def script(peer):
        peer.accept()
        peer.send(close(1008, "policy"))

    with scripted(script) as server, connect(server.url) as ws:

        def send():
            while True:
                ws.send(bytes(100_000))

        with pytest.raises(ConnectionClosedError) as raised:
            send()
        assert raised.value.rcvd is None or raised.value.rcvd.code == 1008


def test_a_peer_that_has_ended_its_half(done):
    """Without a CLOSE frame that is the end of the connection."""

    def script(peer):
        peer.accept()
        peer.sock.shutdown(socket.SHUT_WR)
        return peer.rest()

    with scripted(script) as server, connect(server.url) as ws, pytest.raises(ConnectionClosedError):
        ws.recv()
    assert server.result() == []


def test_the_client_ends_its_half_after_the_closing_handshake():
    """A server that waits for the end of the stream, rather than close first, sees it."""

    def script(peer):
        peer.accept()
        peer.answer_close()
        return peer.rest()

    with scripted(script) as server:
        connect(server.url, close_timeout=None).close()


# ---- signals


@pytest.fixture
def alarms():
    """Signals that come again and again to this thread; `count` handlers have run."""

    class Alarms:
        count = 0
        enough = threading.Event()

        def handler(self, signum, stack):
            self.count += 1
            if self.count >= 10:
                self.enough.set()

    alarms = Alarms()
    alarms.enough = threading.Event()
    previous = signal.signal(signal.SIGUSR1, alarms.handler)
    stop = threading.Event()
    main = threading.get_ident()

    def fire():
        while not stop.wait(0.002):
            signal.pthread_kill(main, signal.SIGUSR1)

    thread = threading.Thread(target=fire)
    thread.start()
    yield alarms
    stop.set()
    thread.join()
    signal.signal(signal.SIGUSR1, previous)


@TLS
@pytest.mark.parametrize("busy_poll", [0, 20])
def test_handlers_run_while_recv_waits(alarms, tls, busy_poll):
    server_options, options = contexts(tls)

    def script(peer):
        peer.accept()
        assert peer.frame().payload == b"go"
        assert alarms.enough.wait(HUNG)
        peer.send(text("first")[:3])
        peer.send(text("first")[3:])
        peer.answer_close()

    with (
        scripted(script, **server_options) as server,
        connect(server.url, tuning=Tuning(busy_poll=busy_poll), **options) as ws,
    ):
        alarms.count = 0
        alarms.enough.clear()
        ws.send("go")
        assert ws.recv() == "first"
        assert alarms.count >= 10


@pytest.mark.parametrize("timeout", [0.1, 0.3])
def test_signals_do_not_prolong_a_timeout(alarms, done, timeout):
    def script(peer):
        peer.accept()
        done.wait()

    with scripted(script) as server, connect(server.url, close_timeout=0.05) as ws:
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            ws.recv(timeout)
        assert time.monotonic() - start >= timeout
        done.set()


def test_handlers_run_while_send_and_close_wait(alarms):
    def script(peer):
        peer.accept()
        assert alarms.enough.wait(HUNG)
        peer.frame()
        peer.frame()
        alarms.enough.clear()
        alarms.count = 0
        assert alarms.enough.wait(HUNG)
        peer.send(close(1000))

    with scripted(script, buffer=65536) as server, connect(server.url) as ws:
        ws.send(bytes(BLOCKS))
        ws.close()
        assert ws.close_code == 1000


class Interrupt(Exception):  # noqa: N818
    pass


@pytest.fixture
def interrupt():
    """Raises Interrupt in this thread, where it has set `armed`; for as long as that takes."""

    class Interrupter:
        armed = threading.Event()
        exception = Interrupt
        main = threading.get_ident()

        def handler(self, signum, stack):
            if self.armed.is_set():
                self.armed.clear()
                raise self.exception

        def __call__(self):
            assert self.armed.wait(HUNG)
            while self.armed.is_set():
                signal.pthread_kill(self.main, signal.SIGUSR1)

    interrupter = Interrupter()
    interrupter.armed = threading.Event()
    previous = signal.signal(signal.SIGUSR1, interrupter.handler)
    yield interrupter
    signal.signal(signal.SIGUSR1, previous)


@pytest.mark.parametrize("streaming", [False, True])
@TLS
def test_a_handler_that_raises_loses_no_message(interrupt, tls, streaming):
    server_options, options = contexts(tls)
    raised = threading.Event()

    def script(peer):
        peer.accept()
        peer.frame()
        peer.send(text("message")[:4])
        interrupt()
        assert raised.wait(HUNG)
        peer.send(text("message")[4:])
        peer.answer_close()

    with scripted(script, **server_options) as server, connect(server.url, **options) as ws:
        ws.send("go")
        with pytest.raises(Interrupt):
            interrupt.armed.set()
            list(ws.recv_streaming()) if streaming else ws.recv()
        raised.set()
        assert ws.recv() == "message"


def test_a_handler_that_raises_in_send_leaves_whole_frames(interrupt):
    """The next call, whichever it is, finishes the one that was begun."""
    raised = threading.Event()

    def script(peer):
        peer.accept()
        peer.sock.recv(1, socket.MSG_PEEK)  # the frame has begun, and does not fit
        interrupt()
        assert raised.wait(HUNG)
        got = [len(peer.frame().payload) for _ in range(2)]
        peer.answer_close()
        return got

    with scripted(script, buffer=65536) as server, connect(server.url) as ws:
        with pytest.raises(Interrupt):
            interrupt.armed.set()
            ws.send(bytes(BLOCKS))
        raised.set()
        ws.send(b"next")
    assert server.result() == [BLOCKS, 4]


@pytest.mark.parametrize("fragments", [False, True])
def test_a_handler_that_raises_while_closing_drops_the_connection(interrupt, done, fragments):
    """Or a thread that receives would wait on, after the deadline too."""
    closing = threading.Event()

    def script(peer):
        peer.accept()
        peer.frame()
        closing.set()
        interrupt()
        done.wait()

    def message():
        yield "a"
        assert closing.wait(HUNG)
        while True:
            pass  # until the handler raises

    class Raised(KeyboardInterrupt):
        pass

    interrupt.exception = Raised
    with scripted(script) as server:
        ws = connect(server.url, close_timeout=None, ping_interval=None)
        with running(ws.recv) as received, running(ws.wait_closed) as waited, pytest.raises(Raised):
            interrupt.armed.set()
            if fragments:
                ws.send(message())
            else:
                ws.close()
        done.set()
        assert isinstance(received[0], ConnectionClosedError)
        assert waited == [True]


CTRL_C = """
import os
import signal
import sys
from wsfast.sync.client import connect
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job inherits SIG_IGN
ws = connect(sys.argv[1], ping_interval=None, close_timeout=None)
try:
    print("waiting", flush=True)
    ws.send("go")
    {call}
except KeyboardInterrupt:
    print("interrupted", flush=True)
os._exit(0)
"""


@pytest.mark.parametrize(
    "call",
    [
        "ws.recv()",
        "ws.recv(timeout=1e9)",
        "ws.send(bytes(1 << 25))",
        "ws.wait_closed()",
        "ws.ping().wait()",
        "ws.close()",
    ],
)
def test_ctrl_c(call, done):
    started = threading.Event()

    def script(peer):
        peer.accept()
        peer.frame()
        started.set()
        done.wait()

    with scripted(script, buffer=65536) as server:
        # A background job's handler is not the interpreter's.
        ignoring = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]
        command = [*ignoring, sys.executable, "-c", CTRL_C.format(call=call), server.url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "waiting\n"
            assert started.wait(HUNG)
            # It is about to wait, or waits; a signal before that is one in Python code.
            while not sleeps(process.pid):
                pass
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "interrupted\n"
        done.set()


def sleeps(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "S"


# ---- fork


def test_keys_differ_after_a_fork():
    def script(peer):
        peer.accept()
        keys = []
        while peer.frame().opcode != CLOSE:
            keys = list(peer.parser.keys)
        peer.send(close(1000))
        return keys

    with scripted(script, connections=2) as server:
        with connect(server.url) as first:
            first.send("x")
            read, write = os.pipe()
            pid = os.fork()
            if pid == 0:
                # A connection of its own, and one message on it; its keys are to differ from the parent's next.
                try:
                    first.send("from the child")
                    os.write(write, b"1")
                finally:
                    os._exit(0)
            os.close(write)
            assert os.read(read, 1) == b"1"
            os.close(read)
            os.waitpid(pid, 0)
            first.send("from the parent")
        keys = server.results[0]
        assert len(set(keys)) == len(keys) >= 3


def test_a_forked_child_that_ends_leaves_the_connection_to_its_parent():
    with scripted(echo) as server, connect(server.url) as ws:
        done = subprocess.run([sys.executable, "-c", ""], check=True)
        assert done.returncode == 0
        pid = os.fork()
        if pid == 0:
            from wsfast._rust._native import lib

            lib.wst_free(ws._handle)
            os._exit(0)
        os.waitpid(pid, 0)
        ws.send("x")
        assert ws.recv() == "x"


class Handler(Exception):  # noqa: N818
    """Raised as the handler of a signal would."""


def test_a_handler_that_raises_amid_recv_streaming_loses_nothing():
    """It may run between any two instructions of Python's."""
    fragments = [frame(TEXT, b"a", fin=False), frame(CONTINUATION, "\u00e9".encode()[:1], fin=False)]
    message = b"".join([*fragments, frame(CONTINUATION, "\u00e9".encode()[1:])])

    def script(peer):
        peer.accept(glued=message * 300)
        peer.answer_close()

    with scripted(script) as server, connect(server.url, compression=None, max_queue=None) as ws:
        for number in range(300):
            left = [number]

            def trace(frame, event, _, left=left):
                if "sync" not in frame.f_code.co_filename or "test" in frame.f_code.co_filename:
                    return None
                frame.f_trace_opcodes = True
                left[0] -= 1
                if left[0] < 0:
                    left[0] = 1 << 30
                    raise Handler
                return trace

            pieces, got, raised, more = ws.recv_streaming(), [], False, True
            while more:
                sys.settrace(trace)
                try:
                    got.append(next(pieces))
                except Handler:
                    raised = True
                except StopIteration:
                    more = False
                finally:
                    sys.settrace(None)
            assert "".join(got) == "a\u00e9", number
            if not raised:
                break
        assert not raised


def test_the_end_of_a_cork_waits_for_what_recv_has_left():
    """recv() that timed out has flushed the corked frames as far as the kernel took them."""
    read_on = threading.Event()

    def script(peer):
        peer.accept()
        assert read_on.wait(HUNG)
        return len(peer.frame().payload)

    small = (socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with scripted(script, buffer=4096) as server, connect(server.url, tuning=Tuning(sockopts=[small])) as ws:
        with ws.cork():
            ws.send(bytes(60_000))  # held back: the cork gathers 64 KiB
            with pytest.raises(TimeoutError):
                ws.recv(0.01)
            read_on.set()
        ws.abort()  # what the kernel does not have by now is lost
    assert server.result() == 60_000


def test_ctrl_c_in_the_histogram_leaves_no_connection_half_ended():
    """It may come while the last pongs are collected, at the end."""

    class Interrupting:
        def record_value(self, nanoseconds):
            raise KeyboardInterrupt

    def script(peer):
        peer.accept()
        sent = peer.frame()
        peer.send(frame(PONG, sent.payload))
        peer.answer_close()

    with (
        scripted(script) as server,
        connect(server.url, tuning=Tuning(ping_histogram=Interrupting()), ping_interval=None) as ws,
    ):
        first = ws.ping()
        second = ws.ping(ack_on_close=True)
        with pytest.raises(KeyboardInterrupt):
            ws.close()
        assert ws.close_info.code == 1000
        assert ws.wait_closed(0)
        assert first.is_set()
        assert second.is_set()


def test_waiting_behind_a_full_queue_sleeps_though_the_connection_is_broken():
    """Messages that arrived before the error are received first."""
    was_reset = threading.Event()

    def script(peer):
        peer.accept()
        peer.send(text("x") * 50)
        peer.frame()
        peer.reset()
        was_reset.set()

    with scripted(script) as server, connect(server.url, max_queue=2, ping_interval=None) as ws:
        assert ws.recv() == "x"
        ws.send("go on")
        assert was_reset.wait(HUNG)
        assert not ws.wait_closed(0)  # now the queue is full
        calls = []
        sys.setprofile(lambda frame, event, argument: calls.append(event) if event == "c_call" else None)
        try:
            assert not ws.wait_closed(0.3)
        finally:
            sys.setprofile(None)
        assert len(calls) < 1000  # it asks the crate some 15 times, and would do so ten thousands of times
        for _ in range(49):
            assert ws.recv() == "x"
        with pytest.raises(ConnectionClosedError):
            ws.recv()
