"""An awaitable connection over a socket pair, whose other end the test holds."""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import websockets.asyncio.client

from support.pair import Far
from support.servers import Peer
from wsfast.asyncio.client import ClientConnection, connect

# Who compares with websockets means 17.1 or newer.
HAS_PEER = "reconnect_delays" in inspect.signature(websockets.asyncio.client.connect).parameters
compares = pytest.mark.skipif(not HAS_PEER, reason="websockets 17.1 or newer needs CPython 3.11")


@asynccontextmanager
async def awaitable(
    *, kind: int = socket.SOCK_STREAM, headers: bytes = b"", **options: Any
) -> AsyncIterator[tuple[ClientConnection, Far]]:
    """An open connection and its far end; with SOCK_SEQPACKET the far end sees each write apart. It is dropped at the
    end if it still exists. `headers` are added to the server's reply."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    for sock in (ours, theirs):
        sock.setblocking(False)
    far = Far(theirs)
    connecting = asyncio.ensure_future(connect("ws://localhost/", sock=ours, **options)._connect())
    try:
        peer = Peer(None, None)  # type: ignore[arg-type]
        while not peer.request.endswith(b"\r\n\r\n"):
            peer.request += await far.read()
        await far.send(peer.reply(headers))
        ws = await connecting
        far.received = 0
        try:
            yield ws, far
        finally:
            ws.protocol.abort()
            await ws.wait_closed()
    finally:
        theirs.close()


async def feed(ws: ClientConnection, data: bytes) -> None:
    """The server says `data`: the event loop delivers it, as it does with what arrives."""
    done = asyncio.get_running_loop().create_future()

    def deliver() -> None:
        ws.protocol.data_received(data)
        done.set_result(None)

    asyncio.get_running_loop().call_soon(deliver)
    await done


def finished_at_once(awaitable: Any) -> Any:
    """The result of an await that ends in its first step; fails if it does not."""
    try:
        awaitable.__await__().send(None)
    except StopIteration as stop:
        return stop.value
    awaitable.close()
    raise AssertionError("it waits")


async def turns(count: int) -> None:
    """Let the event loop turn."""
    for _ in range(count):
        await asyncio.sleep(0)
