"""Logging that harms nothing: a bug in a filter or a handler of the program must not change what a connection does."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Callable

__all__ = ["guarded"]


def guarded(log: Callable[..., object], *args: object, **options: object) -> None:
    """Call a method of a logger. Print the traceback of an exception that comes out of it, unless
    ``logging.raiseExceptions`` is off; the logging module does the same with exceptions of ``emit()``."""
    try:
        log(*args, **options)
    except Exception:
        if logging.raiseExceptions:
            with contextlib.suppress(Exception):
                traceback.print_exc()
