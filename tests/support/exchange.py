"""A local exchange with the habits of the real ones, as their public documents state them (November 2026).

It counts what it was sent as they do, drops who breaks its rules, numbers what it publishes, topic by topic, and keeps
account of what it has sent on which connection. A test gives it times of its own: ``BINANCE.scaled(1000)`` has days
that last a minute and a half.

Binance, spot streams: 5 incoming messages a second, PING and PONG counted, else 1008; a PING every 20 s, to be
answered within a minute; 24 hours, announced by a ``serverShutdown`` event.
OKX v5: 30 s without data and without the text ``ping``, answered by ``pong``, and the connection is closed.
Kraken v2: a snapshot after the acknowledgement; a ``heartbeat`` a second after the last message.
Coinbase Advanced Trade: disconnected 5 s after the opening without a ``subscribe``; ``sequence_num`` counts all
messages of a connection; heartbeats every second.
Bybit v5: a snapshot, and deltas whose ``u`` is in sequence; ``{"op": "ping"}`` is answered; 10 minutes without a
message are the end.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from support import frames
from support.servers import Peer, serve

# A client that reads nothing is dropped when so many bytes wait for it.
_SLOW_CLIENT = 8 << 20


@dataclass(frozen=True)
class Habits:
    """What an exchange demands and does; times in seconds, None is never."""

    dialect: type[Dialect]
    limit: tuple[int, float] | None = None  # incoming frames in any so many seconds
    ping_every: float | None = None
    pong_within: float = 60.0
    lifetime: float | None = None
    notice: float | None = None  # so long before the end of a lifetime it is announced
    silence: float | None = None  # without a message in either direction
    heartbeat_every: float | None = None
    subscribe_within: float | None = None

    def scaled(self, factor: float) -> Habits:
        """The same in a world that is so many times as fast."""
        times = {
            name: value / factor
            for name, value in vars(self).items()
            if isinstance(value, (int, float)) and not isinstance(value, bool)
        }
        if self.limit is not None:
            times["limit"] = (self.limit[0], self.limit[1] / factor)  # type: ignore[assignment]
        return replace(self, **times)  # type: ignore[arg-type]


class Dialect:
    """What the messages of an exchange look like. This is Binance's; topics are ``btcusdt@trade``."""

    def heard(self, message: str) -> tuple[str, Any, list[str]]:
        """What a client wants: ``subscribe``, ``unsubscribe`` or ``ping``, the id of its request, and the topics."""
        request = json.loads(message)
        return request["method"].lower(), request["id"], request["params"]

    def answers(self, wish: str, request: Any, topics: list[str]) -> list[Any]:
        return [{"result": None, "id": request}]

    def snapshot(self, topic: str, number: int) -> Any:
        """What a new subscriber gets first: all up to and with this number; None if there is none."""
        return None

    def data(self, topic: str, number: int) -> Any:
        return {"e": "trade", "s": topic.partition("@")[0].upper(), "stream": topic, "t": number}

    def stamped(self, message: Any, number: int) -> Any:
        """As it is sent, as the message of a connection with this number, counted from 0."""
        return message

    heartbeat: ClassVar[Any] = None
    shutdown: ClassVar[Any] = {"e": "serverShutdown", "E": 0}

    # For clients.

    @staticmethod
    def subscribe(topic: str, request: int = 1) -> str:
        return json.dumps({"method": "SUBSCRIBE", "params": [topic], "id": request})

    @staticmethod
    def number(message: str) -> tuple[str, int] | None:
        """The topic and the number of a message with data, which are the same on every connection."""
        said = json.loads(message)
        return (said["stream"], said["t"]) if said.get("e") == "trade" else None

    @staticmethod
    def is_ack(message: str, request: int = 1) -> bool:
        said = json.loads(message)
        return "result" in said and said["id"] == request


