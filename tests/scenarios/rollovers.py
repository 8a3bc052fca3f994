"""Many feeds whose connections are replaced all the time, and lag differently; an account of every message.

    python -m scenarios.rollovers ROLLOVERS [SEED]

Each connection is a queue that delivers in the order in which the market published, with a lag of its own. At CLOSE
the server may drop the queue, or deliver it, answer with its own code, not at all, or with a RST. It acknowledges
late, twice, or not until it is asked again, and refuses a symbol. The programs are slow or fast, awaitable or
listeners, with `key` and without. The account: a symbol's numbers have no hole unless feed.gaps has risen before the
message behind it, and with `key` none comes twice, and none too late. A feed whose connections are level counts no
gap at all.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from support import frames
from support.frames import CLOSE, TEXT, text
from support.servers import Peer, serve

import wsfast
from wsfast.supervisor import Rejected, Rollover, Supervisor, full_jitter

SYMBOLS = ("A", "B", "C", "D", "E", "DELISTED")
LAG = 0.05  # seconds, at most


class Market:
    """Publishes to all connections, each of which has its own lag."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.numbers: Counter[str] = Counter()
        self.lines: set[_Line] = set()

    def publish(self) -> None:
        rng = self.rng
        symbol = rng.choice(SYMBOLS)
        self.numbers[symbol] += 1
        message = text(f"{symbol} {self.numbers[symbol]}")
        tick = rng.random() < 0.1
        for line in self.lines:
            if symbol in line.symbols:
                line.put(message)
                if tick:
                    line.put(text("the same price"))
            if rng.random() < 0.02:
                line.put(text("heartbeat"))

    async def connection(self, peer: Peer) -> None:
        try:
            await peer.accept()
        except (EOFError, ConnectionError):
            return
        line = _Line(self, peer)
        self.lines.add(line)
        sending = asyncio.ensure_future(line.send())
        try:
            with suppress(EOFError, ConnectionError):
                await line.serve()
        finally:
            self.lines.discard(line)
            sending.cancel()
            await asyncio.wait([sending])


class _Line:
    def __init__(self, market: Market, peer: Peer) -> None:
        rng = market.rng
        self.market = market
        self.peer = peer
        path = peer.request.split()[1].decode()
        self.lag = 0.0 if "level" in path else rng.choice((0.0, rng.uniform(0, LAG)))
        self.varies = "level" not in path and rng.random() < 0.3
        self.dies = "dies" in path and rng.random() < 0.2
        self.is_strange = rng.random() < 0.5
        self.is_late = "late" in path and rng.random() < 0.3  # to take subscriptions
        self.ending = rng.choice(("drop", "drop", "deliver", "own code", "mute", "reset"))
        self.symbols: set[str] = set()
        self.asked: Counter[str] = Counter()
        self.queue: deque[tuple[float, bytes]] = deque()
        self.filled = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.due = 0.0

    def put(self, data: bytes) -> None:
        lag = self.market.rng.uniform(0, LAG) if self.varies else self.lag
        self.due = max(self.due, self.loop.time() + lag)
        self.queue.append((self.due, data))
        self.filled.set()

    async def send(self) -> None:
        while True:
            while self.queue:
                left = self.queue[0][0] - self.loop.time()
                if left > 0:
                    await asyncio.sleep(left)
                if self.queue and not self.peer.writer.is_closing():
                    self.peer.send(self.queue.popleft()[1])
                    with suppress(ConnectionError):
                        await self.peer.writer.drain()
                elif self.queue:
                    self.queue.clear()
            self.filled.clear()
            await self.filled.wait()

    async def serve(self) -> None:
        rng = self.market.rng
        if self.dies:
            self.loop.call_later(rng.uniform(0, 0.3), self.peer.reset)
        while (sent := await self.peer.frame()).opcode != CLOSE:
            if sent.opcode != TEXT:
                continue
            symbol = sent.payload.decode()
            if self.is_late:
                await asyncio.sleep(rng.uniform(0, LAG))
            self.asked[symbol] += 1
            if symbol == "DELISTED":
                self.put(text("no DELISTED"))
                continue
            self.symbols.add(symbol)
            if self.is_strange and self.asked[symbol] == 1 and rng.random() < 0.1:
                continue  # until it is asked again
            for _ in range(rng.choice((1, 2)) if self.is_strange else 1):
                if self.is_strange and rng.random() < 0.5:
                    self.loop.call_later(rng.uniform(0, LAG), self.put, text(f"ok {symbol}"))
                else:
                    self.put(text(f"ok {symbol}"))
        self.market.lines.discard(self)
        if self.ending == "mute":
            await self.peer.rest()
        elif self.ending == "reset" and not self.peer.writer.is_closing():
            self.peer.reset()
        else:
            if self.ending == "drop":
                self.queue.clear()
            while self.queue:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            if not self.peer.writer.is_closing():
                self.peer.send(frames.close(1001 if self.ending == "own code" else 1000))


@dataclass
class Report:
    rollovers: int = 0
    messages: int = 0
    reconnects: int = 0
    gaps: int = 0
    false_gaps: int = 0  # of those of connections that no one reset
    duplicates: int = 0  # without key, where they are no error
    errors: list[str] = field(default_factory=list)


