"""A supervisor sends subscriptions, and waits for their acknowledgements; a window limits all that it sends."""

from __future__ import annotations

import asyncio
import time

import pytest
from support import frames
from support.frames import CLOSE, PING, PONG, TEXT, frame, text
from support.sessions import answer, close, idle, sessions, supervise

from wsfast import ConnectionClosed, ConnectionClosedOK, Tuning, WSListener
from wsfast.supervisor import Window
from wsfast.supervisor.errors import SubscriptionTimeout


def acknowledges(message):
    return lambda payload: payload == f"ack {message}"


async def texts_of(peer, number):
    """The payloads of the next texts; PINGs are answered."""
    got = []
    while len(got) < number:
        sent = await peer.frame()
        if sent.opcode == TEXT:
            got.append(sent.payload.decode())
        elif sent.opcode == PING:
            peer.send(frame(PONG, sent.payload))
        elif sent.opcode == CLOSE:
            raise EOFError
    return got


async def test_subscriptions_are_sent_again_after_each_connect():
    got = []

    async def script(peer):
        got.append(await texts_of(peer, 3))
        await (close if len(got) < 3 else idle)(peer)

    async with sessions(script) as server, supervise(server.url) as feed:
        for name in "abc":
            feed.subscribe(name)
        while len(got) < 3:
            await feed.ready()
            await asyncio.sleep(0)
        assert [one.key for one in feed.subscriptions] == ["a", "b", "c"]
        assert feed.stats.subscriptions_in == 3
    assert got == [["a", "b", "c"]] * 3


async def test_ready_waits_for_every_acknowledgement():
    async def script(peer):
        assert await texts_of(peer, 2) == ["a", "b"]
        asked.set()
        peer.send(text("ack a"))
        await go.wait()
        peer.send(text("ack b"))
        await idle(peer)

    asked, go = asyncio.Event(), asyncio.Event()
    async with sessions(script) as server, supervise(server.url) as feed:
        for name in "ab":
            feed.subscribe(name, ack=acknowledges(name))
        ready = asyncio.ensure_future(feed.ready())
        await asked.wait()
        assert await feed.recv() == "ack a"  # acknowledgements are delivered, too
        assert feed.stats.subscriptions_in == 1
        assert not ready.done()
        go.set()
        await ready
        assert feed.stats.subscriptions_in == 2


async def test_what_is_not_acknowledged_is_sent_again_and_ends_in_a_reconnect():
    got = []

    async def script(peer):
        try:
            while True:
                got.append((peer.number, *(await texts_of(peer, 1))))
        except EOFError:
            got.append(peer.number)
            raise

    async with sessions(script, answer) as server, supervise(server.url) as feed:
        feed.subscribe("x", ack=acknowledges("x"), ack_timeout=0.02, retries=2)
        await feed.ready()
        assert feed.stats.failures == {"SubscriptionTimeout": 1}
        assert feed.stats.gaps == 1
    assert got == [(1, "x")] * 3 + [1]
    error = SubscriptionTimeout("x", 3)
    assert str(error) == "'x' was sent 3 times and not acknowledged"


async def test_an_exception_in_ack_is_as_if_it_were_false():
    def ack(payload):
        called.append(payload)
        if len(called) < 2:
            raise KeyError("result")
        return True

    called = []
    async with sessions(answer) as server, supervise(server.url) as feed:
        feed.subscribe("x", ack=ack)
        await feed.ready()
        assert called == ["ack x", "data x 1"]
        assert feed.stats.callback_errors == 1


async def test_an_ack_may_subscribe_send_and_unsubscribe():
    def ack(payload):
        if payload == "ack a":
            feed.subscribe("b", ack=acknowledges("b"))
            tasks.append(asyncio.ensure_future(feed.send("c")))
            feed.unsubscribe("a")
        return False

    tasks = []
    async with sessions(answer) as server, supervise(server.url) as feed:
        feed.subscribe("a", ack=ack)
        while not tasks:
            await feed.recv()
        await feed.ready()
        await asyncio.gather(*tasks)
        assert [one.key for one in feed.subscriptions] == ["b"]


async def test_nothing_is_shown_once_all_is_acknowledged():
    """In that case a message costs no more than without a supervisor."""

    def ack(payload):
        shown.append(payload)
        return True

    shown = []
    async with sessions(answer) as server, supervise(server.url) as feed:
        feed.subscribe("a", ack=ack)
        await feed.ready()
        await feed.send("b")
        assert [await feed.recv() for _ in range(4)] == ["ack a", "data a 1", "ack b", "data b 1"]
        assert not feed._life.line._shown_for
    assert shown == ["ack a"]


