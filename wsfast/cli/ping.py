"""``wsfast ping``: measures round trips of PING frames, and prints them in the way of ping(8)."""

from __future__ import annotations

import argparse
import asyncio
import math
import signal
import statistics
import sys
import time
from contextlib import suppress
from typing import Any

import wsfast
from wsfast.asyncio import ClientConnection
from wsfast.cli import target
from wsfast.cli.outcome import CANNOT_CONNECT, ERRORS, OK, cannot_connect, why
from wsfast.cli.target import Target
from wsfast.cli.text import bars, beside, duration, write_json

__all__ = ["add_to"]


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "ping",
        help="measure the round trip of PING frames",
        description="Measure the round trip of PING frames. Ctrl-C ends it, and prints the summary.",
        epilog="exit codes: 0 the server answered, 1 it could not be reached or answered no PING, 2 wrong usage",
    )
    parser.set_defaults(run=_run)
    target.add_arguments(parser)
    ping = parser.add_argument_group("ping")
    ping.add_argument("-c", "--count", metavar="N", type=target.whole, help="stop after so many")
    ping.add_argument(
        "-i", "--interval", metavar="SECONDS", type=target.positive, default=1.0, help="between PINGs (1)"
    )
    ping.add_argument(
        "-W", "--timeout", metavar="SECONDS", type=target.positive, default=2.0, help="for each answer (2)"
    )
    ping.add_argument("-q", "--quiet", action="store_true", help="print the summary only")
    ping.add_argument("--json", metavar="FILE", help="write the figures as JSON; - is stdout")


class _Pinger:
    """The PINGs of one connection."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._out = beside(arguments.json)
        self._stopping = False
        self.sent = 0
        self.times: list[float] = []
        self.error: str | None = None

    async def run(self, where: Target) -> None:
        """Ping until the count is reached, the connection ends, or Ctrl-C."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None

        def stop() -> None:
            # wait_for() may swallow a cancellation that comes together with the PONG, so there is a flag, too.
            self._stopping = True
            task.cancel()

        loop.add_signal_handler(signal.SIGINT, stop)
        try:
            # This command receives no messages. If a streaming server filled the queue, reading would stop, and no
            # PONG would be read.
            async with wsfast.connect(
                where.url, ping_interval=None, close_timeout=1, overflow="drop_oldest", **where.options()
            ) as ws:
                # Ctrl-C ends the pings, and then the connection is closed.
                with suppress(asyncio.CancelledError):
                    await self._ping(ws)
        except CANNOT_CONNECT as exc:
            self.error = cannot_connect(where.shown, exc)
        except asyncio.CancelledError:
            self.error = "interrupted while connecting"
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    async def _ping(self, ws: ClientConnection) -> None:
        arguments = self._arguments
        host, port = ws.remote_address[:2]
        due = time.monotonic()
        while not self._stopping and (arguments.count is None or self.sent < arguments.count):
            await asyncio.sleep(due - time.monotonic())
            due = max(due + arguments.interval, time.monotonic())
            self.sent += 1
            try:
                pong = await ws.ping()
                seconds = await asyncio.wait_for(pong, arguments.timeout)
            except asyncio.TimeoutError:
                self._say(f"no answer: seq={self.sent} within {arguments.timeout:g} s")
            except asyncio.CancelledError:  # Ctrl-C: this PING was neither answered nor lost
                self.sent -= 1
                raise
            except wsfast.ConnectionClosed as exc:
                self.error = f"the connection was closed: {why(exc)}"
                return
            else:
                self.times.append(seconds)
                self._say(f"pong from {host}:{port}: seq={self.sent} time={duration(seconds * 1e9)}")

    def _say(self, line: str) -> None:
        if not self._arguments.quiet:
            print(line, file=self._out, flush=True)


def _run(arguments: argparse.Namespace) -> int:
    where = target.of_arguments(arguments)
    pinger = _Pinger(arguments)
    began = time.monotonic()
    asyncio.run(pinger.run(where))
    elapsed = time.monotonic() - began
    if pinger.sent:
        print(_summary(where.shown, pinger, elapsed), file=beside(arguments.json))
    if pinger.error is not None:
        print(f"wsfast: {pinger.error}", file=sys.stderr)
    if arguments.json is not None:
        write_json(arguments.json, _content(where.shown, pinger, elapsed))
    return OK if pinger.times else ERRORS


def _summary(url: str, pinger: _Pinger, elapsed: float) -> str:
    lost = 100 * (1 - len(pinger.times) / pinger.sent)
    lines = [
        "",
        f"--- {url} ping statistics ---",
        f"{pinger.sent} sent, {len(pinger.times)} answered, {lost:.3g} % lost, time {elapsed:.2f} s",
    ]
    if pinger.times:
        spans = [seconds * 1e9 for seconds in pinger.times]
        figures = (min(spans), statistics.fmean(spans), max(spans), statistics.pstdev(spans))
        lines.append(f"rtt min/avg/max/mdev = {' / '.join(map(duration, figures))}")
        rows = min(14, 4 + math.isqrt(len(spans)))  # a few PINGs need no fine scale
        lines += ["", bars(((span, 1) for span in spans), rows)]
    return "\n".join(lines)


def _content(url: str, pinger: _Pinger, elapsed: float) -> dict[str, Any]:
    content: dict[str, Any] = {
        "url": url,
        "sent": pinger.sent,
        "answered": len(pinger.times),
        "seconds": round(elapsed, 6),
        "error": pinger.error,
        "rtt_us": [round(seconds * 1e6, 3) for seconds in pinger.times],
    }
    if pinger.times:
        times = [seconds * 1e6 for seconds in pinger.times]
        content |= {"min": min(times), "mean": statistics.fmean(times), "max": max(times)}
        content |= {"mdev": statistics.pstdev(times)}
    return content
