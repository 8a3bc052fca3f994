"""Silence, topic by topic, and heartbeats: each time-out ends in a typed error, and in a reconnect."""

from __future__ import annotations

import asyncio
import pickle

import pytest
from support import frames
from support.frames import CLOSE, PING, PONG, TEXT, frame, text
from support.sessions import answer, idle, say, sessions, supervise

from wsfast import WSListener
from wsfast.supervisor import Heartbeat, State
from wsfast.supervisor.errors import HeartbeatTimeout, SilenceTimeout, SubscriptionTimeout, SupervisorTimeout


def lost():
    """A future for the first change to WAITING, and the callback that sets its result."""
    future = asyncio.get_running_loop().create_future()

    def on_state(change):
        if change.state is State.WAITING and not future.done():
            future.set_result(change)

    return future, on_state


async def ping_without_end(peer):
    """A server that is alive, but sends no data."""
    while True:
        peer.send(frame(PING, "alive") + frame(PONG, "unasked"))
        sent = await peer.frame()
        if sent.opcode == CLOSE:
            peer.send(frame(CLOSE, sent.payload))
            return


class Silent(WSListener):
    pass


@pytest.mark.parametrize("listener", [(), (Silent,)], ids=["awaitable", "listener"])
async def test_pings_are_no_data(listener):
    waiting, on_state = lost()
    async with sessions(ping_without_end) as server:
        async with supervise(server.url, *listener, max_silence=0.1, on_state=on_state, ping_interval=0.02):
            change = await waiting
            assert isinstance(change.cause, SilenceTimeout)
            assert change.cause.key is None
            assert str(change.cause) == "no data for 0.1 seconds"


async def chatter(peer):
    for _ in range(20):
        peer.send(text("data"))
        await asyncio.sleep(0.02)
    peer.send(text("last"))
    await idle(peer)


async def test_data_is_a_sign_of_life():
    async with sessions(chatter) as server, supervise(server.url, max_silence=0.3) as feed:
        while await feed.recv() != "last":
            pass
        assert feed.stats.silences == 0
        assert feed.stats.silence < 0.3


async def test_silence_may_be_normal():
    def is_normal():
        asked.append(1)
        if len(asked) == 1:
            raise RuntimeError("a bug")  # counts as no
        if len(asked) == 4:
            enough.set()
        return True

    asked, enough = [], asyncio.Event()
    waiting, on_state = lost()
    options = {"max_silence": 0.02, "silence_is_normal": is_normal, "on_state": on_state}
    async with sessions(idle) as server, supervise(server.url, **options) as feed:
        await waiting
        await enough.wait()
        assert feed.stats.connects == 2
        assert feed.stats.silences == 1


async def test_silence_is_normal_may_close_the_supervisor():
    def is_normal():
        feed.abort()
        return False

    async with sessions(idle) as server:
        async with supervise(server.url, max_silence=0.01, silence_is_normal=is_normal) as feed:
            await feed.wait_closed()
            assert feed.stats.silences == 0


async def test_a_program_that_does_not_receive_hears_nothing_and_that_is_its_own_fault():
    async with sessions(say(*["data"] * 500)) as server:
        async with supervise(server.url, max_silence=0.05, max_queue=2) as feed:
            await feed.ready()
            await asyncio.sleep(0.2)
            assert feed.stats.silences == 0
            assert [await feed.recv() for _ in range(500)] == ["data"] * 500


async def test_a_topic_that_falls_silent_among_others():
    async def script(peer):
        while not peer.writer.is_closing():
            peer.send(text("a:1"))
            if not stop_b.done():
                peer.send(text("b:1"))
            await asyncio.sleep(0.01)

    stop_b = asyncio.get_running_loop().create_future()
    waiting, on_state = lost()
    async with sessions(script) as server:
        options = {"topic": lambda payload: payload[0], "close_timeout": 0.1}
        async with supervise(server.url, on_state=on_state, **options) as feed:
            feed.subscribe("sub a", key="a", max_silence=0.2)
            feed.subscribe("sub b", key="b", max_silence=0.2)
            feed.subscribe("sub c", key="c")  # nobody minds
            receiving = asyncio.ensure_future(until_cancelled(feed))
            await feed.ready()
            stop_b.set_result(None)
            change = await waiting
            assert (change.cause.key, change.cause.seconds) == ("b", 0.2)
            receiving.cancel()
            await asyncio.wait([receiving])


async def until_cancelled(feed):
    async for _ in feed:
        pass


