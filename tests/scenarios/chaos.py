"""A bot, an exchange and a network that is out to get it; in the end, an account of every message.

    python -m scenarios.chaos SECONDS [SEED]

The bot is examples/feed_bot.py. The exchange has Binance's habits in a world that is fast, and now and then refuses to
open connections. The proxy between them stalls, delays, cuts and resets connections. The account: what the exchange has
published since the bot's first message was delivered once and in its order, or is reported as lost. And the supervisor
knows of each hole by the time that the message behind it is received.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import random
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from support import HUNG
from support.awaiting import turns
from support.exchange import BINANCE, Exchange, exchange, refusal
from support.faults import Faults, faults

import wsfast
from wsfast.supervisor import Rollover, Supervisor, Window

BOT = Path(__file__).parents[2] / "examples" / "feed_bot.py"
TOPICS = [f"{name}usdt@trade" for name in ("btc", "eth", "sol", "xrp", "ada", "dot", "ltc", "uni", "trx")]

# The exchange counts frames when it reads them, up to this much later than they were sent: a network that delays one
# frame and not the next moves them together. So the windows of the bot are longer than those of the exchange.
LIMIT, PER, SLACK = 8, 0.2, 0.3


def load_bot(feeds: list[Supervisor]) -> Any:
    """The module of the bot. Its supervisors are added to `feeds`."""
    spec = importlib.util.spec_from_file_location("feed_bot", BOT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def supervise(*args: Any, **options: Any) -> Supervisor:
        feeds.append(wsfast.supervise(*args, **options))
        return feeds[-1]

    module.wsfast = type("wsfast", (), {"supervise": staticmethod(supervise)})
    return module


@dataclass
class Report:
    """The account, and what happened meanwhile."""

    published: int = 0
    delivered: int = 0
    lost: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)
    stats: Any = None
    errors: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"published {self.published} = delivered {self.delivered} + reported as lost {self.lost}",
            f"faults: {dict(self.faults)}; ends, as the exchange sees them: {dict(self.endings)}",
            f"supervisor: {self.stats}",
        ]
        return "\n".join(lines + [f"ERROR: {error}" for error in self.errors])


class Auditor:
    """Stands behind the bot's account, and looks at each message for itself."""

    def __init__(self, account: Any, feeds: list[Supervisor], report: Report) -> None:
        self._feeds = feeds
        self._note = account.note
        self._report = report
        self.first: dict[str, int] = {}
        self.last: dict[str, int] = {}
        self._gaps: dict[str, int] = {}
        self.numbers: dict[str, set[int]] = {}
        account.note = self.note

    def note(self, topic: str, number: int) -> None:
        self._note(topic, number)
        (feed,) = self._feeds
        self.first.setdefault(topic, number)
        last = self.last.get(topic, number - 1)
        if number <= last and feed.gaps == self._gaps[topic]:  # behind a gap messages may come again
            self._report.errors.append(f"{topic}: {number} after {last}")
        if number > last + 1 and feed.gaps == self._gaps[topic]:
            self._report.errors.append(
                f"{topic}: the supervisor knows of no gap between {last} and {number}, of connection {feed.generation}"
            )
        self.last[topic] = number
        self._gaps[topic] = feed.gaps
        self.numbers.setdefault(topic, set()).add(number)