async def test_unsubscribing():
    async def script(peer):
        got.extend(await texts_of(peer, 3))
        await close(peer)

    async def second(peer):
        got.extend(await texts_of(peer, 1))
        await idle(peer)

    got = []
    async with sessions(script, second) as server, supervise(server.url) as feed:
        feed.subscribe("never sent", key=1)
        assert feed.unsubscribe(1, "not sent either")
        feed.subscribe("a", key="A")
        subscription = feed.subscribe("b")
        await feed.ready()
        assert feed.unsubscribe(subscription, lambda: "-b")
        assert not feed.unsubscribe("b")
        while len(got) < 4:
            await feed.ready()
            await asyncio.sleep(0)
    assert got == ["a", "b", "-b", "a"]


async def test_a_subscription_takes_the_place_of_one_with_the_same_key():
    async with sessions(answer) as server, supervise(server.url) as feed:
        feed.subscribe("old", key="k", ack=lambda payload: False)
        feed.subscribe("new", key="k", ack=acknowledges("new"))
        await feed.ready()
        feed.subscribe("newer", key="k")
        await feed.ready()
        assert [one.message for one in feed.subscriptions] == ["newer"]


async def test_a_message_is_made_each_time_it_is_sent():
    async def script(peer):
        got.extend(await texts_of(peer, 1))
        await close(peer)

    got, made = [], iter("abcdefghij")
    async with sessions(script, script, idle) as server, supervise(server.url) as feed:
        feed.subscribe(lambda: next(made), key="k")
        while len(got) < 2:
            await feed.ready()
            await asyncio.sleep(0)
    assert got == ["a", "b"]


@pytest.mark.parametrize("wrong", [lambda: 5, lambda: 1 / 0, "\ud800"])
async def test_a_message_that_cannot_be_made_is_no_reason_to_try_for_ever(wrong):
    async with sessions(idle) as server, supervise(server.url, max_attempts=3) as feed:
        feed.subscribe(wrong, key="k")
        with pytest.raises((TypeError, ZeroDivisionError, UnicodeEncodeError)):
            await feed.recv()
        assert sum(feed.stats.failures.values()) == 1


async def test_send_waits_for_a_connection_and_survives_the_end_of_one():
    async def first(peer):
        await asyncio.sleep(0)
        await close(peer)

    got = []

    async def second(peer):
        got.extend(await texts_of(peer, 3))
        await idle(peer)

    async with sessions(first, second) as server:
        feed = supervise(server.url)
        with pytest.raises(RuntimeError, match="async with"):
            await feed.send("x")
        async with feed:
            feed.subscribe("later")
            sends = [asyncio.ensure_future(feed.send(message)) for message in ("a", b"b", bytearray(b"c"))]
            await sends[0]
            while feed.generation < 1 and feed.stats.connects < 2:  # noqa: ASYNC110
                await asyncio.sleep(0)
            await feed.ready()
            await asyncio.gather(*sends)
            with pytest.raises(TypeError):
                await feed.send(5)
            with pytest.raises(TypeError):
                await feed.send(lambda: "x")
            with pytest.raises(UnicodeEncodeError):
                await feed.send("\ud800")


class Recorder:
    """A server that notes when each frame arrives, and that sends PINGs."""

    def __init__(self, pings=0):
        self.times = []
        self.got = []
        self.pings = pings

    async def __call__(self, peer):
        for number in range(self.pings):
            peer.send(frame(PING, str(number)))
        while True:
            sent = await peer.frame()
            self.times.append(time.monotonic())
            self.got.append(sent)
            if sent.opcode == PING:
                peer.send(frame(PONG, sent.payload))
            elif sent.opcode == CLOSE:
                peer.send(frames.frame(CLOSE, sent.payload))
                return


def most_in_any(times, per):
    return max(sum(1 for time in times if begin <= time < begin + per) for begin in times)


@pytest.mark.parametrize("write_policy", ["gather", "immediate"])
async def test_the_window_holds_and_the_program_goes_first(write_policy):
    recorder = Recorder()
    window = Window(3, 0.3, reserve=0)
    async with sessions(recorder) as server:
        async with supervise(server.url, window=window, tuning=Tuning(write_policy=write_policy)) as feed:
            for number in range(8):
                feed.subscribe(str(number))
            await feed.send("urgent")
            await feed.ready()
    sent = [one.payload.decode() for one in recorder.got if one.opcode == TEXT]
    assert sorted(sent) == sorted(["urgent", *"01234567"])
    assert sent.index("urgent") <= 3
    # The server stamps arrivals, which are late while the loop is busy, so the span may be shorter than the window.
    assert most_in_any(recorder.times[:9], 0.2) <= 3


