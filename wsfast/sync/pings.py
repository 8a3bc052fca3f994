"""The pings of the program. No background thread receives their answers: a thread that waits for one receives."""

from __future__ import annotations

import threading
from typing import Any

from wsfast._common.closing import MAX_CONTROL
from wsfast._engine.tuning import Histogram, record
from wsfast._rust._native import ffi, lib

__all__ = ["Event", "Pings", "PongReceived"]


class Event(threading.Event):
    """An event that the handler of a signal may set while the same thread is setting it."""

    def __init__(self) -> None:
        super().__init__()
        self._cond = threading.Condition(threading.RLock())


class Pings:
    """The pings of one connection that wait for their pongs."""

    def __init__(self, handle: Any, logger: Any, histogram: Histogram | None = None) -> None:
        self._handle = handle
        self._logger = logger
        self._histogram = histogram
        # The handler of a signal may ping, too.
        self._lock = threading.RLock()
        self._events: dict[bytes, PongReceived] = {}

    def add(self, payload: bytes, event: PongReceived) -> bool:
        """False if a ping with the same payload waits already."""
        with self._lock:
            if payload in self._events:
                return False
            self._events[payload] = event
            return True

    def forget(self, payload: bytes) -> None:
        with self._lock:
            self._events.pop(payload, None)

    def collect(self) -> None:
        """Take the answers that the crate has received."""
        payload = ffi.new("char[]", MAX_CONTROL)
        latency = ffi.new("double *")
        while (size := lib.wst_take_pong(self._handle, payload, latency)) >= 0:
            with self._lock:
                event = self._events.pop(ffi.unpack(payload, size), None)
            if event is not None:
                event.set()
            # Without the lock: it is the user's code.
            record(self._histogram, round(latency[0] * 1e9), self._logger)

    def close(self) -> None:
        """The connection is closed: nothing more will be answered."""
        with self._lock:
            for event in self._events.values():
                if event.ack_on_close:
                    event.set()
            self._events.clear()


class PongReceived(Event):
    """Set when the pong is received. While a thread waits for it, and no other receives, it receives itself.

    Messages that come before the pong are kept for ``recv()``, up to ``max_queue`` frames.
    """

    def __init__(self, connection: Any, ack_on_close: bool) -> None:
        super().__init__()
        self._connection = connection
        self.ack_on_close = ack_on_close

    def is_set(self) -> bool:
        """True if the pong is received; looks for it without waiting."""
        return super().is_set() or self.wait(0)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the pong is received. False if the time is over, or the connection is closed or has failed."""
        waited: bool = self._connection._wait(self, timeout, not self.ack_on_close)
        return waited
