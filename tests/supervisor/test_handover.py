"""One connection hands over to the next: no loss without a word, no message twice, no queue without a bound."""

from __future__ import annotations

import asyncio

import pytest
from supervisor.test_merging import Played, number
from support import frames
from support.frames import TEXT, text

from wsfast.supervisor import Rollover, merger


async def stop_receiving(play):
    play._receiving.cancel()
    await asyncio.wait([play._receiving])


async def until(condition):
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0)


async def closing(play, number):
    await play.lines.until(lambda lines: (number, "CLOSE") in lines.sent)


async def test_a_key_that_cannot_be_hashed_is_the_last_one():
    async with Played(
        "awaitable", key=lambda message: [message] if message == "bad" else number(message)
    ) as play:
        await play.roll()
        play.lines.say(2, "2")
        play.lines.say(1, "2", "bad")
        await closing(play, 1)
        await play.until("2", "bad")
        play.lines.end(1)
        play.lines.say(2, "3")
        await play.until("3")
        assert play.feed.stats.callback_errors == 1
        assert play.feed._life.feed.merger is None


@pytest.mark.parametrize("face", ["awaitable", "listener"])
async def test_closing_amid_a_rollover_without_a_proof(face):
    async with Played(face, key=number, close_timeout=5) as play:
        play.lines.say(1, "1")
        await play.until("1")
        await play.roll()
        play.lines.say(2, "3", "4")
        held = play.feed._life.feed.merger
        await until(lambda: held.held >= 2)
        ending = asyncio.ensure_future(play.feed.close())
        await closing(play, 1)
        await closing(play, 2)
        play.lines.end(1)
        await until(lambda: held.phase is merger.Phase.OVER)
        play.lines.end(2)
        await ending
        if play._receiving is not None:
            await asyncio.wait([play._receiving])
        assert play.data == [("1", 0), ("3", 1), ("4", 1)]


async def test_what_was_held_is_not_conflated_with_other_keys():
    async with Played(
        "awaitable",
        rollover=Rollover(timeout=0.5),
        overflow="conflate",
        conflate_key=lambda payload: payload[:1],
    ) as play:
        await play.roll()
        await stop_receiving(play)
        play.lines.say(2, "x1", "b1", "c1", "d1")
        await closing(play, 1)
        play.lines.end(1)
        await until(lambda: play.feed._life.feed.merger is None)
        play.lines.say(2, "e1", "f1", "x2")
        await until(lambda: play.feed.transport.stats.frames_received >= 8)
        assert [await play.feed.recv() for _ in range(7)][1:] == ["x2", "b1", "c1", "d1", "e1", "f1"]


async def test_a_queue_is_bounded_after_too_much_was_held(monkeypatch):
    monkeypatch.setattr(merger, "_MOST_HELD", 4096)
    async with Played("awaitable", rollover=Rollover(timeout=0.5), max_queue=2) as play:
        await play.roll()
        await stop_receiving(play)
        play.lines.say(2, *"abcdefghijkl")
        await until(lambda: play.feed._life.line.is_paused)
        await closing(play, 1)
        play.lines.end(1)
        await until(lambda: play.feed._life.feed.merger is None)
        assert not play.feed.transport.underlying_transport.is_reading()


async def test_a_key_of_long_ago_proves_nothing():
    """Such as that of a snapshot, which each connection begins with."""
    key = {"A5": "A5", "B1": "B1", "B2": "B2"}.get
    async with Played("awaitable", key=key) as play:
        play.lines.say(1, "A5")
        await play.until("A5")
        await play.roll()
        play.lines.say(2, "A5")  # and B1 was published before the new connection was subscribed
        await until(lambda: play.feed.stats.duplicates == 1)
        for _ in range(50):
            await asyncio.sleep(0)
        assert (1, "CLOSE") not in play.lines.sent
        play.lines.say(1, "B1", "B2")
        play.lines.say(2, "B2")
        await closing(play, 1)
        play.lines.end(1)
        await play.until("B1", "B2")
        assert [message for message, _ in play.data] == ["A5", "B1", "B2"]


