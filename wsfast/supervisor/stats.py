"""What a supervisor has counted, and the round-trip times of its connections."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["RTT", "SupervisorStats"]

# The limits of the buckets, in nanoseconds: 2**15 is 33 microseconds, 2**34 is 17 seconds.
_FIRST, _LAST = 15, 34


class RTT:
    """A histogram of round-trip times, of constant size: its buckets are powers of two.

    A supervisor passes it to its connections as their ``ping_histogram``.
    """

    def __init__(self) -> None:
        self._counts = [0] * (_LAST - _FIRST + 2)
        self.count = 0
        self.total = 0.0
        """Seconds."""

    def record_value(self, ns: int) -> None:
        """One round trip of so many nanoseconds."""
        self.count += 1
        self.total += ns / 1e9
        self._counts[min(max(ns.bit_length() - _FIRST, 0), len(self._counts) - 1)] += 1

    def buckets(self) -> list[tuple[float, int]]:
        """Pairs of a limit in seconds and how many round trips took less, in rising order. The last one is infinite."""
        limits = [2.0**power / 1e9 for power in range(_FIRST, _LAST + 1)] + [float("inf")]
        total, buckets = 0, []
        for limit, number in zip(limits, self._counts, strict=True):
            total += number
            buckets.append((limit, total))
        return buckets


class SupervisorStats(NamedTuple):
    """What a supervisor has counted since it was made.

    ``connects``
        connections that were opened
    ``failures``
        what went wrong, by the name of the exception's class: attempts that failed, and connections that ended other
        than by a rollover or by the program
    ``rollovers``, ``rollovers_failed``
        connections that were replaced while they were open, and attempts at it that failed
    ``gaps``
        how often messages may have been lost: nothing was open between two connections, or one that was replaced ended
        without a CLOSE that answers the supervisor's, so something may have been under way on it. See
        :attr:`Supervisor.gaps`
    ``downtime``
        seconds without a connection, since the first attempt
    ``duplicates``
        messages that were not delivered because their key had been there
    ``silences``
        connections that were ended because data or a heartbeat's answer was missed
    ``subscriptions``, ``subscriptions_in``
        how many there are, and how many are in on the current connection
    ``messages_sent``
        by the supervisor: the program's, subscriptions and heartbeats
    ``frames_received``, ``bytes_received``
        of all connections, see :class:`WSStats`
    ``age``, ``silence``
        seconds since the current connection was opened, and since data was last seen on it; None if there is none.
        `silence` is known only with ``max_silence``, and up to a quarter of it late.
    ``callback_errors``
        exceptions of the program's functions
    ``backlog``, ``backlog_age``, ``dropped``
        messages that wait to be received, how many seconds the oldest has waited, and how many were dropped by
        `overflow`: of all connections, see :class:`~wsfast.asyncio.backlog.Backlog`. Of a listener nothing waits.
    """

    connects: int
    failures: dict[str, int]
    rollovers: int
    rollovers_failed: int
    gaps: int
    downtime: float
    duplicates: int
    silences: int
    subscriptions: int
    subscriptions_in: int
    messages_sent: int
    frames_received: int
    bytes_received: int
    age: float | None
    silence: float | None
    callback_errors: int
    backlog: int
    backlog_age: float | None
    dropped: int
