"""The errors with which a supervisor ends a connection on which something did not arrive in time."""

from __future__ import annotations

from typing import Any

from wsfast.exceptions import KeepaliveTimeout

__all__ = ["HeartbeatTimeout", "SilenceTimeout", "SubscriptionTimeout", "SupervisorTimeout"]

# These names follow KeepaliveTimeout: they end in Timeout, not in Error.


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
