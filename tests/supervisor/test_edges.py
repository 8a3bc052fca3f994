"""A supervisor survives functions of the program that misbehave, storms, and wrong use."""

from __future__ import annotations

import asyncio
import copy
import pickle
import sys
import threading
import time

import pytest
from support import frames
from support.frames import CLOSE, TEXT, text
from support.servers import serve
from support.sessions import close, idle, say, sessions, supervise

from wsfast import Tuning, WSListener
from wsfast.supervisor import Heartbeat, Rollover, State


async def closed_within(feed, seconds=5.0):
    await asyncio.wait_for(feed.close(), seconds)
    assert feed.state is State.CLOSED


# ---- cancellation


async def test_closing_as_the_url_function_returns():
    """Up to Python 3.11, asyncio.wait_for() swallows a cancellation at that moment."""

    async def url():
        asyncio.get_running_loop().call_soon(feed.abort)
        return server.url

    async with sessions(idle) as server, supervise(url) as feed:
        await asyncio.wait_for(feed.wait_closed(), 5)
        assert feed.stats.connects == 0


async def test_closing_while_a_function_swallows_the_cancellation():
    async def headers():
        asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return {}

    asked = asyncio.Event()
    async with sessions(idle) as server, supervise(server.url, additional_headers=headers) as feed:
        await asked.wait()
        await closed_within(feed)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="cannot be told from the end of the loop")
@pytest.mark.parametrize("where", ["url", "headers"])
async def test_a_function_that_raises_cancellederror_does_not_close_the_supervisor(where):
    async def cancelled(*_):
        raise asyncio.CancelledError

    async def url():
        if not asked:
            asked.append(1)
            raise asyncio.CancelledError
        return server.url

    asked = []
    async with sessions(idle) as server:
        if where == "url":
            async with supervise(url) as feed:
                await feed.ready()
                assert feed.stats.failures == {"RuntimeError": 1}
        else:
            async with supervise(server.url, additional_headers=cancelled) as feed:
                with pytest.raises(RuntimeError, match="was cancelled"):
                    await feed.ready()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="cannot be told from the end of the loop")
async def test_a_listener_that_raises_cancellederror_does_not_end_it_silently():
    class Cancelled(WSListener):
        def on_ws_frame(self, transport, frame):
            raise asyncio.CancelledError

    async with sessions(say("x")) as server, supervise(server.url, Cancelled) as feed:
        with pytest.raises(RuntimeError, match="was cancelled"):
            await asyncio.wait_for(feed.wait_closed(), 5)


async def test_closing_twice_does_not_cut_the_closing_short():
    async def script(peer):
        sent = await peer.frame()
        closing.set()
        await again.wait()
        peer.send(text("last") + frames.frame(CLOSE, sent.payload))

    closing, again = asyncio.Event(), asyncio.Event()
    async with sessions(script) as server, supervise(server.url) as feed:
        await feed.ready()
        first = asyncio.ensure_future(feed.close())
        await closing.wait()
        second = asyncio.ensure_future(feed.close())
        await asyncio.sleep(0)
        again.set()
        await asyncio.gather(first, second)
        assert await feed.recv() == "last"


# ---- sending


async def test_a_function_that_makes_a_message_may_subscribe():
    async def script(peer):
        while (sent := await peer.frame()).opcode == TEXT:
            got.append(sent.payload)
            if len(got) == 2:
                both.set()
        peer.send(frames.frame(CLOSE, sent.payload))

    def message():
        feed.subscribe("second")
        return "first"

    got, both = [], asyncio.Event()
    async with sessions(script) as server:
        feed = supervise(server.url)
        feed.subscribe(message, key="first")
        async with feed:
            await asyncio.wait_for(both.wait(), 5)
    assert got == [b"first", b"second"]


async def test_sends_that_are_cancelled_are_forgotten():
    async with supervise("ws://127.0.0.1:1/", delays=lambda: iter([1000.0])) as feed:
        for _ in range(3):
            task = asyncio.ensure_future(feed.send("x"))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        assert not feed._shared.messages