async def test_topics_are_bounded_by_the_subscriptions():
    """This holds whatever the program's function returns, and also if it raises."""

    def topic(payload):
        if payload == "3":
            raise ValueError(payload)
        return [] if payload == "4" else payload

    async def script(peer):
        await peer.frame()
        await say(*map(str, range(100)))(peer)

    async with sessions(script) as server, supervise(server.url, topic=topic) as feed:
        feed.subscribe("sub", key="7", max_silence=60)
        assert [await feed.recv() for _ in range(100)] == list(map(str, range(100)))
        assert feed._life.line.liveness.heard <= {"7"}
        assert feed.stats.callback_errors == 2


def test_a_topic_must_be_known_to_be_watched():
    with pytest.raises(TypeError, match="topic="):
        supervise("ws://x/").subscribe("x", max_silence=5)


# ---- heartbeats


async def reply(peer):
    """Answer texts: "ping" by "pong"; after three of them no more."""
    count = 0
    while True:
        sent = await peer.frame()
        if sent.opcode == CLOSE:
            peer.send(frames.frame(CLOSE, sent.payload))
            return
        if sent.opcode == TEXT and sent.payload == b"ping" and (count := count + 1) <= 3:
            peer.send(text("data") + text("pong"))


@pytest.mark.parametrize("listener", [False, True], ids=["awaitable", "listener"])
async def test_a_heartbeat_that_is_not_answered(listener):
    class Listener(WSListener):
        payload_type = str

        def on_ws_message(self, transport, msg_type, payload):
            got.append(payload)

    got = []
    waiting, on_state = lost()
    beat = Heartbeat(0.02, "ping", lambda payload: payload == "pong")
    args = (Listener,) if listener else ()
    async with (
        sessions(reply) as server,
        supervise(server.url, *args, heartbeat=beat, on_state=on_state) as feed,
    ):
        change = await waiting
        assert isinstance(change.cause, HeartbeatTimeout)
        assert str(change.cause) == "no answer to a heartbeat for 0.02 seconds"
        if not listener:
            got = [await feed.recv() for _ in range(3)]
    assert got[:3] == ["data"] * 3  # and no "pong"


async def test_replies_are_no_data():
    async def script(peer):
        while (sent := await peer.frame()).opcode != CLOSE:
            peer.send(text("pong"))
        peer.send(frames.frame(CLOSE, sent.payload))

    waiting, on_state = lost()
    beat = Heartbeat(0.01, b"ping", lambda payload: payload == "pong")
    async with sessions(script) as server:
        async with supervise(server.url, heartbeat=beat, max_silence=0.1, on_state=on_state):
            assert isinstance((await waiting).cause, SilenceTimeout)


async def test_heartbeats_that_need_no_answer_are_made_each_time():
    numbers, enough = iter(range(1000)), asyncio.Event()
    got = []

    async def script(peer):
        while (sent := await peer.frame()).opcode == TEXT:
            got.append(sent.payload)
            if len(got) == 3:
                enough.set()
        peer.send(frames.frame(CLOSE, sent.payload))

    beat = Heartbeat(0.01, lambda: f"beat {next(numbers)}")
    async with sessions(script) as server, supervise(server.url, heartbeat=beat):
        await enough.wait()
    assert got[:3] == [b"beat 0", b"beat 1", b"beat 2"]


async def test_a_heartbeat_that_cannot_be_made_ends_the_supervisor():
    async with sessions(idle) as server, supervise(server.url, heartbeat=Heartbeat(0.01, lambda: 5)) as feed:
        with pytest.raises(TypeError, match="make str or bytes"):
            await feed.wait_closed()


async def test_a_dead_connection_does_not_delay_the_next_one():
    """The connection is dropped, not closed: a dead server answers no CLOSE. recv() goes on with the next one."""

    async def dead(peer):
        await asyncio.Event().wait()

    options = {"max_silence": 0.05, "close_timeout": None}
    async with sessions(dead, answer) as server, supervise(server.url, **options) as feed:
        feed.subscribe("x")
        assert await feed.recv() == "ack x"
        assert feed.generation == 2


def test_the_errors_are_timeouts_and_pickle():
    for error in (SilenceTimeout(3, "k"), HeartbeatTimeout(2.5), SubscriptionTimeout("k", 4)):
        again = pickle.loads(pickle.dumps(error))
        assert isinstance(again, (SupervisorTimeout, TimeoutError))
        assert (str(again), again.args) == (str(error), error.args)
    assert str(SilenceTimeout(3, "k")) == "no data for 3 seconds of 'k'"
