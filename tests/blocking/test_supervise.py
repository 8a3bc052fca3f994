"""A supervisor for a program that blocks: its thread and its event loop are not to be noticed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest
import uvloop
from support.blocking import echo, running, scripted
from support.frames import CLOSE, binary, close, frame, text

import wsfast.sync
from wsfast.exceptions import ConcurrencyError, ConnectionClosedOK, InvalidText
from wsfast.supervisor import Decision, Rollover, SendExpired, State
from wsfast.supervisor.blocking import _MOST_BYTES, _MOST_MESSAGES


@pytest.fixture(autouse=True, params=["asyncio", "uvloop"])
def _loops(request, monkeypatch):
    if request.param == "uvloop":
        monkeypatch.setattr(asyncio, "new_event_loop", uvloop.new_event_loop)


def supervise(server, **options):
    return wsfast.sync.supervise(server.url, **{"delays": at_once, "close_timeout": 5, **options})


def at_once():
    while True:
        yield 0.001


def sending(*connections, end=None):
    """Each connection sends these texts when it has got a frame, and ends; the last one answers the CLOSE."""
    left = list(connections)

    def script(peer):
        peer.accept()
        asked = peer.frame().payload
        peer.send(b"".join(map(text, left.pop(0))))
        if left:
            peer.send(close(1012))
        else:
            peer.answer_close()
        return asked

    return script


def silent(peer):
    peer.accept()
    peer.answer_close()


def test_a_feed_goes_on_with_the_next_connection():
    with scripted(sending("ab", "cd"), connections=2) as server, supervise(server) as feed:
        assert (feed.generation, feed.gaps) == (0, 0)
        feed.subscribe("book")
        got = []
        for message in feed:
            got.append((message, feed.generation, feed.gaps))
            if message == "d":
                assert feed.state is State.OPEN
                feed.close()
        assert feed.state is State.CLOSED
        assert feed.stats.connects == 2
    assert got == [("a", 1, 0), ("b", 1, 0), ("c", 2, 1), ("d", 2, 1)]
    assert server.results == [b"book"] * 2


def test_what_was_counted_later_does_not_belong_to_the_message():
    """All messages of both connections have come before the first one is taken."""
    with scripted(sending("ab", "cd"), connections=2) as server, supervise(server) as feed:
        feed.subscribe("book")
        while feed.stats.backlog < 4:
            time.sleep(0.001)
        assert feed.stats.gaps == 1
        assert [(feed.recv(), feed.generation, feed.gaps) for _ in "abcd"][1:3] == [("b", 1, 0), ("c", 2, 1)]


@pytest.mark.parametrize(
    ("decode", "expected"),
    [
        (None, ["é", b"\xff"]),
        (False, ["é".encode(), b"\xff"]),
        (memoryview, [memoryview("é".encode()), memoryview(b"\xff")]),
    ],
)
def test_decode(decode, expected):
    def script(peer):
        peer.accept()
        peer.send(text("é") + binary(b"\xff"))
        peer.answer_close()

    with scripted(script) as server, supervise(server) as feed:
        got = [feed.recv(decode=decode) for _ in range(2)]
        assert (got, [type(message) for message in got]) == (expected, [type(one) for one in expected])


def test_binary_that_is_no_text_is_not_lost():
    def script(peer):
        peer.accept()
        peer.send(binary("é".encode()) + binary(b"\xff"))
        peer.answer_close()

    with scripted(script) as server, supervise(server) as feed:
        assert feed.recv(decode=True) == "é"
        with pytest.raises(InvalidText):
            feed.recv(decode=True)
        assert feed.recv() == b"\xff"


def test_a_timeout_loses_nothing():
    with scripted(echo) as server, supervise(server) as feed:
        for timeout in (0, 0.01, 0.1):
            start = time.monotonic()
            with pytest.raises(TimeoutError, match=f"timed out in {timeout:.1f}s"):
                feed.recv(timeout)
            assert timeout <= time.monotonic() - start < timeout + 5
        feed.send("a")
        assert feed.recv(20) == "a"
        with pytest.raises(ValueError, match="timeout must not be negative"):
            feed.recv(-1)


def test_ready_and_its_timeout():
    acks = threading.Event()

    def script(peer):
        peer.accept()
        peer.frame()
        acks.wait(20)
        peer.send(text("ack"))
        peer.answer_close()

    with scripted(script) as server, supervise(server) as feed:
        feed.subscribe("book", ack=lambda message: message == "ack")
        with pytest.raises(TimeoutError, match=r"timed out in 0\.0s"):
            feed.ready(0.01)
        acks.set()
        feed.ready(20)
        assert feed.stats.subscriptions_in == 1
        assert feed.unsubscribe("book")


def test_a_connection_is_replaced_by_call():
    def script(peer):
        peer.accept()
        peer.send(text(str(len(server.results))))
        peer.answer_close()

    rollover = Rollover(overlap=False)
    with scripted(script, connections=3) as server, supervise(server, rollover=rollover) as feed:
        assert feed.recv(20) == "0"
        feed.drop("its checksum is wrong")
        assert (feed.recv(20), feed.gaps) == ("1", 1)
        assert feed.roll_over()
        assert (feed.recv(20), feed.gaps) == ("2", 2)
        with pytest.raises(TypeError, match="reason must be a str"):
            feed.drop(3)


# ---- threads


def test_one_thread_receives_while_others_send():
    sent = {f"{i}" for i in range(30)}
    with scripted(echo) as server, supervise(server) as feed:
        feed.ready()
        with running(lambda: {feed.recv(20) for _ in sent}) as got:
            senders = [threading.Thread(target=feed.send, args=(message,)) for message in sent]
            for sender in senders:
                sender.start()
            for sender in senders:
                sender.join()
    assert got == [sent]


def test_two_threads_must_not_receive_and_close_wakes_the_one_that_does():
    with scripted(silent) as server, supervise(server) as feed:
        feed.ready()
        with running(feed.recv) as first:
            while not feed._receiving.locked():
                time.sleep(0.001)
            with pytest.raises(ConcurrencyError, match="another thread is already running recv"):
                feed.recv()
            feed.close()
        assert isinstance(first[0], ConnectionClosedOK)


def test_functions_of_the_program_run_in_the_loops_thread_and_must_not_wait():
    def ack(message):
        seen.append(threading.current_thread() is threading.main_thread())
        for wait in (feed.ready, lambda: feed.send("x"), feed.roll_over):
            try:
                wait()
            except RuntimeError as exc:
                refused.append(str(exc))
        feed.subscribe("from there")
        return True

    seen, refused = [], []
    with scripted(echo) as server, supervise(server) as feed:
        feed.subscribe("book", ack=ack)
        assert [feed.recv(20), feed.recv(20)] == ["book", "from there"]
    assert seen == [False]
    assert refused == ["a function that the supervisor calls must not wait for it"] * 3


def test_a_function_of_the_program_may_close():
    with scripted(silent) as server:
        feed = supervise(server, on_state=lambda change: change.state is State.OPEN and feed.close())
        with feed:
            assert list(feed) == []


@pytest.mark.parametrize("state", [State.CONNECTING, State.OPEN])
def test_a_function_that_exits_ends_the_threads_that_wait(state):
    async def lingers():
        try:
            await asyncio.sleep(3600)
        finally:
            try:
                await asyncio.sleep(0.05)
            finally:
                lingered.append(state)

    def exits(change):
        if change.state is State.CONNECTING:
            tasks.append(asyncio.ensure_future(lingers()))
        if change.state in (state, State.CLOSED):  # and once more, while the thread ends
            raise SystemExit(3)

    tasks, lingered = [], []

    def script(peer):
        with suppress(EOFError, ConnectionError):
            silent(peer)

    with scripted(script) as server:
        feed = supervise(server, on_state=exits)
        feed.subscribe("book", ack=lambda message: False)
        with feed:
            with running(feed.recv) as got, pytest.raises(SystemExit):
                feed.ready()
            assert isinstance(got[0], SystemExit)
            with pytest.raises(SystemExit):
                feed.send("x")
    # The task has ended before the loop was closed. In the state CONNECTING it may not have begun.
    assert lingered == [state] or state is State.CONNECTING


# ---- what a slow program holds


@pytest.mark.parametrize("size", [1000, 100_000])
def test_a_slow_program_makes_the_server_wait(size):
    sent = []

    def script(peer):
        peer.accept()
        peer.sock.settimeout(0.5)
        with suppress(TimeoutError):
            while True:
                peer.send(binary(len(sent).to_bytes(4, "big") * (size // 4)))
                sent.append(1)
        peer.sock.settimeout(20)
        stalled.set()
        peer.answer_close()

    stalled = threading.Event()
    with scripted(script, buffer=65536) as server, supervise(server, max_size=None) as feed:
        assert stalled.wait(30)
        held = [len(message) for message, _, _ in feed._box.messages]
        assert len(held) <= _MOST_MESSAGES
        assert 0 < sum(held) <= _MOST_BYTES + size
        # The last one may have left in part. All others come, in order.
        assert [feed.recv(20)[:4] for _ in sent] == [i.to_bytes(4, "big") for i in range(len(sent))]


def test_many_small_messages_all_arrive():
    def script(peer):
        peer.accept()
        peer.send(b"".join(text(str(i)) for i in range(10_000)))
        peer.answer_close()

    with scripted(script) as server, supervise(server) as feed:
        assert [feed.recv(20) for _ in range(10_000)] == [str(i) for i in range(10_000)]


def test_messages_that_came_before_close_remain():
    def script(peer):
        peer.accept()
        peer.send(b"".join(text(str(i)) for i in range(70)))
        peer.answer_close()

    with scripted(script) as server, supervise(server) as feed:
        assert feed.recv(20) == "0"
        while feed.stats.backlog < 69:
            time.sleep(0.001)
        feed.close()
        assert list(feed) == [str(i) for i in range(1, 70)]
        with pytest.raises(ConnectionClosedOK):
            feed.recv()


# ---- the end


def test_the_reason_for_giving_up_is_raised_everywhere():
    with wsfast.sync.supervise("ws://127.0.0.1:1/", max_attempts=1) as feed:
        for call in (feed.recv, feed.ready, lambda: feed.send("x"), lambda: list(feed), feed.ready):
            with pytest.raises(ConnectionRefusedError):
                call()
        assert feed.state is State.CLOSED


def test_a_normal_end_may_be_the_reason_for_giving_up():
    """It does not pass for an iteration that the program has ended."""

    def script(peer):
        peer.accept()
        peer.send(text("a") + close(1000))

    with scripted(script) as server, supervise(server, classify=lambda error: Decision.GIVE_UP) as feed:
        messages = iter(feed)
        assert next(messages) == "a"
        with pytest.raises(ConnectionClosedOK):
            next(messages)


def test_after_the_end_calls_say_so():
    with scripted(silent) as server:
        with supervise(server) as feed:
            feed.ready()
        for call in (
            feed.recv,
            feed.ready,
            lambda: feed.send("x"),
            lambda: feed.subscribe("x"),
            feed.roll_over,
        ):
            with pytest.raises(ConnectionClosedOK):
                call()
        feed.close()
        with pytest.raises(RuntimeError, match="only once"), feed:
            pass


def test_before_the_beginning():
    feed = wsfast.sync.supervise("ws://127.0.0.1:1/")
    feed.subscribe("book")
    for call in (feed.recv, feed.ready, lambda: feed.send("x")):
        with pytest.raises(RuntimeError, match="must be entered"):
            call()
    feed.close()
    with pytest.raises(ConnectionClosedOK):
        feed.recv()
    with pytest.raises(RuntimeError, match="only once"), feed:
        pass


def test_options_are_checked_at_once():
    with pytest.raises(TypeError, match="max_silence"):
        wsfast.sync.supervise("ws://127.0.0.1:1/", max_silence="1")
    with pytest.raises(TypeError, match="listener_factory"):
        wsfast.sync.supervise("ws://127.0.0.1:1/", listener_factory=wsfast.WSListener)


def test_one_that_is_not_closed_warns_and_ends():
    with scripted(lambda peer: (peer.accept(), peer.rest())) as server:
        feed = supervise(server).__enter__()
        feed.ready()
        thread = feed._thread
        with pytest.warns(ResourceWarning, match="unclosed <BlockingSupervisor open>"):
            del feed
        thread.join(20)
        assert not thread.is_alive()


EXITS = """
import atexit, sys, threading
atexit.register(lambda: print(feed._thread.is_alive()))  # called last
import wsfast.sync

