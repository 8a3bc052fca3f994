"""The open loop: when each message is due, whatever the server does.

A client that waits for an answer before it sends again measures fewer messages exactly while the server is slow
(coordinated omission). Here the times are fixed before the first message leaves, and a latency counts from the time at
which its message was due.
"""

from __future__ import annotations

import math

__all__ = ["Schedule"]


class Schedule:
    """Message `i` of all processes is due at ``start + i / rate``; this process sends every `step`-th of them.

    :param start: in nanoseconds of ``time.monotonic_ns()``
    :param rate: messages per second, of all processes together
    :param first: the first message of this process, from 0
    :param step: how many processes there are
    """

    __slots__ = ("_first", "_interval", "_start", "_step", "sent")

    def __init__(self, start: int, rate: float, first: int = 0, step: int = 1) -> None:
        self._start = start
        self._interval = 1e9 / rate
        self._first = first
        self._step = step
        self.sent = 0

    def due(self) -> int:
        """The time of the next message. It is computed from the start, so rounding errors do not add up."""
        return self._start + int((self._first + self.sent * self._step) * self._interval)

    def left(self, end: int) -> int:
        """How many messages of this process are due before `end`, and were not sent."""
        return max(
            0, math.ceil(((end - self._start) / self._interval - self._first) / self._step) - self.sent
        )
