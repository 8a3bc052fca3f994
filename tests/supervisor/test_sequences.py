"""Numbered messages come in order, each once, and a hole is filled or reported."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections import deque

import pytest
from support.frames import text
from support.sessions import close, idle, say, sessions, supervise

from wsfast import ConnectionClosed, WSListener
from wsfast.exceptions import ConcurrencyError
from wsfast.supervisor import Decision, Sequence, Window

LONG = 60.0


def update(first, last=None, stream="s"):
    return json.dumps([stream, first, first if last is None else last])


def snapshot(last, stream="s"):
    return json.dumps([stream, None, last])


def numbers(message):
    return tuple(json.loads(message)) if message[0] == "[" else None


def recovered(last, stream="s"):
    return None, last, snapshot(last, stream)


async def take(ordered, count):
    """The next messages, without their streams."""
    return [message for _, message in [await ordered.__anext__() for _ in range(count)]]


async def rest(ordered):
    return [message async for _, message in ordered]


def later(peer, *messages):
    peer.send(b"".join(text(message) for message in messages))


async def test_messages_out_of_order_are_put_in_order_and_each_comes_once():
    sent = [
        update(1),
        update(3),
        update(2),
        update(2),
        update(4, 6),
        update(5),
        update(7),
        "a pong",
        update(6, 8),
    ]
    async with sessions(say(*sent)) as served, supervise(served.url) as feed:
        ordered = feed.sequenced(Sequence(numbers, hold=LONG))
        expected = [update(1), update(2), update(3), update(4, 6), update(7), "a pong", update(6, 8)]
        assert await take(ordered, 7) == expected
        assert (ordered.gaps, ordered.duplicates) == (0, 2)


async def test_each_message_has_its_stream_and_one_without_number_has_none():
    async with sessions(say(update(5), "x", update(9, stream="t"))) as served, supervise(served.url) as feed:
        ordered = feed.sequenced(Sequence(numbers))
        streams = [(await ordered.__anext__())[0] for _ in range(3)]
    assert streams == ["s", None, "t"]


@pytest.mark.parametrize("hold", [0.0, 0.01])
async def test_a_hole_is_reported_when_the_messages_before_it_were_delivered(hold):
    events = []
    sent = [update(1), update(2), update(5), update(6), update(9)]
    async with sessions(say(*sent)) as served, supervise(served.url) as feed:
        ordered = feed.sequenced(Sequence(numbers, hold=hold, on_gap=lambda *gap: events.append(gap)))
        for _ in sent:
            events.append((await ordered.__anext__())[1])
    assert events == [*sent[:2], ("s", 3, 5), *sent[2:4], ("s", 7, 9), sent[4]]
    assert ordered.gaps == 2


async def test_a_message_fills_a_hole_before_another_hole_gets_its_own_time():
    """The second hole must not inherit the timer of the first one."""

    async def script(peer):
        later(peer, update(1), update(3), update(6))
        await peer.frame()
        later(peer, update(2))
        await peer.frame()
        later(peer, update(4, 5))
        await idle(peer)

    async with sessions(script) as served, supervise(served.url) as feed:
        ordered = feed.sequenced(Sequence(numbers, hold=LONG))
        assert await take(ordered, 1) == [update(1)]
        await feed.send("on")
        assert await take(ordered, 2) == [update(2), update(3)]
        await feed.send("on")
        assert await take(ordered, 2) == [update(4, 5), update(6)]
    assert ordered.gaps == 0


async def test_a_filled_hole_has_no_timer(loop_errors):
    delivered = []
    async with sessions(say()) as served, supervise(served.url, WSListener, logger=None) as feed:
        sequencer = feed.sequencer(
            Sequence(numbers, hold=0.01), lambda stream, message: delivered.append(message)
        )
        for n in (1, 3, 2):
            sequencer.take(None, update(n))
        assert delivered == [update(1), update(2), update(3)]
        await asyncio.sleep(0.03)
    assert not loop_errors


async def test_a_program_that_is_slow_makes_no_gap_of_a_message_that_has_arrived():
    sent = [update(1), update(3), "on", update(2)]
    async with sessions(say(*sent)) as served, supervise(served.url) as feed:
        ordered = feed.sequenced(Sequence(numbers, hold=0.01))
        assert await take(ordered, 2) == [update(1), "on"]
        await asyncio.sleep(0.05)
        assert await take(ordered, 2) == [update(2), update(3)]
    assert ordered.gaps == 0


async def test_more_than_the_limit_do_not_wait():
    sent = [update(1), *(update(n) for n in range(3, 7))]
    async with sessions(say(*sent)) as served, supervise(served.url) as feed:
        ordered = feed.sequenced(Sequence(numbers, hold=LONG, limit=3))
        assert await take(ordered, 5) == sent


async def test_a_stream_begins_with_a_snapshot_and_the_updates_behind_it():
    """The first snapshot is older than the first update, as one from a cache is."""
    asked, snapshots = [], [recovered(3), recovered(6)]

    async def recover(*hole):
        asked.append(hole)
        return snapshots.pop(0)

    sent = [update(5), update(6, 7), update(8)]
    async with sessions(say(*sent)) as served, supervise(served.url) as feed:
        ordered = feed.sequenced(Sequence(numbers, recover=recover))
        assert await take(ordered, 3) == [snapshot(6), *sent[1:]]
    assert asked == [("s", None, 5)] * 2


async def test_updates_wait_while_a_hole_is_being_filled():
    """Missing messages, part of them first, and then the rest."""
    asked, parts = [], [[(1, 2, "old"), (3, 4, update(3, 4))], [(5, 5, update(5)), (6, 7, update(6, 7))]]

    async def recover(*hole):
        asked.append(hole)
        return parts.pop(0)

    sent = [update(1), update(2), update(8), update(9)]
    sequence = Sequence(numbers, hold=0, recover=recover)
    async with sessions(say(snapshot(0), *sent)) as served, supervise(served.url) as feed:
        ordered = feed.sequenced(sequence)
        filled = [update(3, 4), update(5), update(6, 7)]
        assert await take(ordered, 8) == [snapshot(0), *sent[:2], *filled, *sent[2:]]
    assert asked == [("s", 3, 8), ("s", 5, 8)]
    assert ordered.gaps == 1


async def test_nothing_can_be_recovered_and_the_stream_goes_on():
    async def recover(stream, expected, received):
        return None

    sent = [update(4), update(5), update(8)]
    async with sessions(say(*sent)) as served, supervise(served.url) as feed:
        assert await take(feed.sequenced(Sequence(numbers, hold=0, recover=recover)), 3) == sent


@pytest.mark.parametrize(("fill", "expected"), [(update(2), [update(2)]), (snapshot(2), [snapshot(2)])])
async def test_a_late_message_or_a_snapshot_of_the_server_ends_a_recovery(fill, expected):
    cancelled = asyncio.Event()

    async def recover(stream, expected, received):
        await feed.send("fill the hole")
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def script(peer):
        later(peer, snapshot(0), update(1), update(3))
        await peer.frame()
        later(peer, fill, update(4))
        await idle(peer)

    async with sessions(script) as served, supervise(served.url) as feed:
        ordered = feed.sequenced(Sequence(numbers, hold=0, recover=recover))
        assert await take(ordered, 5) == [snapshot(0), update(1), *expected, update(3), update(4)]
        await cancelled.wait()


async def test_a_recovery_that_ignores_its_cancellation_changes_nothing():
    ended = asyncio.Event()

    async def recover(stream, expected, received):
        await feed.send("fill the hole")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.set()
            return recovered(9)

    async def script(peer):
        later(peer, snapshot(0), update(2))
        await peer.frame()
        later(peer, update(1))
        await peer.frame()
        later(peer, update(3))
        await idle(peer)

    async with sessions(script) as served, supervise(served.url) as feed:
        ordered = feed.sequenced(Sequence(numbers, hold=0, recover=recover))
        assert await take(ordered, 3) == [snapshot(0), update(1), update(2)]
        await ended.wait()
        await feed.send("on")
        assert await take(ordered, 1) == [update(3)]


async def test_recovery_is_repeated_when_it_raises_and_by_its_window(caplog):
    calls = []

    async def recover(stream, expected, received):
        calls.append(time.monotonic())
        if len(calls) < 3:
            raise [ValueError("503"), asyncio.TimeoutError()][len(calls) - 1]
        return [recovered(4), (5, "6", "wrong")] if len(calls) == 3 else recovered(4)

    async with sessions(say(update(5))) as served, supervise(served.url) as feed:
        ordered = feed.sequenced(Sequence(numbers, recover=recover, window=(1, 0.1)))
        assert await take(ordered, 2) == [snapshot(4), update(5)]
        assert feed.stats.callback_errors == 3
    assert len(calls) == 4
    assert all(b - a > 0.1 for a, b in itertools.pairwise(calls))
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        "exception in recover()"
    ]
    caplog.clear()


async def test_while_a_stream_is_recovered_the_oldest_messages_beyond_the_limit_are_dropped():
    ready, late = asyncio.Event(), iter([recovered(4), recovered(6)])

    async def recover(stream, expected, received):
        await ready.wait()
        return next(late)

    async with (
        sessions(say(*(update(n) for n in range(5, 10)), "on")) as served,
        supervise(served.url) as feed,
    ):
        ordered = feed.sequenced(Sequence(numbers, recover=recover, limit=3))
        assert await take(ordered, 1) == ["on"]
        ready.set()
        assert await take(ordered, 4) == [snapshot(6), update(7), update(8), update(9)]
        assert ordered.dropped == 2


async def test_a_recovery_that_was_cancelled_is_begun_again():
    calls = 0

    async def recover(stream, expected, received):
        nonlocal calls
        calls += 1
        if calls == 1:
            raise asyncio.CancelledError
        return recovered(received - 1)

    async def script(peer):
        later(peer, update(5), "on")
        await peer.frame()
        later(peer, update(6))
        await idle(peer)

    async with sessions(script) as served, supervise(served.url) as feed:
        ordered = feed.sequenced(Sequence(numbers, recover=recover))
        assert await take(ordered, 1) == ["on"]
        await feed.send("on")
        assert await take(ordered, 3) == [snapshot(4), update(5), update(6)]


async def test_no_recovery_outlives_the_supervisor():
    """The fixture that finds leftover tasks is the check."""
    tried = asyncio.Event()

    async def recover(stream, expected, received):
        tried.set()
        raise OSError("503")

    async with sessions(say()) as served, supervise(served.url, WSListener, logger=None) as feed:
        sequencer = feed.sequencer(Sequence(numbers, recover=recover), print)
        sequencer.take(None, update(1))
        await tried.wait()
    while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110
        await asyncio.sleep(0)


async def test_the_program_recovers_a_stream_that_it_does_not_trust():
    async def recover(stream, expected, received):
        return recovered(20)

    async def script(peer):
        later(peer, snapshot(1), update(2))
        await peer.frame()
        later(peer, update(20), update(21))
        await idle(peer)

    async with sessions(script) as served, supervise(served.url) as feed:
        ordered = feed.sequenced(Sequence(numbers, recover=recover))
        assert await take(ordered, 2) == [snapshot(1), update(2)]
        ordered.recover("s")
        ordered.recover("unknown")
        await feed.send("on")
        assert await take(ordered, 2) == [snapshot(20), update(21)]


async def test_a_snapshot_that_goes_back_begins_the_stream_anew():
    sent = [update(7), update(9), snapshot(1), update(2)]
    async with sessions(say(*sent)) as served, supervise(served.url) as feed:
        ordered = feed.sequenced(Sequence(numbers, hold=LONG))
        assert await take(ordered, 3) == [sent[0], *sent[2:]]
        assert ordered.dropped == 1


@pytest.mark.parametrize("recovers", [False, True])
async def test_numbers_that_go_back_after_a_gap_begin_the_stream_anew(recovers):
    async def first(peer):
        later(peer, snapshot(6), update(7))
        await close(peer)

    async def recover(stream, expected, received):
        return recovered(received - 1)

    gaps = []
    async with sessions(first, say(update(1), update(2))) as served, supervise(served.url) as feed:
        cure = recover if recovers else None
        ordered = feed.sequenced(
            Sequence(numbers, hold=LONG, on_gap=lambda *gap: gaps.append(gap), recover=cure)
        )
        head = [snapshot(6), update(7)]
        assert await take(ordered, 4 + recovers) == [*head, *[snapshot(0)] * recovers, update(1), update(2)]
    assert gaps == [("s", 8, 1)]


@pytest.mark.parametrize("rolls", [False, True])
async def test_numbers_of_a_connection_begin_with_it(rolls):
    """A rollover without a gap is no reason for a snapshot; a lost connection is."""
    asked = []

    async def recover(*hole):
        asked.append(hole)
        return None, 4, "fetched"

    async def first(peer):
        later(peer, snapshot(6), update(7))
        if rolls:
            await both.wait()
            later(peer, "same")
            await idle(peer)
        await peer.frame()
        await close(peer)

    async def second(peer):
        later(peer, "same", update(5))
        both.set()
        await idle(peer)

    both = asyncio.Event()
    async with sessions(first, second) as served, supervise(served.url, min_lifetime=0, key=str) as feed:
        ordered = feed.sequenced(Sequence(numbers, per_connection=True, recover=recover))
        assert await take(ordered, 2) == [snapshot(6), update(7)]
        if rolls:
            rolling = asyncio.ensure_future(feed.roll_over())
            assert await take(ordered, 2) == ["same", update(5)]
            assert await rolling
        else:
            await feed.send("close")
            assert await take(ordered, 3) == ["same", "fetched", update(5)]
    assert asked == ([] if rolls else [("s", None, 5)])


async def test_a_hole_at_the_end_of_a_connection_is_recovered_if_numbers_begin_anew():
    delivered, gaps, done = [], [], asyncio.Event()

    async def recover(stream, expected, received):
        return recovered(received - 1)

    def deliver(stream, message):
        delivered.append(message)
        if message == update(1):
            done.set()

    async with sessions(say()) as served, supervise(served.url, WSListener, logger=None) as feed:
        sequence = Sequence(
            numbers, hold=LONG, per_connection=True, on_gap=lambda *gap: gaps.append(gap), recover=recover
        )
        sequencer = feed.sequencer(sequence, deliver)
        for transport, message in (("old", snapshot(6)), ("old", update(8)), ("new", update(1))):
            sequencer.take(transport, message)
        await done.wait()
    assert delivered == [snapshot(6), snapshot(0), update(1)]
    assert gaps == [("s", 7, 1)]
    assert sequencer.dropped == 1


async def test_an_old_snapshot_of_the_new_connection_of_a_rollover_changes_nothing():
    async def first(peer):
        later(peer, snapshot(6), update(7), update(8))
        await both.wait()
        later(peer, update(9))
        await idle(peer)

    async def second(peer):
        later(peer, snapshot(7), update(8), update(9), update(10))
        both.set()
        await idle(peer)

    both = asyncio.Event()
    async with sessions(first, second) as served, supervise(served.url, min_lifetime=0, key=str) as feed:
        ordered = feed.sequenced(Sequence(numbers, hold=LONG))
        assert await take(ordered, 3) == [snapshot(6), update(7), update(8)]
        rolling = asyncio.ensure_future(feed.roll_over())
        assert await take(ordered, 2) == [update(9), update(10)]
        assert await rolling


async def test_a_cancelled_iteration_and_a_new_one_lose_nothing():
    sent = [update(1), update(3), update(4)]

    async def script(peer):
        later(peer, *sent)
        await peer.frame()
        later(peer, update(2))
        await idle(peer)

    async with sessions(script) as served, supervise(served.url) as feed:
        ordered = feed.sequenced(Sequence(numbers, hold=LONG))
        async for _, message in ordered:
            assert message == update(1)
            break
        for _ in range(3):
            receiving = asyncio.create_task(take(ordered, 1))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            receiving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await receiving
        await feed.send("on")
        assert await take(ordered, 3) == [update(2), update(3), update(4)]


async def test_at_the_end_the_messages_behind_holes_are_delivered():
    async def never(stream, expected, received):
        await asyncio.Event().wait()

    gaps, sent = [], [update(1), update(3), update(6), "last"]
    for recover, expected in ((None, [*sent[1:3]]), (never, [])):
        async with sessions(say(snapshot(0), *sent)) as served, supervise(served.url) as feed:
            gap = lambda *gap: gaps.append(gap)  # noqa: E731
            ordered = feed.sequenced(
                Sequence(numbers, hold=LONG if recover is None else 0, on_gap=gap, recover=recover)
            )
            assert await take(ordered, 3) == [snapshot(0), update(1), "last"]
            await feed.close()
            assert await rest(ordered) == expected
            assert await rest(ordered) == []
        assert gaps == ([("s", 2, 3), ("s", 4, 6)] if recover is None else [("s", 2, 3)])
        gaps.clear()
    assert ordered.dropped == 2


async def test_the_iteration_raises_the_reason_when_the_supervisor_gives_up():
    def classify(error):
        return Decision.GIVE_UP

    async def script(peer):
        later(peer, update(1), update(3))
        await close(peer)

    async with sessions(script) as served, supervise(served.url, classify=classify) as feed:
        ordered = feed.sequenced(Sequence(numbers, hold=LONG))
        assert await take(ordered, 2) == [update(1), update(3)]
        for _ in range(2):
            with pytest.raises(ConnectionClosed, match="1012"):
                await rest(ordered)


async def test_another_task_that_receives_is_refused_and_ends_nothing():
    async with sessions(say()) as served, supervise(served.url) as feed:
        ordered = feed.sequenced(Sequence(numbers))
        receiving = asyncio.create_task(feed.recv())
        await feed.ready()
        with pytest.raises(ConcurrencyError):
            await take(ordered, 1)
        await feed.close()
        with pytest.raises(ConnectionClosed, match="no close frame"):
            await receiving
        assert await rest(ordered) == []


@pytest.mark.parametrize("wrong", [("s", "1", 2), ("s", 3, 2), ("s", 1), ([], 1, 1), 5, ("s", None, None)])
async def test_a_message_whose_numbers_are_wrong_is_delivered_as_one_without(wrong, caplog):
    async with sessions(say("x")) as served, supervise(served.url) as feed:
        assert await feed.sequenced(Sequence(lambda message: wrong)).__anext__() == (None, "x")
        assert feed.stats.callback_errors == 1
    caplog.clear()


async def test_messages_are_parsed_once_and_recovered_ones_never():
    async def recover(stream, expected, received):
        return None, 0, "snapshot"

    sent = [update(1), "[not JSON"]
    async with sessions(say(*sent)) as served, supervise(served.url, parse=json.loads) as feed:
        ordered = feed.sequenced(Sequence(tuple, recover=recover))
        assert {(await ordered.__anext__())[1] if n else "" for n in range(1)} == {""}
        got = [await ordered.__anext__() for _ in range(3)]
        assert sorted(got, key=str) == sorted(
            [("s", "snapshot"), ("s", ["s", 1, 1]), (None, sent[1])], key=str
        )


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"of": None}, TypeError, "of must be a function"),
        ({"of": 5}, TypeError, "of must be"),
        ({"hold": -1}, ValueError, "hold"),
        ({"hold": "1"}, TypeError, "hold"),
        ({"limit": 0}, ValueError, "limit"),
        ({"per_connection": 1}, TypeError, "per_connection"),
        ({"recover": 5}, TypeError, "recover"),
        ({"on_gap": 5}, TypeError, "on_gap"),
        ({"window": 5}, TypeError, "window"),
        ({"window": (0, 1)}, ValueError, "limit"),
    ],
)
def test_wrong_options_are_refused(options, error, words):
    with pytest.raises(error, match=words):
        Sequence(**{"of": numbers, **options})


async def test_wrong_arguments_are_refused():
    async with sessions(say()) as served, supervise(served.url) as feed:
        with pytest.raises(TypeError, match="sequence must be a Sequence"):
            feed.sequenced(numbers)
        with pytest.raises(TypeError, match="deliver must be callable"):
            feed.sequencer(Sequence(numbers, window=Window(2, 1)), None)
        with pytest.raises(TypeError, match="no recover="):
            feed.sequenced(Sequence(numbers)).recover("s")


async def test_a_listener_gets_messages_in_order_by_a_sequencer():
    """The function to which they are delivered may take others and raise."""
    delivered, done = [], asyncio.Event()

    def deliver(stream, message):
        if message == update(1):
            sequencer.take(transports[0], update(3))
            sequencer.take(transports[0], update(2))
        delivered.append(message)
        if message == update(1):
            raise ValueError("mine")
        if message == update(9):
            done.set()

    transports = []

    class Bot(WSListener):
        payload_type = str

        def on_ws_message(self, transport, msg_type, payload):
            transports.append(transport)
            sequencer.take(transport, payload)

    sent = [update(1), update(5), update(4), update(7), update(9)]
    async with sessions(say(*sent)) as served:
        feed = supervise(served.url, Bot, logger=None)
        async with feed:
            sequencer = feed.sequencer(Sequence(numbers, hold=0.01), deliver)
            await done.wait()
            assert delivered == [update(n) for n in (1, 2, 3, 4, 5, 7, 9)]
            assert sequencer.gaps == 2
            sequencer.take(transports[0], update(11))
            sequencer.finish()
            assert delivered[-1] == update(11)
            assert feed.stats.callback_errors == 1


class Venue:
    """A server whose messages are dropped, doubled and delayed, and whose snapshots are slow and sometimes old."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.last = dict.fromkeys("abc", 0)
        self.old = {stream: deque([0], maxlen=20) for stream in "abc"}

    def messages(self, count):
        """(due, message) in the order of their arrival."""
        arriving = []
        for at in range(count):
            stream = self.random.choice("abc")
            first = self.last[stream] + 1
            self.last[stream] = last = first + self.random.choice((0, 0, 3))
            for _ in range(self.random.choices((0, 1, 2), (2, 96, 2))[0]):
                late = self.random.choice((0,) * 9 + (5, 40))
                arriving.append((at + late, at, stream, first, last))
        return sorted(arriving)

    async def recover(self, stream, expected, received):
        for _ in range(self.random.randrange(4)):
            await asyncio.sleep(0)
        if self.random.random() < 0.2:
            raise OSError("503")
        last = self.random.choice(self.old[stream])
        return None, last, (stream, None, last)


