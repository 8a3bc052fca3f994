"""A supervisor holds no more than docs/howto/limits.md states while it merges two connections."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc

import pytest
from support.frames import CLOSE, TEXT, text
from support.sessions import sessions, supervise

from supervisor.test_merging import FACES, Texts
from wsfast.supervisor import Rollover, merger

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
