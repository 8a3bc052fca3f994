"""The network of a program without an event loop.

Each call ends when the deadline passes, or when the handler of a signal raises. Looking up a name does, too, although
Python's own function has no deadline and cannot be interrupted.
"""

from __future__ import annotations

import contextlib
import inspect
import queue
import select
import socket
import threading
import time
from collections.abc import Awaitable, Collection, Coroutine
from typing import Any, TypeVar

from wsfast._common.options import in_words
from wsfast._opening.net.interface import Addresses

__all__ = ["BlockingNet", "Deadline", "DeadlinePassed", "run"]

T = TypeVar("T")

# Seconds to sleep in one go, where nothing but the handler of a signal may end it: a signal that comes just before the
# thread sleeps does not wake it.
_PULSE = 0.25


def run(step: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine over a `BlockingNet`, which never suspends it."""
    try:
        step.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    step.close()
    raise RuntimeError("a blocking opening was suspended")


class Deadline:
    """One deadline for several steps. Its error names the step that took too long."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self.end = None if seconds is None else time.monotonic() + seconds

    def left(self, step: str) -> float | None:
        """The seconds that are left; None without end.

        :raises TimeoutError: there are none
        """
        if self.end is None:
            return None
        left = self.end - time.monotonic()
        if left <= 0:
            raise self.passed(step)
        return min(left, threading.TIMEOUT_MAX)  # the most that a socket accepts

    @property
    def is_over(self) -> bool:
        """True once it has passed."""
        return self.end is not None and self.end <= time.monotonic()

    def passed(self, step: str) -> TimeoutError:
        """The error for a step during which the deadline has passed."""
        limit = "" if self._seconds is None else f": open_timeout is {in_words(self._seconds)}"
        return TimeoutError(f"{step} took too long{limit}")


class DeadlinePassed(BaseException):
    """Ends the coroutines of an opening, as cancelling does with a loop. Only its first caller knows the step."""


class BlockingNet:
    """`Net` by calls that block."""

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._patience = Deadline(None)

    async def getaddrinfo(self, host: str, port: int, family: int, proto: int, flags: int) -> Addresses:
        """Ask in a thread. If the time is over before the thread ends, it is left to end by itself."""
        answers: queue.SimpleQueue[Addresses | BaseException] = queue.SimpleQueue()

        def ask() -> None:
            try:
                answers.put(socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, proto, flags))
            except BaseException as exc:
                answers.put(exc)

        thread = threading.Thread(target=ask, name=f"wsfast: the look-up of {host}", daemon=True)
        thread.start()
        answer: Addresses | BaseException | None = None
        while answer is None:
            with contextlib.suppress(queue.Empty):
                answer = answers.get(timeout=self._nap(self._patience))
            if answer is None and self._patience.is_over:
                raise TimeoutError
        thread.join()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def within(self, seconds: float, step: Coroutine[Any, Any, T]) -> T:
        """Only look-ups of the system are limited: the user's resolver ends when it likes."""
        self._patience = Deadline(seconds)
        try:
            return await step
        finally:
            self._patience = Deadline(None)

    async def value(self, returned: Awaitable[T] | T, name: str) -> T:
        if not inspect.isawaitable(returned):
            return returned
        if inspect.iscoroutine(returned):
            returned.close()  # it was never awaited, on purpose
        raise TypeError(f"{name}, and nothing to await, for the blocking client")

    async def first_writable(self, fds: Collection[int], seconds: float | None) -> int | None:
        return self._poll(fds, select.POLLOUT, seconds)

    async def readable(self, sock: socket.socket) -> None:
        self._poll([sock.fileno()], select.POLLIN, None)

    async def sock_sendall(self, sock: socket.socket, data: bytes) -> None:
        while data:
            self._poll([sock.fileno()], select.POLLOUT, None)
            with contextlib.suppress(BlockingIOError):
                data = data[sock.send(data) :]

    async def sock_recv(self, sock: socket.socket, size: int) -> bytes:
        while True:
            self._poll([sock.fileno()], select.POLLIN, None)
            with contextlib.suppress(BlockingIOError):
                return sock.recv(size)

    def _poll(self, fds: Collection[int], event: int, seconds: float | None) -> int | None:
        poll = select.poll()
        for fd in fds:
            poll.register(fd, event)
        patience = Deadline(seconds)
        while True:
            ready = poll.poll(self._nap(patience) * 1000)
            if ready:
                return ready[0][0]
            if patience.is_over:
                return None

    def _nap(self, patience: Deadline) -> float:
        """The seconds to sleep in one go."""
        if self._deadline.is_over:
            raise DeadlinePassed
        ends = [deadline.end for deadline in (self._deadline, patience) if deadline.end is not None]
        left = min(ends) - time.monotonic() if ends else _PULSE
        return max(0.001, min(_PULSE, left))
