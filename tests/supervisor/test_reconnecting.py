"""A supervisor connects again: the time, the target, and its notifications."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import threading
import time
from collections import deque
from contextlib import suppress

import pytest
from support.frames import text, texts
from support.servers import serve
from support.sessions import close, idle, say, sessions, supervise

import wsfast
from wsfast import ConnectionClosedOK, InvalidStatus, WSListener
from wsfast.supervisor import ConnectLimit, Decision, State


async def received(feed, number):
    return [await feed.recv() for _ in range(number)]


class Listener(WSListener):
    payload_type = str
    got: list[str]

    def on_ws_message(self, transport, msg_type, payload):
        self.got.append(payload)
        self.more.set()


def listening():
    """A class of listeners that share what they get."""
    return type("Listening", (Listener,), {"got": [], "more": asyncio.Event()})


async def until(listener, number):
    while len(listener.got) < number:
        listener.more.clear()
        await listener.more.wait()
    return listener.got


async def says_and_closes(peer):
    peer.send(texts(f"{peer.number}a", f"{peer.number}b"))
    await close(peer)


async def test_it_goes_on_from_connection_to_connection():
    async with sessions(says_and_closes) as server, supervise(server.url) as feed:
        got = []
        async for message in feed:
            got.append((feed.generation, message))
            if len(got) == 6:
                break
        assert got == [(n, f"{n}{x}") for n in (1, 2, 3) for x in "ab"]
        assert feed.stats.gaps >= 2
        assert feed.stats.failures["ConnectionClosedError"] >= 2


async def test_listeners_get_each_connection_in_turn():
    listener = listening()
    async with sessions(says_and_closes, idle) as server, supervise(server.url, listener) as feed:
        assert await until(listener, 2) == ["1a", "1b"]
        while feed.stats.connects < 2:
            await feed.ready()
            await asyncio.sleep(0)
        with pytest.raises(TypeError, match="listener"):
            await feed.recv()


async def test_iterating_and_receiving_may_alternate():
    async with sessions(says_and_closes) as server, supervise(server.url) as feed:
        assert await feed.recv(decode=False) == b"1a"
        assert await anext(feed) == "1b"
        assert bytes(await feed.recv(memoryview)) == b"2a"
        assert await feed.recv() == "2b"
        assert await anext(feed) == "3a"


async def test_states_are_told_with_their_causes():
    changes = []
    async with (
        sessions(says_and_closes, idle) as server,
        supervise(server.url, on_state=changes.append) as feed,
    ):
        await received(feed, 2)
        while feed.stats.connects < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await feed.ready()
        assert feed.state is State.OPEN
        assert feed.cause is None
        assert feed.next_attempt is None
    states = [change.state for change in changes]
    connect = [State.CONNECTING, State.OPEN]
    assert states == [*connect, State.WAITING, *connect, State.CLOSED]
    waiting = changes[2]
    assert waiting.cause.code == 1012
    assert waiting.next_attempt is not None
    assert [change.previous for change in changes[1:]] == states[:-1]


async def refuse(peer, status=b"503 Busy", headers=b""):
    await peer.read_request()
    peer.send(b"HTTP/1.1 " + status + b"\r\n" + headers + b"Content-Length: 0\r\n\r\n")


async def test_it_tries_again_after_503_and_gives_up_after_401():
    async def handler(peer):
        attempts.append(1)
        await refuse(peer, b"503 Busy" if len(attempts) < 4 else b"401 Unauthorized")

    attempts = []
    async with serve(handler) as server, supervise(server.url) as feed:
        with pytest.raises(InvalidStatus) as raised:
            await feed.recv()
        assert raised.value.response.status_code == 401
        with pytest.raises(InvalidStatus):
            await feed.ready()
        with pytest.raises(InvalidStatus):
            await feed.send("x")
        with pytest.raises(InvalidStatus):
            await feed.wait_closed()
        assert feed.state is State.CLOSED
        assert feed.stats.failures == {"InvalidStatus": 4}
        assert not await feed.roll_over()


async def test_retry_after_is_waited_for():
    async def handler(peer):
        await refuse(peer, b"429 Slow down", b"Retry-After: 100\r\n")

    async with serve(handler) as server:
        waiting = asyncio.get_running_loop().create_future()

        def on_state(change):
            if change.state is State.WAITING and not waiting.done():
                waiting.set_result(change)

        async with supervise(server.url, on_state=on_state) as feed:
            change = await waiting
            left = feed.next_attempt - asyncio.get_running_loop().time()
            assert 90 < left <= 100
            assert change.next_attempt == feed.next_attempt


async def test_it_gives_up_after_so_many_attempts_by_the_last_error():
    async def accept_and_close(peer):
        await close(peer)

    async with sessions(accept_and_close) as server, supervise(server.url, max_attempts=3) as feed:
        with pytest.raises(wsfast.ConnectionClosedError):
            await feed.recv()
        assert feed.stats.connects == 3


async def test_a_classifier_decides():
    errors = []

    def classify(error):
        errors.append(type(error).__name__)
        return Decision.TRY_AGAIN if len(errors) < 3 else Decision.GIVE_UP

    async def handler(peer):
        await refuse(peer, b"401 Unauthorized")

    async with serve(handler) as server, supervise(server.url, classify=classify) as feed:
        with pytest.raises(InvalidStatus):
            await feed.recv()
    assert errors == ["InvalidStatus"] * 3


async def test_a_classifier_that_raises_decides_nothing(caplog):
    def classify(error):
        raise RuntimeError("a bug")

    async def handler(peer):
        await refuse(peer, b"401 Unauthorized")

    async with serve(handler) as server, supervise(server.url, classify=classify) as feed:
        with pytest.raises(InvalidStatus):
            await feed.recv()
        assert feed.stats.callback_errors == 1


async def test_urls_are_tried_in_order():
    async with (
        serve(refuse) as busy,
        sessions(say("here")) as server,
        supervise([busy.url, server.url]) as feed,
    ):
        assert await feed.recv() == "here"


async def test_each_attempt_asks_for_url_and_headers():
    async def token():
        asked.append(1)
        await asyncio.sleep(0)
        if len(asked) == 1:
            raise KeyError("no token yet")
        return server.url + f"key{len(asked)}", {"additional_headers": {"X-Token": str(len(asked))}}

    async def script(peer):
        requests.append(peer.request)
        await close(peer)

    asked, requests = [], []
    async with sessions(script) as server, supervise(token, max_attempts=4) as feed:
        with pytest.raises(wsfast.ConnectionClosedError):
            await feed.recv()
        assert feed.stats.failures == {"KeyError": 1, "ConnectionClosedError": 3}
    for number, request in enumerate(requests, 2):
        assert b"GET /key%d " % number in request
        assert b"X-Token: %d" % number in request


@pytest.mark.parametrize("wrong", [5, None, ("ws://x",), b"ws://x"])
async def test_a_function_that_returns_no_url_is_given_up(wrong):
    async with supervise(lambda: wrong) as feed:
        with pytest.raises(TypeError, match="must return"):
            await feed.ready()


async def test_a_function_that_never_returns_takes_no_longer_than_open_timeout():
    async with supervise(asyncio.Event().wait, open_timeout=0.01, max_attempts=2) as feed:
        with pytest.raises(TimeoutError, match="function that returns the URL took longer"):
            await feed.ready()


def test_wrong_options_of_a_connection_are_refused_at_once():
    for arguments in ((), (WSListener,)):
        for name in ("max_silense", "uri", "url", "ws_listener_factory"):
            with pytest.raises(TypeError, match=name):
                supervise("ws://127.0.0.1:1/", *arguments, **{name: 3})


@pytest.mark.parametrize(
    "url", ["wss://localhost", ["wss://localhost", "wss://127.0.0.1"], lambda: "wss://localhost"]
)
@pytest.mark.parametrize(
    ("listener", "wrong"),
    [
        ((), {"max_queue": -1}),
        ((), {"additional_headers": {"a": "b\n"}}),
        ((), {"ssl": 3}),
        ((WSListener,), {"max_frame_size": -1}),
        ((WSListener,), {"additional_headers": {"a": "b\n"}}),
        ((WSListener,), {"ssl": 3}),
        ((WSListener,), {"family": "x"}),
        ((WSListener,), {"open_timeout": "x"}),
        ((WSListener,), {"subprotocols": "x"}),
    ],
)
def test_wrong_values_are_refused_at_once(url, listener, wrong):
    supervise(url, *listener, ssl_handshake_timeout=3, server_hostname="x")
    with pytest.raises((TypeError, ValueError), match=next(iter(wrong)).replace("additional_h", "h")):
        supervise(url, *listener, **wrong)


@pytest.mark.parametrize("listener", [(), (WSListener,)])
async def test_iterators_among_the_options_are_kept(listener):
    async def handler(peer):
        await peer.accept()
        requests.append(peer.request)
        await close(peer)

    requests = []
    async with serve(handler) as server:
        async with supervise(server.url, *listener, additional_headers=iter([("X-Token", "secret")])) as feed:
            while feed.stats.connects < 2:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert all(b"x-token: secret" in request.lower() for request in requests), requests


def test_wrong_arguments_are_refused_at_once():
    for options in ({"window": 5}, {"max_silence": -1}, {"on_state": 1}, {"remember": 0}, {"heartbeat": "x"}):
        with pytest.raises((TypeError, ValueError), match=next(iter(options))):
            supervise("ws://x/", **options)


async def test_what_is_left_is_received_after_close():
    async with sessions(say("a", "b")) as server:
        async with supervise(server.url) as feed:
            assert await feed.recv() == "a"
        assert feed.state is State.CLOSED
        assert await feed.recv() == "b"
        with pytest.raises(ConnectionClosedOK):
            await feed.recv()
        assert [message async for message in feed] == []
        with pytest.raises(ConnectionClosedOK):
            await feed.send("x")
        await feed.close()
        with pytest.raises(RuntimeError, match="once"):
            await feed.__aenter__()


async def test_a_program_that_does_not_receive_is_not_connected_without_end():
    async with sessions(says_and_closes) as server, supervise(server.url, max_attempts=50) as feed:
        while feed.stats.connects < 3:  # noqa: ASYNC110
            await asyncio.sleep(0)
        for _ in range(50):
            await asyncio.sleep(0)
        assert feed.stats.connects == 3
        assert await received(feed, 6) == ["1a", "1b", "2a", "2b", "3a", "3b"]
        assert await feed.recv() == "4a"


async def test_an_exception_of_the_listener_is_not_repeated(caplog):
    class Buggy(WSListener):
        def on_ws_frame(self, transport, frame):
            raise ZeroDivisionError

    async with sessions(say("x")) as server, supervise(server.url, Buggy) as feed:
        with pytest.raises(ZeroDivisionError):
            await feed.wait_closed()
        assert feed.stats.connects == 1
    assert "closed: ZeroDivisionError: " in [record.getMessage() for record in caplog.records]


async def test_two_tasks_cannot_receive():
    async with sessions(idle) as server, supervise(server.url) as feed:
        first = asyncio.ensure_future(feed.recv())
        await asyncio.sleep(0)
        with pytest.raises(wsfast.exceptions.ConcurrencyError):
            await feed.recv()
        await feed.ready()
        with pytest.raises(wsfast.exceptions.ConcurrencyError):
            await feed.recv()
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first


async def test_a_cancelled_recv_loses_nothing():
    async def script(peer):
        await peer.frame()
        await says_and_closes(peer)

    async with sessions(script) as server, supervise(server.url) as feed:
        for number in (1, 2):
            task = asyncio.ensure_future(feed.recv())
            await feed.ready()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await feed.send("go")
            assert await received(feed, 2) == [f"{number}a", f"{number}b"]


# ---- callbacks of the program


async def test_on_state_may_close_the_supervisor():
    def on_state(change):
        if change.state is State.OPEN:
            closing.append(asyncio.ensure_future(feed.close()))

    closing = []
    async with sessions(idle) as server, supervise(server.url, on_state=on_state) as feed:
        with pytest.raises(ConnectionClosedOK):
            await feed.recv()
        await asyncio.gather(*closing)


async def test_on_state_may_do_anything(caplog):
    def on_state(change):
        states.append(change.state)
        feed.subscribe(f"{len(states)}")
        sends.append(asyncio.ensure_future(feed.send("x")))
        if change.state is State.OPEN:
            receiving.cancel()
            feed.abort()
        raise asyncio.CancelledError

    states, sends = [], []
    async with sessions(idle) as server:
        feed = supervise(server.url, on_state=on_state)
        async with feed:
            receiving = asyncio.ensure_future(feed.recv())
            await feed.wait_closed()
            await asyncio.gather(*sends, return_exceptions=True)
            with suppress(asyncio.CancelledError):
                await receiving
        assert states == [State.CONNECTING, State.OPEN, State.CLOSED]
        assert feed.stats.callback_errors == 3
        logged = [record for record in caplog.records if "on_state" in record.getMessage()]
        assert len(logged) == 1


async def test_the_url_function_may_close_the_supervisor():
    async def url():
        await feed.close()
        return "ws://127.0.0.1:1/"

    async with supervise(url) as feed:
        with pytest.raises(ConnectionClosedOK):
            await feed.recv()


async def test_abort_at_any_state():
    async with serve(lambda peer: peer.read_request()) as server, supervise(server.url) as feed:
        feed.abort()
        feed.abort()
        await feed.wait_closed()
    feed = supervise("ws://127.0.0.1:1/")
    feed.abort()
    with pytest.raises(ConnectionClosedOK):
        await feed.recv()


def test_a_loop_that_ends_leaves_nothing_behind():
    async def main():
        async with sessions(idle) as server:
            feed = await supervise(server.url).__aenter__()
            await feed.ready()
            return feed

    async def in_a_task():
        feed = await supervise("ws://127.0.0.1:1/", delays=lambda: iter([1000.0])).__aenter__()
        while feed.state is not State.WAITING:  # noqa: ASYNC110
            await asyncio.sleep(0)
        return feed

    assert asyncio.run(main()).state is State.CLOSED
    assert asyncio.run(in_a_task()).state is State.CLOSED


async def test_the_log_is_structured(caplog):
    caplog.set_level(logging.INFO, "wsfast.client")
    async with sessions(says_and_closes, idle) as server, supervise(server.url) as feed:
        await received(feed, 2)
        while feed.stats.connects < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await feed.ready()
    records = [record for record in caplog.records if hasattr(record, "previous")]
    states = ["connecting", "open", "waiting", "connecting", "open", "closed"]
    assert [record.state for record in records] == states
    assert records[2].cause.code == 1012
    assert records[1].connection == 1


async def test_text_of_a_frame_split_in_two_is_one_message():
    """A function that inspects messages gets whole messages, compressed or not."""
    from support.frames import CONTINUATION, frame

    seen = []

    async def script(peer):
        peer.send(text("ab", fin=False) + frame(CONTINUATION, "cd") + text("ef"))
        await idle(peer)

    async with sessions(script) as server, supervise(server.url, topic=seen.append) as feed:
        assert await received(feed, 2) == ["abcd", "ef"]
    assert seen == ["abcd", "ef"]


def most_in_any(times, per):
    return max(sum(1 for time in times if begin <= time < begin + per) for begin in times)


def times_of(limit):
    """The limit's own times of all attempts. A busy machine may stop the process between those and any others."""

    class Begun(deque):
        def append(self, at):
            times.append(at)
            super().append(at)

    times, limit._begun = [], Begun(maxlen=limit.limit)
    return times


