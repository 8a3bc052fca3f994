"""The states of a supervisor, and the calls and log records that announce them."""

from __future__ import annotations

import asyncio
import enum
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from wsfast._common.logging import guarded
from wsfast.supervisor.callbacks import Callbacks

__all__ = ["Announcer", "State", "StateChange"]


class State(enum.Enum):
    """The state of a supervisor."""

    CONNECTING = "connecting"
    """An attempt to connect is under way, and nothing is open."""
    OPEN = "open"
    """A connection is open. :meth:`Supervisor.ready` waits until the subscriptions are in, too."""
    WAITING = "waiting"
    """Nothing is open; the next attempt is at :attr:`Supervisor.next_attempt`."""
    ROLLING_OVER = "rolling over"
    """A connection is open, and another one is being opened to take its place."""
    CLOSED = "closed"
    """The supervisor is over: the program has closed it, or it gave up."""


class StateChange(NamedTuple):
    """The argument of ``on_state``."""

    state: State
    previous: State
    #: The error that ended the last connection or attempt; None if nothing has failed since a connection was last open.
    cause: BaseException | None
    #: When the next attempt is due, by ``loop.time()``; None unless `state` is WAITING.
    next_attempt: float | None


class Announcer:
    """Calls ``on_state``, and writes the log. Both run in callbacks of the event loop, so they never run while the
    state of the supervisor is half changed."""

    def __init__(
        self, on_state: Callable[[StateChange], object] | None, callbacks: Callbacks, logger: Any
    ) -> None:
        self._on_state = on_state
        self._callbacks = callbacks
        self._logger = logger
        self._loop = asyncio.get_running_loop()

    def announce(self, change: StateChange, connection: int | None) -> None:
        """`connection`: the number of the open connection."""
        if self._loop.is_closed():
            return
        delay = None if change.next_attempt is None else change.next_attempt - self._loop.time()
        extra: dict[str, object] = {
            "state": change.state.value,
            "previous": change.previous.value,
            "cause": change.cause,
            "delay": delay,
            "connection": connection,
        }
        why = "" if change.cause is None else f": {type(change.cause).__name__}: {change.cause}"
        until = "" if delay is None else f" for {delay:.1f} seconds"
        gave_up = change.state is State.CLOSED and change.cause is not None
        failed = change.state is State.WAITING and change.previous is State.CONNECTING
        level = "error" if gave_up else "warning" if failed else "info"
        self.log("%s%s%s", change.state.value, until, why, extra=extra, level=level)
        if self._on_state is not None:
            self._loop.call_soon(self._callbacks.call, "on_state", None, self._on_state, change)

    def log(
        self, text: str, *args: object, extra: dict[str, object] | None = None, level: str = "info"
    ) -> None:
        """`extra`: attributes of the record, for structured logs; `level`: a method of the logger."""
        if not self._loop.is_closed():
            log = getattr(self._logger, level)
            self._loop.call_soon(functools.partial(guarded, log, text, *args, extra=extra))
