"""When the supervisor replaces a connection. How that loses no message is in merger.py."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from wsfast._common.options import check_bools, check_callables, seconds

__all__ = ["Rollover"]


class Rollover:
    """When and how the supervisor replaces a connection by a new one, without a gap.

    The supervisor opens the new connection, and sends its subscriptions. Once these are acknowledged, the program's
    messages are sent on it. The old connection is closed when it has brought a message that the new one has brought
    since: then none is missing. The messages of the new one are held until the old one has ended. If the new connection
    fails, the old one stays, and the supervisor tries again.

    :param after: the age, in seconds, at which a connection is replaced; None: its age does not matter
    :param jitter: the part of `after`, from 0 to 1, by which a connection may be replaced earlier, at random. So a
        thousand bots that started together do not roll over together.
    :param when: a function that gets each message until it returns true, for a message with which the server announces
        that it will close. If a connection that lived for less than ``min_lifetime`` was replaced, an announcement
        replaces the next one only after one of the ``delays``.
    :param overlap: False closes the old connection before the new one is opened, for servers that take one connection
        for each account. A gap is counted then.
    :param first: a function that gets the messages of the new connection until it returns true; only then the new one
        takes over. None: acknowledgements suffice.
    :param timeout: seconds until the new connection must have its acknowledgements, and the message for `first`. Then
        so many seconds again until both have brought the same message; without it a gap is counted. This time begins
        anew as long as the program receives messages of the old connection that have waited.
    :param drain_timeout: seconds that the old connection may take to close; then it is dropped
    :param retry: seconds before the next try, at least; up to a tenth of it is added at random. If ``Retry-After`` asks
        for more, the supervisor waits for that.
    """

    __slots__ = ("after", "drain_timeout", "first", "jitter", "overlap", "retry", "timeout", "when")

    def __init__(
        self,
        after: float | None = None,
        *,
        jitter: float = 0.1,
        when: Callable[[Any], object] | None = None,
        overlap: bool = True,
        first: Callable[[Any], object] | None = None,
        timeout: float = 30.0,
        drain_timeout: float = 2.0,
        retry: float = 5.0,
    ) -> None:
        self.after = seconds("after", after, none="for no age", zero=False)
        self.jitter = seconds("jitter", jitter, none=None) or 0.0
        if self.jitter > 1:
            raise ValueError(f"jitter must be from 0 to 1, not {jitter!r}")
        check_callables(when=when, first=first)
        check_bools(overlap=overlap)
        self.when = when
        self.overlap = overlap
        self.first = first
        self.timeout = seconds("timeout", timeout, none=None, zero=False) or 0.0
        self.drain_timeout = seconds("drain_timeout", drain_timeout, none=None) or 0.0
        self.retry = seconds("retry", retry, none=None) or 0.0

    def age(self) -> float | None:
        """The age in seconds at which the next connection is replaced, with jitter; None: its age does not matter."""
        return None if self.after is None else self.after * (1 - self.jitter * random.random())  # noqa: S311

    def pause(self) -> float:
        """The seconds to wait after a failed rollover."""
        return self.retry * (1 + 0.1 * random.random())  # noqa: S311
