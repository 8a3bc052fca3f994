"""Messages that expire, answers to pings of the server's, and timers that are shorter than those that run."""

from __future__ import annotations

import asyncio
import time

import pytest
from support.frames import CLOSE, TEXT, frame, text
from support.servers import serve
from support.sessions import idle, say, sessions, supervise

from wsfast import WSListener
from wsfast.supervisor import Heartbeat, SendExpired, State, Window
from wsfast.supervisor.errors import SilenceTimeout, SubscriptionTimeout


def collect(got, *first):
    """A script that sends some texts, and then notes the texts that it gets."""

    async def script(peer):
        peer.send(b"".join(map(text, first)))
        while (sent := await peer.frame()).opcode != CLOSE:
            if sent.opcode == TEXT:
                got.append(sent.payload.decode())
        peer.send(frame(CLOSE, sent.payload))

    return script


# ---- send(ttl=)


async def test_a_message_that_has_expired_is_never_sent():
    """It has waited for a connection, for a login, for the window."""
    got = []
    async with sessions(collect(got)) as server:
        targets = iter(["ws://127.0.0.1:1/", server.url])
        options = {"window": Window(2, 0.3, reserve=0), "delays": lambda: iter([0.2])}
        async with supervise(lambda: next(targets), **options) as feed:
            login = feed.subscribe("login", stage=0, ack="never".__eq__)
            for _ in range(2):
                with pytest.raises(SendExpired, match="the message was not sent within 0.02 seconds"):
                    await feed.send("stale", ttl=0.02)
                while feed.state is not State.OPEN:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert not feed._shared.messages  # they are not kept, either
            feed.unsubscribe(login)
            await feed.send("fresh", ttl=30)
            with pytest.raises(TimeoutError):
                await feed.send("stale", ttl=0.02)
            await feed.send("last")
    assert got == ["login", "fresh", "last"]


async def test_a_message_expires_even_if_the_loop_was_busy():
    got = []
    async with sessions(collect(got)) as server:
        async with supervise(server.url, window=Window(1, 0.2, reserve=0)) as feed:
            await feed.send("first")
            sending = asyncio.ensure_future(feed.send("stale", ttl=0.1))
            await asyncio.sleep(0)
            time.sleep(0.4)  # noqa: ASYNC251 - the window has room before the loop notices that the message has expired
            feed.subscribe("subscription")
            with pytest.raises(SendExpired):
                await sending
            await feed.send("last")
    assert got == ["first", "subscription", "last"]


async def test_a_message_does_not_expire_in_a_write_buffer():
    """The server does not read, so the message would lie there behind others, and leave when it is too old."""
    go, got = asyncio.Event(), []

    async def handler(peer):
        await peer.accept()
        await go.wait()
        await collect(got)(peer)

    async with serve(handler) as server, supervise(server.url) as feed:
        await feed.ready()
        for _ in range(20):  # until the server's buffers are full, too
            while not feed.transport.write_buffer_size:
                await feed.send("x" * 100_000)
            await asyncio.sleep(0.01)
        kept = feed.stats.messages_sent
        with pytest.raises(SendExpired):
            await feed.send("stale", ttl=0.05)
        go.set()
        await feed.send("last", ttl=30)
        assert feed.stats.messages_sent == kept + 1
        while "last" not in got:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert "stale" not in got


@pytest.mark.parametrize("ttl", [0, -1, "1"])
async def test_wrong_times_to_live_are_refused(ttl):
    async with sessions(idle) as server, supervise(server.url) as feed:
        with pytest.raises((TypeError, ValueError), match="ttl"):
            await feed.send("x", ttl=ttl)


# ---- answer=


def pong(message):
    return message.replace("ping", "pong") if message.startswith("ping") else None


@pytest.mark.parametrize("listener", [False, True], ids=["awaitable", "listener"])
async def test_the_servers_own_pings_are_answered_and_not_delivered(listener):
    """They are answered before the login is in, and before all that waits for the window."""

    class Listener(WSListener):
        payload_type = str

        def on_ws_message(self, transport, msg_type, payload):
            received.append(payload)

    received, got = [], []
    script = collect(got, "data 1", "ping 7", "data 2")
    options = {"answer": pong, "window": Window(2, 0.2, reserve=0)}
    async with sessions(script) as server:
        async with supervise(server.url, *([Listener] * listener), **options) as feed:
            feed.subscribe("login", stage=0, ack="never".__eq__)
            feed.subscribe("x")
            while "pong 7" not in got:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            if not listener:
                received = [await feed.recv(), await feed.recv()]
    assert received == ["data 1", "data 2"]
    assert sorted(got) == ["login", "pong 7"]


async def test_pings_of_the_servers_are_no_data():
    async def script(peer):
        while not peer.writer.is_closing():
            peer.send(text("ping"))
            await asyncio.sleep(0.02)

    states = []
    options = {"answer": pong, "max_silence": 0.2, "on_state": states.append, "close_timeout": 0.1}
    async with sessions(script) as server, supervise(server.url, **options) as feed:
        while feed.stats.connects < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert SilenceTimeout in [type(change.cause) for change in states]


async def test_wrong_answers_harm_nothing():
    def answer(message):
        if message == "raise":
            raise KeyError(message)
        return 5 if message == "number" else pong(message)

    got = []
    script = collect(got, "raise", "number", "ping")
    beat = Heartbeat(0.02, "beat", "data".__eq__, timeout=0.02)
    async with sessions(script) as server, supervise(server.url, answer=answer) as feed:
        assert [await feed.recv(), await feed.recv()] == ["raise", "number"]
        while "pong" not in got:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert feed.stats.callback_errors == 2
    async with (
        sessions(say("ping", "data")) as server,
        supervise(server.url, answer=pong, heartbeat=beat) as feed,
    ):
        while not feed.stats.silences:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_answers_do_not_pile_up():
    """A server sends more pings in one read than may be answered: the newest are."""
    got = []
    script = collect(got, *(f"ping {number}" for number in range(500)))
    async with sessions(script) as server, supervise(server.url, answer=pong) as feed:
        while "pong 499" not in got:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert len(got) <= 100
        assert feed.stats.messages_sent == len(got)


# ---- timers


async def test_a_shorter_time_is_noticed_although_a_longer_one_runs():
    """uvloop's timers are of a class of their own."""

    async def chatter(peer):
        while not peer.writer.is_closing():
            peer.send(text("other"))
            await asyncio.sleep(0.01)

    states = []
    options = {"max_silence": 400, "topic": str, "on_state": states.append, "close_timeout": 0.1}
    async with sessions(chatter) as server, supervise(server.url, **options) as feed:
        await feed.ready()
        feed.subscribe("x", max_silence=0.2)
        while len(states) < 3:
            await asyncio.wait_for(feed.recv(), 10)
            assert feed.stats.silence < 8
    assert isinstance(states[2].cause, SilenceTimeout)

    states.clear()
    async with sessions(idle) as server, supervise(server.url, on_state=states.append) as feed:
        await feed.ready()
        feed.subscribe("a", ack="never".__eq__, ack_timeout=400)
        feed.subscribe("b", ack="never".__eq__, ack_timeout=0.2, retries=0)
        began = time.monotonic()
        while len(states) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert time.monotonic() - began < 8
    assert isinstance(states[2].cause, SubscriptionTimeout)
