"""How long to wait before the next attempt to connect. Pure arithmetic, with the time as an argument."""

from __future__ import annotations

import random
from collections.abc import Generator

from wsfast._opening.reconnecting import MINIMUM_LIFE, Delays, DelaySequence, least_delay

__all__ = ["Backoff", "full_jitter"]


def full_jitter(
    first: float = 0.5, longest: float = 60.0, factor: float = 2.0
) -> Generator[float, None, None]:
    """How many seconds to wait before each attempt: anything from 0 to a limit that grows.

    The clients of a server that restarts come back spread evenly, not all at once.

    :param first: the first limit
    :param longest: the last limit
    :param factor: each limit is so many times the one before
    """
    limit = min(first, longest)
    while True:
        yield random.uniform(0.0, limit)  # noqa: S311
        limit = min(limit * factor, longest)


class Backoff:
    """The delays of one supervisor, and when to give up.

    :param delays: makes an iterator of delays, which begins anew after a connection that lived for `min_lifetime`
    :param max_attempts: how many attempts in a row may fail; None is without end
    :param max_downtime: seconds without a connection; None is without end
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
        """A connection has ended that lived for so long."""
        self._down_since = now if self._down_since is None or life >= self._min_lifetime else self._down_since
        if life >= self._min_lifetime:
            self._delays.begin_anew()
            self._failed = 0

    def begin(self, now: float) -> None:
        """The first attempt begins: from here on nothing is open."""
        self._down_since = now

    def failed(self) -> None:
        """An attempt has failed, or a connection has ended too soon."""
        self._failed += 1

    def delay(self, cause: BaseException | None, now: float) -> float | None:
        """Seconds until the next attempt; None if it is time to give up.

        What the server asks for by ``Retry-After`` is the least. Otherwise a delay that would end after `max_downtime`
        ends then.
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
