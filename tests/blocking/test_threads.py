"""Threads: one receives while others send, ping and close; and buffers that are full in both directions."""

import contextlib
import socket
import threading

import pytest
from support import HUNG
from support.blocking import echo, in_thread, running, scripted
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
from support.servers import PEERS

from wsfast.exceptions import ConcurrencyError, ConnectionClosedError, ConnectionClosedOK
from wsfast.sync.client import connect

TLS = pytest.mark.parametrize("tls", WAYS.values(), ids=WAYS)


def contexts(tls):
    return ({"ssl_context": server_context()}, {"ssl": tls()}) if tls else ({}, {})


class Gate:
    """Tells the server's script what the test has done; the script's waits end with the test."""

    def __init__(self):
        self.event = threading.Event()

    def open(self):
        self.event.set()

    def wait(self):
        assert self.event.wait(HUNG)


@TLS
def test_send_while_another_thread_receives(tls):
    """The message that ends recv() is sent only after the other thread's has arrived."""
    server_options, options = contexts(tls)

    def script(peer):
        peer.accept()
        assert peer.frame().payload == b"from the main thread"
        peer.send(text("reply"))
        peer.answer_close()

    with scripted(script, **server_options) as server, connect(server.url, **options) as ws:
        with running(ws.recv) as outcome:
            ws.send("from the main thread")
        assert outcome == ["reply"]


@TLS
def test_many_senders_and_one_receiver(tls):
    with in_thread(lambda: PEERS["websockets"](server_context() if tls else None)) as url:
        with connect(url, ssl=tls() if tls else None) as ws:
            expected = {
                f"{sender} {number} {'x' * number * 50}" for sender in range(4) for number in range(50)
            }

            def send(sender):
                for number in range(50):
                    ws.send(f"{sender} {number} {'x' * number * 50}")
                    if number % 10 == 0:
                        ws.ping()

            with contextlib.ExitStack() as stack:
                for sender in range(4):
                    stack.enter_context(running(lambda sender=sender: send(sender)))
                assert {ws.recv(timeout=HUNG) for _ in range(200)} == expected


def test_two_receivers():
    receiving = Gate()

    def script(peer):
        peer.accept()
        assert peer.frame().payload == b"second gave up"
        peer.send(text("for the first"))
        peer.answer_close()

    with scripted(script) as server, connect(server.url) as ws:

        def receive():
            receiving.open()
            return ws.recv()

        with running(receive) as outcome:
            receiving.wait()
            # The first is about to receive; until it does, this receives for a moment, and nothing comes.
            for _ in range(10_000):
                with contextlib.suppress(TimeoutError):
                    try:
                        ws.recv(timeout=0)
                    except ConcurrencyError:
                        break
            else:
                raise AssertionError("nobody else receives")
            ws.send("second gave up")
    assert outcome == ["for the first"] or isinstance(outcome[0], ConcurrencyError)


@TLS
def test_closing_wakes_a_receiver(tls):
    server_options, options = contexts(tls)

    def script(peer):
        peer.accept()
        peer.answer_close()

    with scripted(script, **server_options) as server, connect(server.url, **options) as ws:
        with running(ws.recv) as outcome:
            ws.close()
        assert isinstance(outcome[0], ConnectionClosedOK)


def test_closing_wakes_a_receiver_though_the_server_says_nothing():
    done = Gate()

    def script(peer):
        peer.accept()
        done.wait()

    with scripted(script) as server, connect(server.url, close_timeout=0.1) as ws:
        with running(ws.recv) as outcome:
            ws.close()
        done.open()
        assert isinstance(outcome[0], ConnectionClosedError)
        assert isinstance(outcome[0].__cause__, TimeoutError)
        assert outcome[0].sent.code == 1000


