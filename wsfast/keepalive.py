"""PINGs that wsfast sends by itself: to find out that a connection is dead, and to measure round-trip times.

Any received byte is a sign of life, not only the answer to a PING: a server that is busy sending a large frame lives.
Timers are handles of the event loop, not a task, so nothing here can be garbage-collected or cancelled by accident.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING

from wsfast.codes import WSAutoPingStrategy, WSMsgType
from wsfast.exceptions import ConnectionClosed, KeepaliveTimeout

if TYPE_CHECKING:
    from wsfast._engine import WSListener, WSTransport
    from wsfast._frame import WSFrame
    from wsfast.tuning import Histogram


class Keepalive:
    """Asks the server of one connection for signs of life."""

    def __init__(
        self,
        transport: WSTransport,
        listener: WSListener,
        idle_timeout: float | None,
        reply_timeout: float | None,
        strategy: WSAutoPingStrategy | None,
        histogram: Histogram | None,
    ) -> None:
        self._transport = transport
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._idle_timeout = idle_timeout
        self._reply_timeout = reply_timeout
        self._strategy = strategy
        self._histogram = histogram
        self._timer: asyncio.TimerHandle | None = None
        self._pinged_at = 0.0
        # The payloads of PINGs that wait for their PONG, when they were sent, and who waits: None is the idle timer.
        self._pings: dict[bytes, tuple[int, asyncio.Future[float] | None]] = {}
        # A listener's own kind of ping has no payload to tell answers apart, so there is one at a time.
        from wsfast._engine import WSListener  # the engine imports this module

        cls = type(listener)
        self._own_ping = cls.send_user_specific_ping is not WSListener.send_user_specific_ping
        self._own_pong = cls.is_user_specific_pong is not WSListener.is_user_specific_pong
        self._turn = asyncio.Lock()
        if idle_timeout is not None:
            self._timer = self._loop.call_later(idle_timeout, self._idle)

    def stop(self, exc: ConnectionClosed) -> None:
        """The connection is gone: whoever measures gets `exc`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pings, self._pings = self._pings, {}
        for _, waiter in pings.values():
            if waiter is not None and not waiter.done():
                waiter.set_exception(exc)

    # ---- the idle timer

    def _idle(self) -> None:
        assert self._idle_timeout is not None and self._reply_timeout is not None
        if self._strategy is WSAutoPingStrategy.PING_WHEN_IDLE:
            remaining = self._transport.last_received + self._idle_timeout - time.monotonic()
            if remaining > 0:
                self._timer = self._loop.call_later(remaining, self._idle)
                return
        if self._transport.is_close_frame_sent:
            return  # the closing handshake has a deadline of its own
        self._pinged_at = time.monotonic()
        # Any byte was sign enough of life, so earlier pings may have gone unanswered.
        self._pings = {payload: ping for payload, ping in self._pings.items() if ping[1] is not None}
        self._timer = self._loop.call_later(self._reply_timeout, self._reply_is_due)
        try:
            self._ping(None)
        except Exception as exc:
            self._transport._fail(1011, "", exc)

    def _reply_is_due(self) -> None:
        assert self._idle_timeout is not None and self._reply_timeout is not None
        if self._transport.last_received <= self._pinged_at:
            message = f"nothing was received within {self._reply_timeout} seconds of a ping"
            self._transport._fail(1011, "keepalive ping timeout", KeepaliveTimeout(message))
            return
        remaining = max(0.0, self._idle_timeout - (time.monotonic() - self._pinged_at))
        self._timer = self._loop.call_later(remaining, self._idle)

    # ---- pings and pongs

    def _ping(self, waiter: asyncio.Future[float] | None) -> bytes:
        payload = os.urandom(8)
        self._pings[payload] = time.perf_counter_ns(), waiter
        self._transport._expect(True)
        if self._own_ping:
            self._listener.send_user_specific_ping(self._transport)
        else:
            self._transport.send_ping(payload)
        return payload

    def is_pong(self, frame: WSFrame) -> bool:
        """True if the frame answers a PING of this object; it is then not delivered."""
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
        """The answer to the oldest ping arrived."""
        if self._pings:
            self._answered(next(iter(self._pings)))

    def _answered(self, payload: bytes) -> None:
        now = time.perf_counter_ns()
        sent, waiter = self._pings.pop(payload)
        if waiter is not None and not waiter.done():
            waiter.set_result((now - sent) / 1e9)
        if self._histogram is not None:
            self._histogram.record_value(now - sent)
        self._transport._expect(bool(self._pings))

    async def measure(self, rounds: int) -> list[float]:
        """Times in seconds from sending a PING to its answer; one PING after the other."""
        times = []
        for _ in range(rounds):
            async with self._turn:
                waiter: asyncio.Future[float] = self._loop.create_future()
                payload = self._ping(waiter)
                try:
                    times.append(await waiter)
                finally:
                    self._pings.pop(payload, None)
        return times
