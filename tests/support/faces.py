"""One interface to the three faces: a test that is written once runs with each of them.

``async with face(url) as client`` connects. ``client.recv()`` returns a message or raises End. Exceptions of connecting
are not translated.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import wsfast.asyncio.client
import wsfast.sync.client
from support import HUNG
from wsfast import TLS, WSFrame, WSListener, WSMsgType, WSTransport, ws_connect
from wsfast._rust._native import lib
from wsfast.deflate import AgreedDeflate
from wsfast.exceptions import ConnectionClosed
from wsfast.tls import TLSInfo


class End(Exception):  # noqa: N818
    """The connection has ended: the codes of the CLOSE frames, received and sent, and the cause."""

    def __init__(self, received: int | None, sent: int | None, cause: BaseException | None) -> None:
        super().__init__(received, sent, cause)
        self.received = received
        self.sent = sent
        self.cause = cause

    @classmethod
    def of(cls, closed: ConnectionClosed) -> End:
        codes = [None if close is None else int(close.code) for close in (closed.rcvd, closed.sent)]
        return cls(*codes, closed.__cause__)  # type: ignore[call-arg,arg-type]


class Client:
    """A connection of any face."""

    @property
    def tls(self) -> TLSInfo | None:
        raise NotImplementedError

    async def send(self, message: str | bytes) -> None:
        raise NotImplementedError

    async def recv(self) -> str | bytes:
        raise NotImplementedError

    async def close(self) -> None:
        """Close the connection, and wait until it has ended."""
        raise NotImplementedError

    @property
    def compression(self) -> AgreedDeflate | None:
        raise NotImplementedError

    async def rest(self) -> tuple[list[str | bytes], End]:
        """All messages up to the end of the connection, and the End."""
        messages = []
        try:
            while True:
                messages.append(await self.recv())
        except End as end:
            return messages, end


class _Listening(WSListener, Client):
    """A listener that queues whole messages."""

    payload_type = str

    def __init__(self) -> None:
        self.inbox: asyncio.Queue[str | bytes | None] = asyncio.Queue()

    @property
    def tls(self) -> TLSInfo | None:
        return self.transport.tls

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.transport = transport

    def on_ws_message(self, transport: WSTransport, msg_type: WSMsgType, payload: str | bytes) -> None:
        self.inbox.put_nowait(payload)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self.inbox.put_nowait(None)

    async def send(self, message: str | bytes) -> None:
        try:
            self.transport.send(WSMsgType.TEXT if isinstance(message, str) else WSMsgType.BINARY, message)
        except ConnectionClosed:
            raise await self.end() from None

    async def recv(self) -> str | bytes:
        message = await self.inbox.get()
        if message is None:
            self.inbox.put_nowait(None)
            raise await self.end()
        return message

    async def close(self) -> None:
        self.transport.disconnect()
        await self.end()

    @property
    def compression(self) -> AgreedDeflate | None:
        return self.transport.compression

    async def end(self) -> End:
        cause: BaseException | None
        try:
            await self.transport.wait_disconnected()
            cause = self.transport.close_info.cause
        except Exception as exc:
            cause = exc
        codes = [None, None]
        if self.transport.close_handshake is not None:
            seen = self.transport.close_handshake
            # picows' code for an empty CLOSE frame is 0.
            codes = [None if close is None else int(close.code) or 1005 for close in (seen.recv, seen.sent)]
        return End(*codes, cause)  # type: ignore[arg-type]


class _ListeningToMany(_Listening):
    """A listener that gets the messages of a read at once."""

    on_ws_message = WSListener.on_ws_message

    def on_ws_messages(self, transport: WSTransport, messages: list[str | bytes]) -> None:
        for payload in messages:
            self.inbox.put_nowait(payload)


class _TakingFrames(_Listening):
    """A listener that joins frames itself, and does not check UTF-8."""

    on_ws_message = WSListener.on_ws_message

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[bytes] = []
        self.is_text = False

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type in (WSMsgType.PONG, WSMsgType.CLOSE):
            return
        if frame.msg_type != WSMsgType.CONTINUATION:
            self.is_text = frame.msg_type == WSMsgType.TEXT
        self.parts.append(frame.get_payload_as_bytes())
        if frame.fin:
            whole = b"".join(self.parts)
            self.parts.clear()
            self.inbox.put_nowait(whole.decode(errors="surrogateescape") if self.is_text else whole)


class _Awaiting(Client):
    def __init__(self, ws: wsfast.asyncio.client.ClientConnection) -> None:
        self.ws = ws

    @property
    def tls(self) -> TLSInfo | None:
        return self.ws.tls

    async def send(self, message: str | bytes) -> None:
        try:
            await self.ws.send(message)
        except ConnectionClosed as closed:
            raise End.of(closed) from None

    async def recv(self) -> str | bytes:
        try:
            return await self.ws.recv()
        except ConnectionClosed as closed:
            raise End.of(closed) from None

    async def close(self) -> None:
        await self.ws.close()

    @property
    def compression(self) -> AgreedDeflate | None:
        return self.ws.compression


class _AwaitingMany(_Awaiting):
    """It receives by recv_many(), and gives out one message at a time."""

    def __init__(self, ws: wsfast.asyncio.client.ClientConnection) -> None:
        super().__init__(ws)
        self.received: list[str | bytes] = []

    async def recv(self) -> str | bytes:
        try:
            self.received = self.received or await self.ws.recv_many()
        except ConnectionClosed as closed:
            raise End.of(closed) from None
        return self.received.pop(0)


class _Blocking(Client):
    """A blocking connection. The single thread of an executor makes every call."""

    def __init__(self, call: Callable[..., Any], ws: wsfast.sync.client.ClientConnection) -> None:
        self.call = call
        self.ws = ws

    @property
    def tls(self) -> TLSInfo | None:
        return self.ws.tls

    async def send(self, message: str | bytes) -> None:
        try:
            await self.call(self.ws.send, message)
        except ConnectionClosed as closed:
            raise End.of(closed) from None

    async def recv(self) -> str | bytes:
        try:
            return await self.call(self.ws.recv)
        except ConnectionClosed as closed:
            raise End.of(closed) from None

    async def close(self) -> None:
        await self.call(self.ws.close)

    @property
    def compression(self) -> AgreedDeflate | None:
        return self.ws.compression


class _BlockingMany(_Blocking):
    """As _AwaitingMany."""

    def __init__(self, call: Callable[..., Any], ws: wsfast.sync.client.ClientConnection) -> None:
        super().__init__(call, ws)
        self.received: list[str | bytes] = []

    async def recv(self) -> str | bytes:
        try:
            self.received = self.received or await self.call(self.ws.recv_many)
        except ConnectionClosed as closed:
            raise End.of(closed) from None
        return self.received.pop(0)


@asynccontextmanager
async def listener(
    url: str,
    *,
    context: ssl.SSLContext | TLS | None = None,
    max_size: int = 1 << 20,
    make: type[_Listening] = _Listening,
    **options: Any,
) -> AsyncIterator[Client]:
    options.setdefault("close_timeout", HUNG)
    transport, client = await ws_connect(make, url, ssl_context=context, max_size=max_size, **options)
    try:
        yield client
    finally:
        transport.abort()
        await client.end()


def _options_of(context: ssl.SSLContext | TLS | None, options: dict[str, Any]) -> dict[str, Any]:
    """The defaults of the tests, for both connections."""
    tls = {} if context is None else {"ssl": context}
    return {"close_timeout": HUNG, "compression": None, **options, **tls}


@asynccontextmanager
async def awaitable(
    url: str,
    *,
    context: ssl.SSLContext | TLS | None = None,
    make: type[_Awaiting] = _Awaiting,
    **options: Any,
) -> AsyncIterator[Client]:
    ws = await wsfast.asyncio.client.connect(url, **_options_of(context, options))
    try:
        yield make(ws)
    finally:
        ws.protocol.abort()
        await ws.wait_closed()


@asynccontextmanager
async def blocking(
    url: str,
    *,
    context: ssl.SSLContext | TLS | None = None,
    make: type[_Blocking] = _Blocking,
    **options: Any,
) -> AsyncIterator[Client]:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as executor:

        async def call(function: Callable[..., Any], *args: Any) -> Any:
            return await loop.run_in_executor(executor, function, *args)

        def connect() -> wsfast.sync.client.ClientConnection:
            return wsfast.sync.client.connect(url, **_options_of(context, options))

        ws = await call(connect)
        try:
            yield make(call, ws)
        finally:
            lib.wst_abort(ws._handle)
            await call(ws.close)


Face = Callable[..., AbstractAsyncContextManager[Client]]

FACES: dict[str, Face] = {
    "listener": listener,
    "awaitable": awaitable,
    "blocking": blocking,
}
# The same, receiving many messages at once.
MANY: dict[str, Face] = {
    "listener of many": functools.partial(listener, make=_ListeningToMany),
    "awaitable, many": functools.partial(awaitable, make=_AwaitingMany),
    "blocking, many": functools.partial(blocking, make=_BlockingMany),
}
# A listener of frames instead of messages, for tests about frames.
TAKING_FRAMES: dict[str, Face] = {"frames": functools.partial(listener, make=_TakingFrames)}


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
