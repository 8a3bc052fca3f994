"""What must be heard of a server, and how soon: data, topic by topic, and answers to heartbeats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wsfast.options import check_callables, seconds
from wsfast.supervisor.subscriptions import Message, checked

__all__ = ["Heartbeat"]


class Heartbeat:
    """What an application sends now and then, because its server wants to hear from it, or to be told that all is well.

    :param every: seconds between two of them
    :param message: str, bytes, or a function that makes it
    :param is_reply: gets each message; true if it answers a heartbeat. Such a message is not delivered, and is no data
        for ``max_silence``. None asks for no answer.
    :param timeout: seconds until the answer; `every` by default, and at most that. Without an answer the connection is
        ended with :class:`HeartbeatTimeout`.
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
