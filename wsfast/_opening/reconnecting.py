"""The rules for loops over connections, in all clients: the errors after which they connect again, and the delays.

A connection that ends soon after it was made is no success: a server that accepts and closes at once must not be called
a hundred times a second. So delays grow until a connection has lived for MINIMUM_LIFE.
"""

from __future__ import annotations

import asyncio
import logging
import random
import traceback
from collections.abc import Callable, Generator
from typing import Any, Union

from wsfast.exceptions import InvalidMessage, InvalidProxyStatus, InvalidStatus, ProxyError

__all__ = [
    "MAX_RETRY_AFTER",
    "MINIMUM_LIFE",
    "Attempts",
    "DelaySequence",
    "Delays",
    "LoggerLike",
    "Verdict",
    "backoff",
    "least_delay",
    "process_exception",
]

LoggerLike = Union[logging.Logger, "logging.LoggerAdapter[Any]"]
Delays = Callable[[], Generator[float, None, None]]
Verdict = Callable[[Exception], Exception | None]

# Seconds between attempts to reconnect. The first is random, so that all the clients of a server that restarts do not
# come back at once (RFC 6455 section 7.2.3).
_FIRST_DELAY = 5.0
_SECOND_DELAY = 3.1
_DELAY_FACTOR = 1.618
_LONGEST_DELAY = 90.0


# Seconds that a connection must have lived for the delays to begin anew. A reconnection after that is immediate.
MINIMUM_LIFE = 5.0

# Seconds that a server can ask for by Retry-After, at most: beyond that it is an outage that somebody should know of,
# and the next attempt reports it.
MAX_RETRY_AFTER = 3600.0


def backoff(
    initial_delay: float = _FIRST_DELAY,
    min_delay: float = _SECOND_DELAY,
    max_delay: float = _LONGEST_DELAY,
    factor: float = _DELAY_FACTOR,
) -> Generator[float, None, None]:
    """Yield the seconds to wait before each attempt to reconnect.

    :param initial_delay: the first delay is random, and at most this
    :param min_delay: the second one
    :param max_delay: the longest one
    :param factor: each delay is so many times the one before
    """
    yield random.random() * initial_delay  # noqa: S311
    delay = min_delay
    while True:
        yield min(delay, max_delay)
        delay = min(delay * factor, max_delay)


def process_exception(exc: Exception) -> Exception | None:
    """Say whether a loop over connections tries again after `exc` (None) or raises the returned exception.

    It tries again after network errors and time-outs, after a reply that was cut short, and after the statuses 429,
    500, 502, 503 and 504; of a proxy likewise.
    """
    if isinstance(exc, (OSError, TimeoutError, asyncio.TimeoutError)):
        return None
    if isinstance(exc, InvalidMessage) and isinstance(exc.__cause__, EOFError):
        return None
    if isinstance(exc, (InvalidStatus, InvalidProxyStatus)):
        return None if exc.response.status_code in (429, 500, 502, 503, 504) else exc
    if isinstance(exc, ProxyError) and isinstance(exc.__cause__, (OSError, EOFError)):
        return None
    return exc


def least_delay(exc: BaseException | None) -> float:
    """The seconds that a server asks for by Retry-After, MAX_RETRY_AFTER at most; 0 if it does not."""
    if isinstance(exc, (InvalidStatus, InvalidProxyStatus)) and exc.retry_after is not None:
        return min(exc.retry_after, MAX_RETRY_AFTER)
    return 0.0


class DelaySequence:
    """The program's delays, one after the other; they can begin anew."""

    def __init__(self, make: Delays) -> None:
        self._make = make
        self._delays: Generator[float, None, None] | None = None

    def begin_anew(self) -> None:
        self._delays = None

    def next(self) -> float | None:
        """The next delay; None if there are no more."""
        if self._delays is None:
            self._delays = self._make()
        return next(self._delays, None)


class Attempts:
    """The attempts of one loop over connections."""

    def __init__(
        self, process_exception: Verdict, delays: Delays, logger: LoggerLike, clock: Callable[[], float]
    ) -> None:
        self._process_exception = process_exception
        self._delays = DelaySequence(delays)
        self._logger = logger
        self._clock = clock
        self._connected_at: float | None = None

    def connected(self) -> None:
        """A connection is made."""
        self._connected_at = self._clock()

    def ended(self) -> float | None:
        """Return the seconds to wait after a connection has ended. None ends the loop: there are no more delays."""
        life = self._life()
        if life >= MINIMUM_LIFE:
            return 0.0
        delay = self._delays.next()
        if delay is None:
            return None
        self._logger.info("connection lived for %.1f seconds; reconnecting in %.1f seconds", life, delay)
        return delay

    def failed(self, exc: Exception) -> float:
        """Return the seconds to wait after a failed attempt. Raises the error if it is fatal, and `exc` if the delays
        have ended."""
        self._life()
        try:
            verdict = self._process_exception(exc)
        except Exception as raised:  # a mistake that is easily made: it was to be returned
            verdict = raised
        if verdict is exc:
            raise exc
        if verdict is not None:
            raise verdict from exc
        delay = self._delays.next()
        if delay is None:
            raise exc
        delay = max(delay, least_delay(exc))
        reason = traceback.format_exception_only(type(exc), exc)[0].strip()
        self._logger.info("connect failed; reconnecting in %.1f seconds: %s", delay, reason)
        return delay

    def _life(self) -> float:
        """Return the seconds that the last connection lived. If these were enough, the delays begin anew."""
        begin, self._connected_at = self._connected_at, None
        life = 0.0 if begin is None else self._clock() - begin
        if life >= MINIMUM_LIFE:
            self._delays.begin_anew()
        return life