class _OKX(Dialect):
    def heard(self, message: str) -> tuple[str, Any, list[str]]:
        if message == "ping":
            return "ping", None, []
        request = json.loads(message)
        return request["op"], None, [f"{arg['channel']}:{arg['instId']}" for arg in request["args"]]

    @staticmethod
    def _arg(topic: str) -> dict[str, str]:
        channel, _, instrument = topic.partition(":")
        return {"channel": channel, "instId": instrument}

    def answers(self, wish: str, request: Any, topics: list[str]) -> list[Any]:
        if wish == "ping":
            return ["pong"]
        return [{"event": wish, "arg": self._arg(topic), "connId": "a"} for topic in topics]

    def data(self, topic: str, number: int) -> Any:
        return {"arg": self._arg(topic), "data": [{"tradeId": str(number)}]}

    @staticmethod
    def subscribe(topic: str, request: int = 1) -> str:
        return json.dumps({"op": "subscribe", "args": [_OKX._arg(topic)]})

    @staticmethod
    def number(message: str) -> tuple[str, int] | None:
        said = {} if message == "pong" else json.loads(message)
        if "data" not in said:
            return None
        return f"{said['arg']['channel']}:{said['arg']['instId']}", int(said["data"][0]["tradeId"])

    @staticmethod
    def is_ack(message: str, request: int = 1) -> bool:
        return message.startswith('{"event": "subscribe"')


class _Kraken(Dialect):
    heartbeat: ClassVar[Any] = {"channel": "heartbeat"}

    def heard(self, message: str) -> tuple[str, Any, list[str]]:
        request = json.loads(message)
        topics = request.get("params", {}).get("symbol", [])
        return request["method"], request.get("req_id"), topics

    def answers(self, wish: str, request: Any, topics: list[str]) -> list[Any]:
        if wish == "ping":
            return [{"method": "pong", "req_id": request}]
        return [
            {
                "method": wish,
                "success": True,
                "req_id": request,
                "result": {"channel": "book", "symbol": topic},
            }
            for topic in topics
        ]

    def snapshot(self, topic: str, number: int) -> Any:
        return {"channel": "book", "type": "snapshot", "data": [{"symbol": topic, "sequence": number}]}

    def data(self, topic: str, number: int) -> Any:
        return {"channel": "book", "type": "update", "data": [{"symbol": topic, "sequence": number}]}

    @staticmethod
    def subscribe(topic: str, request: int = 1) -> str:
        params = {"channel": "book", "symbol": [topic]}
        return json.dumps({"method": "subscribe", "params": params, "req_id": request})

    @staticmethod
    def number(message: str) -> tuple[str, int] | None:
        said = json.loads(message)
        if said.get("type") != "update":
            return None
        return said["data"][0]["symbol"], said["data"][0]["sequence"]

    @staticmethod
    def is_ack(message: str, request: int = 1) -> bool:
        said = json.loads(message)
        return said.get("method") == "subscribe" and bool(said["success"]) and said["req_id"] == request


class _Coinbase(Dialect):
    heartbeat: ClassVar[Any] = {"channel": "heartbeats", "events": [{"heartbeat_counter": 0}]}

    def heard(self, message: str) -> tuple[str, Any, list[str]]:
        request = json.loads(message)
        return request["type"], None, request["product_ids"]

    def answers(self, wish: str, request: Any, topics: list[str]) -> list[Any]:
        return [{"channel": "subscriptions", "events": [{"subscriptions": {"level2": topics}}]}]

    def snapshot(self, topic: str, number: int) -> Any:
        return self._event("snapshot", topic, number)

    def data(self, topic: str, number: int) -> Any:
        return self._event("update", topic, number)

    @staticmethod
    def _event(kind: str, topic: str, number: int) -> Any:
        return {"channel": "l2_data", "events": [{"type": kind, "product_id": topic, "number": number}]}

    def stamped(self, message: Any, number: int) -> Any:
        return {**message, "sequence_num": number}

    @staticmethod
    def subscribe(topic: str, request: int = 1) -> str:
        return json.dumps({"type": "subscribe", "channel": "level2", "product_ids": [topic]})

    @staticmethod
    def number(message: str) -> tuple[str, int] | None:
        event = json.loads(message)["events"][0]
        return (event["product_id"], event["number"]) if event.get("type") == "update" else None

    @staticmethod
    def is_ack(message: str, request: int = 1) -> bool:
        return json.loads(message)["channel"] == "subscriptions"


