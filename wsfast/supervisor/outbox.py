"""The queue of one connection: it sends the program's messages, heartbeats and subscriptions, in this order."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from wsfast._engine.transport import WSTransport
from wsfast.codes import WSMsgType
from wsfast.exceptions import ConnectionClosed
from wsfast.supervisor.callbacks import Callbacks
from wsfast.supervisor.errors import SubscriptionTimeout
from wsfast.supervisor.subscriptions import Subscription, Subscriptions, made
from wsfast.supervisor.window import Sent, Window

__all__ = ["Outbox", "Urgent"]

# At most so many messages are sent in one callback of the event loop.
_BATCH = 128

# At most so many subscriptions wait for their acknowledgements. Each calls its `ack` for every message that arrives.
_MOST_IN_FLIGHT = 32

# Without a window: if more bytes than this are in the write buffer, the next message waits.
_BACKLOG = 64 * 1024

# If the kernel has not taken everything, check again in so many iterations of the loop, then at intervals in seconds.
_ITERATIONS, _PAUSE = 2, 0.005


class Urgent:
    """A message that is sent before the subscriptions. `sent` is called once it was sent, or with an error."""

    __slots__ = ("kind", "message", "sent", "wanted")

    def __init__(
        self,
        message: Any,
        kind: WSMsgType | None,
        sent: Callable[[BaseException | None], None],
        wanted: Callable[[], bool],
    ) -> None:
        self.message = message
        self.kind = kind
        self.sent = sent
        self.wanted = wanted


class _Parting:
    """The message that ends a subscription."""

    __slots__ = ("message",)

    def __init__(self, message: Any) -> None:
        self.message = message


class Outbox:
    """Sends on one connection.

    Timers and the methods of the supervisor call it. It has no task of its own: a task that sends waits for its message
    to be sent, not for this object.

    :param urgent: the messages of the program. The supervisor owns this queue: the next connection sends the messages
        that this one has not sent.
    :param fail: ends the connection
    :param changed: called when subscriptions were sent, acknowledged or ended
    """

    def __init__(
        self,
        transport: WSTransport,
        window: Window | None,
        urgent: deque[Urgent],
        subscriptions: Subscriptions,
        callbacks: Callbacks,
        fail: Callable[[Exception], None],
        changed: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._sent = None if window is None else Sent(window)
        # How many frames of the connection the window has counted: at first none, not even PONGs that were sent.
        self._counted = 0
        self._urgent = urgent
        self._heartbeats: deque[Urgent] = deque()
        self._subscriptions = subscriptions
        self._pending: deque[Subscription | _Parting] = deque(subscriptions)
        self._were_sent: set[Subscription] = set()
        #: The subscriptions that were sent and not acknowledged, with the times at which they time out.
        self.in_flight: dict[Subscription, float] = {}
        self._times: dict[Subscription, int] = {}  # how often they were sent
        self._callbacks = callbacks
        self._fail = fail
        self._changed = changed
        self.takes_urgent = False
        self.messages_sent = 0
        self._timer: asyncio.Handle | None = None
        self._ack_timer: asyncio.Handle | None = None
        self._pumping = self._stopped = False
        self._waits = 0  # consecutive waits for the kernel
        self._unsent_since: float | None = None

    # ---- for the supervisor

    @property
    def is_idle(self) -> bool:
        """A message may bypass this queue, because nothing must be sent before it."""
        return (
            self._sent is None
            and not self._pumping
            and not self._stopped
            and not self._urgent
            and not self._transport.write_buffer_size
        )

    @property
    def is_in(self) -> bool:
        """All subscriptions were sent, and were acknowledged if they demand it."""
        pending = self._pending
        while pending and isinstance(pending[0], Subscription) and pending[0] not in self._subscriptions:
            pending.popleft()
        return not pending and not self.in_flight

    @property
    def number_in(self) -> int:
        """How many subscriptions are in."""
        return sum(1 for subscription in self._subscriptions if self.has_in(subscription))

    def has_in(self, subscription: Subscription) -> bool:
        return subscription in self._were_sent and subscription not in self.in_flight

    def subscribe(self, subscription: Subscription) -> None:
        self._pending.append(subscription)
        self.pump()

    def unsubscribe(self, subscription: Subscription, message: Any) -> None:
        self.in_flight.pop(subscription, None)
        self._times.pop(subscription, None)
        if subscription in self._were_sent:
            self._were_sent.discard(subscription)
            if message is not None:
                self._pending.append(_Parting(message))
        self.pump()
        self._changed()

    def beat(self, urgent: Urgent) -> None:
        self._heartbeats.append(urgent)
        self.pump()

    def look(self, payload: Any) -> bool:
        """True if a received message acknowledges a subscription."""
        accepted = False
        for subscription in list(self.in_flight):
            ack = subscription.ack
            if ack is not None and self._callbacks.call("ack", False, ack, payload):
                accepted = True
                if self.in_flight.pop(subscription, None) is not None:
                    self._times.pop(subscription, None)
        if accepted:
            self._loop.call_soon(self.pump)  # not here, amid the delivery of a message
            self._changed()
        return accepted

    def stop(self) -> None:
        """Send nothing more, because the connection has ended or is about to end."""
        self._stopped = True
        for timer in (self._timer, self._ack_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._ack_timer = None

    # ---- sending

    def pump(self) -> None:
        """Send the messages that may be sent now, and schedule the next call."""
        if self._pumping or self._stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._pumping = True
        before = self._were_sent_and_in()
        try:
            delay = self._send_some()
        finally:
            self._pumping = False
        if self._stopped:
            return
        if delay == 0:
            self._timer = self._loop.call_soon(self.pump)
        elif delay is not None:
            self._timer = self._loop.call_later(delay, self.pump)
        if self._were_sent_and_in() != before:
            self._changed()

    def _were_sent_and_in(self) -> tuple[int, bool]:
        return len(self._were_sent), self.is_in

    def _send_some(self) -> float | None:
        """Send until nothing is left, and return None; or return the seconds until the next message may be sent."""
        for _ in range(_BATCH):
            queue = self._queue()
            if queue is None:
                return None
            delay = self._wait()
            if delay is not None:
                return delay
            try:
                item = queue.popleft()
            except IndexError:  # a finalizer of the program has just removed the subscription
                continue
            if not self._send(item, queue):
                return None
        return 0.0

    def _queue(self) -> deque[Any] | None:
        """The queue whose head is the next message; None if nothing is to be sent now."""
        if self._stopped:
            return None
        if self.takes_urgent:
            while self._urgent and not self._urgent[0].wanted():
                self._urgent.popleft()
            if self._urgent:
                return self._urgent
        if self._heartbeats:
            return self._heartbeats
        while self._pending:
            first = self._pending[0]
            if isinstance(first, _Parting):
                return self._pending
            if first in self._subscriptions and first not in self._were_sent:
                return self._pending if len(self.in_flight) < _MOST_IN_FLIGHT else None
            self._pending.popleft()
        return None

    def _wait(self) -> float | None:
        """The seconds until a message may be sent; None if one may be sent now."""
        now = time.monotonic()
        if self._transport.write_buffer_size > (0 if self._sent is not None else _BACKLOG):
            self._waits += 1
            return 0.0 if self._waits <= _ITERATIONS else _PAUSE
        self._waits = 0
        if self._sent is None:
            return None
        if self._unsent_since is not None:  # the kernel has taken the messages only now, as far as is known
            self._sent.left_late(self._unsent_since, now)
            self._unsent_since = None
        frames = self._transport.stats.frames_sent
        self._sent.others(frames - self._counted, now)
        self._counted = frames
        return self._sent.wait(now) or None

    def _send(self, item: Any, queue: deque[Any]) -> bool:
        """Send one message. False if the connection is closed; the message then remains in its queue."""
        if isinstance(item, Subscription) and item in self._were_sent:
            return True
        try:
            message = made(item.message)
        except (Exception, asyncio.CancelledError) as exc:
            self._not_made(item, exc)
            return True
        if isinstance(item, Subscription) and item not in self._subscriptions:
            return True  # the function that makes the message has unsubscribed
        kind = item.kind if isinstance(item, Urgent) else None
        if kind is None:
            kind = WSMsgType.TEXT if isinstance(message, str) else WSMsgType.BINARY
        before = time.monotonic()
        try:
            self._transport.send(kind, message)
        except ConnectionClosed:
            queue.appendleft(item)
            self.stop()
            return False
        except Exception as exc:  # a message that cannot be encoded, such as a lone surrogate
            self._not_made(item, exc)
            return True
        self.messages_sent += 1
        if self._sent is not None:
            self._sent.message(time.monotonic())
            self._counted += 1
            if self._transport.write_buffer_size:
                self._unsent_since = before if self._unsent_since is None else self._unsent_since
        if isinstance(item, Urgent):
            item.sent(None)
        elif isinstance(item, Subscription):
            self._was_sent(item)
        return True

    def _not_made(self, item: Any, exc: BaseException) -> None:
        """A message cannot be sent on any connection, because of `exc`."""
        if isinstance(item, Urgent):
            item.sent(exc)
        else:
            self._callbacks.call("message", None, _raise, exc)
            if isinstance(item, Subscription) and isinstance(exc, Exception):
                self._fail(exc)

    def _was_sent(self, subscription: Subscription) -> None:
        self._were_sent.add(subscription)
        if subscription.ack is not None:
            self._times[subscription] = self._times.get(subscription, 0) + 1
            self.in_flight[subscription] = time.monotonic() + subscription.ack_timeout
            self._changed()
            if self._ack_timer is None:
                self._ack_timer = self._loop.call_later(subscription.ack_timeout, self._check_acks)
            else:
                self._sooner(subscription.ack_timeout)

    # ---- missing acknowledgements

    def _sooner(self, seconds: float) -> None:
        """Let the timer fire within so many seconds."""
        timer = self._ack_timer
        if isinstance(timer, asyncio.TimerHandle) and timer.when() > self._loop.time() + seconds:
            timer.cancel()
            self._ack_timer = self._loop.call_later(seconds, self._check_acks)

    def _check_acks(self) -> None:
        self._ack_timer = None
        if self._stopped:
            return
        now = time.monotonic()
        for subscription, due in list(self.in_flight.items()):
            if due > now:
                continue
            del self.in_flight[subscription]
            times = self._times[subscription]
            if times > subscription.retries:
                self._fail(SubscriptionTimeout(subscription.key, times))
                return
            self._were_sent.discard(subscription)
            self._pending.appendleft(subscription)
        if self.in_flight:
            soonest = min(self.in_flight.values()) - now
            self._ack_timer = self._loop.call_later(max(soonest, 0.001), self._check_acks)
        self.pump()


def _raise(exc: BaseException) -> None:
    raise exc
