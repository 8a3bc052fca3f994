"""A server that streams, but answers no PING, as busy exchanges do: for wsfast it is alive, and the peers drop it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import picows
import picows.websockets
import websockets.asyncio.client
import websockets.sync.client
from support import frames
from support.servers import Peer, serve

import wsfast
import wsfast.sync.client

PINGS = {"ping_interval": 0.6, "ping_timeout": 0.6}
ENOUGH = 3  # unanswered pings; a client that wants pongs drops the connection after one or two


async def stream_without_pongs(peer: Peer) -> str:
    """Send a message every 10 ms. The result tells whether the client went away first, or ENOUGH pings came first."""
    await peer.accept()
    pings = 0

    async def count_pings() -> str:
        nonlocal pings
        with suppress(EOFError, ConnectionError):
            while (await peer.frame()).opcode == frames.PING:
                pings += 1
                if pings == ENOUGH:
                    return "alive"
        return "dropped"

    counting = asyncio.create_task(count_pings())
    while not counting.done():
        peer.send(frames.text("tick"))
        await asyncio.wait([counting], timeout=0.01)
    peer.send(frames.close(1000))
    return counting.result()


async def iterate(connect: Callable[..., object], url: str) -> None:
    with suppress(Exception):  # each client has its own for a missing pong
        async with connect(url, **PINGS, compression=None) as ws:
            async for _ in ws:
                pass


async def block(connect: Callable[..., object], url: str) -> None:
    def run() -> None:
        with suppress(Exception), connect(url, **PINGS, compression=None) as ws:
            for _ in ws:
                pass

    await asyncio.to_thread(run)


async def listen(library: object, url: str) -> None:
    transport, _ = await library.ws_connect(
        library.WSListener,
        url,
        enable_auto_ping=True,
        auto_ping_idle_timeout=PINGS["ping_interval"],
        auto_ping_reply_timeout=PINGS["ping_timeout"],
        auto_ping_strategy=library.WSAutoPingStrategy.PING_PERIODICALLY,
    )
    with suppress(Exception):
        await transport.wait_disconnected()


CLIENTS: dict[str, tuple[str, Callable[[str], Awaitable[None]]]] = {
    "wsfast listener": ("alive", lambda url: listen(wsfast, url)),
    "wsfast awaitable": ("alive", lambda url: iterate(wsfast.connect, url)),
    "wsfast blocking": ("alive", lambda url: block(wsfast.sync.client.connect, url)),
    "picows": ("dropped", lambda url: listen(picows, url)),
    "picows.websockets": ("dropped", lambda url: iterate(picows.websockets.connect, url)),
    "websockets": ("dropped", lambda url: iterate(websockets.asyncio.client.connect, url)),
    "websockets.sync": ("dropped", lambda url: block(websockets.sync.client.connect, url)),
}


async def outcome(client: str) -> object:
    async with serve(stream_without_pongs) as server:
        await CLIENTS[client][1](server.url)
        return await server.result()


async def test_which_clients_drop_a_server_that_streams_without_pongs():
    outcomes = await asyncio.gather(*map(outcome, CLIENTS))
    assert dict(zip(CLIENTS, outcomes)) == {client: expected for client, (expected, _) in CLIENTS.items()}