feed = wsfast.sync.supervise(sys.argv[1]).__enter__()
feed.ready()
if sys.argv[2:]:
    started, ended = threading.Event(), []

    def receive():
        started.set()
        try:
            feed.recv()
        except BaseException as exc:
            ended.append(exc)

    receiver = threading.Thread(target=receive, daemon=sys.argv[2] == "daemon")
    receiver.start()
    started.wait()
    if sys.argv[2] == "closed":
        feed.close()
        receiver.join()
        print(type(ended[0]).__name__)
"""


@pytest.mark.parametrize("_loops", ["asyncio"], indirect=True)
@pytest.mark.parametrize("way", [[], ["daemon"], ["closed"]])
def test_an_interpreter_that_exits_is_not_held_up(way):
    def script(peer):
        peer.accept()
        with suppress(EOFError, ConnectionError):
            return peer.answer_close().opcode

    with scripted(script) as server:
        done = subprocess.run(
            [sys.executable, "-W", "ignore::ResourceWarning", "-c", EXITS, server.url, *way],
            capture_output=True,
            text=True,
            timeout=40,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("ConnectionClosedOK\nFalse\n" if way == ["closed"] else "False\n")
    assert server.result() == (CLOSE if way == ["closed"] else None)


def test_a_forked_child_says_that_it_has_no_feed():
    with scripted(echo) as server, supervise(server) as feed:
        feed.ready()
        pid = os.fork()
        if not pid:
            code = 0
            for call in (feed.recv, feed.ready, lambda: feed.send("x")):
                try:
                    call()
                except RuntimeError as exc:
                    code += "fork" in str(exc)
            feed.close()
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
        feed.send("parent")
        assert feed.recv(20) == "parent"


# ---- signals


class Interrupt(Exception):  # noqa: N818
    pass


@pytest.fixture
def interrupt():
    """Calls a function, and raises Interrupt in it, as soon as it may wait."""

    def handler(signum, stack):
        raise Interrupt

    def during(function):
        main, is_over = threading.get_ident(), threading.Event()

        def fire():
            # Not too soon: a call that has not begun to wait is interrupted, too, and shows less.
            if not is_over.wait(0.1):
                signal.pthread_kill(main, signal.SIGUSR1)

        thread = threading.Thread(target=fire)
        thread.start()
        try:
            with pytest.raises(Interrupt):
                function()
        finally:
            is_over.set()
            thread.join()

    previous = signal.signal(signal.SIGUSR1, handler)
    yield during
    signal.signal(signal.SIGUSR1, previous)


def test_a_handler_that_raises_gets_out_of_every_call_that_waits(interrupt):
    opened = threading.Event()

    def script(peer):
        opened.wait(20)
        echo(peer)

    with scripted(script) as server, supervise(server) as feed:
        for call in (feed.recv, feed.ready, lambda: feed.send("never"), feed.__iter__().__next__):
            interrupt(call)
        with pytest.raises(SendExpired):
            feed.send("stale", ttl=0.01)
        opened.set()
        feed.send("after")
        assert feed.recv(20) == "after"


def test_a_handler_that_raises_in_close_drops_the_connection(interrupt):
    with scripted(lambda peer: (peer.accept(), peer.rest())) as server:
        with supervise(server, close_timeout=1000) as feed:
            feed.ready()
            interrupt(feed.close)
        assert feed.state is State.CLOSED


def test_handlers_that_raise_at_any_moment_lose_no_message():
    """The server sends one message after another, and signals come all the time."""

    def handler(signum, stack):
        if armed:
            raise Interrupt

    def fire():
        while not stop.wait(0.0003):
            signal.pthread_kill(main, signal.SIGUSR1)

    def script(peer):
        peer.accept()
        for i in range(3000):
            peer.send(text(str(i)))
        with suppress(EOFError):
            peer.send(frame(CLOSE, peer.close_frame().payload))

    armed, stop, main = [], threading.Event(), threading.get_ident()
    previous = signal.signal(signal.SIGUSR1, handler)
    thread = threading.Thread(target=fire)
    interrupts = 0
    try:
        with scripted(script) as server, supervise(server) as feed:
            thread.start()
            got = []
            while len(got) < 3000:
                try:
                    armed.append(1)
                    # Taken and kept in one step: an exception between two would lose it here.
                    got.extend(map(feed.recv, [20]))
                    armed.clear()
                except Interrupt:
                    interrupts += 1
                    armed.clear()
            stop.set()
            thread.join()
    finally:
        stop.set()
        signal.signal(signal.SIGUSR1, previous)
    assert got == [str(i) for i in range(3000)]
    assert interrupts
