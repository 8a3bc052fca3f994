"""A process that loads a server: it measures, and draws nothing. The process that draws reads its counts.

stdin has the plan in its first line, then ``start NANOSECONDS`` and perhaps ``stop``; its end ends the process. stdout
gets a line of JSON for each report. A report of latencies is followed by them, as 64-bit integers.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from array import array
from typing import Any

from wsfast.cli import loops
from wsfast.cli.load.connections import Loader
from wsfast.cli.load.plan import Plan

__all__ = ["REPORTS_PER_SECOND"]

REPORTS_PER_SECOND = 10

_NONE: array[int] = array("q")


class _Output:
    """Writes reports without waiting for the process that reads them."""

    def __init__(self, pipe: asyncio.WriteTransport, closed: _Closed) -> None:
        self._pipe = pipe
        self._closed = closed

    def write(
        self, kind: str, report: dict[str, Any], latencies: array[int] = _NONE, lags: array[int] = _NONE
    ) -> None:
        line = {"kind": kind, **report, "latencies": len(latencies), "lags": len(lags)}
        self._pipe.write(json.dumps(line).encode() + b"\n" + latencies.tobytes() + lags.tobytes())

    async def close(self) -> None:
        """Wait until the reader has read everything, or has gone."""
        self._pipe.close()
        await self._closed.event.wait()


class _Closed(asyncio.BaseProtocol):
    def __init__(self) -> None:
        self.event = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        self.event.set()


def _sample(loader: Loader) -> tuple[dict[str, Any], array[int], array[int]]:
    """The counts so far, and the times since the last sample."""
    latencies, lags = loader.latencies, loader.lags
    loader.latencies, loader.lags = array("q"), array("q")
    counts = {"sent": loader.sent, "received": loader.received, "reconnections": loader.reconnections}
    return {**counts, "errors": dict(loader.errors)}, latencies, lags


async def _work(number: int) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    pipe, closed = await loop.connect_write_pipe(_Closed, sys.stdout)
    output = _Output(pipe, closed)
    loader = Loader(Plan.loads(await reader.readline()), number)
    opening = asyncio.ensure_future(loader.open())
    line = asyncio.ensure_future(reader.readline())
    await asyncio.wait([opening, line], return_when=asyncio.FIRST_COMPLETED)
    if not opening.done():  # the process that draws has gone, otherwise it would have waited for the report
        opening.cancel()
        return
    output.write("open", {**opening.result(), "errors": dict(loader.errors)})

    command, _, start = (await line).partition(b" ")
    if command == b"start":
        gc.collect()
        gc.freeze()
        listening = asyncio.ensure_future(_listen(reader, loader))
        running = asyncio.ensure_future(loader.run(int(start)))
        while not running.done():
            await asyncio.wait([running], timeout=1 / REPORTS_PER_SECOND)
            counts, latencies, lags = _sample(loader)
            output.write("sample", counts, latencies, lags)
        running.result()
        listening.cancel()
        counts, latencies, lags = _sample(loader)
        output.write("result", {**counts, **loader.result()}, latencies, lags)
    await loader.close()
    await output.close()


async def _listen(reader: asyncio.StreamReader, loader: Loader) -> None:
    """Wait for ``stop``, or for the end of stdin."""
    await reader.readline()
    loader.stop()


if __name__ == "__main__":
    loops.run(_work(int(sys.argv[1])), sys.argv[2])
