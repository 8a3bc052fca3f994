"""Many messages with one call, over connections that follow each other."""

from __future__ import annotations

import asyncio

import pytest
from support.frames import texts
from support.sessions import close, idle, say, sessions, supervise

from wsfast import ConnectionClosedOK, WSListener
from wsfast.exceptions import ConcurrencyError


def saying(*messages):
    async def script(peer):
        peer.send(texts(*messages))
        await close(peer)

    return script


async def lists_of(feed, count, by):
    """Lists with so many messages, each with `generation` and `gaps` as they were when it came."""
    got = []
    if by == "batches":
        async for messages in feed.batches(2):
            got.append((messages, feed.generation, feed.gaps))
            if sum(len(messages) for messages, _, _ in got) >= count:
                break
        return got
    while sum(len(messages) for messages, _, _ in got) < count:
        got.append((await feed.recv_many(2), feed.generation, feed.gaps))
    return got


@pytest.mark.parametrize("by", ["recv_many", "batches"])
@pytest.mark.parametrize("options", [{}, {"key": lambda message: message}])
async def test_a_list_is_of_one_connection(by, options):
    async with sessions(saying(1, 2, 3), saying(3, 4, 5, 5), idle) as server:
        async with supervise(server.url, **options) as feed:
            got = await lists_of(feed, 7, by)
    assert [(message, generation) for messages, generation, _ in got for message in messages] == [
        *((message, 1) for message in "123"),
        *((message, 2) for message in "3455"),
    ]
    assert {gaps for _, generation, gaps in got if generation == 1} == {0}
    assert {gaps for _, generation, gaps in got if generation == 2} == {1}
    assert max(len(messages) for messages, _, _ in got) == 2


async def test_it_waits_for_the_next_connection_and_ends_as_recv_does():
    async with sessions(saying(), say("a", "b")) as server:
        async with supervise(server.url) as feed:
            assert await feed.recv_many() in (["a"], ["a", "b"])
            waiting = asyncio.ensure_future(feed.batches(decode=False).__anext__())
            await asyncio.sleep(0)
            with pytest.raises(ConcurrencyError):
                while True:  # what has come is taken
                    await feed.recv_many()
            waiting.cancel()
            with pytest.raises(ValueError, match="max"):
                feed.recv_many(0)
        with pytest.raises(ConnectionClosedOK):
            while await feed.recv_many():
                pass
        assert [messages async for messages in feed.batches()] == []


async def test_a_listener_of_lists():
    got = []

    class Lists(WSListener):
        payload_type = str

        def on_ws_messages(self, transport, messages):
            got.extend(messages)

    async with sessions(saying(1, 2, 3), saying(4, "ping", 5), idle) as server:
        async with supervise(
            server.url, Lists, answer=lambda message: None, key=lambda message: message
        ) as feed:
            while len(got) < 6:  # noqa: ASYNC110
                await asyncio.sleep(0)
            assert feed.stats.gaps >= 1
    assert got == ["1", "2", "3", "4", "ping", "5"]
