"""The clients that ``wsfast bench`` compares, each in a process of its own, with the same work.

An exchange is: send `batch` messages, and wait for as many answers. stdin has a line of JSON for each round, and stdout
gets the nanoseconds that it took. This is the only module of wsfast that knows other clients.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import json
import os
import sys
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from wsfast.cli import loops

__all__ = ["CONTENDERS", "Contender"]

_LISTENER, _AWAITABLE, _BLOCKING = "wsfast listener", "wsfast awaitable", "wsfast blocking"


@dataclasses.dataclass(frozen=True)
class Contender:
    """A client: the package to install, and the function that runs its rounds.

    :param run: called with the URL; for an `asynchronous` one a coroutine function
    :param reference: wsfast's client of the same kind, which its figures are divided by
    """

    package: str
    module: str
    run: Callable[[str], Any]
    reference: str

    @property
    def asynchronous(self) -> bool:
        return self.reference != _BLOCKING


class _Commands:
    """The rounds to run: batch, size and number of exchanges."""

    def __iter__(self) -> _Commands:
        return self

    def __next__(self) -> tuple[int, bytes, int]:
        line = sys.stdin.readline()
        if not line:
            raise StopIteration
        batch, size, exchanges = json.loads(line)
        return batch, b"x" * size, exchanges

    @staticmethod
    def done(nanoseconds: int) -> None:
        print(nanoseconds, flush=True)


def _wrong(length: int) -> ValueError:
    return ValueError(f"an answer has {length} bytes")


async def _listening(base: Any, ws_connect: Any, send_batch: Any, url: str) -> None:
    """A client with picows' listener API. Callbacks start the next exchange."""

    class Rounds(base):
        def start(self, transport: Any, batch: int, payload: bytes, exchanges: int) -> None:
            self.batch, self.size, self.left, self.missing = batch, len(payload), exchanges, batch
            self.payloads = [payload] * batch
            self.done = asyncio.get_running_loop().create_future()
            send_batch(transport, self.payloads)

        def on_ws_frame(self, transport: Any, frame: Any) -> None:
            if (length := len(frame.get_payload_as_memoryview())) != self.size:
                self.done.set_exception(_wrong(length))
                return
            self.missing -= 1
            if self.missing:
                return
            self.left -= 1
            if self.left:
                self.missing = self.batch
                send_batch(transport, self.payloads)
            else:
                self.done.set_result(None)

        def pause_writing(self) -> None:
            """A batch fills the socket on purpose."""

        def resume_writing(self) -> None:
            pass

    transport, listener = await ws_connect(Rounds, url)
    for batch, payload, exchanges in (commands := _Commands()):
        began = perf_counter_ns()
        listener.start(transport, batch, payload, exchanges)
        await listener.done
        commands.done(perf_counter_ns() - began)
    transport.disconnect()
    await transport.wait_disconnected()


async def _awaiting(send: Any, recv: Any, sends_at_once: bool = False) -> None:
    """`send` is a plain function if it `sends_at_once`."""
    for batch, payload, exchanges in (commands := _Commands()):
        size = len(payload)
        began = perf_counter_ns()
        for _ in range(exchanges):
            for _ in range(batch):
                if sends_at_once:
                    send(payload)
                else:
                    await send(payload)
            for _ in range(batch):
                if len(await recv()) != size:
                    raise _wrong(size)
        commands.done(perf_counter_ns() - began)


def _blocking(send: Any, recv: Any) -> None:
    for batch, payload, exchanges in (commands := _Commands()):
        size = len(payload)
        began = perf_counter_ns()
        for _ in range(exchanges):
            for _ in range(batch):
                send(payload)
            for _ in range(batch):
                if len(recv()) != size:
                    raise _wrong(size)
        commands.done(perf_counter_ns() - began)


# The clients. Each imports its library when it runs.


