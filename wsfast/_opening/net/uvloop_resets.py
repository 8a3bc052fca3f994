"""Connections that uvloop forgets: data, and behind it a reset.

If a socket has an error, libuv reports the pending data once and then stops reporting (uv__poll_io). The reader does
not read until it meets the error, so the end of the connection would go unnoticed. A second epoll, one for each loop,
reports errors only, and costs nothing while there are none.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import select
import weakref
from collections.abc import Callable
from typing import Any, cast

__all__ = ["LoopProxy", "of_transports"]


def of_transports(loop: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
    """Return the loop to give to transports that call `add_reader`."""
    if not _is_uvloop(cast(Any, type(loop))):
        return loop
    return cast("asyncio.AbstractEventLoop", _Guarded(loop))


@functools.lru_cache(maxsize=8)
def _is_uvloop(kind: Any) -> bool:
    from_uvloop = any(cls.__module__.partition(".")[0] == "uvloop" for cls in kind.__mro__)
    return from_uvloop and hasattr(select, "epoll")


class LoopProxy:
    """An event loop, of which a subclass overrides some methods."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._loop, name)
        if callable(value):
            setattr(self, name, value)  # the next time it is found at once
        return value


class _Guarded(LoopProxy):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        known = _guards.get(loop)
        guard = None if known is None else known()
        if guard is None:
            guard = _Guard(loop)
            _guards[loop] = weakref.ref(guard)
        self._guard = guard

    def add_reader(self, fd: int, read: Callable[[], object]) -> None:
        self._loop.add_reader(fd, read)
        self._guard.add(fd, read)

    def remove_reader(self, fd: int) -> bool:
        self._guard.remove(fd)
        return self._loop.remove_reader(fd)


class _Guard:
    """The descriptors that one loop reads, and their readers. It has an epoll as long as it has descriptors."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._readers: dict[int, Callable[[], object]] = {}
        self._epoll: select.epoll | None = None

    def add(self, fd: int, read: Callable[[], object]) -> None:
        if self._epoll is None:
            self._epoll = select.epoll()
            self._loop.add_reader(self._epoll.fileno(), self._read_broken)
        with contextlib.suppress(FileExistsError):
            self._epoll.register(fd, 0)  # epoll reports errors unasked
        self._readers[fd] = read

    def remove(self, fd: int) -> None:
        if self._readers.pop(fd, None) is None:
            return
        assert self._epoll is not None
        with contextlib.suppress(OSError):  # somebody has closed it
            self._epoll.unregister(fd)
        if not self._readers:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

    def _read_broken(self) -> None:
        # Again and again, until the reader has met the error and is removed.
        for fd, _ in self._epoll.poll(0) if self._epoll is not None else ():
            read = self._readers.get(fd)
            if read is not None:
                read()


# Weak on both sides: connections hold their guard, which holds the loop.
_guards: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[_Guard]] = (
    weakref.WeakKeyDictionary()
)
