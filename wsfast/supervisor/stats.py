"""The counts of a supervisor, and the round-trip times of its connections."""

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
        """Count one round trip of `ns` nanoseconds."""
        self.count += 1
        self.total += ns / 1e9
        self._counts[min(max(ns.bit_length() - _FIRST, 0), len(self._counts) - 1)] += 1

    def buckets(self) -> list[tuple[float, int]]:
        """Pairs of a limit in seconds and the number of round trips below it, rising. The last limit is infinity."""
        limits = [2.0**power / 1e9 for power in range(_FIRST, _LAST + 1)] + [float("inf")]
        total, buckets = 0, []
        for limit, number in zip(limits, self._counts, strict=True):
            total += number
            buckets.append((limit, total))
        return buckets


class SupervisorStats(NamedTuple):
    """The counts of a supervisor since it was made.

    ``connects``
        connections that were opened
    ``failures``
        how many attempts failed, and how many connections ended other than by a rollover or by the program, by the name
        of the exception's class
    ``rollovers``, ``rollovers_failed``
        how many connections were replaced while they were open, and how many rollovers failed
    ``gaps``
        how often messages may have been lost: a connection was lost, or was replaced without a proof that the next one
        continues it, or messages were dropped because the program received none. It has risen before the first message
        behind the gap is delivered. See :attr:`Supervisor.gaps`
    ``downtime``
        seconds without a connection, since the first attempt
    ``duplicates``
        messages that were not delivered because another connection had brought them
    ``silences``
        connections that the supervisor ended with a :class:`SupervisorTimeout`
    ``subscriptions``, ``subscriptions_in``
        how many there are, and how many of them the current connection has sent, with acknowledgement if demanded
    ``messages_sent``
        messages that the supervisor has sent: the program's, subscriptions and heartbeats
    ``frames_received``, ``bytes_received``
        the sums over all connections, see :class:`WSStats`
    ``age``, ``silence``
        seconds since the current connection was opened, and since data last arrived on it; None if there is none.
        `silence` is known only with ``max_silence``, and up to a quarter of it late.
    ``callback_errors``
        exceptions of the program's functions
    ``backlog``, ``backlog_age``, ``dropped``
        messages that wait to be received, how many seconds the oldest has waited, and how many were dropped, by
        `overflow` or because the program received none. They are summed over all connections, see
        :class:`~wsfast.asyncio.backlog.Backlog`. No message waits for a listener.
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