async def _wsfast_listener(url: str) -> None:
    from wsfast import WSListener, WSMsgType, ws_connect

    binary = WSMsgType.BINARY

    def send(transport: Any, payloads: list[bytes]) -> None:
        if len(payloads) == 1:
            transport.send(binary, payloads[0])
        else:
            transport.send_many(binary, payloads)

    await _listening(WSListener, ws_connect, send, url)


async def _wsfast_awaitable(url: str) -> None:
    from wsfast import connect

    async with connect(url, compression=None, ping_interval=None) as ws:
        await _awaiting(ws.send, ws.recv)


def _wsfast_blocking(url: str) -> None:
    from wsfast.sync.client import connect

    with connect(url, compression=None, ping_interval=None) as ws:
        _blocking(ws.send, ws.recv)


async def _picows(url: str) -> None:
    from picows import WSListener, WSMsgType, ws_connect

    binary = WSMsgType.BINARY

    def send(transport: Any, payloads: list[bytes]) -> None:
        for payload in payloads:
            transport.send(binary, payload)

    await _listening(WSListener, ws_connect, send, url)


async def _picows_websockets(url: str) -> None:
    from picows.websockets.asyncio.client import connect

    async with connect(url, compression=None, ping_interval=None) as ws:
        await _awaiting(ws.send, ws.recv)


async def _websockets(url: str) -> None:
    from websockets.asyncio.client import connect

    async with connect(url, compression=None, ping_interval=None) as ws:
        await _awaiting(ws.send, ws.recv)


def _websockets_sync(url: str) -> None:
    from websockets.sync.client import connect

    with connect(url, compression=None) as ws:
        _blocking(ws.send, ws.recv)


async def _aiohttp(url: str) -> None:
    from aiohttp import ClientSession

    async with ClientSession() as session, session.ws_connect(url) as ws:
        await _awaiting(ws.send_bytes, ws.receive_bytes)


def _websocket_client(url: str) -> None:
    from websocket import create_connection

    ws = create_connection(url)
    _blocking(ws.send_binary, ws.recv)
    ws.close()


def _websocket_rs(url: str) -> None:
    from websocket_rs.sync.client import connect

    with connect(url) as ws:
        _blocking(ws.send, ws.recv)


async def _websocket_rs_async(url: str) -> None:
    from websocket_rs import connect

    async with await connect(url) as ws:
        await _awaiting(ws.send, ws.recv, sends_at_once=True)


CONTENDERS = {
    _LISTENER: Contender("wsfast", "wsfast", _wsfast_listener, _LISTENER),
    _AWAITABLE: Contender("wsfast", "wsfast", _wsfast_awaitable, _AWAITABLE),
    _BLOCKING: Contender("wsfast", "wsfast", _wsfast_blocking, _BLOCKING),
    "picows": Contender("picows", "picows", _picows, _LISTENER),
    "picows.websockets": Contender("picows", "picows", _picows_websockets, _AWAITABLE),
    "aiohttp": Contender("aiohttp", "aiohttp", _aiohttp, _AWAITABLE),
    "websockets asyncio": Contender("websockets", "websockets", _websockets, _AWAITABLE),
    "websockets sync": Contender("websockets", "websockets", _websockets_sync, _BLOCKING),
    "websocket-client": Contender("websocket-client", "websocket", _websocket_client, _BLOCKING),
    "websocket-rs async": Contender("websocket-rs", "websocket_rs", _websocket_rs_async, _AWAITABLE),
    "websocket-rs sync": Contender("websocket-rs", "websocket_rs", _websocket_rs, _BLOCKING),
}


def _main(name: str, url: str, loop: str, processor: str) -> None:
    if processor:
        os.sched_setaffinity(0, {int(processor)})
    gc.disable()
    contender = CONTENDERS[name]
    if contender.asynchronous:
        loops.run(contender.run(url), loop)
    else:
        contender.run(url)


if __name__ == "__main__":
    _main(*sys.argv[1:])