class Account:
    """What one feed has delivered."""

    def __init__(self, name: str, report: Report, has_key: bool) -> None:
        self.name = name
        self.report = report
        self.has_key = has_key
        # The highest number; the gaps before the last message, and its number.
        self.last: dict[str, tuple[int, int, int]] = {}
        self.seen: dict[str, int] = {}  # the gaps before each message
        self.real: set[int] = set()  # the gaps at which something was missing

    def take(self, message: str, gaps: int) -> None:
        symbol, _, digits = message.partition(" ")
        if not digits.isdigit():
            return
        self.report.messages += 1
        number = int(digits)
        highest, before, last = self.last.get(symbol, (number - 1, gaps, number - 1))
        if message in self.seen:
            self.report.duplicates += 1
            if self.has_key and self.seen[message] == gaps:
                self.error(f"{message} came twice")
        elif number <= last:
            if before == gaps:
                self.error(f"{message} came after {last}")
            self.real.update(range(before + 1, gaps + 1))
        elif number > highest + 1:
            if before == gaps:
                self.error(f"{message} came after {highest}, and gaps stayed {gaps}")
            self.real.update(range(before + 1, gaps + 1))
        self.seen[message] = gaps
        latest = max(last, number) if before == gaps else number
        self.last[symbol] = max(highest, number), gaps, latest

    def error(self, text: str) -> None:
        self.report.errors.append(f"{self.name}: {text}")


def reply_id(message: str) -> Any:
    word, _, symbol = message.partition(" ")
    if word == "no":
        return Rejected(symbol, "delisted")
    return symbol if word == "ok" else None


def key_of(message: str) -> str | None:
    return message if message.rpartition(" ")[2].isdigit() else None


async def play(rollovers: int, seed: int, feeds: int = 24) -> Report:
    """Play until the feeds together have so many rollovers."""
    rng, report = random.Random(seed), Report()
    market = Market(rng)

    async def trade() -> None:
        while True:
            market.publish()
            await asyncio.sleep(0.002)

    async with serve(market.connection) as server:
        trading = asyncio.ensure_future(trade())
        try:
            await asyncio.gather(
                *(_feed(server.url, number, rng, report, rollovers) for number in range(feeds))
            )
        finally:
            trading.cancel()
            await asyncio.wait([trading])
    return report


async def _feed(url: str, number: int, rng: random.Random, report: Report, rollovers: int) -> None:
    kind = ("level", "skewed", "skewed", "skewed,dies")[number % 4]
    has_key, is_listener, is_slow = bool(number & 4), bool(number & 8), not number % 3
    if has_key and kind != "level":
        kind += ",late"
    account = Account(f"{number} {kind} key={has_key} listener={is_listener} slow={is_slow}", report, has_key)
    options: dict[str, Any] = {"proxy": None, "delays": lambda: full_jitter(0.01, 0.1), "min_lifetime": 0.1}
    options["close_timeout"] = 1.0  # of a mute server
    if has_key:
        options["key"] = key_of
    if rng.random() < 0.5:
        options["parse"] = str
    feed: Supervisor

    class Listener(wsfast.WSListener):
        payload_type = str

        def on_ws_message(self, transport: Any, msg_type: Any, payload: Any) -> None:
            account.take(payload, feed.stats.gaps)

    if is_listener:
        options["listener_factory"] = Listener
    else:
        options |= {"compression": None, "max_queue": rng.choice((1, 4, 16))}
    feed = wsfast.supervise(
        f"{url}{kind}",
        reply_id=reply_id,
        rollover=Rollover(timeout=10.0, drain_timeout=0.05, retry=0.01),
        **options,
    )

    async def receive() -> None:
        async for message in feed:
            account.take(message, feed.gaps)
            if is_slow and rng.random() < 0.02:
                await asyncio.sleep(rng.uniform(0, 0.1))

    async with feed:
        for symbol in SYMBOLS[:3] + SYMBOLS[-1:]:
            feed.subscribe(symbol, id=symbol, ack_timeout=0.3)
        receiving = None if is_listener else asyncio.ensure_future(receive())
        with suppress(asyncio.CancelledError):
            await feed.ready()
        late = list(SYMBOLS[3:-1])
        while report.rollovers < rollovers:
            asked = asyncio.ensure_future(feed.roll_over())
            if late and rng.random() < 0.2:
                await asyncio.sleep(rng.uniform(0, LAG))
                symbol = late.pop()
                feed.subscribe(symbol, id=symbol, ack_timeout=0.3)
            replaced = await asked
            report.rollovers += replaced
            await asyncio.sleep(rng.uniform(0, LAG))
            if is_slow and rng.random() < 0.1:
                await asyncio.sleep(0.2)
        stats = feed.stats
        if receiving is not None:
            receiving.cancel()
            await asyncio.wait([receiving])
    report.reconnects += stats.connects - stats.rollovers - 1
    report.gaps += stats.gaps
    if "dies" not in kind:
        report.false_gaps += sum(gap not in account.real for gap in range(1, stats.gaps + 1))
    if kind == "level" and stats.gaps:
        account.error(f"{stats.gaps} gaps, though the lines are level")
    if not account.seen:
        account.error("nothing came")


def main() -> None:
    logging.disable(logging.CRITICAL)
    rollovers = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 30)
    print(f"seed {seed}", flush=True)
    report = asyncio.run(play(rollovers, seed))
    for error in report.errors[:20]:
        print(error)
    report.errors[20:] = []
    print(report)
    sys.exit(bool(report.errors))


if __name__ == "__main__":
    main()
