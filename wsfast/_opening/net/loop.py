"""The network of an event loop."""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections.abc import Awaitable, Collection, Coroutine
from typing import Any, TypeVar

from wsfast._opening.net.interface import Addresses

__all__ = ["LoopNet"]

T = TypeVar("T")


class LoopNet:
    """`Net` for coroutines on an event loop. Cancelling the task ends any of these methods."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    async def getaddrinfo(self, host: str, port: int, family: int, proto: int, flags: int) -> Addresses:
        kind = socket.SOCK_STREAM
        return await self._loop.getaddrinfo(host, port, family=family, type=kind, proto=proto, flags=flags)

    async def within(self, seconds: float, step: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wait_for(step, seconds)

    async def value(self, returned: Awaitable[T] | T, name: str) -> T:
        return await returned if inspect.isawaitable(returned) else returned

    async def first_writable(self, fds: Collection[int], seconds: float | None) -> int | None:
        loop = self._loop
        first: asyncio.Future[int | None] = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, _wake, first, None)
        try:
            for fd in fds:
                loop.add_writer(fd, _wake, first, fd)
            return await first
        finally:
            for fd in fds:
                loop.remove_writer(fd)
            if timer is not None:
                timer.cancel()

    async def readable(self, sock: socket.socket) -> None:
        arrived: asyncio.Future[None] = self._loop.create_future()
        fd = sock.fileno()
        self._loop.add_reader(fd, _wake, arrived, None)
        try:
            await arrived
        finally:
            self._loop.remove_reader(fd)

    async def sock_sendall(self, sock: socket.socket, data: bytes) -> None:
        await self._loop.sock_sendall(sock, data)

    async def sock_recv(self, sock: socket.socket, size: int) -> bytes:
        return await self._loop.sock_recv(sock, size)


def _wake(waiter: asyncio.Future[Any], result: Any) -> None:
    """Let the task go on, unless it was woken or cancelled."""
    if not waiter.done():
        waiter.set_result(result)
