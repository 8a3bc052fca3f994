"""Servers on a free port, in the test's own loop: one that a test scripts byte by byte, and echo servers of the
peers."""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import aiohttp
import aiohttp.web
import picows
import picows.websockets.asyncio.server
import websockets.asyncio.server

from support import frames
from support.frames import Parser, Sent
from support.upgrade import acceptance
from wsfast import WSTransport


class Peer:
    """The server's end of one connection. A test scripts it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.request = b""
        self._parser = Parser()
        self._frames: list[Sent] = []

    async def read_request(self) -> bytes:
        self.request = await self.reader.readuntil(b"\r\n\r\n")
        return self.request

    def reply(self, headers: bytes = b"") -> bytes:
        """The reply that accepts the upgrade request."""
        return acceptance(self.request, headers)

    async def accept(self, glued: bytes = b"", headers: bytes = b"") -> None:
        """Perform the opening handshake. `glued` is sent in the same write as the reply."""
        await self.read_request()
        self.writer.write(self.reply(headers) + glued)

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def frame(self) -> Sent:
        """The next frame of the client; EOFError if the client sends no more."""
        while not self._frames:
            data = await self.reader.read(1 << 20)
            if not data:
                raise EOFError("the client closed the connection")
            self._frames.extend(self._parser.feed(data))
        return self._frames.pop(0)

    async def frames_until_close(self) -> list[Sent]:
        """All frames of the client up to its CLOSE."""
        got = [await self.frame()]
        while got[-1].opcode != frames.CLOSE:
            got.append(await self.frame())
        return got

    async def rest(self) -> list[Sent]:
        """All frames until the client closes the connection or resets it."""
        got = []
        with suppress(EOFError, ConnectionError):
            while True:
                got.append(await self.frame())
        return got

    async def answer_close(self) -> Sent:
        """Read up to the client's CLOSE and echo it."""
        sent = (await self.frames_until_close())[-1]
        self.send(frames.frame(frames.CLOSE, sent.payload))
        return sent

    def reset(self) -> None:
        """Close the connection with a RST."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Handler = Callable[[Peer], Awaitable[object]]


class Served:
    """A running server: its URL, and the results of the handlers that have ended."""

    def __init__(self, url: str, port: int) -> None:
        self.url = url
        self.port = port
        self.results: asyncio.Queue[object] = asyncio.Queue()

    async def result(self) -> object:
        """Wait for the next handler to end. Return its result, or raise its exception."""
        result = await self.results.get()
        if isinstance(result, BaseException):
            raise result
        return result


@asynccontextmanager
async def serve(
    handler: Handler,
    *,
    ssl_context: ssl.SSLContext | None = None,
    host: str = "127.0.0.1",
    receive_buffer: int = 0,
) -> AsyncIterator[Served]:
    """Run `handler` for every connection, and close the connection when the handler returns.

    If a handler raises, the test fails, at the latest when the server ends.
    """
    tasks: set[asyncio.Task[None]] = set()

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            served.results.put_nowait(await handler(Peer(reader, writer)))
        except asyncio.CancelledError:
            writer.transport.abort()  # the test is over, and the client may be gone and not answer a TLS shutdown
        except Exception as exc:
            served.results.put_nowait(exc)
        finally:
            writer.close()
            with suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()
            tasks.discard(task)

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol given, asyncio turns Nagle's algorithm off.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    if receive_buffer:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    listening.bind((host, 0))
    server = await asyncio.start_server(serve_one, sock=listening, ssl=ssl_context, limit=1 << 20)
    port = listening.getsockname()[1]
    name = f"[{host}]" if ":" in host else host
    served = Served(f"ws{'s' if ssl_context else ''}://{name}:{port}/", port)
    try:
        yield served
    finally:
        for _ in range(3):
            await asyncio.sleep(
                0
            )  # a connection that is just being accepted gets its handler, so that it can be cancelled below
        server.close()
        for task in list(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await server.wait_closed()
    while not served.results.empty():
        await served.result()


async def break_off(peer: Peer) -> None:
    """A handler that resets the connection after one frame."""
    await peer.accept()
    await peer.frame()
    peer.reset()


async def echo(peer: Peer) -> None:
    """A handler that echoes every message, until the client closes or drops the connection."""
    with suppress(EOFError, ConnectionError):  # readuntil() may raise EOFError, too
        await peer.accept()
        while (sent := await peer.frame()).opcode != frames.CLOSE:
            if sent.opcode != frames.PONG:
                opcode = frames.PONG if sent.opcode == frames.PING else sent.opcode
                peer.send(frames.frame(opcode, sent.payload, fin=sent.fin))
                await peer.writer.drain()
        peer.send(frames.frame(frames.CLOSE, sent.payload))


def is_fast(transport: WSTransport) -> bool:
    """True if the connection does not use the event loop's own transports."""
    return type(transport.underlying_transport).__module__.startswith(("aiofastnet", "wsfast"))


