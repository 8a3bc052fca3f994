"""The subscriptions of a program, which all connections of a supervisor share, and the messages to send for them."""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple

from wsfast._faces import BYTES_LIKE
from wsfast.options import check_callables, count, seconds

__all__ = ["Message", "Rejected", "Subscription", "SubscriptionState", "Subscriptions", "made"]

#: A message, or a function that makes it each time it is sent.
Message = str | bytes | bytearray | memoryview | Callable[[], str | bytes]


class SubscriptionState(enum.Enum):
    """What has become of a subscription on a connection. ``on_subscription`` gets it."""

    IN = "in"
    """It was sent, and the server has acknowledged it if it demands that. So the server publishes: what the program
    fetches by other means from now on, such as a snapshot, overlaps with the messages."""
    REFUSED = "refused"
    """The server has refused it: ``reply_id`` returned :class:`Rejected`. It is sent again on the next connection."""
    LATE = "late"
    """The server has not acknowledged it, however often it was sent, but has answered others. It is sent again on the
    next connection. If the acknowledgement still comes, the state becomes IN."""


class Rejected(NamedTuple):
    """What ``reply_id`` returns for a message with which the server refuses a subscription."""

    id: Hashable
    """The ``id`` of the subscription."""
    why: Any = None
    """The server's reason, for the log and for :class:`SubscriptionRejected`."""


class Subscription:
    """A subscription, made by :meth:`Supervisor.subscribe`. All connections share it, and it does not change."""

    __slots__ = ("ack", "ack_timeout", "key", "max_silence", "message", "retries")

    def __init__(
        self,
        message: Message,
        key: Hashable,
        ack: Callable[[Any], object] | None,
        ack_timeout: float,
        retries: int,
        max_silence: float | None,
    ) -> None:
        self.message = checked("message", message)
        if key is None:
            if callable(self.message):
                raise TypeError("key is required if message is a function")
            key = self.message
        hash(key)
        self.key = key
        check_callables(ack=ack)
        self.ack = ack
        self.ack_timeout = seconds("ack_timeout", ack_timeout, none=None, zero=False) or 0.0
        self.retries = count("retries", retries) or 0
        self.max_silence = seconds("max_silence", max_silence, none="for no limit", zero=False)

    def __repr__(self) -> str:
        return f"<Subscription {self.key!r}>"


class Subscriptions:
    """All subscriptions by their keys, in the order in which they were made."""

    def __init__(self) -> None:
        self._by_key: dict[Hashable, Subscription] = {}

    def add(self, subscription: Subscription) -> None:
        """Add a subscription. It replaces one with the same key."""
        self._by_key.pop(subscription.key, None)
        self._by_key[subscription.key] = subscription

    def remove(self, key: Hashable) -> Subscription | None:
        return self._by_key.pop(key, None)

    def get(self, key: Hashable) -> Subscription | None:
        return self._by_key.get(key)

    def __contains__(self, subscription: Subscription) -> bool:
        return self._by_key.get(subscription.key) is subscription

    def __iter__(self) -> Iterator[Subscription]:
        return iter(list(self._by_key.values()))

    def __len__(self) -> int:
        return len(self._by_key)


def checked(name: str, message: Any) -> Any:
    """The message to keep. A mutable one is copied, because its owner may change it.

    :raises TypeError: `message` is not a message
    """
    if isinstance(message, (bytearray, memoryview)):
        return bytes(message)
    if not isinstance(message, (str, *BYTES_LIKE)) and not callable(message):
        raise TypeError(f"{name} must be str, bytes-like, or a function that makes it, not {message!r}")
    return message


def made(message: Any) -> str | bytes:
    """The message to send now.

    :raises TypeError: the function has returned something else
    """
    if not callable(message):
        return message  # type: ignore[no-any-return]
    result = message()
    if not isinstance(result, (str, *BYTES_LIKE)):
        raise TypeError(f"the function must make str or bytes, not {result!r}")
    return bytes(result) if isinstance(result, (bytearray, memoryview)) else result