async def test_pongs_count_in_the_window():
    """The server pings three times. The PONGs fill the window, although its reserve is for one only."""
    recorder = Recorder(pings=3)
    window = Window(3, 0.3, reserve=1)
    async with sessions(recorder) as server, supervise(server.url, window=window) as feed:
        await feed.ready()
        while len(recorder.got) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0)
        feed.subscribe("x")
        await feed.ready()
    assert [one.opcode for one in recorder.got[:4]] == [PONG, PONG, PONG, TEXT]
    assert most_in_any(recorder.times[:4], 0.28) == 3


async def test_a_cancelled_send_is_not_sent():
    recorder = Recorder()
    async with sessions(recorder) as server:
        async with supervise(server.url, window=Window(1, 0.05, reserve=0)) as feed:
            await feed.send("first")
            one, other = (asyncio.ensure_future(feed.send(message)) for message in "ab")
            await asyncio.sleep(0)
            one.cancel()
            await asyncio.wait([one])
            await other
    assert [sent.payload for sent in recorder.got if sent.opcode == TEXT] == [b"first", b"b"]


async def test_a_send_that_waits_raises_when_the_supervisor_is_closed():
    async with sessions(idle) as server:
        async with supervise(server.url, window=Window(1, 60, reserve=0)) as feed:
            await feed.send("first")
            waiting = asyncio.ensure_future(feed.send("x"))
            await asyncio.sleep(0)
        with pytest.raises(ConnectionClosed):
            await waiting


async def test_ten_thousand_subscriptions():
    async def script(peer):
        count = 0
        while count < 10_000:
            sent = await peer.frame()
            count += 1
            peer.send(text(f"ack {sent.payload.decode()}"))
        await idle(peer)

    async with sessions(script) as server, supervise(server.url, max_queue=None) as feed:
        for number in range(10_000):
            feed.subscribe(str(number), ack=acknowledges(number))
        await feed.ready()
        assert feed.stats.subscriptions_in == 10_000
        for number in range(10_000):
            feed.unsubscribe(str(number))
        assert feed.stats.subscriptions == 0


async def test_acknowledgements_are_seen_behind_a_full_queue():
    async def script(peer):
        await texts_of(peer, 1)
        peer.send(text("data" * 1000) * 200 + text("ack a"))  # several reads
        await idle(peer)

    async with sessions(script) as server, supervise(server.url, max_queue=4) as feed:
        feed.subscribe("a", ack=acknowledges("a"))
        await feed.ready()
        assert [await feed.recv() for _ in range(201)] == ["data" * 1000] * 200 + ["ack a"]


async def test_acknowledgements_in_compressed_messages():
    import websockets.asyncio.server

    async def handler(connection):
        async for message in connection:
            await connection.send("ack " + message)

    async with websockets.asyncio.server.serve(handler, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        async with supervise(url, compression="deflate") as feed:
            long = "a" * 5000
            feed.subscribe(long, ack=lambda payload: payload == "ack " + long)
            await feed.ready()
            assert await feed.recv() == "ack " + long


class OfFrames(WSListener):
    """A listener that gets frames."""

    got: list[bytes]

    def on_ws_frame(self, transport, frame):
        if frame.msg_type == TEXT:
            self.got.append(frame.get_payload_as_bytes())


class OfMessages(WSListener):
    """A listener that gets messages."""

    payload_type = bytes
    got: list[bytes]

    def on_ws_message(self, transport, msg_type, payload):
        self.got.append(payload)


@pytest.mark.parametrize("base", [OfFrames, OfMessages])
async def test_listeners_are_shown_their_messages(base):
    listener = type("Listener", (base,), {"got": []})
    async with sessions(answer) as server, supervise(server.url, listener) as feed:
        feed.subscribe("a", ack=lambda payload: payload == b"ack a")
        await feed.ready()
        feed.subscribe("b", ack=lambda payload: payload == b"ack b")
        await feed.ready()
        assert listener.got[0] == b"ack a"
        assert b"ack b" in listener.got


async def test_ready_ends_when_the_supervisor_does():
    async with sessions(idle) as server, supervise(server.url) as feed:
        feed.subscribe("a", ack=lambda payload: False)
        ready = asyncio.ensure_future(feed.ready())
        await asyncio.sleep(0)
        await feed.close()
        with pytest.raises(ConnectionClosedOK):
            await ready
