"""Checks that a server is alive: it must send data, topic by topic, and answer heartbeats, each within its limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable

from wsfast._engine.transport import WSTransport
from wsfast.supervisor.alarm import Alarm
from wsfast.supervisor.errors import HeartbeatTimeout, SilenceTimeout
from wsfast.supervisor.outbox import Outbox
from wsfast.supervisor.sending import QueuedMessage
from wsfast.supervisor.shared import Shared
from wsfast.supervisor.subscriptions import Subscription, as_message

__all__ = ["Grace", "Liveness"]

# The counters are checked so many times within the shortest limit. Silence is noticed late by at most one interval.
_PART = 4

# A verdict requires so many iterations of the event loop in which nothing more arrives.
_ITERATIONS = 2


class Grace:
    """A delay before a verdict, which lasts as long as bytes arrive from one check to the next.

    If the program was busy, the missing message may already be in the socket, perhaps behind more data than one read
    takes. The delay takes at most `limit` seconds, even if the server sends without end.
    """

    def __init__(self, transport: WSTransport, limit: float) -> None:
        self._transport = transport
        self._left = _ITERATIONS  # so many checks in a row must find nothing more
        self._received = transport.stats.bytes_received
        #: When it is over in any case, by time.monotonic().
        self.until = time.monotonic() + limit

    def lasts(self) -> bool:
        """True if the verdict must still wait. This is one check."""
        received = self._transport.stats.bytes_received
        if received != self._received:
            self._received = received
            self._left = _ITERATIONS
        self._left -= 1
        return self._left >= 0 and time.monotonic() < self.until


class Liveness:
    """Watches one connection. A message costs at most one entry in a set; a timer does the rest.

    :param fail: ends the connection
    """

    def __init__(
        self, transport: WSTransport, outbox: Outbox, shared: Shared, fail: Callable[[Exception], None]
    ) -> None:
        self._transport = transport
        self._outbox = outbox
        self._subscriptions = shared.subscriptions
        self._limit = shared.settings.max_silence
        self._is_normal = shared.settings.silence_is_normal
        self._heartbeat = shared.settings.heartbeat
        self._callbacks = shared.callbacks
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._no_data = 0  # messages that do not count as data: replies to heartbeats, and pings
        self._data = 0
        self._data_at = time.monotonic()
        #: The keys of subscriptions that were topics of messages since the last check.
        self.heard: set[Hashable] = set()
        self._topics_at: dict[Subscription, float] = {}
        self._ticking = Alarm(self._tick)
        self._judging: asyncio.Handle | None = None  # the delay before a verdict on silence
        self._beating: asyncio.Handle | None = None
        self._waiting: asyncio.Handle | None = None  # for the answer to a heartbeat
        self._stopped = False
        shortest = self._shortest()
        if shortest is not None:
            self._ticking.within(shortest / _PART)
        if self._heartbeat is not None:
            self._beating = self._loop.call_later(self._heartbeat.every, self._beat)

    @property
    def data_at(self) -> float:
        """The time when data was last seen, by ``time.monotonic()``."""
        return self._data_at

    def subscribed(self, subscription: Subscription) -> None:
        """A subscription was made. Check more often if its `max_silence` requires that."""
        if subscription.max_silence is not None and not self._stopped:
            self._ticking.within(subscription.max_silence / _PART)

    def stop(self) -> None:
        self._stopped = True
        self._ticking.cancel()
        for timer in (self._judging, self._beating, self._waiting):
            if timer is not None:
                timer.cancel()
        self._judging = self._beating = self._waiting = None

    # ---- silence

    def _shortest(self) -> float | None:
        limits = [subscription.max_silence for subscription in self._subscriptions]
        return min((limit for limit in (self._limit, *limits) if limit is not None), default=None)

    def _tick(self) -> None:
        if self._judging is None:
            self._judge(None)

    def _judge(self, grace: Grace | None) -> None:
        self._judging = None
        limit = self._shortest()
        if self._stopped or limit is None:
            return
        silence = self._silence(time.monotonic())
        if silence is None:
            self._ticking.within(limit / _PART)
            return
        grace = grace or Grace(self._transport, silence.seconds)
        if grace.lasts():
            self._judging = self._loop.call_soon(self._judge, grace)
        elif self._is_normal is not None and self._callbacks.call(
            "silence_is_normal", False, self._is_normal
        ):
            if self._stopped:
                return
            self._data_at = time.monotonic()
            self._topics_at.clear()  # the time of every topic begins anew
            self._ticking.within(limit / _PART)
        elif not self._stopped:
            self._fail(silence)

    def _silence(self, now: float) -> SilenceTimeout | None:
        """The error for the connection or the subscription that has been silent for too long; None if there is none."""
        data = self._transport._data_received - self._no_data
        if data != self._data or self._is_paused():
            self._data = data
            self._data_at = now
        heard = self.heard.copy()
        self.heard.clear()
        if self._limit is not None and now - self._data_at >= self._limit:
            return SilenceTimeout(self._limit)
        late = None
        for subscription in self._subscriptions:
            if subscription.max_silence is None or not self._outbox.has_in(subscription):
                self._topics_at.pop(subscription, None)
            elif subscription.key in heard or subscription not in self._topics_at or self._is_paused():
                self._topics_at[subscription] = now
            elif now - self._topics_at[subscription] >= subscription.max_silence and late is None:
                late = SilenceTimeout(subscription.max_silence, subscription.key)
        return late

    def _is_paused(self) -> bool:
        """Reading is paused because the program does not take its messages, so silence is not the server's fault."""
        transport = self._transport
        return not transport.is_disconnected and not transport.underlying_transport.is_reading()

    # ---- heartbeats, and pings of the server's

    def answers(self, reply: str | bytes | None) -> bool:
        """Send the answer to a message that is a ping, and so no data. False if it is none: there is no answer."""
        if reply is None:
            return False
        self._outbox.answer(as_message(reply))
        self._no_data += 1
        return True

    def replied(self) -> None:
        """A message that answers a heartbeat has arrived, which is no data."""
        self._no_data += 1
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _beat(self) -> None:
        heartbeat = self._heartbeat
        if self._stopped or heartbeat is None:
            return
        self._beating = self._loop.call_later(heartbeat.every, self._beat)
        self._outbox.beat(QueuedMessage(heartbeat.message, None, self._beaten, self._is_wanted))

    def _is_wanted(self) -> bool:
        return not self._stopped

    def _beaten(self, exc: BaseException | None) -> None:
        """A heartbeat was sent, or cannot be sent because of `exc`."""
        heartbeat = self._heartbeat
        if self._stopped or heartbeat is None:
            return
        if exc is not None:
            self._fail(
                exc if isinstance(exc, Exception) else RuntimeError("the heartbeat's function was cancelled")
            )
        elif heartbeat.is_reply is not None and self._waiting is None:
            self._waiting = self._loop.call_later(heartbeat.timeout, self._missed)

    def _missed(self, grace: Grace | None = None) -> None:
        heartbeat = self._heartbeat
        if self._stopped or heartbeat is None:
            return
        grace = grace or Grace(self._transport, heartbeat.timeout)
        if self._is_paused():
            self._waiting = self._loop.call_later(heartbeat.timeout, self._missed)
        elif grace.lasts():
            self._waiting = self._loop.call_soon(self._missed, grace)
        else:
            self._fail(HeartbeatTimeout(heartbeat.timeout))