async def test_attempts_begin_in_their_order_and_no_more_than_allowed():
    numbers = []

    async def attempt(number):
        await limit.wait()
        numbers.append(number)

    limit = ConnectLimit(4, 0.1)
    begun = times_of(limit)
    await asyncio.gather(*map(attempt, range(15)))
    assert numbers == list(range(15))
    assert most_in_any(begun, 0.1) == 4
    assert begun[-1] - begun[0] < 3  # 0.3, on an idle machine


async def test_a_cancelled_attempt_takes_no_place():
    limit = ConnectLimit(1, 0.05)
    await limit.wait()
    others = [asyncio.ensure_future(limit.wait()) for _ in range(200)]
    last = asyncio.ensure_future(limit.wait())
    await asyncio.sleep(0)
    for other in others:
        other.cancel()
    await last  # it moves up: after 0.05 seconds, not after 10
    assert len(limit._begun) == 1
    assert not limit._waiting


async def test_all_attempts_of_all_supervisors_count():
    """Also those that fail, and those that follow them."""

    async def script(peer):
        arrived.append(time.monotonic())
        if peer.number > 3:
            await idle(peer)

    arrived, limit, began = [], ConnectLimit(2, 0.1), time.monotonic()
    async with sessions(script) as server:
        feeds = [supervise(server.url, connects=limit) for _ in range(4)]
        for feed in feeds:
            await feed.__aenter__()
        while len(arrived) < 7:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert [len(limit._begun), len(limit._waiting)] == [2, 0]
        for feed in feeds:
            await feed.close()
    assert arrived[6] - began > 0.3  # 7 attempts: 2 at once, 5 in three more windows
    with pytest.raises(TypeError, match="connects"):
        supervise("ws://x/", connects=(300, 300))


