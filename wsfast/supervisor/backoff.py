"""The delay before the next attempt to connect. This module is pure arithmetic: the time is an argument."""

from __future__ import annotations

import random
from collections.abc import Generator

from wsfast._opening.reconnecting import MINIMUM_LIFE, Delays, DelaySequence, least_delay

__all__ = ["Backoff", "full_jitter"]


def full_jitter(
    first: float = 0.5, longest: float = 60.0, factor: float = 2.0
) -> Generator[float, None, None]:
    """The delay in seconds before each attempt: a random number between 0 and a limit that grows.

    So the clients of a server that restarts come back spread evenly, not all at once.

    :param first: the first limit
    :param longest: the last limit
    :param factor: each limit is the one before, multiplied by this
    """
    limit = min(first, longest)
    while True:
        yield random.uniform(0.0, limit)  # noqa: S311
        limit = min(limit * factor, longest)


class Backoff:
    """Computes the delays of one supervisor, and decides when it gives up.

    :param delays: makes an iterator of delays; called anew after a connection that lived for `min_lifetime`
    :param max_attempts: how many attempts in a row may fail; None is no limit
    :param max_downtime: how many seconds may pass without a connection; None is no limit
    """

    def __init__(
        self,
        delays: Delays,
        min_lifetime: float = MINIMUM_LIFE,
        max_attempts: int | None = None,
        max_downtime: float | None = None,
    ) -> None:
        self._delays = DelaySequence(delays)
        self._min_lifetime = min_lifetime
        self._max_attempts = max_attempts
        self._max_downtime = max_downtime
        self._failed = 0
        self._down_since: float | None = None

    def ended(self, life: float, now: float) -> None:
        """A connection that lived for `life` seconds has ended."""
        self._down_since = now if self._down_since is None or life >= self._min_lifetime else self._down_since
        if life >= self._min_lifetime:
            self._delays.begin_anew()
            self._failed = 0

    def begin(self, now: float) -> None:
        """The first attempt begins. The downtime is counted from now on."""
        self._down_since = now

    def failed(self) -> None:
        """An attempt has failed, or a connection has ended too soon."""
        self._failed += 1

    def delay(self, cause: BaseException | None, now: float) -> float | None:
        """Seconds until the next attempt; None if it is time to give up.

        The delay is never shorter than the ``Retry-After`` of the server. It is shortened if it would end later than
        `max_downtime` allows.
        """
        if self._max_attempts is not None and self._failed >= self._max_attempts:
            return None
        delay = self._delays.next()
        if delay is None:
            return None
        least = least_delay(cause)
        delay = max(delay, least)
        if self._max_downtime is not None and self._down_since is not None:
            left = self._down_since + self._max_downtime - now
            if left <= 0 or left < least:
                return None
            delay = min(delay, left)
        return delay
