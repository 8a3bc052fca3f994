"""What the kernel does not take is queued, and leaves once and in order, whatever a finalizer does meanwhile."""

from __future__ import annotations

import contextlib
import gc

import pytest
from support import frames
from support.pair import pair

from wsfast import ConnectionClosed, WSMsgType

pytestmark = pytest.mark.memory


class Garbage:
    """Polls wherever the collector finds it, and is found again."""

    def __init__(self, transport, budget):
        self.itself, self.transport, self.budget = self, transport, budget

    def __del__(self):
        if self.budget:
            Garbage(self.transport, self.budget - 1)
            with contextlib.suppress(ConnectionClosed, RuntimeError):
                self.transport.poll(1e-6, sleep=True)  # which sends what is queued


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_a_finalizer_that_polls_sends_nothing_twice():
    payloads = [frames.pattern(100_000, number) for number in range(100)]
    thresholds = gc.get_threshold()
    async with pair() as (transport, _, far):
        for payload in payloads:
            transport.send(WSMsgType.BINARY, payload)
        kept = slice(0)  # CPython keeps one spare slice: the next one is a new object
        gc.set_threshold(1)
        try:
            Garbage(transport, 300)
            got = await far.frames(len(payloads))
        finally:
            gc.set_threshold(*thresholds)
        del kept
    assert [frame.payload for frame in got] == payloads