@pytest.mark.parametrize("face", ["awaitable", "listener"])
async def test_three_connections_of_which_the_first_was_ahead(face):
    async with Played(face, key=number) as play:
        await play.roll()
        play.lines.say(2, "4")
        play.lines.say(1, *"123456789")
        await closing(play, 1)
        await play.until("9")
        play.lines.end(1)
        await until(lambda: play.feed._life.feed.merger is None)
        rolling = asyncio.ensure_future(play.feed.roll_over())
        await play.lines.until(lambda lines: (3, "sub") in lines.sent)
        play.lines.say(3, "ack")
        assert await rolling
        play.lines.say(3, *"567")
        await until(lambda: play.feed.stats.duplicates == 4)
        play.lines.say(2, *"56")
        await closing(play, 2)
        play.lines.end(2)
        await until(lambda: play.feed._life.feed.merger is None)
        play.lines.say(3, "8", "9", "10")
        await play.until("10")
        assert [message for message, _ in play.data] == [str(n) for n in range(1, 11)]
        assert play.feed.stats.gaps == 0


async def test_a_connection_may_lag_although_it_has_brought_much():
    async with Played("awaitable", key=number, remember=4) as play:
        await play.roll()
        play.lines.say(1, *"1234")
        await play.until(*"1234")
        play.lines.say(2, *"1234")
        await closing(play, 1)
        play.lines.say(1, *"567")
        await play.until("7")
        await until(lambda: play.feed.stats.duplicates == 4)
        play.lines.end(1)
        await until(lambda: play.feed._life.feed.merger is None)
        play.lines.say(2, *"5678")
        await play.until("8")
        assert [message for message, _ in play.data] == list("12345678")


@pytest.mark.parametrize("overflow", ["fail", "drop_oldest", "drop_newest"])
async def test_what_was_held_does_not_overflow(overflow):
    async with Played("awaitable", key=number, overflow=overflow, max_queue=2) as play:
        await play.roll()
        play.lines.say(2, *"12345678")
        held = play.feed._life.feed.merger
        await until(lambda: held.held >= 8)
        play.lines.say(1, "1")
        await closing(play, 1)
        play.lines.end(1)
        await until(lambda: play.feed._life.feed.merger is None)
        play.lines.say(2, "9")
        await play.until("9")
        assert play.data == [(digit, 0) for digit in "123456789"]


@pytest.mark.parametrize("is_late", [True, False])
async def test_a_late_subscription_that_the_old_connection_had(is_late):
    rollover = Rollover(timeout=30 if is_late else 1.5)
    async with Played("awaitable", key=number, rollover=rollover) as play:
        play.feed.subscribe("more", ack=lambda message: message == "more is in", ack_timeout=0.5, retries=0)
        await play.lines.until(lambda lines: (1, "more") in lines.sent)
        play.lines.say(1, "more is in")
        await play.feed.ready()
        await play.roll()
        play.lines.say(2, "1")
        play.lines.say(1, "1")
        await play.until("1")
        for _ in range(50):
            await asyncio.sleep(0)
        assert (1, "CLOSE") not in play.lines.sent
        if is_late:
            play.lines.say(2, "more is in", "2")
            play.lines.say(1, "2")
        await closing(play, 1)
        play.lines.end(1)
        play.lines.say(2, "3")
        await play.until("3")
        assert play.feed.gaps == (not is_late)


async def test_a_rollover_that_was_asked_of_a_connection_that_ended():
    async with Played("awaitable", key=number) as play:
        await play.roll()
        rolling = asyncio.ensure_future(play.feed.roll_over())
        play.lines.say(2, "3")
        held = play.feed._life.feed.merger
        await until(lambda: held.held >= 2)
        play.lines.peers[1].reset()
        assert not await rolling
        play.lines.say(1, "1", "2")
        await play.until("1", "2")
        assert play.feed.stats.connects == 2


async def test_a_message_of_more_fragments_than_a_queue_takes():
    async with Played("awaitable", key=number, max_queue=2) as play:
        await play.roll()
        parts = [frames.frame(0, b"0", fin=False)] * 9
        play.lines.peers[1].send(b"".join([frames.frame(TEXT, b"1", fin=False), *parts]))
        for _ in range(30):
            await asyncio.sleep(0)
        play.lines.peers[1].send(frames.frame(0, b"") + text("2"))
        play.lines.say(1, "2")
        await closing(play, 1)
        play.lines.end(1)
        await play.until("1000000000")
        assert play.feed.gaps == 0


class Odd(str):
    """A key that can be hashed, and not compared."""

    def __hash__(self):
        return 1

    def __eq__(self, other):
        raise ZeroDivisionError


async def test_a_key_that_cannot_be_compared_is_none():
    async with Played(
        "awaitable", key=lambda message: Odd() if "odd" in message else number(message)
    ) as play:
        play.lines.say(1, "odd 0", "1")
        await play.until("1")
        await play.roll()
        play.lines.say(2, "odd 1", "odd 2", "2")
        play.lines.say(1, "odd 1", "odd 2", "2", "3")
        await closing(play, 1)
        await play.until("3")
        play.lines.end(1)
        play.lines.say(2, "odd 3", "3", "4")
        await play.until("4")
        odd = ["odd 1", "odd 2"]
        assert [message for message, _ in play.data] == ["odd 0", "1", *odd, "2", "3", *odd, "odd 3", "4"]
        assert play.feed.stats.callback_errors > 0
        assert play.feed.stats.gaps == 0


