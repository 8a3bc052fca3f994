"""A condition on which tasks wait: each waiting task checks its condition again after a change."""

from __future__ import annotations

import asyncio

__all__ = ["Change"]


class Change:
    """Tasks wait for the next :meth:`notify`, which wakes all of them."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    async def wait(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)

    def notify(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done() and not future.get_loop().is_closed():
                future.set_result(None)
