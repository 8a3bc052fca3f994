"""What a supervisor is doing, and how it tells of it."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from typing import NamedTuple

from wsfast.supervisor.callbacks import Callbacks

__all__ = ["Announcer", "State", "StateChange"]


class State(enum.Enum):
    """What a supervisor is doing."""

    CONNECTING = "connecting"
    """An attempt to connect is under way, and nothing is open."""
    OPEN = "open"
    """A connection is open. :meth:`Supervisor.ready` tells when the subscriptions are in."""
    WAITING = "waiting"
    """Nothing is open; the next attempt is at :attr:`Supervisor.next_attempt`."""
    ROLLING_OVER = "rolling over"
    """A connection is open, and another one is being opened to take its place."""
    CLOSED = "closed"
    """It is over: closed by the program, or given up."""


class StateChange(NamedTuple):
    """What ``on_state`` is told."""

    state: State
    previous: State
    #: What ended the last connection or attempt; None if nothing has failed since a connection was last open.
    cause: BaseException | None
    #: When the next attempt is due, by ``loop.time()``; None unless `state` is WAITING.
    next_attempt: float | None


class Announcer:
    """Calls ``on_state``: in a turn of the event loop of its own, so whatever it does happens to a supervisor that is
    not in the midst of anything."""

    def __init__(self, on_state: Callable[[StateChange], object] | None, callbacks: Callbacks) -> None:
        self._on_state = on_state
        self._callbacks = callbacks
        self._loop = asyncio.get_running_loop()

    def announce(self, change: StateChange) -> None:
        if self._on_state is not None and not self._loop.is_closed():
            self._loop.call_soon(self._callbacks.call, "on_state", None, self._on_state, change)
