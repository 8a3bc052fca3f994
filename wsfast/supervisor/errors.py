"""The errors of a supervisor: for silence, for refusals, and for messages that were not sent in time."""

from __future__ import annotations

from typing import Any

from wsfast.exceptions import KeepaliveTimeout, WebSocketException

__all__ = [
    "HeartbeatTimeout",
    "SendExpired",
    "SilenceTimeout",
    "SubscriptionRejected",
    "SubscriptionTimeout",
    "SupervisorTimeout",
]

# These names follow KeepaliveTimeout: they do not end in Error.


class SupervisorTimeout(KeepaliveTimeout):
    """A supervisor has ended a connection because something did not arrive in time. The supervisor connects again."""


class SilenceTimeout(SupervisorTimeout):
    """No data arrived for ``max_silence``. ``key`` names the silent subscription; None means the whole connection."""

    def __init__(self, seconds: float, key: Any = None) -> None:
        super().__init__(seconds, key)
        self.seconds = seconds
        self.key = key

    def _text(self) -> str:
        return f"no data for {self.seconds:g} seconds{'' if self.key is None else f' of {self.key!r}'}"


class HeartbeatTimeout(SupervisorTimeout):
    """The server did not answer a heartbeat within ``seconds``."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds

    def _text(self) -> str:
        return f"no answer to a heartbeat for {self.seconds:g} seconds"


class SubscriptionTimeout(SupervisorTimeout):
    """The server did not acknowledge a subscription that was sent ``times`` times. ``key`` names the subscription."""

    def __init__(self, key: Any, times: int) -> None:
        super().__init__(key, times)
        self.key = key
        self.times = times

    def _text(self) -> str:
        return f"{self.key!r} was sent {self.times} times and not acknowledged"


class SubscriptionRejected(WebSocketException):
    """The server has refused a subscription for which others wait: a login, or one of an earlier ``stage``.

    The supervisor ends the connection and gives up, unless ``classify`` decides otherwise. ``key`` names the
    subscription; ``why`` is the reason that ``reply_id`` gave in its :class:`Rejected`.
    """

    def __init__(self, key: Any, why: Any) -> None:
        super().__init__(key, why)
        self.key = key
        self.why = why

    def _text(self) -> str:
        return f"the server refused {self.key!r}: {self.why}"


class SendExpired(WebSocketException, TimeoutError):  # noqa: N818
    """A message could not be sent within its ``ttl``. It will not be sent later, either."""

    def __init__(self, ttl: float) -> None:
        super().__init__(ttl)
        self.ttl = ttl

    def _text(self) -> str:
        return f"the message was not sent within {self.ttl:g} seconds"
