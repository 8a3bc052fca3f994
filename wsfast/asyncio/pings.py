"""PINGs of an awaitable connection: the program's, and those that find out that the server is gone."""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from wsfast._engine.keepalive import Watch
from wsfast._engine.transport import WSTransport
from wsfast._engine.tuning import Histogram, record
from wsfast.exceptions import ConcurrencyError, ConnectionClosed


class Pinged(Protocol):
    """A ClientConnection as this module sees it: it imports this module, not the other way round."""

    protocol: WSTransport

    @property
    def _is_open(self) -> bool: ...
    def _read_on(self) -> None: ...
    def _read_no_further(self) -> None: ...


class Pings:
    """The PINGs of one connection."""

    def __init__(self, connection: Pinged, logger: Any, histogram: Histogram | None = None) -> None:
        # By a proxy, or a closed connection would be left to the garbage collector.
        self._connection: Pinged = weakref.proxy(connection)
        self._loop = asyncio.get_running_loop()
        self.latency = 0.0
        self._histogram = histogram
        self._logger = logger
        # By payload, in the order in which they were sent: the future of the PONG, and when the PING was sent.
        self._waiting: dict[bytes, tuple[asyncio.Future[float], float]] = {}
        self._watch: Watch | None = None
        # The payload of the last PING of the timer, until it is answered.
        self._kept_alive_by: bytes | None = None

    def send(self, payload: bytes | None) -> asyncio.Future[float]:
        """Send a PING; its latency will be the result."""
        if payload is None:
            payload = self._new_payload()
        elif payload in self._waiting:
            raise ConcurrencyError("already waiting for a pong with the same data")
        answer: asyncio.Future[float] = self._loop.create_future()
        self._waiting[payload] = (answer, time.perf_counter())
        try:
            self._connection.protocol.send_ping(payload)
        except BaseException:
            self._waiting.pop(payload, None)  # it was not sent, so no answer will come
            raise
        self._connection._read_on()  # the answer may be behind messages for which there is no room
        return answer

    def _new_payload(self) -> bytes:
        while (payload := os.urandom(4)) in self._waiting:
            pass
        return payload

    def pong_received(self, payload: bytes) -> None:
        """A PONG answers its PING and all before it: a server need answer the last only (RFC 6455 section 5.5.3)."""
        if payload not in self._waiting:
            return
        now = time.perf_counter()
        latencies = []
        for earlier in list(self._waiting):
            answer, sent = self._waiting.pop(earlier)
            latencies.append(now - sent)
            if earlier == self._kept_alive_by:
                self._kept_alive_by = None
                if self._watch is not None:
                    self._watch.answered()
            if not answer.done():
                answer.set_result(now - sent)
            if earlier == payload:
                break
        self.latency = latencies[-1]
        if not self._waiting:
            self._connection._read_no_further()
        for latency in latencies:  # last, for the histogram is the user's code
            record(self._histogram, round(latency * 1e9), self._logger)

    def give_up(self, closed: Callable[[], ConnectionClosed]) -> None:
        """Nothing will be answered any more: raise `closed()` in the tasks that wait for an answer."""
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        waiting, self._waiting = self._waiting, {}
        for answer, _ in waiting.values():
            if not answer.done():
                answer.set_exception(closed())
                answer.exception()  # retrieved: asyncio would complain of a program that ignores it

    # ---- the timer

    def keep_alive(self, interval: float | None, timeout: float | None) -> None:
        """From now on send a PING every `interval` seconds, and close the connection if nothing arrives within
        `timeout` of it. None sends none."""
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        if interval is not None and not self._connection.protocol.is_disconnected:
            self._watch = Watch(self._connection.protocol, interval, timeout, self._ping)

    def _ping(self) -> None:
        if self._kept_alive_by is not None:  # other bytes were sign enough of life
            self._waiting.pop(self._kept_alive_by, None)
        if not self._connection._is_open:
            return  # closing has a deadline of its own
        assert self._watch is not None
        self._watch.pinged()
        self._kept_alive_by = self._new_payload()
        self.send(self._kept_alive_by)