class _Bybit(Dialect):
    def heard(self, message: str) -> tuple[str, Any, list[str]]:
        request = json.loads(message)
        return request["op"], request.get("req_id"), request.get("args", [])

    def answers(self, wish: str, request: Any, topics: list[str]) -> list[Any]:
        said = "pong" if wish == "ping" else wish
        return [{"success": True, "ret_msg": said, "conn_id": "a", "req_id": request, "op": wish}]

    def snapshot(self, topic: str, number: int) -> Any:
        return {"topic": topic, "type": "snapshot", "data": {"u": number}}

    def data(self, topic: str, number: int) -> Any:
        return {"topic": topic, "type": "delta", "data": {"u": number}}

    @staticmethod
    def subscribe(topic: str, request: int = 1) -> str:
        return json.dumps({"op": "subscribe", "args": [topic], "req_id": str(request)})

    @staticmethod
    def number(message: str) -> tuple[str, int] | None:
        said = json.loads(message)
        return (said["topic"], said["data"]["u"]) if said.get("type") == "delta" else None

    @staticmethod
    def is_ack(message: str, request: int = 1) -> bool:
        said = json.loads(message)
        return said.get("op") == "subscribe" and said["success"] and said["req_id"] == str(request)


DAY = 86400.0
BINANCE = Habits(Dialect, limit=(5, 1.0), ping_every=20, lifetime=DAY, notice=600)
OKX = Habits(_OKX, silence=30)
KRAKEN = Habits(_Kraken, heartbeat_every=1)
COINBASE = Habits(_Coinbase, heartbeat_every=1, subscribe_within=5)
BYBIT = Habits(_Bybit, silence=600)
ALL = {"binance": BINANCE, "okx": OKX, "kraken": KRAKEN, "coinbase": COINBASE, "bybit": BYBIT}


class Session:
    """One connection, as the exchange sees it, and its account."""

    def __init__(self, exchange: Exchange, peer: Peer, number: int) -> None:
        self.exchange = exchange
        self.number = number
        self.topics: set[str] = set()
        # For each topic the first and the last number of each span that was sent here. Nothing is left out of a span.
        self.spans: dict[str, list[list[int]]] = {}
        self.subscribed: list[tuple[float, str]] = []
        self.arrivals: list[float] = []  # of the client's frames that count
        self.ended_by = ""  # the rule that was broken, or "client"
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._window: deque[float] = deque()
        self._opened = self._heard_at = self._said_at = self._data_at = self._loop.time()
        self._messages = itertools.count()
        self._pinged_at: float | None = None
        self._ping_due = self._opened + (exchange.habits.ping_every or 0)
        self._announced = False

    @property
    def is_open(self) -> bool:
        return not self.ended_by

    def say(self, message: Any) -> None:
        if not self.is_open:
            return
        if not isinstance(message, str):
            message = json.dumps(self.exchange.dialect.stamped(message, next(self._messages)))
        self._said_at = self._loop.time()
        self._peer.send(frames.frame(frames.TEXT, message))
        if self._peer.writer.transport.get_write_buffer_size() > _SLOW_CLIENT:
            self.end("slow client", None)

    def publish(self, topic: str, number: int) -> None:
        spans = self.spans.setdefault(topic, [])
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
        self.say(self.exchange.dialect.data(topic, number))

    def end(self, why: str, code: int | None = 1008) -> None:
        """Close the connection; without a code drop it."""
        if self.is_open:
            self.ended_by = why
            self.exchange.endings[why] += 1
            if code is None:
                self._peer.reset()
            else:
                self._peer.send(frames.close(code, why))

    async def run(self) -> None:
        watching = asyncio.ensure_future(self._watch())
        try:
            while (sent := await self._peer.frame()).opcode != frames.CLOSE:
                if self.is_open:
                    self._heard(sent)
            if self.is_open:
                self._peer.send(frames.frame(frames.CLOSE, sent.payload))
        except (EOFError, ConnectionError):
            pass
        finally:
            if self.is_open:
                self.ended_by = "client"
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    def _heard(self, sent: frames.Sent) -> None:
        now = self._loop.time()
        habits = self.exchange.habits
        self.arrivals.append(now)
        if habits.limit is not None:
            most, per = habits.limit
            while self._window and self._window[0] <= now - per:
                self._window.popleft()
            self._window.append(now)
            if len(self._window) > most:
                self.end("too many messages")
                return
        if sent.opcode == frames.PING:
            self._peer.send(frames.frame(frames.PONG, sent.payload))
        elif sent.opcode == frames.PONG:
            self._pinged_at = None
        else:
            self._heard_at = now
            self._obey(sent.payload.decode())

    def _obey(self, message: str) -> None:
        dialect = self.exchange.dialect
        wish, request, topics = dialect.heard(message)
        for answer in dialect.answers(wish, request, topics):
            self.say(answer)
        for topic in topics:
            if wish == "subscribe":
                self.subscribed.append((self._heard_at, topic))
                snapshot = dialect.snapshot(topic, self.exchange.published[topic])
                if snapshot is not None:
                    self.say(snapshot)
                self.topics.add(topic)
            else:
                self.topics.discard(topic)

    async def _watch(self) -> None:
        """Do what is due by the clock."""
        habits = self.exchange.habits
        while self.is_open:
            now = self._loop.time()
            due: list[tuple[float, Callable[[], object]]] = []
            if habits.lifetime is not None:
                due.append((self._opened + habits.lifetime, lambda: self.end("lifetime", 1001)))
                if habits.notice is not None and not self._announced:
                    due.append((self._opened + habits.lifetime - habits.notice, self.announce))
            if habits.ping_every is not None:
                due.append((self._ping_due, self._ping))
                if self._pinged_at is not None:
                    due.append((self._pinged_at + habits.pong_within, lambda: self.end("no pong")))
            if habits.silence is not None:
                quiet = max(self._heard_at, self._said_at)
                due.append((quiet + habits.silence, lambda: self.end("silence", 4004)))
            if habits.heartbeat_every is not None and self.topics:
                due.append((self._said_at + habits.heartbeat_every, self._beat))
            if habits.subscribe_within is not None and not self.subscribed:
                due.append((self._opened + habits.subscribe_within, lambda: self.end("no subscribe")))
            for at, act in sorted(due, key=lambda one: one[0]):
                if at <= now:
                    act()
                    break
            else:
                nap = min((at for at, _ in due), default=now + 3600) - now
                if habits.subscribe_within is not None or habits.heartbeat_every is not None:
                    nap = min(nap, habits.heartbeat_every or nap)
                await asyncio.sleep(max(nap, 0.001))

    def _ping(self) -> None:
        now = self._loop.time()
        self._pinged_at = self._pinged_at or now
        self._ping_due = now + (self.exchange.habits.ping_every or 0)
        self._peer.send(frames.frame(frames.PING, b"%d" % int(now * 1000)))

    def announce(self) -> None:
        self._announced = True
        self.say(self.exchange.dialect.shutdown)

    def _beat(self) -> None:
        self.say(self.exchange.dialect.heartbeat)


