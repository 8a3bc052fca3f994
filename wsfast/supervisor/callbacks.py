"""Calls of the program's functions. If one raises, the exception is logged, and a default replaces the result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from wsfast._common.logging import guarded

__all__ = ["Callbacks"]


class Callbacks:
    """Calls functions of the program.

    The first exception of each function is logged with its traceback. Later ones are only counted: a bug in a function
    that is called for every message must not fill a disk.
    """

    def __init__(self, logger: Any) -> None:
        self._logger = logger
        self._logged: set[str] = set()
        #: The number of exceptions.
        self.errors = 0

    def call(self, name: str, default: Any, function: Callable[..., Any], *args: Any) -> Any:
        """Return the result of `function`, or `default` if it raises."""
        try:
            return function(*args)
        except (Exception, asyncio.CancelledError) as exc:
            self.raised(name, exc)
            return default

    def raised(self, name: str, exc: BaseException) -> None:
        """A function has raised."""
        self.errors += 1
        if name not in self._logged:
            self._logged.add(name)
            guarded(self._logger.error, "exception in %s()", name, exc_info=exc)
