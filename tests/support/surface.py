"""A connection of any face, with its own names in reach: what one face can do, a test asks of all three."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from support.faces import FACES
from wsfast import WSMsgType


class Handle:
    """`own` is what a program has in its hands: a WSTransport, or a ClientConnection.

    Calls of a blocking connection are made in its thread.
    """

    def __init__(self, face: str, client: Any) -> None:
        self.face = face
        self.client = client
        self.own = client.transport if face == "listener" else client.ws

    async def call(self, function: Any, *args: Any, **options: Any) -> Any:
        if self.face == "blocking":
            return await self.client.call(lambda: function(*args, **options))
        result = function(*args, **options)
        return await result if inspect.isawaitable(result) else result

    async def send_many(self, messages: Iterable[str | bytes]) -> None:
        if self.face == "listener":
            self.own.send_many(WSMsgType.TEXT, messages)
        else:
            await self.call(self.own.send_many, messages)

    async def send_corked(self, *messages: str) -> None:
        if self.face == "blocking":

            def send() -> None:
                with self.own.cork():
                    for message in messages:
                        self.own.send(message)

            await self.call(send)
            return
        with self.own.cork():
            for message in messages:
                await self.client.send(message)

    async def ended(self) -> None:
        if self.face == "listener":
            await self.own.wait_disconnected()
        else:
            await self.call(self.own.wait_closed)


@asynccontextmanager
async def connected(face: str, url: str, **options: Any) -> AsyncIterator[Handle]:
    async with FACES[face](url, **options) as client:
        yield Handle(face, client)
        await asyncio.sleep(0)
