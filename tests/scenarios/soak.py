"""A bot for hours: does anything grow, and does anything become slower?

    python -m scenarios.soak SECONDS REPORT [PERIOD]

The bot, the exchange and the network are those of chaos.py, with faults every few seconds and a rollover a minute.
Every period, an hour by default, adds a row to the report: resident memory, descriptors, how long messages took from
the exchange to the bot, and the account. Exchange and bot share the process, and the exchange forgets connections that
have ended. It fails if a message was doubled, or if the last row has a quarter more memory than the second one, or more
descriptors.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.exchange import BINANCE, Exchange, exchange
from support.faults import faults

from scenarios.chaos import LIMIT, PER, SLACK, TOPICS, cancelled, load_bot, refuse, trade
from wsfast.supervisor import Rollover, Supervisor, Window

# Latencies that are kept of a period, chosen at random.
KEPT = 100_000

COLUMNS = (
    "hours",
    "RSS KiB",
    "descriptors",
    "p50 us",
    "p99 us",
    "delivered",
    "lost",
    "connects",
    "rollovers",
    "gaps",
)


class Stopwatch:
    """Notes when a message was published, and how long it took to arrive."""

    def __init__(self, market: Exchange, account: Any, rng: random.Random) -> None:
        self._left: dict[tuple[str, int], float] = {}
        self._note = account.note
        self._rng = rng
        self._publish = market.publish
        self._market = market
        self.doubled = 0
        self.begin()
        account.note = self.note
        market.publish = self.publish  # type: ignore[method-assign]

    def begin(self) -> None:
        self.seen = 0
        self.times: list[float] = []

    def publish(self, *topics: str) -> None:
        now = time.perf_counter()
        for topic in topics:
            self._left[topic, self._market.published[topic] + 1] = now
            self._publish(topic)

    def note(self, topic: str, number: int) -> None:
        self._note(topic, number)
        left = self._left.pop((topic, number), None)
        if left is None:
            self.doubled += 1
            return
        self.seen += 1
        took = time.perf_counter() - left
        if len(self.times) < KEPT:
            self.times.append(took)
        elif (place := self._rng.randrange(self.seen)) < KEPT:
            self.times[place] = took

    def forget(self, age: float = 60.0) -> None:
        """What has not arrived by now is lost, and the bot says so."""
        before = time.perf_counter() - age
        self._left = {key: left for key, left in self._left.items() if left > before}

    def percentile(self, part: float) -> float:
        times = sorted(self.times)
        return 1e6 * times[min(int(part * len(times)), len(times) - 1)] if times else float("nan")


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def start(report: Path) -> None:
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|\n")


def add(report: Path, row: tuple[Any, ...]) -> None:
    with report.open("a") as file:
        file.write(f"| {' | '.join(map(str, row))} |\n")


async def soak(
    seconds: float, report: Path, period: float, seed: int = 0, lifetime: float = 60.0
) -> list[str]:
    """Run for so long. Returns what is wrong."""
    rng = random.Random(seed)
    feeds: list[Supervisor] = []
    bot = load_bot(feeds)
    account = bot.Account()
    habits = replace(BINANCE, limit=(LIMIT, PER), ping_every=1.0, lifetime=lifetime, notice=lifetime / 2)
    rows: list[tuple[Any, ...]] = []
    start(report)
    async with exchange(habits) as market, faults(market.url) as network:
        watch = Stopwatch(market, account, rng)
        rollover = Rollover(when=lambda message: "serverShutdown" in message)
        window = Window(LIMIT, PER + SLACK)
        running = bot.run(
            network.url, TOPICS, account, window=window, rollover=rollover, max_silence=5, min_lifetime=1
        )
        misbehaving = network.misbehave(rng, 5.0, 0.5)
        tasks = [
            asyncio.ensure_future(one)
            for one in (running, trade(market, rng), misbehaving, refuse(market, rng, 30))
        ]
        began = time.monotonic()
        while (left := seconds - (time.monotonic() - began)) > 0:
            done, _ = await asyncio.wait(tasks, timeout=min(period, left), return_when="FIRST_COMPLETED")
            if done:
                return [f"ended early: {done}"]
            watch.forget()
            market.sessions[:] = market.open_sessions
            gc.collect()
            stats = feeds[0].stats
            row = (
                f"{(time.monotonic() - began) / 3600:.3f}",
                resident(),
                len(os.listdir("/proc/self/fd")),
                f"{watch.percentile(0.5):.0f}",
                f"{watch.percentile(0.99):.0f}",
                sum(account.delivered.values()),
                sum(account.lost.values()),
                stats.connects,
                stats.rollovers,
                stats.gaps,
            )
            rows.append(row)
            watch.begin()
            add(report, row)
        for task in tasks:
            await cancelled(task)
    wrong = [f"{watch.doubled} messages were doubled"] if watch.doubled else []
    if len(rows) > 2:
        if rows[-1][1] > 1.25 * rows[1][1]:
            wrong.append(f"memory grew from {rows[1][1]} to {rows[-1][1]} KiB")
        if rows[-1][2] > rows[1][2] + 8:  # connections that are being closed
            wrong.append(f"descriptors grew from {rows[1][2]} to {rows[-1][2]}")
    return wrong


def main() -> None:
    logging.disable(logging.CRITICAL)
    seconds, report = float(sys.argv[1]), Path(sys.argv[2])
    period = float(sys.argv[3]) if len(sys.argv) > 3 else 3600.0
    wrong = asyncio.run(soak(seconds, report, period))
    print(report.read_text())
    sys.exit("\n".join(wrong) or None)


if __name__ == "__main__":
    main()
