"""An awaitable connection over a socket pair. The test holds the other end."""

from __future__ import annotations

import asyncio
import inspect
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import websockets.asyncio.client

from support.frames import texts
from support.pair import Far, SecureFar
from support.servers import Peer
from wsfast import TLS
from wsfast.asyncio.client import ClientConnection, connect

# Tests that compare wsfast with websockets need websockets 17.1 or newer.
HAS_PEER = "reconnect_delays" in inspect.signature(websockets.asyncio.client.connect).parameters
compares = pytest.mark.skipif(not HAS_PEER, reason="websockets 17.1 or newer needs CPython 3.11")


@asynccontextmanager
async def awaitable(
    *,
    kind: int = socket.SOCK_STREAM,
    headers: bytes = b"",
    tls: ssl.SSLContext | TLS | None = None,
    **options: Any,
) -> AsyncIterator[tuple[ClientConnection, Far]]:
    """An open connection and its far end. With SOCK_SEQPACKET the far end sees each write separately. The connection is
    aborted at the end of the block if it is still open. `headers` are added to the server's reply."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    for sock in (ours, theirs):
        sock.setblocking(False)
    far = SecureFar(theirs) if tls else Far(theirs)
    url = "wss://localhost/" if tls else "ws://localhost/"
    if tls:
        options["ssl"] = tls
    connecting = asyncio.ensure_future(connect(url, sock=ours, **options)._connect())
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
    """Deliver `data` as bytes from the server, in a callback of the event loop, as for bytes that arrive."""
    done = asyncio.get_running_loop().create_future()

    def deliver() -> None:
        ws.protocol.data_received(data)
        done.set_result(None)

    asyncio.get_running_loop().call_soon(deliver)
    await done


def finished_at_once(awaitable: Any) -> Any:
    """The result of an awaitable that must finish in its first step."""
    try:
        awaitable.__await__().send(None)
    except StopIteration as stop:
        return stop.value
    awaitable.close()
    raise AssertionError("the awaitable had to wait")


async def turns(count: int) -> None:
    """Let the event loop run `count` iterations."""
    for _ in range(count):
        await asyncio.sleep(0)


class Other:
    """A task that does nothing but count the iterations of the event loop."""

    turned = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.turned += 1


def work(seconds: float) -> None:
    """Keep the processor busy, and the event loop from its next iteration."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


@asynccontextmanager
async def beside(*tasks: Coroutine[Any, Any, Any]) -> AsyncIterator[Other]:
    """Run another task, and `tasks`, beside the body; cancel them at its end."""
    other = Other()
    running = [asyncio.ensure_future(task) for task in (*tasks, other.run())]
    await asyncio.sleep(0)
    try:
        yield other
    finally:
        for task in running:
            task.cancel()
        await asyncio.wait(running)


async def woken(ws: ClientConnection, do: Callable[[], Awaitable[Any]]) -> tuple[Any, Any]:
    """Receive the first of three messages while no other task runs, and then await `do()`, inside the read."""
    running = []

    async def receive() -> tuple[Any, Any]:
        message = await ws.recv()
        running.append(asyncio.current_task())
        return message, await do()

    receiving = asyncio.ensure_future(receive())
    await asyncio.sleep(0)
    inside: list[Any] = []

    def deliver() -> None:
        ws.protocol.data_received(texts(1, 2, 3))
        inside.extend(running)

    asyncio.get_running_loop().call_soon(deliver)
    await turns(2)
    assert inside == [receiving], "the task did not run inside the read"
    return await receiving
