"""Why a supervisor ends a connection: what it has not received in time."""

from __future__ import annotations

from typing import Any

from wsfast.exceptions import KeepaliveTimeout

__all__ = ["HeartbeatTimeout", "SilenceTimeout", "SubscriptionTimeout", "SupervisorTimeout"]

# The names are like that of KeepaliveTimeout.


class SupervisorTimeout(KeepaliveTimeout):
    """A supervisor has ended a connection on which something was not received in time; it connects again."""


class SilenceTimeout(SupervisorTimeout):
    """No data was received for ``max_silence``. ``key`` is that of the silent subscription; None for the connection."""

    def __init__(self, seconds: float, key: Any = None) -> None:
        super().__init__(seconds, key)
        self.seconds = seconds
        self.key = key

    def _text(self) -> str:
        return f"no data for {self.seconds:g} seconds{'' if self.key is None else f' of {self.key!r}'}"


class HeartbeatTimeout(SupervisorTimeout):
    """A heartbeat was not answered within ``seconds``."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds

    def _text(self) -> str:
        return f"no answer to a heartbeat for {self.seconds:g} seconds"


class SubscriptionTimeout(SupervisorTimeout):
    """A subscription was not acknowledged, however often it was sent. ``key`` is that of the subscription."""

    def __init__(self, key: Any, times: int) -> None:
        super().__init__(key, times)
        self.key = key
        self.times = times

    def _text(self) -> str:
        return f"{self.key!r} was sent {self.times} times and not acknowledged"