def test_a_receiver_that_returns_leaves_the_closing_to_the_closer():
    """A message arrives after CLOSE was sent; its receiver does not come back."""

    def script(peer):
        peer.accept()
        sent = peer.close_frame()
        peer.send(text("late"))
        peer.send(frame(8, sent.payload))

    with scripted(script) as server, connect(server.url) as ws:
        with running(ws.recv) as outcome:
            ws.close()
        assert outcome == ["late"] or isinstance(outcome[0], ConnectionClosedOK)
        assert ws.close_code == 1000


def two_frames(number):
    """A message of 6 KB."""
    return frame(TEXT, f"{number:05d}" + "-" * 2000, fin=False) + frame(CONTINUATION, f"{number:04000d}")


def numbers_of(messages):
    """Each message must be whole: what its two fragments say must agree."""
    numbers = []
    for message in messages:
        begin, end = message[:5], message[5:].strip("-")
        assert len(message) == 6005
        assert int(begin) == int(end)
        numbers.append(int(begin))
    return numbers


def test_a_receiver_gets_everything_although_another_thread_closes():
    """It is slower than the server, which says three times as much as a queue takes while nobody receives."""

    def script(peer):
        peer.accept()
        sent = peer.close_frame()
        for number in range(500):
            peer.send(two_frames(number))
        peer.send(frame(CLOSE, sent.payload))

    def receive():
        numbers = []
        for message in ws:
            numbers += numbers_of([message] * 40)[:1]
        return numbers

    with scripted(script) as server, connect(server.url) as ws:
        with running(receive) as outcome:
            ws.close()
        assert outcome == [list(range(500))]


def test_what_is_dropped_while_nobody_receives_leaves_no_parts_of_messages():
    begun, received = Gate(), Gate()

    def script(peer):
        peer.accept()
        sent = peer.close_frame()
        for number in range(5000):  # more than the buffers of two sockets hold
            peer.send(two_frames(number))
        begun.open()
        received.wait()
        for number in range(5000, 5100):
            peer.send(two_frames(number))
        peer.send(frame(CLOSE, sent.payload))

    with scripted(script) as server, connect(server.url) as ws:
        with running(ws.close):
            begun.wait()
            got = [ws.recv() for _ in range(20)]
            received.open()
            got += list(ws)
        assert numbers_of(got) == list(range(len(got)))
        assert len(got) < 5000
        assert ws.close_code == 1000


def test_several_closers():
    with scripted(echo) as server, connect(server.url) as ws:
        with contextlib.ExitStack() as stack:
            outcomes = [stack.enter_context(running(ws.close)) for _ in range(4)]
        assert outcomes == [[None]] * 4


def test_wait_closed():
    closing = Gate()

    def script(peer):
        peer.accept()
        peer.send(text("one") + frame(PING, b"alive"))
        assert peer.frame() == (PONG, b"alive", True, 0)
        closing.wait()
        peer.send(text("two") + frame(8, b"\x03\xe8"))
        peer.close_frame()

    with scripted(script) as server, connect(server.url) as ws:
        assert ws.wait_closed(0) is False
        assert ws.wait_closed(0.01) is False
        closing.open()
        assert ws.wait_closed() is True
        assert list(ws) == ["one", "two"]


def test_wait_closed_while_another_thread_receives():
    def script(peer):
        peer.accept()
        peer.send(text("one") + frame(8, b"\x03\xe8"))
        peer.close_frame()

    with scripted(script) as server, connect(server.url) as ws:
        with running(lambda: list(ws)) as outcome:
            assert ws.wait_closed(20)
        assert outcome[0] in (["one"], []) or isinstance(outcome[0], ConcurrencyError)


def test_a_pong_is_waited_for_while_another_thread_receives():
    answered = Gate()

    def script(peer):
        peer.accept()
        ping = peer.frame()
        peer.send(frame(PONG, ping.payload))
        answered.wait()
        peer.send(text("end"))
        peer.answer_close()

    with scripted(script) as server, connect(server.url) as ws:
        with running(ws.recv) as outcome:
            assert ws.ping().wait(HUNG)
            answered.open()
        assert outcome == ["end"]