def test_threads_share_it_and_a_blocked_one_loses_its_turn():
    """The first in the queue has a loop that never runs again."""
    limit = ConnectLimit(1, 0.05)

    async def attempts():
        for _ in range(5):
            await limit.wait()

    stuck = asyncio.new_event_loop()
    begun_already = stuck.create_task(limit.wait())
    stuck.run_until_complete(begun_already)
    waiting = stuck.create_task(limit.wait())
    stuck.run_until_complete(asyncio.sleep(0))
    begun = times_of(limit)
    threads = [threading.Thread(target=asyncio.run, args=(attempts(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(begun) == 15
    assert min(later - sooner for sooner, later in itertools.pairwise(begun)) >= 0.05
    stuck.run_until_complete(waiting)  # it has kept its place in the queue
    stuck.close()


def test_an_abandoned_attempt_leaves_the_queue():
    """A loop is closed with an attempt that waits, and the collector closes its coroutine."""
    limit, loop = ConnectLimit(1, 60), asyncio.new_event_loop()
    loop.run_until_complete(limit.wait())
    waiting = limit.wait()
    loop.call_soon(waiting.send, None)
    loop.run_until_complete(asyncio.sleep(0))
    assert len(limit._waiting) == 1
    loop.close()
    del waiting
    gc.collect()
    assert not limit._waiting


@pytest.mark.parametrize(
    ("error", "arguments"),
    [(ValueError, (0, 1)), (TypeError, ("1", 1)), (ValueError, (1, 0)), (TypeError, (1, None))],
)
def test_wrong_limits_are_refused(error, arguments):
    with pytest.raises(error):
        ConnectLimit(*arguments)
