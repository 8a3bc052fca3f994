"""The target of each attempt: one URL, one of several, or the result of a function."""

from __future__ import annotations

import asyncio
import enum
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

__all__ = ["Decision", "Target", "Targets", "URLs"]

#: A URL, or a URL and the options of the connection that differ from those of the supervisor.
Target = str | tuple[str, dict[str, Any]]

URLs = str | Sequence[str] | Callable[[], Target] | Callable[[], Awaitable[Target]]


class Decision(enum.Enum):
    """The reaction of the supervisor to an error. The ``classify`` of :func:`supervise` returns it."""

    TRY_AGAIN = "try again"
    """Connect to the same URL."""
    NEXT_URL = "next URL"
    """Connect to the next URL. If there is only one, connect to it again."""
    GIVE_UP = "give up"
    """Give up. The tasks that receive or wait get the error."""


class Targets:
    """Chooses the URL of the next attempt.

    :param by_turns: True: each connection goes to the URL after that of the last connection. False: each connection
        tries the first URL first, and the next ones as attempts fail.
    """

    def __init__(self, urls: URLs, by_turns: bool) -> None:
        self._function: Callable[[], Any] | None = None
        #: The URLs that are known before an attempt.
        self.urls: list[str] = []
        if callable(urls):
            self._function = urls
        elif isinstance(urls, str):
            self.urls = [urls]
        else:
            self.urls = list(urls)
            if not self.urls or not all(isinstance(url, str) for url in self.urls):
                raise TypeError("url must be a str, some of them, or a function")
        self._by_turns = by_turns
        self._next = 0

    async def target(self, timeout: float | None) -> tuple[str, dict[str, Any]]:
        """The URL and the options of the next attempt. Raises TimeoutError if the function takes too long, and its own
        exceptions."""
        if self._function is None:
            return self.urls[self._next % len(self.urls)], {}
        result = self._function()
        if inspect.isawaitable(result):
            try:
                result = await asyncio.wait_for(result, timeout)
            except asyncio.TimeoutError as exc:
                raise TimeoutError(
                    f"the function that returns the URL took longer than {timeout:g} seconds"
                ) from exc
        if isinstance(result, str):
            return result, {}
        if isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], str):
            return result[0], dict(result[1])
        raise TypeError(f"the function must return a URL, or a URL and options, not {type(result).__name__}")

    def failed(self, decision: Decision) -> None:
        """An attempt has failed, or a connection has ended before `min_lifetime`."""
        if decision is Decision.NEXT_URL:
            self._next += 1

    def lived(self) -> None:
        """A connection has ended that lived for `min_lifetime`, so it does not count as a failure."""
        self._next = self._next + 1 if self._by_turns else 0
