"""Calls from other threads into the thread of an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from typing import Any

__all__ = ["call_soon", "lasting", "run_soon"]

# The delay of a timer that exists only because a loop lets go of its timers when it is closed; in seconds, a century.
_EVER = 100 * 365 * 86400.0


class _Owed:
    """An event loop holds this while it owes the result of a call. If the loop is closed before, it lets go of this
    object, which then fails the future: nothing else could."""

    def __init__(self, future: Future[Any]) -> None:
        self.future = future

    def never(self) -> None:
        """The timer's callback, which never runs."""

    def __del__(self) -> None:
        if not self.future.done():
            with contextlib.suppress(InvalidStateError):  # it was cancelled just now
                self.future.set_exception(
                    RuntimeError("the event loop was closed before the message was sent")
                )


def call_soon(loop: asyncio.AbstractEventLoop, function: Callable[..., Any], *args: Any) -> Future[Any]:
    """Call `function` in the loop's thread; the future gets what it returns or raises.

    :raises RuntimeError: the loop is closed; the future raises it if the loop is closed before the call
    """
    future: Future[Any] = Future()

    def call(owed: _Owed) -> None:
        if future.set_running_or_notify_cancel():
            try:
                result = function(*args)
            except (KeyboardInterrupt, SystemExit) as exc:
                future.set_exception(exc)
                raise
            except BaseException as exc:
                future.set_exception(exc)
            else:
                future.set_result(result)

    loop.call_soon_threadsafe(call, _Owed(future))
    return future


def run_soon(
    loop: asyncio.AbstractEventLoop, coroutine: Callable[[], Coroutine[Any, Any, Any]]
) -> Future[Any]:
    """Do what ``asyncio.run_coroutine_threadsafe(coroutine(), loop)`` does. But if the loop is closed before the
    coroutine begins, none is left over; if it is closed before the coroutine ends, the future raises RuntimeError."""
    future: Future[Any] = Future()

    def begin(owed: _Owed) -> None:
        if future.cancelled():
            return
        task = loop.create_task(coroutine())
        # Not by the task, which may live on when the loop is closed.
        timer = weakref.ref(loop.call_later(_EVER, owed.never))
        begun = weakref.ref(task)

        def cancel(future: Future[Any]) -> None:
            task = begun()
            if task is not None and future.cancelled() and not loop.is_closed():
                loop.call_soon_threadsafe(task.cancel)

        def end(task: asyncio.Task[Any]) -> None:
            if task.cancelled():
                future.cancel()
            elif not future.done() and future.set_running_or_notify_cancel():
                exc = task.exception()
                if exc is None:
                    future.set_result(task.result())
                else:
                    future.set_exception(exc)
            handle = timer()
            if handle is not None:
                handle.cancel()

        task.add_done_callback(end)
        future.add_done_callback(cancel)

    loop.call_soon_threadsafe(begin, _Owed(future))
    return future


def lasting(message: Any) -> Any:
    """A copy of a message that its owner may change before it is sent."""
    return bytes(message) if isinstance(message, (bytearray, memoryview)) else message
