"""A server that a supervisor connects to again and again: each connection plays its own script."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, suppress
from typing import Any

import wsfast
from support import frames
from support.frames import CLOSE, PING, TEXT, text
from support.servers import Peer, Served, serve
from wsfast.supervisor import Supervisor

Script = Callable[[Peer], Awaitable[object]]


@asynccontextmanager
async def sessions(*scripts: Script) -> AsyncIterator[Served]:
    """The n-th connection gets the n-th script, once its handshake is over; those after get the last one."""
    number = 0

    async def handler(peer: Peer) -> None:
        nonlocal number
        number += 1
        peer.number = number  # type: ignore[attr-defined]
        with suppress(EOFError, ConnectionError):
            await peer.accept()
            await scripts[min(number, len(scripts)) - 1](peer)

    async with serve(handler) as served:
        yield served


async def idle(peer: Peer) -> None:
    """Say nothing, but answer PING and CLOSE."""
    while True:
        sent = await peer.frame()
        if sent.opcode == PING:
            peer.send(frames.frame(frames.PONG, sent.payload))
        elif sent.opcode == CLOSE:
            peer.send(frames.frame(CLOSE, sent.payload))
            return


async def close(peer: Peer, code: int = 1012) -> None:
    """Close, and wait for the answer."""
    peer.send(frames.close(code))
    await peer.frames_until_close()


def say(*messages: str) -> Script:
    """A script that sends messages, and then is idle."""

    async def script(peer: Peer) -> None:
        peer.send(b"".join(text(message) for message in messages))
        await idle(peer)

    return script


async def answer(peer: Peer) -> None:
    """Acknowledge each text, and send a message of it: "ack x", "data x 1"."""
    while True:
        sent = await peer.frame()
        if sent.opcode == TEXT:
            message = sent.payload.decode()
            peer.send(text(f"ack {message}") + text(f"data {message} {peer.number}"))  # type: ignore[attr-defined]
        elif sent.opcode == CLOSE:
            peer.send(frames.frame(CLOSE, sent.payload))
            return


def at_once() -> Generator[float, None, None]:
    """No delays."""
    while True:
        yield 0.0


def supervise(url: Any, *args: Any, **options: Any) -> Supervisor:
    """With no delays, no compression and no proxy."""
    options.setdefault("delays", at_once)
    options.setdefault("proxy", None)
    options.setdefault("close_timeout", 2)
    if not args and "listener_factory" not in options:
        options.setdefault("compression", None)
    return wsfast.supervise(url, *args, **options)
