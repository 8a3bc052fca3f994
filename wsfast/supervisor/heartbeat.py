"""An application's own ping: its interval, its message, and how an answer is recognised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wsfast._common.options import check_callables, seconds
from wsfast.supervisor.subscriptions import Message, checked

__all__ = ["Heartbeat"]


class Heartbeat:
    """A message that an application sends at intervals, because its server requires it or because its answer shows that
    the server is alive.

    :param every: seconds between two of them
    :param message: str, bytes, or a function that makes it
    :param is_reply: a function that gets each message, and returns true if it answers a heartbeat. An answer is not
        delivered, and does not count as data for ``max_silence``. None: no answer is expected.
    :param timeout: how many seconds the server has for its answer; `every` by default, and at most that. Without an
        answer the supervisor ends the connection with :class:`HeartbeatTimeout`.
    """

    __slots__ = ("every", "is_reply", "message", "timeout")

    def __init__(
        self,
        every: float,
        message: Message,
        is_reply: Callable[[Any], object] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        self.every = seconds("every", every, none=None, zero=False) or 0.0
        self.message = checked("message", message)
        check_callables(is_reply=is_reply)
        self.is_reply = is_reply
        self.timeout = seconds("timeout", timeout, none="for the same as every", zero=False) or self.every
        if self.timeout > self.every:
            raise ValueError(f"timeout must be at most every, {every!r}, not {timeout!r}")
