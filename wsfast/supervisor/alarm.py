"""A timer for the earliest of several times."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

__all__ = ["Alarm"]


class Alarm:
    """Calls `function` once, at the earliest time that was asked for.

    It remembers that time by itself: the handles of event loops differ. uvloop's are no ``asyncio.TimerHandle``.
    """

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self._loop = asyncio.get_running_loop()
        self._at = math.inf
        self._handle: asyncio.Handle | None = None

    def within(self, seconds: float) -> None:
        """Call the function in so many seconds at the latest."""
        at = self._loop.time() + seconds
        if at < self._at:
            self.cancel()
            self._at = at
            self._handle = self._loop.call_later(seconds, self._ring)

    def cancel(self) -> None:
        self._at = math.inf
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _ring(self) -> None:
        self._at, self._handle = math.inf, None
        self._function()