class Exchange:
    """All of its connections, and all that it has published."""

    def __init__(self, habits: Habits) -> None:
        self.habits = habits
        self.dialect = habits.dialect()
        self.url = ""
        self.sessions: list[Session] = []
        self.published: Counter[str] = Counter()
        self.endings: Counter[str] = Counter()
        # For the next attempts to connect: how many are answered with this.
        self.refusals: deque[bytes] = deque()

    def announce(self) -> None:
        """Tell all clients that their connections will be closed."""
        for session in self.open_sessions:
            session.announce()

    @property
    def open_sessions(self) -> list[Session]:
        return [session for session in self.sessions if session.is_open]

    def publish(self, *topics: str) -> None:
        """One message of each topic, to all who have subscribed."""
        for topic in topics:
            self.published[topic] += 1
            for session in self.sessions:
                if topic in session.topics and session.is_open:
                    session.publish(topic, self.published[topic])

    def was_sent(self, topic: str) -> set[int]:
        """The numbers that were sent to anybody."""
        spans = itertools.chain.from_iterable(session.spans.get(topic, ()) for session in self.sessions)
        return {number for first, last in spans for number in range(first, last + 1)}

    async def serve_one(self, peer: Peer) -> None:
        try:
            await peer.read_request()
            if self.refusals:
                peer.send(self.refusals.popleft())
                return
            peer.send(peer.reply())
        except (EOFError, ConnectionError):
            return
        session = Session(self, peer, len(self.sessions))
        self.sessions.append(session)
        await session.run()


def refusal(status: int, *headers: str) -> bytes:
    """A reply that refuses the upgrade."""
    lines = [f"HTTP/1.1 {status} No", "Content-Length: 0", "Connection: close", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


@asynccontextmanager
async def exchange(habits: Habits = BINANCE) -> AsyncIterator[Exchange]:
    """A running exchange."""
    running = Exchange(habits)
    async with serve(running.serve_one) as served:
        running.url = served.url
        yield running


def worst(arrivals: list[float], per: float) -> int:
    """How many of these times are in one window of `per` seconds, at most. A window has its end, but not its begin."""
    most = first = 0
    for last, now in enumerate(arrivals):
        while arrivals[first] <= now - per:
            first += 1
        most = max(most, last - first + 1)
    return most
