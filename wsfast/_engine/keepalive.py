"""PINGs that wsfast sends by itself, to detect dead connections and to measure round-trip times."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any, Protocol

from wsfast._common.options import in_words
from wsfast._common.protocol_numbers import WSAutoPingStrategy, WSMsgType
from wsfast._engine.frames.frame import WSFrame
from wsfast._engine.tuning import Histogram, record
from wsfast.exceptions import ConnectionClosed, KeepaliveTimeout

# The iterations of the loop between the time-out and the end of the connection. If the program kept the loop busy, the
# answer may already be in the socket: libuv runs timers and callbacks before it reads.
_GRACE_ITERATIONS = 2


class Pinged(Protocol):
    """The connection to ping: a WSTransport. Its module imports this one, so this module must not import it."""

    @property
    def underlying_transport(self) -> Any: ...
    @property
    def last_received(self) -> float: ...
    @property
    def is_close_frame_sent(self) -> bool: ...
    def send_ping(self, message: bytes) -> None: ...
    def _fail(self, close_code: int, reason: str, exc: BaseException) -> None: ...
    def _expect(self, pong: bool) -> None: ...


class Listening(Protocol):
    """A WSListener that may override these methods to replace PING and PONG."""

    def send_user_specific_ping(self, transport: Any) -> None: ...
    def is_user_specific_pong(self, frame: WSFrame) -> bool: ...


class Watch:
    """The timer for PINGs. It calls `due` when the next PING is due, and ends the connection if the last got no answer.

    Any received byte is a sign of life, not only a PONG: a server that is busy sending a large frame is alive.
    The timer is a handle of the event loop, not a task, so it cannot be garbage-collected or cancelled by accident.
    """

    def __init__(
        self, transport: Pinged, interval: float, timeout: float | None, due: Callable[[], None]
    ) -> None:
        self._transport = transport
        self._interval = interval
        self._timeout = timeout
        self._due = due
        self._pinged_at = 0.0
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.Handle = self._loop.call_later(interval, due)

    def stop(self) -> None:
        self._timer.cancel()

    def wait(self, seconds: float) -> None:
        """The next PING is due after this time."""
        self._timer = self._loop.call_later(seconds, self._due)

    def pinged(self) -> None:
        """The owner sends a PING now."""
        self._pinged_at = time.monotonic()
        if self._timeout is None:
            self.wait(self._interval)
        else:
            self._timer = self._loop.call_later(self._timeout, self._answer_is_due)

    def answered(self) -> None:
        """The PONG arrived: wait for the next PING. Without a time-out the timer already does."""
        if self._timeout is not None:
            self._timer.cancel()
            self._wait_for_next()

    def _answer_is_due(self, grace: int = _GRACE_ITERATIONS) -> None:
        # While reading is paused no byte can arrive, so the silence is not the server's fault.
        paused = not self._transport.underlying_transport.is_reading()
        if paused or self._transport.last_received > self._pinged_at:
            self._wait_for_next()
        elif grace > 0:
            self._timer = self._loop.call_soon(self._answer_is_due, grace - 1)
        else:
            message = f"nothing was received within {in_words(self._timeout)} of a ping"
            self._transport._fail(1011, "keepalive ping timeout", KeepaliveTimeout(message))

    def _wait_for_next(self) -> None:
        self.wait(max(0.0, self._interval - (time.monotonic() - self._pinged_at)))


class Keepalive:
    """The keepalive of one connection of a listener. `base`: the class WSListener, whose own methods send real
    PINGs."""

    def __init__(
        self,
        transport: Pinged,
        listener: Listening,
        base: type[Listening],
        idle_timeout: float | None,
        reply_timeout: float | None,
        strategy: WSAutoPingStrategy | None,
        histogram: Histogram | None,
        logger: Any,
    ) -> None:
        self._transport = transport
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._idle_timeout = idle_timeout
        self._strategy = strategy
        self._histogram = histogram
        self._logger = logger
        # PINGs without a PONG yet: payload to time of sending and waiter. A PING of the idle timer has no waiter.
        self._pings: dict[bytes, tuple[int, asyncio.Future[float] | None]] = {}
        # The listener's own pings have no payload that distinguishes their answers, so only one may wait at a time.
        cls = type(listener)
        self._own_ping = cls.send_user_specific_ping is not base.send_user_specific_ping
        self._own_pong = cls.is_user_specific_pong is not base.is_user_specific_pong
        self._measuring = asyncio.Lock()
        self._watch: Watch | None = None
        if idle_timeout is not None:
            self._watch = Watch(transport, idle_timeout, reply_timeout, self._idle)

    def stop(self) -> None:
        """The connection has ended."""
        if self._watch is not None:
            self._watch.stop()
            self._watch = None

    def give_up(self, exc: ConnectionClosed) -> None:
        """No frame is looked at any more: raise `exc` in all tasks that measure."""
        pings, self._pings = self._pings, {}
        for _, waiter in pings.values():
            if waiter is not None and not waiter.done():
                waiter.set_exception(exc)

    # ---- the idle timer

    def _idle(self) -> None:
        assert self._idle_timeout is not None and self._watch is not None
        if self._strategy is WSAutoPingStrategy.PING_WHEN_IDLE:
            remaining = self._transport.last_received + self._idle_timeout - time.monotonic()
            if remaining > 0:
                self._watch.wait(remaining)
                return
        if self._transport.is_close_frame_sent:
            return  # the closing handshake has a deadline of its own
        # Any byte was a sufficient sign of life, so earlier PINGs may never get their PONG.
        self._pings = {payload: ping for payload, ping in self._pings.items() if ping[1] is not None}
        self._watch.pinged()
        try:
            self._ping(None)
        except Exception as exc:
            self._transport._fail(1011, "", exc)

    # ---- pings and pongs

    def _ping(self, waiter: asyncio.Future[float] | None) -> bytes:
        payload = os.urandom(8)
        self._pings[payload] = time.perf_counter_ns(), waiter
        self._transport._expect(True)
        try:
            if self._own_ping:
                self._listener.send_user_specific_ping(self._transport)
            else:
                self._transport.send_ping(payload)
        except BaseException:
            self._pings.pop(payload, None)  # the ping was not sent, so no answer will come
            if waiter is not None and waiter.done():
                waiter.exception()  # mark it as retrieved: the listener's method has closed the connection, and raised
            raise
        return payload

    def is_pong(self, frame: WSFrame) -> bool:
        """True if the frame answers a PING of this object. The caller must not deliver such a frame."""
        if self._own_ping or self._own_pong:
            if not self._listener.is_user_specific_pong(frame):
                return False
            self.pong_received()
            return True
        if frame.msg_type is not WSMsgType.PONG:
            return False
        payload = frame.get_payload_as_bytes()
        if payload not in self._pings:
            return False
        self._answered(payload)
        return True

    def pong_received(self) -> None:
        """The answer to the oldest ping has arrived."""
        if self._pings:
            self._answered(next(iter(self._pings)))

    def _answered(self, payload: bytes) -> None:
        now = time.perf_counter_ns()
        sent, waiter = self._pings.pop(payload)
        if waiter is not None and not waiter.done():
            waiter.set_result((now - sent) / 1e9)
        record(self._histogram, now - sent, self._logger)
        self._transport._expect(bool(self._pings))

    async def measure(self, rounds: int) -> list[float]:
        """Send `rounds` PINGs, one after the other, and return the seconds from each PING to its answer."""
        times = []
        for _ in range(rounds):
            async with self._measuring:
                waiter: asyncio.Future[float] = self._loop.create_future()
                payload = self._ping(waiter)
                try:
                    times.append(await waiter)
                finally:
                    self._pings.pop(payload, None)
        return times