async def test_keys_are_forgotten_where_nothing_proved_an_overlap():
    async with Played("awaitable", key=number, rollover=Rollover(timeout=0.5)) as play:
        await play.roll()
        play.lines.say(1, "1", "2", "3")
        await play.until("3")
        await closing(play, 1)
        play.lines.end(1)
        await until(lambda: play.feed._life.feed.merger is None)
        play.lines.say(2, "1", "2", "3")
        await until(lambda: len(play.data) == 6)
        assert play.data[3:] == [("1", 1), ("2", 1), ("3", 1)]


async def test_a_program_that_receives_nothing_does_not_keep_the_old_connection():
    async with Played("awaitable", rollover=Rollover(timeout=1000)) as play:
        await play.until("ack")
        await stop_receiving(play)
        play.lines.say(1, "a", "b")
        await play.roll()
        merging = play.feed._life.feed.merger
        await until(lambda: play.feed.stats.backlog == 3)
        await play.feed.recv()
        merging._expire()
        assert merging.phase is merger.Phase.HOLDING
        merging._expire()
        await closing(play, 1)
        play.lines.end(1)
        assert [(await play.feed.recv(), play.feed.gaps) for _ in range(2)] == [("b", 0), ("ack", 1)]


@pytest.mark.parametrize("fails", [False, True])
async def test_what_the_program_drops_is_the_connection_that_it_hears(fails):
    """It hears the old one until that has ended."""
    async with Played("awaitable", key=number) as play:
        await play.roll()
        play.feed.drop("wrong checksum")
        if fails:
            play.lines.peers[1].reset()
        else:
            play.lines.say(2, "1")
            play.lines.say(1, "1")
            await closing(play, 1)
            play.lines.end(1)
        await until(lambda: play.feed._life.feed.merger is None)
        if fails:
            await play.lines.until(lambda lines: (3, "sub") in lines.sent)
            assert play.feed.stats.failures["ConnectionAbortedError"] == 1
        else:
            play.lines.say(2, "2")
            await play.until("2")
            assert play.feed.stats.connects == 2


async def too_much(play):
    """The new connection brings more than may be held before its subscription is in. Returns the rollover."""
    rolling = asyncio.ensure_future(play.feed.roll_over())
    await play.lines.until(lambda lines: (2, "sub") in lines.sent)
    play.lines.say(2, *(f"{n}" for n in range(10, 40)))
    await until(lambda: play.feed._life.feed.merger._lacks_held)
    return rolling


@pytest.mark.parametrize("key", [None, number])
@pytest.mark.parametrize("face", ["awaitable", "listener"])
async def test_too_much_before_the_subscriptions_are_in(monkeypatch, face, key):
    """The old connection must bring all of it, and does."""
    monkeypatch.setattr(merger, "_MOST_HELD", 4096)
    async with Played(face, key=key) as play:
        rolling = await too_much(play)
        play.lines.say(2, "ack", "41", "42", "43", "44")
        assert await rolling
        play.lines.say(1, *(f"{n}" for n in range(1, 44)))
        await closing(play, 1)
        await play.until("43")
        play.lines.end(1)
        await play.until("44")
        assert [message for message, _ in play.data][:43] == [str(n) for n in range(1, 44)]
        assert play.feed.stats.gaps == 0


@pytest.mark.parametrize("ends", [False, True])
async def test_too_much_before_the_subscriptions_are_in_and_no_proof(monkeypatch, ends):
    """The dropped messages may have begun with a snapshot, so the new connection is of no use."""
    monkeypatch.setattr(merger, "_MOST_HELD", 4096)
    async with Played("awaitable", key=number, rollover=Rollover(timeout=0.1 if not ends else 1000)) as play:
        rolling = await too_much(play)
        play.lines.say(2, "ack")
        assert await rolling
        if ends:
            play.lines.peers[0].reset()
            await play.lines.until(lambda lines: (3, "sub") in lines.sent)
            play.lines.say(3, "50")
        else:
            await until(lambda: play.feed.stats.rollovers_failed == 1)
            play.lines.say(1, "50")
        await play.until("50")
        assert [message for message, _ in play.data] == ["50"]
        assert bool(play.feed.gaps) == ends
        assert play.feed.stats.failures["QueueOverflow"] == 1