async def test_a_program_that_only_sends_is_connected_again_and_again():
    async def script(peer):
        await peer.frame()
        await close(peer)

    async with sessions(script) as server, supervise(server.url) as feed:
        for number in range(1, 6):
            while feed.stats.connects < number:
                await asyncio.wait_for(feed.ready(), 5)
                await asyncio.sleep(0)
            await asyncio.wait_for(feed.send("x"), 5)


async def test_a_subscription_that_was_replaced_is_not_the_new_one():
    feed = supervise("ws://x/")
    old, new = feed.subscribe("a", key="k"), feed.subscribe("b", key="k")
    assert not feed.unsubscribe(old)
    assert feed.subscriptions == [new]
    assert feed.unsubscribe(new)


# ---- a queue that is full

narrow = {"max_queue": 4, "tuning": Tuning(max_read_size=4096)}


def behind(number, *after):
    """The server acknowledges the subscription only after so many messages."""

    async def script(peer):
        await peer.frame()
        peer.send(b"".join(text(message) for message in ["m"] * number + ["ack", *after]))
        await idle(peer)

    return script


async def test_an_acknowledgement_behind_messages_that_nobody_receives():
    async with sessions(behind(5000)) as server, supervise(server.url, **narrow) as feed:
        feed.subscribe("s", ack=lambda message: message == "ack")
        await asyncio.wait_for(feed.ready(), 5)


async def test_the_queue_is_limited_again_once_subscriptions_are_in():
    async with sessions(behind(1, *["m"] * 100_000)) as server:
        async with supervise(server.url, **narrow) as feed:
            feed.subscribe("s", ack=lambda message: message == "ack")
            await feed.ready()
            while not feed.connection.backlog.paused:  # noqa: ASYNC110
                await asyncio.sleep(0)
            assert feed.connection.backlog.depth < 4096


async def test_a_pong_does_not_end_the_wait_for_an_acknowledgement():
    async def script(peer):
        await peer.frame()
        ping = await peer.frame()
        peer.send(frames.frame(frames.PONG, ping.payload))
        await go.wait()
        await behind_ack(peer)

    async def behind_ack(peer):
        peer.send(b"".join(text(message) for message in ["m"] * 5000 + ["ack"]))
        await idle(peer)

    go = asyncio.Event()
    async with sessions(script) as server, supervise(server.url, **narrow) as feed:
        feed.subscribe("s", ack=lambda message: message == "ack")
        while feed.connection is None:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await (await feed.connection.ping())
        go.set()
        await asyncio.wait_for(feed.ready(), 5)


async def test_a_reply_that_waits_in_the_socket_is_no_missed_heartbeat():
    """The program keeps the event loop busy for longer than the time-out, with a message that came before the reply."""

    async def script(peer):
        await peer.frame()
        peer.send(text("x" * 100) * 100 + text("pong"))
        await idle(peer)

    def is_reply(message):
        if message == "pong":
            replied.set()
        return message == "pong"

    replied = asyncio.Event()
    options = {
        "heartbeat": Heartbeat(0.05, "ping", is_reply),
        "max_queue": None,
        "tuning": Tuning(max_read_size=4096),
    }
    async with sessions(script) as server, supervise(server.url, **options) as feed:
        await feed.recv()
        time.sleep(0.2)  # noqa: ASYNC251
        await replied.wait()
        assert feed.stats.failures == {}


async def test_a_topic_that_waits_in_the_socket_is_not_silent():
    async def script(peer):
        await peer.frame()  # the subscription
        peer.send(text("a"))
        await peer.frame()
        peer.send(text("b" * 100) * 400 + text("a last"))
        await idle(peer)

    def topic(message):
        if message == "a last":
            heard.set()
        return message[0]

    heard = asyncio.Event()
    options = {"topic": topic, "max_queue": None, "tuning": Tuning(max_read_size=4096)}
    async with sessions(script) as server, supervise(server.url, **options) as feed:
        feed.subscribe("a", key="a", max_silence=0.1)
        assert await feed.recv() == "a"
        while not feed._life.line.liveness._topics_at:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await feed.send("more")
        await feed.recv()
        time.sleep(0.3)  # noqa: ASYNC251
        await asyncio.wait_for(heard.wait(), 5)
        assert feed.stats.failures == {}


