"""Heartbeats and silence on a blocking connection."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import suppress

import pytest
from support.blocking import scripted
from support.frames import TEXT, close, text

from wsfast.exceptions import ConcurrencyError, ConnectionClosedError
from wsfast.supervisor import Heartbeat, watch
from wsfast.supervisor.errors import HeartbeatTimeout, SilenceTimeout
from wsfast.sync.client import connect


def is_pong(message):
    return message == "pong"


def answering(times, *, closes=True):
    """Answer so many heartbeats. Then close, or fall silent."""

    def script(peer):
        peer.accept()
        got = []
        with suppress(EOFError, ConnectionError):
            while (sent := peer.frame()).opcode == TEXT:
                got.append(sent.payload)
                if len(got) <= times:
                    peer.send(text("data") + text("pong"))
                elif closes:
                    peer.send(close(1000))
        return got if closes else peer.rest()

    return script


def silent(peer):
    peer.accept()
    return peer.rest()


def test_heartbeats_are_sent_and_their_answers_are_not_delivered():
    beats = iter(range(9))
    with scripted(answering(3)) as server, connect(server.url, ping_interval=None) as ws:
        beat = Heartbeat(0.01, lambda: f"beat {next(beats)}", is_pong)
        assert list(watch(ws, heartbeat=beat)) == ["data"] * 3
    assert server.result() == [b"beat 0", b"beat 1", b"beat 2", b"beat 3"]


def test_a_heartbeat_that_is_not_answered_ends_the_connection():
    with scripted(answering(2, closes=False)) as server, connect(server.url, close_timeout=None) as ws:
        messages = watch(ws, heartbeat=Heartbeat(0.05, "ping", is_pong, timeout=0.04))
        with pytest.raises(HeartbeatTimeout, match=r"no answer to a heartbeat for 0\.04 seconds"):
            assert [next(messages) for _ in range(3)] == 0
        with pytest.raises(ConnectionClosedError):
            ws.send("x")


def test_a_server_that_sends_without_end_does_not_answer_either():
    def script(peer):
        peer.accept()
        with pytest.raises(ConnectionError):
            while True:
                peer.send(text("data") * 100)

    with scripted(script) as server, connect(server.url) as ws:
        with pytest.raises(HeartbeatTimeout):
            for message in watch(ws, heartbeat=Heartbeat(0.02, "ping", is_pong)):
                assert message == "data"


def test_silence_ends_the_connection_and_answers_are_no_data():
    def script(peer):
        peer.accept()
        peer.send(text("data"))
        with suppress(EOFError, ConnectionError):
            while peer.frame().opcode == TEXT:
                peer.send(text("pong"))

    with scripted(script) as server, connect(server.url, close_timeout=None) as ws:
        messages = watch(ws, heartbeat=Heartbeat(0.01, "ping", is_pong), max_silence=0.1, decode=True)
        assert next(messages) == "data"
        with pytest.raises(SilenceTimeout, match=r"no data for 0\.1 seconds"):
            next(messages)


def test_silence_may_be_normal():
    asked = []

    def is_normal():
        asked.append(1)
        return len(asked) < 3

    with scripted(silent) as server, connect(server.url) as ws:
        with pytest.raises(SilenceTimeout):
            next(watch(ws, max_silence=0.01, silence_is_normal=is_normal))
    assert len(asked) == 3


def test_what_a_busy_program_has_not_taken_is_no_silence():
    def script(peer):
        peer.accept()
        peer.frame()
        peer.send(text("1") + text("pong") + text("2"))
        peer.answer_close()

    with scripted(script) as server, connect(server.url) as ws:
        messages = watch(ws, heartbeat=Heartbeat(0.3, "ping", is_pong), max_silence=0.9)
        assert next(messages) == "1"
        time.sleep(1.0)
        assert next(messages) == "2"


def test_a_heartbeat_waits_for_another_threads_fragmented_message():
    went_on, sent_part = threading.Event(), threading.Event()

    def script(peer):
        peer.accept()
        got = [peer.frame().payload for _ in range(3)]
        while (sent := peer.frame()).opcode == TEXT and sent.payload != b"beat":
            pass
        peer.send(close(1000))
        return got, sent.payload

    def parts():
        yield "a"
        sent_part.set()
        went_on.wait()
        yield "b"

    with scripted(script) as server, connect(server.url) as ws:
        sending = threading.Thread(target=ws.send, args=(parts(),))
        sending.start()
        sent_part.wait()
        threading.Timer(0.1, went_on.set).start()
        assert list(watch(ws, heartbeat=Heartbeat(0.02, "beat"))) == []
        sending.join()
    assert server.result() == ([b"a", b"b", b""], b"beat")


def test_wrong_arguments_are_refused_at_once():
    with scripted(answering(0)) as server, connect(server.url) as ws:
        for wrong in ({"heartbeat": "ping"}, {"max_silence": "1"}, {"silence_is_normal": 1}):
            with pytest.raises(TypeError, match=next(iter(wrong))):
                watch(ws, **wrong)
        with pytest.raises(ValueError, match="max_silence"):
            watch(ws, max_silence=0)
    with pytest.raises(TypeError, match="ws must be a connection"):
        watch(object())


def test_an_answer_behind_messages_that_a_busy_program_has_not_taken():
    def script(peer):
        peer.accept()
        peer.send(text("0"))
        peer.frame()
        peer.send(text("1") + text("2") + text("3") + text("pong"))
        peer.answer_close()

    with scripted(script) as server, connect(server.url) as ws:
        messages = watch(ws, heartbeat=Heartbeat(0.1, "ping", is_pong))
        assert [next(messages), next(messages)] == ["0", "1"]
        time.sleep(0.3)
        assert [next(messages), next(messages)] == ["2", "3"]


def test_a_message_whose_rest_comes_once_a_busy_program_reads_is_no_silence():
    reads = threading.Event()

    def script(peer):
        peer.accept()
        message = text("x" * 1000)
        peer.send(text("0") + message[:500])
        reads.wait()
        peer.send(message[500:])
        peer.answer_close()

    with scripted(script) as server, connect(server.url) as ws:
        messages = watch(ws, max_silence=0.3)
        assert next(messages) == "0"
        time.sleep(0.4)
        threading.Timer(0.01, reads.set).start()
        assert next(messages) == "x" * 1000


def test_a_timeout_of_the_programs_own_is_raised():
    def alarm(signum, frame):
        raise TimeoutError("alarm")

    before = signal.signal(signal.SIGALRM, alarm)
    try:
        with scripted(silent) as server, connect(server.url, close_timeout=0.1) as ws:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(TimeoutError, match="alarm"):
                next(watch(ws, max_silence=5))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("error", [ConcurrencyError("mine"), ConnectionClosedError(None, None)])
def test_errors_of_the_function_that_makes_a_heartbeat_are_raised(error):
    def make():
        raise error

    with scripted(silent) as server, connect(server.url, close_timeout=0.1) as ws:
        with pytest.raises(type(error)) as raised:
            next(watch(ws, heartbeat=Heartbeat(0.01, make), max_silence=1))
        assert raised.value is error


def test_a_server_that_does_not_read_is_watched_all_the_same():
    ended = threading.Event()

    def script(peer):
        peer.accept()
        ended.wait(20)

    def send():
        with pytest.raises(ConnectionClosedError):
            ws.send(bytes(32 << 20))

    with scripted(script) as server, connect(server.url, ping_interval=None) as ws:
        sending = threading.Thread(target=send)
        sending.start()
        while not ws._must_wait_to_send():
            time.sleep(0.001)
        with pytest.raises(SilenceTimeout):
            next(watch(ws, heartbeat=Heartbeat(0.05, "ping", is_pong), max_silence=0.3))
        ended.set()
        sending.join()
