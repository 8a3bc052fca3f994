"""A limit on how often a process connects, which supervisors share, also those in other threads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from contextlib import suppress

from wsfast._common.options import count, seconds

__all__ = ["ConnectLimit"]

# A waiter whose turn came so many seconds ago has an event loop that is busy or dead. Those behind it go first.
_LATE = 1.0

# Seconds until a waiter checks again whether those ahead of it have begun.
_SOON = 1e-3


class ConnectLimit:
    """At most `limit` attempts to connect in any `per` seconds, by all supervisors that share this object.

    ::

        connects = ConnectLimit(300, 300)
        feeds = [supervise(url, connects=connects) for url in urls]

    Each attempt counts when it begins, whether it succeeds or not. Attempts begin in the order in which they were asked
    for. Supervisors may share it across threads and event loops; an event loop that is blocked for more than a second
    loses its turn to the next one.

    An attempt may open more than one TCP connection: a redirect, or a second address. Servers count when connections
    arrive. Give a `limit` that is a little lower than the server's, or a `per` that is a little longer.

    :param limit: attempts
    :param per: seconds
    :raises TypeError, ValueError: a value is invalid
    """

    def __init__(self, limit: int, per: float) -> None:
        self.limit = count("limit", limit, least=1) or 1
        self.per = seconds("per", per, none=None, zero=False) or 0.0
        # When the last attempts began, by time.monotonic(): at most `limit` of them.
        self._begun: deque[float] = deque(maxlen=self.limit)
        self._waiting: dict[_Waiter, None] = {}  # in their order
        # Reentrant: the collector may close an abandoned coroutine, and thereby run its `finally`, at any moment.
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"ConnectLimit({self.limit}, {self.per})"

    async def wait(self) -> None:
        """Wait until an attempt may begin, and count it. It must begin at once.

        Supervisors call this. A program that shares the server's limit with its supervisors may call it before an
        attempt of its own. Cancelling it is safe: the attempt does not count.
        """
        waiter = _Waiter()
        with self._lock:
            self._waiting[waiter] = None
        try:
            while delay := self._delay(waiter):
                await waiter.sleep(delay)
        finally:
            with self._lock:
                if waiter in self._waiting:  # it was cancelled, so the others move up
                    del self._waiting[waiter]
                    for other in list(self._waiting):
                        other.wake()

    def _delay(self, waiter: _Waiter) -> float:
        """The seconds until the waiter's turn may have come. 0 if it has; the attempt is then counted."""
        with self._lock:
            now = time.monotonic()
            ahead = 0
            for other in list(self._waiting):
                if other is waiter:
                    break
                ahead += now < other.due + _LATE
            delay = self._until(ahead, now)
            waiter.due, waiter.is_awake = now + delay, not delay
            if not delay:
                self._begun.append(now)
                del self._waiting[waiter]
            return delay

    def _until(self, ahead: int, now: float) -> float:
        """The seconds until an attempt may begin before which so many others begin."""
        behind = ahead - (self.limit - len(self._begun))  # how many more must leave the window
        left = -1.0
        if behind >= 0:
            rounds, place = divmod(behind, self.limit)
            begun = self._begun[place] if place < len(self._begun) else now
            left = begun + self.per * (rounds + 1) - now
        # An attempt at the very edge of the window still counts. Those ahead go first, even if all have room.
        return 0.0 if left < 0 and not ahead else max(left, _SOON)


class _Waiter:
    """An attempt that waits for its turn."""

    def __init__(self) -> None:
        self.due = time.monotonic()
        #: It is about to check its turn, so it need not be woken.
        self.is_awake = True
        self._loop = asyncio.get_running_loop()
        self._woken: asyncio.Future[None] = self._loop.create_future()

    async def sleep(self, delay: float) -> None:
        timer = self._loop.call_later(delay, self._wake)
        try:
            await self._woken
        finally:
            timer.cancel()
            self._woken = self._loop.create_future()

    def wake(self) -> None:
        """Let the waiter check its turn again. Any thread may call this."""
        if self.is_awake:
            return
        self.is_awake = True
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if not self._woken.done():
            self._woken.set_result(None)