# The peers' servers.


@asynccontextmanager
async def websockets_echo(
    ssl_context: ssl.SSLContext | None = None, *, compress: bool = False
) -> AsyncIterator[str]:
    async def handler(connection: websockets.asyncio.server.ServerConnection) -> None:
        async for message in connection:
            await connection.send(message)

    async with websockets.asyncio.server.serve(
        handler,
        "127.0.0.1",
        0,
        ssl=ssl_context,
        max_size=None,
        compression="deflate" if compress else None,
    ) as server:
        yield _url(server.sockets[0], ssl_context)


class _PicowsEcho(picows.WSListener):  # type: ignore[misc]
    def on_ws_frame(self, transport: picows.WSTransport, frame: picows.WSFrame) -> None:
        if frame.msg_type == picows.WSMsgType.CLOSE:
            transport.send_close(frame.get_close_code(), frame.get_close_message())
            transport.disconnect()
        else:
            transport.send(frame.msg_type, frame.get_payload_as_bytes(), frame.fin)


@asynccontextmanager
async def picows_echo(ssl_context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    server = await picows.ws_create_server(
        lambda request: _PicowsEcho(), "127.0.0.1", 0, ssl=ssl_context, max_frame_size=1 << 30
    )
    async with server:
        yield _url(server.sockets[0], ssl_context)
        server.close()


@asynccontextmanager
async def aiohttp_echo(
    ssl_context: ssl.SSLContext | None = None, *, compress: bool = False
) -> AsyncIterator[str]:
    async def handler(request: aiohttp.web.Request) -> aiohttp.web.WebSocketResponse:
        response = aiohttp.web.WebSocketResponse(max_msg_size=0, compress=compress)
        await response.prepare(request)
        async for message in response:
            if message.type is aiohttp.WSMsgType.TEXT:
                await response.send_str(message.data)
            elif message.type is aiohttp.WSMsgType.BINARY:
                await response.send_bytes(message.data)
        return response

    application = aiohttp.web.Application()
    application.router.add_get("/", handler)
    runner = aiohttp.web.AppRunner(application, shutdown_timeout=0.1)
    async with AsyncExitStack() as stack:
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0, ssl_context=ssl_context)
        await site.start()
        yield _url(runner.addresses[0], ssl_context)


@asynccontextmanager
async def picows_compressing_echo() -> AsyncIterator[str]:
    """picows' core does not support extensions, but its implementation of websockets' API does."""

    async def handler(connection: Any) -> None:
        async for message in connection:
            await connection.send(message)

    async with picows.websockets.asyncio.server.serve(handler, "127.0.0.1", 0, max_size=None) as server:
        yield _url(server.sockets[0], None)


# Servers that accept an offer of permessage-deflate.
COMPRESSING = {
    "websockets": functools.partial(websockets_echo, compress=True),
    "aiohttp": functools.partial(aiohttp_echo, compress=True),
    "picows": picows_compressing_echo,
}
PEERS = {"websockets": websockets_echo, "picows": picows_echo, "aiohttp": aiohttp_echo}


def _url(bound: socket.socket | tuple[str, int], ssl_context: ssl.SSLContext | None) -> str:
    address = bound if isinstance(bound, tuple) else bound.getsockname()
    return f"ws{'s' if ssl_context else ''}://127.0.0.1:{address[1]}/"
