"""The states of the subscriptions of one connection, and the choice of the one to send next.

| state | begins when | ends when |
|---|---|---|
| queued | it was made, or the connection was opened | its message was sent |
| unanswered | it was sent, and demands a reply | a reply comes; without one, it is sent again, and is late in the end |
| in | it was sent or acknowledged | the program unsubscribes |
| refused | a reply refuses it | the connection ends |
| late | no reply came, but replies to others of its stage did | a reply comes, or the connection ends |

Subscriptions of a stage are sent once those of all earlier stages are in. So a subscription that others wait for can be
neither refused nor late: the connection ends. It also ends if no reply comes to any subscription of a stage.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable
from typing import Any

from wsfast.supervisor.alarm import Alarm
from wsfast.supervisor.errors import SubscriptionRejected, SubscriptionTimeout
from wsfast.supervisor.shared import Shared
from wsfast.supervisor.subscriptions import Rejected, Subscription, SubscriptionState

__all__ = ["Progress", "Unsubscribing"]

# At most so many subscriptions with an `ack` function are unanswered: each message calls the function of each.
_MOST_FUNCTIONS = 32

_NOT_BEFORE_IT_IS_SENT = math.inf


class Unsubscribing:
    """The message that ends a subscription, in the queue of its stage."""

    __slots__ = ("message", "stage")

    def __init__(self, message: Any, stage: int) -> None:
        self.message = message
        self.stage = stage


class Progress:
    """The subscriptions of one connection.

    :param report: called with a subscription, its new state, and the server's reason
    :param fail: ends the connection
    :param changed: called when a timer has queued subscriptions again, or has found one late
    """

    def __init__(
        self,
        shared: Shared,
        report: Callable[[Subscription, SubscriptionState, Any], None],
        fail: Callable[[Exception], None],
        changed: Callable[[], None],
    ) -> None:
        self._subscriptions = shared.subscriptions
        self._reply_id = shared.settings.reply_id
        self._callbacks = shared.callbacks
        self._report = report
        self._fail = fail
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._queues: dict[int, deque[Subscription | Unsubscribing]] = {}
        # When to send it again, by time.monotonic().
        self._unanswered: dict[Subscription, float] = {}
        self._unanswered_of_stage: Counter[int] = Counter()
        self._times: Counter[Subscription] = Counter()  # how often they were sent
        self._states: dict[Subscription, SubscriptionState] = {}  # only of those in, refused or late
        # Why the connection must end if others come to wait for them: those refused or late.
        self._left_alone: dict[Subscription, Exception] = {}
        # Replies are matched with these: the unanswered and the late.
        self._by_id: dict[Hashable, Subscription] = {}
        self._by_function: dict[Subscription, None] = {}
        self._late_functions = 0
        self._answered_stages: set[int] = set()
        self._is_failing = False
        self._alarm = Alarm(self._check)
        for subscription in self._subscriptions:
            self._queue_of(subscription.stage).append(subscription)

    # ---- state

    @property
    def expects_replies(self) -> bool:
        """Replies are due."""
        return bool(self._unanswered)

    @property
    def takes_replies(self) -> bool:
        """A message may be a reply: one is due, or was due and never came."""
        return bool(self._by_id or self._by_function)

    @property
    def is_in(self) -> bool:
        """All are in, but for those refused or late."""
        return (
            not self._is_failing and not self._unanswered and all(map(self._is_empty, self._queues.values()))
        )

    @property
    def number_in(self) -> int:
        return sum(1 for subscription in self._subscriptions if self.has_in(subscription))

    @property
    def late(self) -> list[Subscription]:
        return [one for one in self._left_alone if self._states.get(one) is SubscriptionState.LATE]

    def has_in(self, subscription: Subscription) -> bool:
        return self._states.get(subscription) is SubscriptionState.IN

    def is_stage_in(self, stage: int) -> bool:
        queue = self._queues.get(stage)
        if queue is None:
            return not self._is_failing
        return not self._is_failing and not self._unanswered_of_stage[stage] and self._is_empty(queue)

    # ---- what the program does

    def subscribe(self, subscription: Subscription) -> None:
        self._queue_of(subscription.stage).append(subscription)
        for earlier, error in self._left_alone.items():
            if earlier.stage < subscription.stage:
                self._end(error)
                return

    def unsubscribe(self, subscription: Subscription, message: Any) -> None:
        """`message` is queued if the subscription was sent and not refused; None sends nothing."""
        was_sent = subscription in self._unanswered or (
            self._states.get(subscription) in (SubscriptionState.IN, SubscriptionState.LATE)
        )
        self._settle(subscription)
        self._states.pop(subscription, None)
        self._times.pop(subscription, None)
        if was_sent and message is not None:
            self._queue_of(subscription.stage).append(Unsubscribing(message, subscription.stage))

    def stop(self) -> None:
        self._alarm.cancel()

    # ---- sending

    def queue(self) -> deque[Any] | None:
        """The queue whose head is to be sent next; None if nothing may be sent now."""
        if self._is_failing:
            return None
        for stage in sorted(self._queues):
            queue = self._queues[stage]
            if not self._is_empty(queue):
                return queue if self._has_room_for(queue[0]) else None
            if self._unanswered_of_stage[stage]:
                return None
        return None

    def is_wanted(self, item: Subscription | Unsubscribing) -> bool:
        """True if the message still has to be sent."""
        if isinstance(item, Unsubscribing):
            return True
        return item in self._subscriptions and item not in self._states

    def sent(self, subscription: Subscription) -> None:
        """The subscription was sent."""
        if not subscription.demands_reply:
            self._is_in_now(subscription)
            return
        self._times[subscription] += 1
        if subscription not in self._unanswered:
            self._unanswered_of_stage[subscription.stage] += 1
            if subscription.id is not None:
                self._by_id[subscription.id] = subscription
            if subscription.ack is not None:
                self._by_function[subscription] = None
        self._unanswered[subscription] = time.monotonic() + subscription.ack_timeout
        self._alarm.within(subscription.ack_timeout)

    def _queue_of(self, stage: int) -> deque[Subscription | Unsubscribing]:
        return self._queues.setdefault(stage, deque())

    def _is_empty(self, queue: deque[Subscription | Unsubscribing]) -> bool:
        while queue and not self.is_wanted(queue[0]):
            queue.popleft()
        return not queue

    def _has_room_for(self, item: Subscription | Unsubscribing) -> bool:
        return (
            isinstance(item, Unsubscribing)
            or item.ack is None
            or item in self._by_function
            or len(self._by_function) - self._late_functions < _MOST_FUNCTIONS
        )

    # ---- replies

    def take_reply(self, message: Any) -> bool:
        """True if a received message replies to a subscription. The program's functions may do anything here."""
        is_reply = False
        if self._by_id:
            found = self._callbacks.call("reply_id", None, self._find, message)
            if found is not None:
                is_reply = True
                self._replied(*found)
        for subscription in list(self._by_function):
            if (
                subscription.ack is not None
                and self._callbacks.call("ack", False, subscription.ack, message)
                and subscription in self._by_function
            ):
                is_reply = True
                self._replied(subscription, None)
        return is_reply

    def _find(self, message: Any) -> tuple[Subscription, Rejected | None] | None:
        """The subscription that a message replies to, and the refusal if it is one."""
        assert self._reply_id is not None
        reply = self._reply_id(message)
        refusal = reply if isinstance(reply, Rejected) else None
        found = self._by_id.get(reply if refusal is None else refusal.id)
        return None if found is None else (found, refusal)

    def _replied(self, subscription: Subscription, refusal: Rejected | None) -> None:
        self._answered_stages.add(subscription.stage)
        if refusal is None:
            self._is_in_now(subscription)
        else:
            error = SubscriptionRejected(subscription.key, refusal.why)
            self._leave_alone(subscription, SubscriptionState.REFUSED, error, refusal.why)

    def _is_in_now(self, subscription: Subscription) -> None:
        self._settle(subscription)
        self._states[subscription] = SubscriptionState.IN
        self._report(subscription, SubscriptionState.IN, None)

    def _leave_alone(
        self, subscription: Subscription, state: SubscriptionState, error: Exception, why: Any
    ) -> None:
        self._settle(subscription)
        self._states[subscription] = state
        self._left_alone[subscription] = error
        self._report(subscription, state, why)
        # The program's messages wait for the stages before 1.
        if subscription.stage < 1 or any(other.stage > subscription.stage for other in self._subscriptions):
            self._end(error)

    def _settle(self, subscription: Subscription) -> None:
        """Stop waiting for a reply to the subscription."""
        if self._unanswered.pop(subscription, None) is not None:
            self._unanswered_of_stage[subscription.stage] -= 1
        if self._by_id.get(subscription.id) is subscription:
            del self._by_id[subscription.id]
        if subscription in self._by_function:
            del self._by_function[subscription]
            self._late_functions -= self._states.get(subscription) is SubscriptionState.LATE
        self._left_alone.pop(subscription, None)

    def _end(self, error: Exception) -> None:
        """End the connection, but not amid the delivery of a message."""
        if not self._is_failing:
            self._is_failing = True
            self._loop.call_soon(self._fail, error)

    # ---- missing replies

    def _check(self) -> None:
        now = time.monotonic()
        for subscription in [one for one, due in reversed(self._unanswered.items()) if due <= now]:
            times = self._times[subscription]
            if times <= subscription.retries:
                self._unanswered[subscription] = _NOT_BEFORE_IT_IS_SENT
                self._queue_of(subscription.stage).appendleft(subscription)
            else:
                self._is_late_now(subscription, SubscriptionTimeout(subscription.key, times))
        due = min(self._unanswered.values(), default=math.inf)
        if due < math.inf and not self._is_failing:
            self._alarm.within(max(due - now, 0.001))
        self._changed()

    def _is_late_now(self, subscription: Subscription, error: SubscriptionTimeout) -> None:
        if subscription.stage not in self._answered_stages:
            self._end(error)
            return
        self._leave_alone(subscription, SubscriptionState.LATE, error, str(error))
        # A reply may still come.
        if subscription.id is not None:
            self._by_id[subscription.id] = subscription
        if subscription.ack is not None:
            self._by_function[subscription] = None
            self._late_functions += 1