def test_several_threads_wait_for_pongs():
    """The thread that reads also gets the answers for which others wait."""
    answered = Gate()

    def script(peer):
        peer.accept()
        pings = [peer.frame() for _ in range(4)]
        peer.send(b"".join(frame(PONG, ping.payload) for ping in pings))
        answered.wait()
        peer.answer_close()

    with scripted(script) as server, connect(server.url) as ws:
        with contextlib.ExitStack() as stack:
            wait = [stack.enter_context(running(lambda: ws.ping().wait(HUNG))) for _ in range(4)]
        answered.open()
        assert wait == [[True]] * 4


def test_a_closed_connection_sets_events_for_all_who_wait():
    for _ in range(20):
        with scripted(echo) as server, connect(server.url) as ws:
            with contextlib.ExitStack() as stack:
                wait = [
                    stack.enter_context(running(lambda: ws.ping(ack_on_close=True).wait(HUNG)))
                    for _ in range(3)
                ]
                ws.close()
        assert all(outcome == [True] or isinstance(outcome[0], ConnectionClosedOK) for outcome in wait)


def test_who_waits_for_the_end_learns_of_a_deadline_that_another_thread_has_set():
    """A recv() that is over takes the CLOSE, and the server does not close the connection."""
    done = Gate()

    def script(peer):
        peer.accept()
        peer.frame()
        peer.send(close(1000))
        done.wait()

    with scripted(script) as server:
        ws = connect(server.url, close_timeout=0.2, ping_interval=None)
        with running(lambda: ws.wait_closed(HUNG)) as outcome:
            ws.send("close")
            with pytest.raises(TimeoutError):
                ws.recv(timeout=0.1)
        done.open()
        assert outcome == [True]


def in_halves(begun, more):
    """A message in two fragments: opens a gate after the first one, and waits at the other."""
    yield "a"
    begun.open()
    more.wait()
    yield "b"


def test_a_fragmented_message_is_not_broken_into():
    """Control frames may stand between fragments, messages may not."""
    inside, tried = Gate(), Gate()

    with scripted(echo) as server, connect(server.url) as ws:
        with running(lambda: ws.send(in_halves(inside, tried))) as outcome:
            inside.wait()
            for message in ("x", b"x", bytearray(b"x"), ["x", "y"]):
                with pytest.raises(ConcurrencyError):
                    ws.send(message)
            pong = ws.ping()
            tried.open()
        assert outcome == [None]
        assert ws.recv() == "ab"
        assert pong.wait(HUNG)


def test_close_during_a_fragmented_message():
    inside, closed = Gate(), Gate()

    def script(peer):
        peer.accept()
        return peer.close_frame().payload

    with scripted(script) as server, connect(server.url) as ws:
        with running(lambda: ws.send(in_halves(inside, closed))) as outcome:
            inside.wait()
            ws.close()
            closed.open()
        assert isinstance(outcome[0], ConnectionClosedError)
    assert server.result() == b"\x03\xf3close during fragmented message"


# ---- both directions full

BIG = 16 << 20  # Linux keeps at most 4 MiB for a sender and 6 MiB for a receiver


def stubborn_echo(peer):
    """Echoes message for message, and reads nothing while its own sending blocks."""
    peer.accept()
    while True:
        sent = peer.frame()
        if sent.opcode == 8:
            peer.send(frame(8, sent.payload))
            return
        peer.send(header(sent.opcode, len(sent.payload)))
        peer.send(sent.payload)


@pytest.mark.parametrize("receiver", [False, True])
@TLS
def test_big_messages_both_ways(receiver, tls):
    """Three long messages against a server that stops reading while it sends; with and without a receiver."""
    server_options, options = contexts(tls)
    data = bytes(BIG)
    with (
        scripted(stubborn_echo, **server_options) as server,
        connect(server.url, max_size=None, **options) as ws,
    ):

        def send():
            for _ in range(3):
                ws.send(data)

        def receive():
            return [ws.recv(timeout=HUNG) == data for _ in range(3)]

        if receiver:
            with running(receive) as outcome:
                send()
        else:
            send()
            outcome = [receive()]
        assert outcome == [[True] * 3]