async def play(
    seconds: float, seed: int, *, lifetime: float = 2.5, pause: float = 0.3, stall: float = 0.15
) -> Report:
    """Run the bot for so long, and account for it."""
    rng = random.Random(seed)
    feeds: list[Supervisor] = []
    bot = load_bot(feeds)
    report = Report()
    habits = replace(
        BINANCE, limit=(LIMIT, PER), ping_every=0.4, pong_within=2.0, lifetime=lifetime, notice=lifetime * 0.7
    )
    account = bot.Account()
    auditor = Auditor(account, feeds, report)
    async with exchange(habits) as market, faults(market.url) as network:
        running = asyncio.ensure_future(
            bot.run(
                network.url,
                TOPICS,
                account,
                window=Window(LIMIT, PER + SLACK),
                rollover=Rollover(
                    when=lambda message: "serverShutdown" in message, retry=0.1, drain_timeout=1.0
                ),
                max_silence=1.0,
                delays=lambda: iter(lambda: rng.uniform(0, 0.1), None),
                min_lifetime=0.1,
                open_timeout=2.0,
                compression=rng.choice([None, "deflate"]),
            )
        )
        trading = asyncio.ensure_future(trade(market, rng))
        breaking = asyncio.ensure_future(network.misbehave(rng, pause, stall))
        refusing = asyncio.ensure_future(refuse(market, rng, 10 * pause))
        done, _ = await asyncio.wait(
            [running, trading, breaking, refusing], timeout=seconds, return_when="FIRST_COMPLETED"
        )
        for task in done:
            report.errors.append(f"ended early: {task!r}")
        for task in (breaking, refusing):
            await cancelled(task)
        calm(market, network)
        try:
            await asyncio.wait_for(in_step(market, auditor), HUNG)
        except asyncio.TimeoutError:
            report.errors.append(f"the bot has not caught up: {auditor.last} of {dict(market.published)}")
        await cancelled(trading)
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(caught_up(market, auditor), HUNG)
        report.stats = feeds[0].stats
        await cancelled(running)
        audit(market, network, account, auditor, report)
    return report


async def trade(market: Exchange, rng: random.Random) -> None:
    while True:
        await asyncio.sleep(rng.choice([0, 0.001, 0.002, 0.005]))
        market.publish(*rng.choices(TOPICS, k=rng.choice([1, 1, 2, 20])))


async def refuse(market: Exchange, rng: random.Random, pause: float) -> None:
    while True:
        await asyncio.sleep(rng.expovariate(1 / pause))
        market.refusals.append(rng.choice([refusal(503), refusal(429, "Retry-After: 0"), refusal(502)]))


def calm(market: Exchange, network: Faults) -> None:
    """From now on nothing goes wrong, but for the days that end."""
    market.refusals.clear()
    network.refuses = False
    for line in network.lines:
        line.latency = 0.0
        line.release()


async def in_step(market: Exchange, auditor: Auditor) -> None:
    """Wait until the bot gets all topics again, with nothing but the latest numbers."""
    goal = dict(market.published)
    while any(auditor.last.get(topic, 0) <= goal.get(topic, 0) for topic in TOPICS):
        await turns(1)


async def caught_up(market: Exchange, auditor: Auditor) -> None:
    """Wait until the bot has the last numbers. What was published while it had no connection is known to be lost only
    when the next message comes, so now and then there is one."""

    def is_behind() -> bool:
        return any(auditor.last.get(topic) != market.published[topic] for topic in TOPICS)

    loop = asyncio.get_running_loop()
    while is_behind():
        market.publish(*TOPICS)
        until = loop.time() + 0.3
        while is_behind() and loop.time() < until:
            await turns(1)


async def cancelled(task: asyncio.Future[Any]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def audit(market: Exchange, network: Faults, account: Any, auditor: Auditor, report: Report) -> None:
    """Compare three accounts: the bot's, the exchange's, and the supervisor's."""
    report.delivered = sum(account.delivered.values())
    report.lost = sum(account.lost.values())
    report.faults = network.used
    report.endings = market.endings
    for topic in TOPICS:
        published = market.published[topic] - auditor.first.get(topic, 1) + 1
        report.published += published
        if published != account.delivered[topic] + account.lost[topic]:
            report.errors.append(
                f"{topic}: {published} published, {account.delivered[topic]} delivered, {account.lost[topic]} lost"
            )
        if not auditor.numbers.get(topic, set()) <= market.was_sent(topic):
            report.errors.append(f"{topic}: something was delivered that was never sent")
    if market.endings["too many messages"]:
        report.errors.append("more messages were sent than the exchange allows")
    if market.endings["no pong"]:
        report.errors.append("a PING was not answered")


def main() -> None:
    logging.disable(logging.CRITICAL)
    seconds = float(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(10**6)
    print(f"seed {seed}", flush=True)
    report = asyncio.run(play(seconds, seed))
    print(report)
    sys.exit(bool(report.errors))


if __name__ == "__main__":
    main()