@pytest.mark.parametrize("seed", range(20))
async def test_a_book_never_misses_an_update(seed):
    """Each update that is delivered follows the last one, or a snapshot, whatever was dropped, doubled or delayed."""
    venue, books = Venue(seed), {}

    def deliver(stream, message):
        _, first, last = message
        assert first is None or first <= books[stream] + 1 <= last, (seed, books[stream], message)
        books[stream] = last

    async with sessions(say()) as served, supervise(served.url, WSListener, logger=None) as feed:
        sequencer = feed.sequencer(Sequence(tuple, hold=0, limit=50, recover=venue.recover), deliver)
        for _, at, stream, first, last in venue.messages(3000):
            venue.old[stream].append(max(last, venue.old[stream][-1]))
            sequencer.take(None, (stream, first, last))
            if at % 7 == 0:
                await asyncio.sleep(0)
        quiet = False
        while not quiet or sequencer._waiting:
            quiet = True
            for stream, last in venue.last.items():  # a quiet end
                venue.last[stream] = last + 1
                venue.old[stream].append(last + 1)
                sequencer.take(None, (stream, last + 1, last + 1))
            await asyncio.sleep(0.001)
        assert books == venue.last
        assert sequencer.gaps > 10
        assert not any("deliver" in name for name in feed._shared.callbacks._logged)
