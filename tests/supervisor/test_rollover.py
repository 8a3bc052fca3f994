"""One connection takes the place of another: without a gap, and, with a key, without a message twice."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from support import frames
from support.frames import CLOSE, TEXT, text
from support.servers import serve
from support.sessions import answer, close, idle, say, sessions, supervise

from wsfast import WSListener
from wsfast.supervisor import Rollover, State, Window


class Feed:
    """A server that sends the same numbered messages on every connection that has subscribed, each when told."""

    def __init__(self):
        self.peers = []
        self.number = 0
        self.opened = self.closed = 0
        self.subscribed = asyncio.Event()

    async def __call__(self, peer):
        self.opened += 1
        try:
            while (sent := await peer.frame()).opcode != CLOSE:
                if sent.opcode == TEXT:
                    peer.send(text("ack"))
                    self.peers.append(peer)
                    self.subscribed.set()
        finally:
            self.closed += 1
            if peer in self.peers:
                self.peers.remove(peer)
        peer.send(frames.frame(CLOSE, sent.payload))

    def publish(self, count=1):
        for _ in range(count):
            self.number += 1
            for peer in self.peers:
                peer.send(text(str(self.number)))

    async def publish_until(self, awaitable):
        """Publish at intervals until the future or task is done."""
        task = asyncio.ensure_future(awaitable)
        while not task.done():
            self.publish()
            await asyncio.sleep(0.001)
        return task.result()


def number(payload):
    return int(payload) if payload.isdigit() else None


async def test_nothing_is_lost_and_nothing_comes_twice():
    exchange = Feed()
    async with sessions(exchange) as server, supervise(server.url, key=number) as feed:
        feed.subscribe("sub", ack=lambda payload: payload == "ack")
        await feed.ready()
        got = []

        async def receive():
            async for message in feed:
                if message != "ack":
                    got.append(int(message))

        receiving = asyncio.ensure_future(receive())
        for _ in range(10):
            assert await exchange.publish_until(feed.roll_over())
        await exchange.publish_until(merged(feed))
        assert feed.stats.rollovers == 10
        assert feed.stats.gaps == 0
        assert feed.stats.failures == {}
        assert feed.stats.duplicates > 0
        while got[-1:] != [exchange.number]:  # noqa: ASYNC110
            await asyncio.sleep(0)
        receiving.cancel()
        await asyncio.wait([receiving])
        assert got == list(range(1, exchange.number + 1))
        while exchange.closed < 10:  # noqa: ASYNC110 - each old connection is closed
            await asyncio.sleep(0)
        assert exchange.opened == 11


async def merged(feed):
    """Wait until the last connection that was replaced has ended."""
    while feed._life.feed.merger is not None:  # noqa: ASYNC110
        await asyncio.sleep(0)


async def test_a_slow_program_loses_nothing_either():
    """The program receives no message while its connections are being replaced."""
    exchange = Feed()
    async with sessions(exchange) as server, supervise(server.url, key=number, max_queue=4) as feed:
        feed.subscribe("sub")
        await feed.ready()
        await exchange.subscribed.wait()
        exchange.publish(200)
        await exchange.publish_until(feed.roll_over())
        exchange.publish(200)
        got = []
        while feed.generation < 2 or got[-1:] != [exchange.number]:
            if got[-1:] == [exchange.number]:
                exchange.publish()
            message = await feed.recv()
            if message != "ack":
                got.append(int(message))
        assert got == list(range(1, exchange.number + 1))


async def test_megabytes_that_wait_are_not_lost_either():
    """A closing connection reads only a little further, so the old one stays open until the program has caught up."""

    async def script(peer):
        await peer.frame()
        if peer.number == 1:
            peer.send(b"".join(text(f"{n}" + " " * 4000) for n in range(1000)))
        peer.send(text("last"))
        await idle(peer)

    async with sessions(script) as server:
        async with supervise(server.url, max_queue=4, key=str.strip) as feed:
            feed.subscribe("sub")
            await feed.ready()
            assert await feed.roll_over()
            await asyncio.sleep(0.4)  # longer than the patience of a connection that closes
            got = []
            while got[-1:] != ["last"]:
                got.append((await feed.recv()).strip())
            assert got == [*map(str, range(1000)), "last"]


async def test_the_old_connection_stays_until_the_new_one_has_its_first_message():
    exchange = Feed()
    async with sessions(exchange) as server:
        rollover = Rollover(first=lambda payload: payload == "3")
        async with supervise(server.url, rollover=rollover) as feed:
            feed.subscribe("sub")
            await exchange.subscribed.wait()
            rolling = asyncio.ensure_future(feed.roll_over())
            also = asyncio.ensure_future(feed.roll_over())  # one rollover serves both calls
            while len(exchange.peers) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0)
            assert feed.state is State.ROLLING_OVER
            exchange.publish(2)
            for _ in range(20):
                await asyncio.sleep(0)
            assert not rolling.done()
            assert exchange.closed == 0
            await feed.send("x")  # goes to the old connection
            exchange.publish()
            assert await rolling
            assert await also
            assert exchange.opened == 2


async def test_listeners_get_both_and_no_message_twice():
    class Listener(WSListener):
        payload_type = str

        def on_ws_message(self, transport, msg_type, payload):
            got.append(payload)

    exchange, got = Feed(), []
    async with sessions(exchange) as server, supervise(server.url, Listener, key=number) as feed:
        feed.subscribe("sub", ack=lambda payload: payload == "ack")
        await feed.ready()
        for _ in range(5):
            assert await exchange.publish_until(feed.roll_over())
        await exchange.publish_until(merged(feed))
        numbers = [message for message in got if message != "ack"]
        while len(numbers) < exchange.number:
            await asyncio.sleep(0)
            numbers = [message for message in got if message != "ack"]
        assert numbers == [str(n) for n in range(1, exchange.number + 1)]


async def test_a_frame_listener_rolls_over_too():
    class Listener(WSListener):
        def on_ws_frame(self, transport, frame):
            got.append(frame.get_payload_as_bytes())

    got = []
    rollover = Rollover(timeout=0.5)
    async with sessions(answer) as server, supervise(server.url, Listener, rollover=rollover) as feed:
        feed.subscribe("a")
        await feed.ready()
        assert await feed.roll_over()
        assert feed.stats.rollovers == 1
        while b"data a 2" not in got:  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_by_age_and_by_message():
    exchange = Feed()
    async with sessions(exchange) as server:
        rollover = Rollover(0.02, jitter=0.5)
        async with supervise(server.url, rollover=rollover) as feed:
            feed.subscribe("sub")
            await exchange.publish_until(until_rolled(feed, 3))
        rollover = Rollover(when=lambda payload: payload == "serverShutdown")
        async with supervise(server.url, rollover=rollover) as feed:
            feed.subscribe("sub")
            await feed.ready()
            while not exchange.peers:  # noqa: ASYNC110
                await asyncio.sleep(0)
            exchange.peers[-1].send(text("serverShutdown"))
            await exchange.publish_until(until_rolled(feed, 1))


async def until_rolled(feed, times):
    received = asyncio.ensure_future(drop(feed))
    while feed.stats.rollovers < times:  # noqa: ASYNC110
        await asyncio.sleep(0)
    received.cancel()
    await asyncio.wait([received])


async def drop(feed):
    async for _ in feed:
        pass


async def test_if_the_new_one_fails_the_old_one_stays_and_it_is_tried_again():
    async def handler(peer):
        attempts.append(1)
        if 2 <= len(attempts) <= 3:
            await peer.read_request()
            peer.send(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")
            return
        with suppress(EOFError):  # the last attempt is cut short by the end of the test
            await peer.accept()
            peer.send(text(f"from {len(attempts)}"))
            await idle(peer)

    attempts = []
    rollover = Rollover(0.01, retry=0.01, timeout=0.01)
    async with serve(handler) as server, supervise(server.url, rollover=rollover) as feed:
        assert await feed.recv() == "from 1"
        while feed.stats.rollovers < 1:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert feed.stats.rollovers_failed == 2
        assert feed.stats.failures == {"InvalidStatus": 2}
        assert await feed.recv() == "from 4"


async def test_a_new_one_that_says_nothing_is_given_up():
    async with (
        sessions(say("x"), idle) as server,
        supervise(server.url, rollover=Rollover(timeout=0.02, first=bool)) as feed,
    ):
        await feed.ready()
        assert not await feed.roll_over()
        assert feed.state is State.OPEN
        assert feed.stats.failures == {"TimeoutError": 1}
        assert feed.transport is not None


async def test_the_new_one_takes_over_at_once_if_the_old_one_ends():
    """The new connection takes over even before its first message, because no other is open."""

    async def old(peer):
        await opened.wait()
        await close(peer)

    async def new(peer):
        opened.set()
        await idle(peer)

    opened = asyncio.Event()
    rollover = Rollover(timeout=100, first=bool)
    async with sessions(old, new) as server, supervise(server.url, rollover=rollover) as feed:
        await feed.ready()
        assert await feed.roll_over()
        await feed.ready()
        assert feed.stats.rollovers == 0
        assert feed.stats.gaps == 1
        assert feed.stats.connects == 2


async def test_the_old_one_ends_while_the_new_one_fails():
    async def handler(peer):
        attempts.append(1)
        if len(attempts) == 2:
            await peer.read_request()
            ending.set()
            await gone.wait()
            peer.send(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")
            return
        await peer.accept()
        if len(attempts) == 1:
            await ending.wait()
            await close(peer)
            gone.set()
        else:
            await idle(peer)

    attempts, states, ending, gone = [], [], asyncio.Event(), asyncio.Event()
    async with serve(handler) as server:
        async with supervise(server.url, on_state=lambda change: states.append(change.state)) as feed:
            await feed.ready()
            assert not await feed.roll_over()
            while feed.stats.connects < 2:  # noqa: ASYNC110
                await asyncio.sleep(0)
            await feed.ready()
    connect = [State.CONNECTING, State.OPEN]
    assert states[:3] == [*connect, State.ROLLING_OVER]
    assert states[-3:] == [*connect, State.CLOSED]


async def test_closing_during_a_rollover():
    exchange = Feed()
    async with sessions(exchange) as server, supervise(server.url) as feed:
        await feed.ready()
        rolling = asyncio.ensure_future(feed.roll_over())
        while exchange.opened < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await feed.close()
        assert not await rolling
        assert exchange.closed == 2


@pytest.mark.parametrize("proved", [True, False])
@pytest.mark.parametrize("ending", ["reset", "FIN", "timeout", "own CLOSE", "CLOSE"])
async def test_what_both_brought_proves_that_nothing_is_missing_and_no_end_of_the_old_one_does(
    ending, proved
):
    async def old(peer):
        peer.send(text("old"))
        await opened.wait()
        peer.send(text("a") + text("b") + text("c" if proved else "x"))
        await peer.frames_until_close()
        if ending == "reset":
            peer.reset()
        elif ending == "timeout":
            await peer.rest()
        elif ending != "FIN":
            peer.send({"own CLOSE": frames.close(1001), "CLOSE": frames.close(1000)}[ending])

    async def new(peer):
        opened.set()
        await say("a", "b", "c", "new")(peer)

    opened = asyncio.Event()
    async with sessions(old, new) as server:
        rollover = Rollover(timeout=0.5, drain_timeout=0.02 if ending == "timeout" else 50)
        async with supervise(server.url, rollover=rollover, close_timeout=50) as feed:
            assert await feed.recv() == "old"
            assert await feed.roll_over()
            got = []
            while got[-1:] != [("new", not proved)]:
                got.append((await feed.recv(), feed.gaps))
            # Without a key nothing is dropped: a snapshot may stand before what the new one brought.
            assert [message for message, _ in got] == ["a", "b", "c" if proved else "x", "a", "b", "c", "new"]
            assert [gaps for message, gaps in got if message == "a"] == ([0, 0] if proved else [0, 1])
            assert feed.stats.rollovers == 1
            assert feed.stats.gaps == (not proved)
            assert feed.stats.failures == {}


async def test_a_new_one_that_is_prepared_after_the_old_one_was_closed_follows_a_gap():
    """The old connection has not ended yet, because its server is slow to end the TCP connection."""

    async def old(peer):
        peer.send(text("old"))
        await opened.wait()
        peer.send(frames.close(1000))
        await peer.frames_until_close()
        closed.set()
        await peer.rest()

    async def new(peer):
        opened.set()
        await closed.wait()
        await say("new")(peer)

    opened, closed = asyncio.Event(), asyncio.Event()
    async with sessions(old, new) as server, supervise(server.url) as feed:
        assert await feed.recv() == "old"
        receiving = asyncio.ensure_future(feed.recv())
        assert await feed.roll_over()
        assert await receiving == "new"
        assert feed.gaps == feed.stats.gaps == 1


async def test_gaps_are_where_they_are_however_late_the_messages_are_received():
    async def script(peer):
        peer.send(text(f"{peer.number}"))
        if peer.number < 3:
            await close(peer)
        else:
            await idle(peer)

    async with sessions(script) as server, supervise(server.url) as feed:
        while feed.stats.gaps < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert feed.gaps == 0
        assert [(await feed.recv(), feed.gaps) for _ in range(3)] == [("1", 0), ("2", 1), ("3", 2)]


async def test_what_a_closing_connection_discards_the_other_one_has():
    """It waits only for a limited time for a program that does not receive."""

    async def old(peer):
        peer.send(text("old"))
        await opened.wait()
        peer.send(text("1"))
        await peer.frames_until_close()
        peer.send(text("x" * 100_000) * 40)
        peer.send(frames.close(1000))
        await peer.rest()

    async def new(peer):
        opened.set()
        await say("1", "new")(peer)

    opened = asyncio.Event()
    async with sessions(old, new) as server, supervise(server.url, key=number, max_queue=2) as feed:
        assert await feed.recv() == "old"
        assert await feed.roll_over()
        while not feed._life.feed.lines[0].ended.done():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert feed.stats.dropped > 0
        while (await feed.recv()) != "new":
            pass
        assert feed.gaps == feed.stats.gaps == 0


async def test_the_window_of_the_new_one_is_its_own():
    exchange = Feed()
    async with sessions(exchange) as server, supervise(server.url, window=Window(2, 0.05, reserve=0)) as feed:
        for name in "abc":
            feed.subscribe(name, ack=lambda payload: payload == "ack")
        await feed.ready()
        assert await exchange.publish_until(feed.roll_over())
        assert feed.stats.subscriptions_in == 3
        assert feed.stats.messages_sent == 6


async def test_a_key_that_raises_removes_nothing():
    def key(payload):
        raise KeyError(payload)

    async with sessions(say("a", "a", "b")) as server, supervise(server.url, key=key) as feed:
        assert [await feed.recv() for _ in range(3)] == ["a", "a", "b"]
        assert feed.stats.callback_errors == 3


async def test_what_repeats_after_a_reconnect_is_new():
    """No line has brought it meanwhile: numbers may begin anew, and a book may not have moved."""

    async def script(peer):
        peer.send(text("1") + text("2") + text(str(peer.number + 2)))
        await close(peer)

    async with sessions(script) as server, supervise(server.url, key=number) as feed:
        assert [await feed.recv() for _ in range(6)] == ["1", "2", "3", "1", "2", "4"]
        assert feed.stats.duplicates == 0


@pytest.mark.parametrize("how", ["cancel", "abort"])
async def test_ending_a_task_that_waits_for_a_rollover(how):
    async with sessions(idle) as server, supervise(server.url) as feed:
        await feed.ready()
        rolling = asyncio.ensure_future(feed.roll_over())
        await asyncio.sleep(0)
        if how == "cancel":
            rolling.cancel()
            await asyncio.wait([rolling])
        else:
            feed.abort()
            assert not await rolling


async def test_a_rollover_that_is_not_begun_is_answered():
    """The program receives no message, so the connection before has not ended yet. Then this one ends."""

    async def script(peer):
        peer.send(text("x"))
        await go.wait()
        await close(peer)

    go = asyncio.Event()
    async with sessions(script) as server, supervise(server.url) as feed:
        await feed.ready()
        assert await feed.roll_over()
        rolling = asyncio.ensure_future(feed.roll_over())
        await asyncio.sleep(0)
        go.set()
        assert not await rolling
