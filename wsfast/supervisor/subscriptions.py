"""The subscriptions of a program, which all connections of a supervisor share, and the messages to send for them."""

from __future__ import annotations

import asyncio
import enum
import functools
from collections.abc import Awaitable, Callable, Hashable, Iterator
from typing import Any, NamedTuple

from wsfast._common.connection import BYTES_LIKE
from wsfast._common.logging import guarded
from wsfast._common.options import check_callables, count, no_message, seconds
from wsfast.supervisor.callbacks import Callbacks

__all__ = [
    "Message",
    "Rejected",
    "Reporter",
    "Subscription",
    "SubscriptionState",
    "Subscriptions",
    "as_message",
]

#: A message, or a function or coroutine function that makes it each time it is sent.
Message = (
    str
    | bytes
    | bytearray
    | memoryview
    | Callable[[], str | bytes]
    | Callable[[], Awaitable[str]]
    | Callable[[], Awaitable[bytes]]
)


class SubscriptionState(enum.Enum):
    """The state of a subscription on a connection. ``on_subscription`` gets it."""

    IN = "in"
    """It was sent, and the server has acknowledged it if it demands that. So the server publishes: anything that the
    program fetches by other means from now on, such as a snapshot, overlaps with the messages."""
    REFUSED = "refused"
    """The server has refused it: ``reply_id`` returned :class:`Rejected`. It is sent again on the next connection."""
    LATE = "late"
    """The server has not acknowledged it, however often it was sent, but has answered others. It is sent again on the
    next connection. If the acknowledgement still comes, the state becomes IN."""


class Rejected(NamedTuple):
    """A refusal: ``reply_id`` returns it for a message with which the server refuses a subscription."""

    id: Hashable
    """The ``id`` of the subscription."""
    why: Any = None
    """The server's reason, for the log and for :class:`SubscriptionRejected`."""


class Subscription:
    """A subscription, made by :meth:`Supervisor.subscribe`. All connections share it, and it does not change."""

    __slots__ = ("ack", "ack_timeout", "id", "key", "max_silence", "message", "retries", "stage")

    def __init__(
        self,
        message: Message,
        key: Hashable = None,
        id: Hashable = None,
        stage: int = 1,
        ack: Callable[[Any], object] | None = None,
        ack_timeout: float = 10.0,
        retries: int = 3,
        max_silence: float | None = None,
    ) -> None:
        self.message = checked("message", message)
        if key is None:
            if callable(self.message):
                raise TypeError("key is required if message is a function")
            key = self.message
        hash(key), hash(id)
        self.key = key
        self.id = id
        self.stage = count("stage", stage) or 0
        check_callables(ack=ack)
        self.ack = ack
        self.ack_timeout = seconds("ack_timeout", ack_timeout, none=None, zero=False) or 0.0
        self.retries = count("retries", retries) or 0
        self.max_silence = seconds("max_silence", max_silence, none="for no limit", zero=False)

    @property
    def demands_reply(self) -> bool:
        """It is in when the server has acknowledged it, not when it was sent."""
        return self.ack is not None or self.id is not None

    def __repr__(self) -> str:
        return f"<Subscription {self.key!r}>"


class Subscriptions:
    """All subscriptions by their keys, in the order in which they were made."""

    def __init__(self) -> None:
        #: The same object for good.
        self.by_key: dict[Hashable, Subscription] = {}
        self._by_id: dict[Hashable, Subscription] = {}

    def add(self, subscription: Subscription) -> None:
        """Add a subscription. It replaces one with the same key.

        :raises ValueError: a subscription with another key has the same id
        """
        same = None if subscription.id is None else self._by_id.get(subscription.id)
        if same is not None and same.key != subscription.key:
            raise ValueError(f"{same!r} has the same id, {subscription.id!r}")
        self.remove(subscription.key)
        if subscription.id is not None:
            self._by_id[subscription.id] = subscription
        self.by_key[subscription.key] = subscription

    def remove(self, key: Hashable) -> Subscription | None:
        subscription = self.by_key.pop(key, None)
        if subscription is not None and subscription.id is not None:
            del self._by_id[subscription.id]
        return subscription

    def get(self, key: Hashable) -> Subscription | None:
        return self.by_key.get(key)

    def __contains__(self, subscription: Subscription) -> bool:
        return self.by_key.get(subscription.key) is subscription

    def __iter__(self) -> Iterator[Subscription]:
        return iter(list(self.by_key.values()))

    def __len__(self) -> int:
        return len(self.by_key)


def checked(name: str, message: Any) -> Any:
    """The message to keep. A mutable one is copied, because its owner may change it.

    :raises TypeError: `message` is not a message
    """
    if isinstance(message, (bytearray, memoryview)):
        return bytes(message)
    if not isinstance(message, (str, *BYTES_LIKE)) and not callable(message):
        raise no_message(name, message, "str, bytes-like, or a function that makes it")
    return message


def as_message(result: Any) -> str | bytes:
    """The message that a function has made.

    :raises TypeError: the function has returned something else
    """
    if not isinstance(result, (str, *BYTES_LIKE)):
        raise TypeError(f"the function must make str or bytes, not {result!r}")
    return bytes(result) if isinstance(result, (bytearray, memoryview)) else result


class Reporter:
    """Calls ``on_subscription``, and logs the states that need attention. Both run in callbacks of the event loop,
    so they never run while a message is being delivered."""

    def __init__(
        self,
        on_subscription: Callable[[Subscription, SubscriptionState, int], object] | None,
        callbacks: Callbacks,
        logger: Any,
    ) -> None:
        self._on_subscription = on_subscription
        self._callbacks = callbacks
        self._logger = logger

    def report(self, generation: int, subscription: Subscription, state: SubscriptionState, why: Any) -> None:
        """`why` is the server's reason to refuse it, or the error of one that is late."""
        loop = asyncio.get_running_loop()
        if state is not SubscriptionState.IN:
            text = "subscription %r is %s: %s"
            extra = {"subscription": subscription.key, "connection": generation}
            arguments = subscription.key, state.value, why
            loop.call_soon(functools.partial(guarded, self._logger.warning, text, *arguments, extra=extra))
        if self._on_subscription is not None:
            call = functools.partial(self._callbacks.call, "on_subscription", None, self._on_subscription)
            loop.call_soon(call, subscription, state, generation)
