"""The messages that wait to be sent, and those among them that a program waits for."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from wsfast._common.protocol_numbers import WSMsgType
from wsfast.supervisor.errors import SendExpired

__all__ = ["ProgramMessages", "QueuedMessage"]


class QueuedMessage:
    """A message of the program, a heartbeat, or the answer to one of the server's.

    :param message: the message, or a function that makes it
    :param kind: None sends str as text, and bytes as binary
    :param settle: called with None once it was sent, or with the reason why it cannot be sent
    :param is_wanted: called immediately before it is sent; false drops it
    :param expires: it must not wait in a write buffer, because it is soon too old
    """

    __slots__ = ("expires", "is_wanted", "kind", "message", "settle")

    def __init__(
        self,
        message: Any,
        kind: WSMsgType | None,
        settle: Callable[[BaseException | None], None],
        is_wanted: Callable[[], bool],
        expires: bool = False,
    ) -> None:
        self.message = message
        self.kind = kind
        self.settle = settle
        self.is_wanted = is_wanted
        self.expires = expires


class ProgramMessages(deque[QueuedMessage]):
    """The program's messages in their order. They outlive connections: the next one sends those that the
    last one did not."""

    async def wait_sent(
        self, message: Any, kind: WSMsgType, ttl: float | None, pump: Callable[[], None] | None
    ) -> None:
        """Queue a message, and wait until a connection has sent it.

        :param pump: sends on the current connection; None if there is none
        :raises SendExpired: it was not sent within `ttl` seconds
        """
        loop = asyncio.get_running_loop()
        sent: asyncio.Future[None] = loop.create_future()
        deadline = None if ttl is None else loop.time() + ttl

        def settle(exc: BaseException | None) -> None:
            if sent.done():
                return
            if exc is None:
                sent.set_result(None)
            else:
                sent.set_exception(exc)

        def is_wanted() -> bool:
            if ttl is not None and deadline is not None and loop.time() >= deadline:
                settle(SendExpired(ttl))  # the timer is late, because the loop was busy
            return not sent.done()

        queued = QueuedMessage(message, kind, settle, is_wanted, ttl is not None)
        timer = None if ttl is None else loop.call_later(ttl, settle, SendExpired(ttl))
        self.append(queued)
        if pump is not None:
            pump()
        try:
            await sent
        except (Exception, asyncio.CancelledError):
            with suppress(ValueError):
                self.remove(queued)
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def fail(self, exc: BaseException) -> None:
        """No connection will send these any more."""
        while self:
            self.popleft().settle(exc)