def test_small_messages_both_ways():
    """Neither end reads before it has sent 8 MiB; the client's queue is limited by max_queue alone."""
    count, data = 2000, pattern(4096)

    def script(peer):
        peer.accept()
        for _ in range(count):
            peer.send(binary(data))
        got = sum(peer.frame().payload == data for _ in range(count))
        peer.answer_close()
        return got

    with scripted(script, buffer=65536) as server, connect(server.url, max_queue=None) as ws:
        for _ in range(count):
            ws.send(data)
        assert all(ws.recv() == data for _ in range(count))
    assert server.result() == count


def test_max_queue_limits_what_a_blocked_sender_reads():
    """With 16 frames kept, the server is made to wait, until a receiver makes room."""
    data = pattern(1 << 20)
    count = 40

    def script(peer):
        peer.accept()
        for _ in range(count):
            peer.send(binary(data))
        got = sum(peer.frame().payload == data for _ in range(count))
        peer.answer_close()
        return got

    with scripted(script, buffer=65536) as server, connect(server.url, max_queue=16) as ws:

        def send():
            for _ in range(count):
                ws.send(data)

        with running(send) as outcome:
            assert all(ws.recv(timeout=HUNG) == data for _ in range(count))
        assert outcome == [None]
    assert server.result() == count


def test_a_ping_while_sending_blocks_is_answered_after_the_frame():
    def script(peer):
        peer.accept()
        peer.sock.recv(1, socket.MSG_PEEK)  # the frame has begun, and does not fit
        peer.send(frame(PING, b"1") + frame(PING, b"2"))
        got = [peer.frame().opcode]
        while (sent := peer.frame()).payload != b"2":
            got.append(sent.opcode)
        got.append(sent.opcode)
        peer.answer_close()
        return got

    with scripted(script, buffer=65536) as server, connect(server.url) as ws:
        ws.send(bytes(BIG))
        with pytest.raises(TimeoutError):
            ws.recv(timeout=0)
    assert server.result() in ([BINARY, PONG], [BINARY, PONG, PONG])


def test_closing_while_another_thread_is_blocked_in_send():
    begun, done = Gate(), Gate()

    def script(peer):
        peer.accept()
        peer.sock.recv(1, socket.MSG_PEEK)
        begun.open()
        done.wait()

    with scripted(script, buffer=65536) as server, connect(server.url, close_timeout=0.1) as ws:
        with running(lambda: ws.send(bytes(BIG))) as outcome:
            begun.wait()
            ws.close()
        done.open()
        assert isinstance(outcome[0], ConnectionClosedError)


def test_senders_wait_for_each_other():
    """Two senders of messages that block: no frame is broken into."""

    def script(peer):
        peer.accept()
        got = sorted(peer.frame().payload[:1] for _ in range(8))
        peer.answer_close()
        return got

    with scripted(script, buffer=65536) as server, connect(server.url) as ws:
        with running(lambda: [ws.send(b"a" * (4 << 20)) for _ in range(4)]) as outcome:
            for _ in range(4):
                ws.send(b"b" * (4 << 20))
    assert len(outcome[0]) == 4
    assert server.result() == [b"a"] * 4 + [b"b"] * 4


def test_a_socket_that_is_closed_is_not_used_any_longer():
    """Its number may belong to somebody else at once."""
    with scripted(echo) as server:
        ws = connect(server.url)
        ws.close()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            for call in (lambda: ws.send("x"), ws.recv, ws.ping, ws.pong):
                with pytest.raises(ConnectionClosedOK):
                    call()
            ws.close()
            assert ws.wait_closed()
            theirs.setblocking(False)
            with pytest.raises(BlockingIOError):
                theirs.recv(1)