# ---- servers


async def test_a_server_that_closes_and_keeps_tcp_open_delays_nothing_for_long():
    async def keeps_open(peer):
        peer.send(frames.close(1012))
        await peer.rest()

    async with sessions(keeps_open, say("x")) as server, supervise(server.url, close_timeout=3600) as feed:
        assert await asyncio.wait_for(feed.recv(), 30) == "x"


class Announcing:
    """A server that announces its end, again and again."""

    def __init__(self, after_first=None):
        self.attempts = 0
        self.after_first = after_first
        self.again = asyncio.Event()

    async def __call__(self, peer):
        self.attempts += 1
        if self.attempts > 1:
            self.again.set()
            if self.after_first is not None:
                await peer.read_request()
                peer.send(self.after_first)
                return
        await peer.accept()
        while not peer.writer.is_closing():
            peer.send(text("shutdown"))
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("asked", [b"", b"Retry-After: 1000\r\n"])
async def test_announcements_are_no_reason_to_call_a_server_that_refuses(asked):
    refusal = b"HTTP/1.1 429 Slow down\r\n" + asked + b"Content-Length: 0\r\n\r\n"
    server = Announcing(refusal)
    retry = 0.01 if asked else 1000
    rollover = Rollover(when=lambda message: message == "shutdown", retry=retry)
    async with serve(server) as served, supervise(served.url, rollover=rollover, close_timeout=0.1) as feed:
        while feed.stats.rollovers_failed < 1:
            await feed.recv()
        for _ in range(100):
            assert await feed.recv() == "shutdown"
        assert server.attempts == 2


async def test_a_reconnect_after_a_refused_rollover_waits_as_long_as_the_server_asked():
    async def handler(peer):
        attempts.append(1)
        if len(attempts) == 1:
            await peer.accept()
            await refused.wait()
            await close(peer)
        else:
            await peer.read_request()
            peer.send(b"HTTP/1.1 429 Slow down\r\nRetry-After: 1000\r\nContent-Length: 0\r\n\r\n")

    attempts, refused = [], asyncio.Event()
    async with serve(handler) as server, supervise(server.url) as feed:
        await feed.ready()
        assert not await feed.roll_over()
        refused.set()
        while feed.next_attempt is None:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert feed.next_attempt > asyncio.get_running_loop().time() + 900


async def test_servers_that_announce_their_end_one_after_the_other_are_not_called_at_once():
    def delays():
        yield 0.0
        while True:
            yield 1000.0

    server = Announcing()
    rollover = Rollover(when=lambda message: message == "shutdown", timeout=0.01, drain_timeout=0.01)
    options = {"rollover": rollover, "delays": delays, "close_timeout": 0.1}
    async with serve(server) as served, supervise(served.url, **options) as feed:
        while feed.generation < 3:
            await feed.recv()
        for _ in range(100):
            await feed.recv()
        assert server.attempts == 3


# ---- wrong use


async def test_it_is_not_copied():
    async with supervise("ws://127.0.0.1:1/") as feed:
        for how in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="Supervisor"):
                how(feed)


async def test_it_is_used_in_its_own_thread():
    def other():
        for call in (lambda: feed.subscribe("x"), lambda: feed.unsubscribe("y"), feed.abort):
            try:
                call()
            except RuntimeError as exc:
                raised.append(str(exc))

    raised = []
    async with sessions(idle) as server, supervise(server.url) as feed:
        feed.subscribe("y")
        await feed.ready()
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert len(raised) == 3
        assert feed.stats.failures == {}
        assert [subscription.key for subscription in feed.subscriptions] == ["y"]
        await feed.ready()
