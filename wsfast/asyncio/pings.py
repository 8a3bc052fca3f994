"""PINGs of an awaitable connection: those of the user, and those that find out that the server is gone.

Any received byte is a sign of life, not only a PONG: a server that is busy sending a large message lives. Timers are
handles of the event loop, not a task, so nothing here can be garbage-collected or cancelled by accident.
"""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from wsfast.exceptions import ConcurrencyError, ConnectionClosed, KeepaliveTimeout

if TYPE_CHECKING:
    from wsfast.asyncio.connection import ClientConnection


class Pings:
    """The PINGs of one connection."""

    def __init__(self, connection: ClientConnection) -> None:
        # By a proxy, or a closed connection would be left to the garbage collector.
        self._connection: ClientConnection = weakref.proxy(connection)
        self._loop = asyncio.get_running_loop()
        self.latency = 0.0
        # By payload, in the order in which they were sent: who waits for the PONG, and when the PING was sent.
        self._waiting: dict[bytes, tuple[asyncio.Future[float], float]] = {}
        self._interval = 0.0
        self._timeout: float | None = None
        self._timer: asyncio.Handle | None = None
        self._kept_alive_at = 0.0
        self._kept_alive_by: bytes | None = (
            None  # the payload of the last PING of the timer, until it is answered
        )

    def send(self, payload: bytes | None) -> asyncio.Future[float]:
        """Send a PING; its latency will be the result."""
        if payload in self._waiting:
            raise ConcurrencyError("already waiting for a pong with the same data")
        while payload is None or payload in self._waiting:
            payload = os.urandom(4)
        answer: asyncio.Future[float] = self._loop.create_future()
        self._waiting[payload] = (answer, time.perf_counter())
        self._connection.protocol.send_ping(payload)
        self._connection._read_on()  # the answer may be behind messages for which there is no room
        return answer

    def pong_received(self, payload: bytes) -> None:
        """A PONG answers its PING and all before it: a server need answer the last only (RFC 6455 section 5.5.3)."""
        if payload not in self._waiting:
            return
        now = time.perf_counter()
        for earlier in list(self._waiting):
            answer, sent = self._waiting.pop(earlier)
            if earlier == self._kept_alive_by:
                self._timer_s_ping_answered()
            if not answer.done():
                answer.set_result(now - sent)
            if earlier == payload:
                self.latency = now - sent
                break
        if not self._waiting:
            self._connection._read_no_further()

    def connection_lost(self, closed: Callable[[], ConnectionClosed]) -> None:
        """Nothing will be answered any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, {}
        for answer, _ in waiting.values():
            if not answer.done():
                answer.set_exception(closed())
                answer.exception()  # retrieved, for who ignores it: asyncio would complain

    # ---- the timer

    def keep_alive(self, interval: float, timeout: float | None) -> None:
        """From now on send a PING every `interval` seconds, and close the connection if nothing arrives within
        `timeout` of it."""
        self._interval = interval
        self._timeout = timeout
        self._timer = self._loop.call_later(interval, self._ping)

    def _ping(self) -> None:
        if self._kept_alive_by is not None:  # other bytes were sign enough of life
            self._waiting.pop(self._kept_alive_by, None)
        if not self._connection._is_open:
            return  # closing has a deadline of its own
        self._kept_alive_at = time.monotonic()
        self.send(None)
        self._kept_alive_by = next(reversed(self._waiting))
        if self._timeout is None:
            self._timer = self._loop.call_later(self._interval, self._ping)
        else:
            self._timer = self._loop.call_later(self._timeout, self._is_due)

    def _timer_s_ping_answered(self) -> None:
        self._kept_alive_by = None
        if self._timeout is not None and self._timer is not None:
            self._timer.cancel()
            self._wait_for_next()

    def _is_due(self, turns: int = 2) -> None:
        connection = self._connection
        # While reading is paused nothing can arrive, and that is not the server's fault.
        if connection.protocol.last_received > self._kept_alive_at or connection._is_paused:
            self._wait_for_next()
            return
        if turns > 0:
            # If the program kept the loop busy, the answer may be there: libuv runs timers and callbacks first, and
            # reads then.
            self._timer = self._loop.call_soon(self._is_due, turns - 1)
            return
        message = f"nothing was received within {self._timeout} seconds of a ping"
        connection.protocol._fail(1011, "keepalive ping timeout", KeepaliveTimeout(message))

    def _wait_for_next(self) -> None:
        remaining = max(0.0, self._interval - (time.monotonic() - self._kept_alive_at))
        self._timer = self._loop.call_later(remaining, self._ping)
