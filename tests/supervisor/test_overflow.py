"""A program slower than its feed: the backlog and the messages held for a merge are bounded, and drops are counted."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.frames import BINARY, CLOSE, TEXT, frame, text
from support.sessions import close, idle, sessions, supervise

from supervisor.test_merging import FACES, Texts
from wsfast.supervisor import Rollover, merger

POLICIES = ["pause", "drop_oldest", "drop_newest", "conflate", "fail"]

# In bytes: the overhead of a frame in the queue, the allowance of a place, the least allowance, and one read.
COST, PLACE, LEAST, READ = 128, 64 * 1024, 1 << 20, 1 << 17


async def play(overflow, places, sizes, takes):
    """Send messages of these sizes on each of three connections, and receive some of them in between. Returns the most
    bytes that waited on one connection, how many messages were received, and the stats."""

    async def script(peer):
        for size in sizes:
            peer.send(frame(BINARY, b"%04d" % (size % 999) + bytes(size)))
            await peer.writer.drain()
        await close(peer)

    async def turn():
        nonlocal most
        await asyncio.sleep(0)
        waiting = [line.connection.backlog.bytes for line in feed._life.feed.lines]
        most = max(most, *waiting, 0)
        assert len(waiting) <= 3

    options = {"conflate_key": lambda data: data[:4]} if overflow == "conflate" else {}
    most = received = 0
    async with sessions(script, script, script, idle) as server:
        async with supervise(server.url, overflow=overflow, max_queue=places, **options) as feed:
            for pause in takes:
                for _ in range(pause):
                    await turn()
                if feed.stats.backlog:
                    await feed.recv()
                    received += 1
            while feed.stats.connects < 4 or feed.stats.backlog:
                if feed.stats.backlog:
                    await feed.recv()
                    received += 1
                await turn()
            return most, received, feed.stats


@given(
    overflow=st.sampled_from(POLICIES),
    places=st.integers(1, 20),
    runs=st.lists(
        st.tuples(st.sampled_from([0, 1, 100, 5_000, 70_000, 400_000]), st.integers(1, 15)),
        min_size=1,
        max_size=3,
    ),
    takes=st.lists(st.integers(0, 80), max_size=8),
)
def test_what_waits_is_bounded_under_each_policy(overflow, places, runs, takes):
    sizes = [size for size, times in runs for _ in range(times)]
    most, received, stats = asyncio.run(play(overflow, places, sizes, takes))
    assert most <= max(places * PLACE, LEAST) + READ + max(sizes) + COST * (len(sizes) + 1)
    if overflow == "fail":
        assert received <= 3 * len(sizes)
    else:
        assert received + stats.dropped == 3 * len(sizes)
    if overflow == "pause":
        assert stats.dropped == 0


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest"])
async def test_what_was_dropped_is_counted_over_all_connections(overflow):
    async def script(peer):
        peer.send(b"".join(text(f"{peer.number}:{n}") for n in range(10)))
        await (close(peer) if peer.number < 3 else idle(peer))

    async with sessions(script) as server, supervise(server.url, overflow=overflow, max_queue=4) as feed:
        while feed.stats.dropped < 18:  # noqa: ASYNC110
            await asyncio.sleep(0)
        stats = await asyncio.to_thread(lambda: feed.stats)  # in another thread, as a dashboard does
        assert (stats.backlog, stats.dropped) == (12, 18)
        assert stats.backlog_age > 0
        kept = range(6, 10) if overflow == "drop_oldest" else range(4)
        assert [await feed.recv() for _ in range(12)] == [f"{i}:{n}" for i in (1, 2, 3) for n in kept]
        assert (feed.stats.backlog, feed.stats.backlog_age, feed.stats.dropped) == (0, 0.0, 18)


async def test_a_program_that_is_too_slow_is_a_failure():
    async def script(peer):
        peer.send(text("x") * 10)
        await idle(peer)

    async with sessions(script, idle) as server:
        async with supervise(server.url, overflow="fail", max_queue=4) as feed:
            assert [await feed.recv() for _ in range(10)] == ["x"] * 10
            while feed.stats.connects < 2:  # noqa: ASYNC110
                await asyncio.sleep(0)
            assert feed.stats.failures == {"QueueOverflow": 1}
            assert feed.stats.gaps == 1


HELD = 2 << 20  # instead of 16 MiB, so that little has to be sent
SENT = 20_000  # messages, which cost five times as much


@pytest.mark.asyncio(loop_factories=["asyncio"])
@pytest.mark.parametrize("is_in", [True, False])
@pytest.mark.parametrize("has_key", [True, False])
@pytest.mark.parametrize("face", FACES)
async def test_what_is_held_is_bounded(monkeypatch, face, has_key, is_in):
    async def script(peer):
        while (sent := await peer.frame()).opcode != CLOSE:
            if sent.opcode == TEXT and (peer.number == 1 or is_in):
                peer.send(text("ack"))
            if sent.opcode == TEXT and peer.number == 2:
                for number in range(0, SENT, 100):
                    peer.send(b"".join(text(f"{number + n:020}{size * 'x'}") for n in range(100)))
                    await peer.writer.drain()
                peer.send(text("end"))

    size = 400 if is_in else 0
    monkeypatch.setattr(merger, "_MOST_HELD", HELD)
    Texts.got = []
    options = {"key": lambda message: message if message != "ack" else None} if has_key else {}
    rollover = Rollover(timeout=1000)
    async with sessions(script) as server:
        async with supervise(server.url, *FACES[face], rollover=rollover, remember=1000, **options) as feed:
            Texts.feed = feed
            feed.subscribe("sub", ack=lambda message: message in ("ack", b"ack"), ack_timeout=1000)
            await feed.ready()
            gc.collect()
            tracemalloc.start()
            try:
                rolling = asyncio.ensure_future(feed.roll_over())
                while feed._life.feed.merger is None or feed._life.feed.merger.new is None:  # noqa: ASYNC110
                    await asyncio.sleep(0)
                new = feed._life.feed.merger.new
                while not new.is_paused and new.transport.stats.frames_received <= SENT:  # noqa: ASYNC110
                    await asyncio.sleep(0)
                assert tracemalloc.get_traced_memory()[1] <= HELD * 3 // 2
            finally:
                tracemalloc.stop()
                feed.abort()
                await asyncio.wait([rolling])
