"""When a connection is to be replaced by a new one, and how it is known which messages both have brought."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable
from typing import Any

from wsfast.options import check_callables, count, seconds

__all__ = ["Rollover", "Seen"]


class Rollover:
    """When and how a connection is replaced by a new one, without a gap.

    The new connection is opened, has its subscriptions in (with their acknowledgements), and has received its first
    message before the old one is closed. If that does not succeed, the old one stays, and it is tried again.

    :param after: the age, in seconds, at which a connection is replaced; None is no age
    :param jitter: the part of `after` by which it may be replaced earlier, at random: a thousand bots that started
        together do not roll over together
    :param when: gets each message until it returns true: the server announces with it that it will close. If a
        connection that lived for less than ``min_lifetime`` was replaced, the next one is replaced by an announcement
        only after one of the ``delays``.
    :param first: gets the messages of the new connection; true for what counts as its first message. By default that is
        any message that no ``ack`` and no ``is_reply`` has accepted.
    :param timeout: seconds until the new connection must have received its first message
    :param drain_timeout: seconds that the old connection may take to close; then it is dropped
    :param retry: seconds after which it is tried again, at least; a tenth of it at random is added. ``Retry-After`` is
        obeyed if it asks for more.
    """

    __slots__ = ("after", "drain_timeout", "first", "jitter", "retry", "timeout", "when")

    def __init__(
        self,
        after: float | None = None,
        *,
        jitter: float = 0.1,
        when: Callable[[Any], object] | None = None,
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
        self.when = when
        self.first = first
        self.timeout = seconds("timeout", timeout, none=None, zero=False) or 0.0
        self.drain_timeout = seconds("drain_timeout", drain_timeout, none=None) or 0.0
        self.retry = seconds("retry", retry, none=None) or 0.0

    def age(self) -> float | None:
        """The age at which one connection is replaced."""
        return None if self.after is None else self.after * (1 - self.jitter * random.random())  # noqa: S311

    def pause(self) -> float:
        """How long to wait after a rollover that has failed."""
        return self.retry * (1 + 0.1 * random.random())  # noqa: S311


class Seen:
    """The keys of the last messages: `remember` of them at least, twice as many at most."""

    def __init__(self, remember: int) -> None:
        self._remember = count("remember", remember, least=1) or 1
        self._young: set[Hashable] = set()
        self._old: set[Hashable] = set()
        self.duplicates = 0

    def is_new(self, key: Hashable) -> bool:
        """False if a message with this key was here before. A key of None is that of no other message."""
        if key is None:
            return True
        if key in self._young or key in self._old:
            self.duplicates += 1
            return False
        self._young.add(key)
        if len(self._young) >= self._remember:
            self._old, self._young = self._young, set()
        return True