async def test_a_subscription_that_is_made_when_the_new_connection_is_not_read(monkeypatch):
    monkeypatch.setattr(merger, "_MOST_HELD", 4096)
    async with Played("awaitable", key=number) as play:
        await play.roll()
        play.lines.say(2, *(f"{n}" for n in range(10, 40)))
        await until(lambda: play.feed._life.line.is_paused)
        play.feed.subscribe("more", ack=lambda message: message == "more is in")
        await play.lines.until(lambda lines: {(1, "more"), (2, "more")} <= set(lines.sent))
        play.lines.say(2, "more is in", "40")
        play.lines.say(1, *(f"{n}" for n in range(10, 40)), "more is in", "40")
        await closing(play, 1)
        await play.until("40")
        play.lines.end(1)
        play.lines.say(2, "41")
        await play.until("41")
        assert [message for message, _ in play.data if message.isdigit()] == [str(n) for n in range(10, 42)]
        assert play.feed.stats.gaps == 0


@pytest.mark.parametrize("face", ["awaitable", "listener"])
@pytest.mark.parametrize("is_first", ["old", "new"])
async def test_the_old_server_is_late_to_take_a_subscription(face, is_first):
    """Messages that only the new connection brings come after later ones. So a gap is counted before them."""
    async with Played(face, key={f"c{n}": n for n in range(5)}.get) as play:
        await play.roll()
        play.feed.subscribe("C", ack=lambda message: message == "ackC", ack_timeout=1000)
        await play.lines.until(lambda lines: {(1, "C"), (2, "C")} <= set(lines.sent))
        held = play.feed._life.feed.merger
        play.lines.say(2, "ackC", "c1", "c2")
        await until(lambda: held.new.transport.stats.frames_received == 4)
        if is_first == "old":
            play.lines.say(1, "ackC", "c3")
            await play.until("c3")
            play.lines.say(2, "c3", "c4")
        else:
            play.lines.say(2, "c3", "c4")
            await until(lambda: held.new.transport.stats.frames_received == 6)
            play.lines.say(1, "ackC", "c3")
        await closing(play, 1)
        play.lines.end(1)
        await play.until("c4")
        assert [one for one in play.data if one[0] != "ackC"] == [("c3", 0), ("c1", 1), ("c2", 1), ("c4", 1)]


async def test_no_proof_before_the_old_server_has_taken_a_subscription():
    """Its messages on the new connection may lag behind those on the old one."""
    async with Played("awaitable", key={f"c{n}": n for n in range(5)}.get) as play:
        await play.roll()
        play.feed.subscribe("C", ack=lambda message: message == "ackC", ack_timeout=1000)
        await play.lines.until(lambda lines: {(1, "C"), (2, "C")} <= set(lines.sent))
        play.lines.say(2, "ackC", "c0")
        held = play.feed._life.feed.merger
        await until(lambda: held.new.transport.stats.frames_received == 3)
        play.lines.say(1, "c0")
        await play.until("c0")
        for _ in range(50):
            await asyncio.sleep(0)
        assert (1, "CLOSE") not in play.lines.sent
        play.lines.say(1, "ackC", "c1")
        play.lines.say(2, "c1", "c2")
        await closing(play, 1)
        play.lines.end(1)
        await play.until("c2")
        assert [one for one in play.data if one[0] != "ackC"] == [("c0", 0), ("c1", 0), ("c2", 0)]


@pytest.mark.parametrize("face", ["awaitable", "listener", "frames"])
async def test_nothing_held_is_dropped_while_the_old_connection_closes(monkeypatch, face):
    """However much comes before a subscription is in that was made meanwhile."""
    monkeypatch.setattr(merger, "_MOST_HELD", 400_000 if face == "frames" else 40_000)
    async with Played(face) as play:
        rolling = asyncio.ensure_future(play.feed.roll_over())
        await play.lines.until(lambda lines: (2, "sub") in lines.sent)
        play.lines.say(2, "snapshot", "ack")
        assert await rolling
        for line in (1, 2):
            play.lines.say(line, *"abc")
        await closing(play, 1)
        play.feed.subscribe("late", ack=lambda message: False, ack_timeout=1000)
        late = [f"{number}" for number in range(45)]
        play.lines.say(2, *late)
        new = play.feed._life.feed.merger.new
        await until(lambda: new.transport.stats.frames_received == 50)
        play.lines.end(1)
        await play.until(late[-1])
        assert [message for message, _ in play.data] == [*"abc", "snapshot", *"abc", *late]
        assert play.feed.stats.gaps == 0
