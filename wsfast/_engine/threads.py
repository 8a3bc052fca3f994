"""Calls into the thread of an event loop from others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

__all__ = ["call_soon", "lasting"]


def call_soon(loop: asyncio.AbstractEventLoop, function: Callable[..., Any], *args: Any) -> Future[Any]:
    """Call `function` in the loop's thread; the future gets what it returns or raises.

    :raises RuntimeError: the loop is closed
    """
    future: Future[Any] = Future()

    def call() -> None:
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(function(*args))
            except BaseException as exc:
                future.set_exception(exc)
                if isinstance(exc, (KeyboardInterrupt, SystemExit)):
                    raise

    loop.call_soon_threadsafe(call)
    return future


def lasting(message: Any) -> Any:
    """A copy of a message that its owner may change before it is sent."""
    return bytes(message) if isinstance(message, (bytearray, memoryview)) else message
