"""ClientConnection, except recv() and send() of whole messages, which are compiled (_messaging.pyx)."""

from __future__ import annotations

import asyncio
import codecs
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, NoReturn

from wsfast._common.closing import WSDisconnectInfo, reason_for
from wsfast._common.connection import (
    BYTES_LIKE,
    ConnectionAttributes,
    DataLike,
    Request,
    control_payload,
    fixed,
)
from wsfast._common.logging import guarded
from wsfast._common.options import Limits, Overflow, Pinging, no_message
from wsfast._common.protocol_numbers import WSMsgType
from wsfast._common.upgrade import UpgradeResponse
from wsfast._engine.frames.inspection import WSStats
from wsfast._engine.threads import lasting, run_soon
from wsfast._engine.transport import WSTransport
from wsfast._engine.tuning import Histogram
from wsfast.asyncio._messaging import Connection, enter_methods
from wsfast.asyncio._overflow import backlog, policy_for
from wsfast.asyncio.backlog import Backlog
from wsfast.asyncio.pings import Pings
from wsfast.deflate import AgreedDeflate
from wsfast.exceptions import (
    Close,
    ConcurrencyError,
    ConnectionClosed,
    InvalidText,
    ProtocolError,
)
from wsfast.tls import TLSInfo

__all__ = ["ClientConnection"]

# Seconds between two looks at a connection on which a send waits for room.
_LOOK = 1.0

# The result of _next() at the end of an iterator.
_END: Any = object()


class ClientConnection(Connection, ConnectionAttributes):
    """A WebSocket connection. Made by :class:`wsfast.asyncio.client.connect`, not by hand.

    ::

        async for message in ws:
            await ws.send(message)

    The iteration ends when the connection is closed normally, with code 1000, 1001 or none; otherwise it raises
    :exc:`ConnectionClosedError`.
    """

    protocol: WSTransport
    """The engine's transport, which is the protocol of the asyncio transport beneath."""

    def __init__(
        self,
        protocol: WSTransport,
        *,
        limits: Limits,
        pinging: Pinging,
        close_timeout: float | None,
        logger: Any,
        ping_histogram: Histogram | None = None,
        overflow: Overflow | None = None,
    ) -> None:
        self._base_logger = logger
        policy = None if overflow is None else policy_for(overflow, self._base_logger)
        super().__init__(protocol, limits, policy)
        if overflow is not None and overflow.on_high_water is not None:
            self._on_high_water = overflow.on_high_water
            self.listener.on_high_water = self._above_high_water
        protocol.set_write_buffer_limits(*limits.write)
        self.protocol = protocol
        self._close_timeout = close_timeout
        self._loop = asyncio.get_running_loop()
        # Set while a fragmented message is being sent, and done when it is over.
        self._send_lock: asyncio.Future[None] | None = None
        self._drains: deque[asyncio.Future[None]] = deque()
        self._lost: asyncio.Future[None] | None = None
        self._reading_on: set[object] = set()  # the callers of _read_on()
        self._pings = Pings(self, self._base_logger, ping_histogram)
        self._keep_alive(pinging)

    def _set_close_timeout(self, seconds: float | None) -> None:
        self._close_timeout = seconds
        self.protocol._set_close_timeout(seconds)

    def _keep_alive(self, pinging: Pinging) -> None:
        self._pinging = pinging
        if pinging.interval is not None:
            self._stamp_reads()
        self._pings.keep_alive(pinging.interval, pinging.timeout)

    # ---- attributes

    @property
    def transport(self) -> asyncio.Transport:
        """The ``asyncio.Transport`` beneath."""
        return self.protocol.underlying_transport

    @property
    def tls(self) -> TLSInfo | None:
        """The TLS of the connection, or None."""
        return self.protocol.tls

    @property
    def local_address(self) -> Any:
        """The address of this end: ``(host, port)`` for IPv4, see ``socket.getsockname()``."""
        return self.transport.get_extra_info("sockname")

    @property
    def remote_address(self) -> Any:
        """The address of the server: ``(host, port)`` for IPv4, see ``socket.getpeername()``."""
        return self.transport.get_extra_info("peername")

    write_limit = fixed()

    @property
    def request(self) -> Request:
        """The upgrade request."""
        return Request(self.protocol.request)

    @property
    def response(self) -> UpgradeResponse:
        """The server's reply to it."""
        return self.protocol.response

    @property
    def subprotocol(self) -> str | None:
        """The subprotocol that the server picked, or None."""
        return self.protocol.subprotocol

    @property
    def compression(self) -> AgreedDeflate | None:
        """The agreement on compression; None if messages are not compressed."""
        return self.protocol.compression

    @property
    def close_info(self) -> WSDisconnectInfo | None:
        """The side that ended the connection, with code and reason; None until it is closed."""
        return self.protocol.close_info

    @property
    def stats(self) -> WSStats:
        """The counters of the connection. Taking them costs less than a microsecond."""
        return self.protocol.stats

    @property
    def last_received(self) -> float:
        """When bytes were last received, by ``time.monotonic()``. It is 0.0 unless the connection is kept alive by
        pings, or was made with ``timestamps``."""
        return self.protocol.last_received

    @property
    def backlog(self) -> Backlog:
        """The messages that wait to be received, and those that `overflow` has dropped."""
        return Backlog(*backlog(self.listener))

    def _above_high_water(self) -> None:
        try:
            self._on_high_water(self)
        except Exception as exc:
            guarded(self._base_logger.error, "exception in on_high_water()", exc_info=exc)

    def __repr__(self) -> str:
        return f"<ClientConnection {self.state.name} {self.protocol.underlying_transport!r}>"

    def _received_close(self) -> Close | None:
        return self._closes[0]

    # ---- async with

    async def __aenter__(self) -> ClientConnection:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close(1000 if exc_type is None else 1011)

    # ---- receiving

    async def recv_streaming(
        self, decode: bool | type[memoryview] | None = None
    ) -> AsyncIterator[str | bytes | memoryview]:
        """Receive the next message as its fragments arrive.

        :param decode: as for :meth:`recv`; a character that is split between fragments arrives with the second
        :raises ConnectionClosed, ConcurrencyError: as :meth:`recv` does

        The iterator must be used up: until then :meth:`recv` and :meth:`recv_streaming` raise ConcurrencyError.
        """
        try:
            opcode, payload, fin = await self._receive_frame()
        except ConcurrencyError:
            message = (
                "cannot call recv_streaming while another coroutine is already running recv or recv_streaming"
            )
            raise ConcurrencyError(message) from None
        if decode is None:
            decode = opcode == WSMsgType.TEXT
        as_view = decode is memoryview
        decoder = codecs.getincrementaldecoder("utf-8")() if decode and not as_view else None
        while True:
            self._streaming = not fin
            if decoder is None:
                yield memoryview(payload) if as_view else payload
            else:
                try:
                    text = decoder.decode(payload, fin)
                except UnicodeDecodeError as exc:
                    self._streaming = False
                    await self._text_is_invalid(InvalidText.from_decode_error(exc))
                yield text
            if fin:
                return
            try:
                self._streaming = False
                _, payload, fin = await self._receive_frame()
            except ConnectionClosed:
                raise
            except BaseException:  # cancelled, or closed with the task that waited
                self._streaming = True  # what follows is the rest of a message
                raise

    def poll(self, timeout: float, sleep: bool = False) -> bool:
        """Receive without the event loop: read until a frame arrived or the time is up.

        It blocks the event loop: no other task goes on meanwhile. The message is for :meth:`recv`, which gives it at
        once. What is being gathered or corked is sent first.

        :param timeout: seconds; 0 tries once, ``math.inf`` waits until a frame arrives
        :param sleep: wait in the kernel instead of looking again and again
        :returns: True if a frame arrived, of a message or a control frame
        :raises ConnectionClosed: the connection is closed, or is being closed and delivers no more
        :raises RuntimeError: reading is paused because `max_queue` frames wait, or this is a wrong thread
        """
        return self.protocol.poll(timeout, sleep)

    async def _text_is_invalid(self, exc: InvalidText) -> None:
        self.protocol._fail(1007, reason_for(exc), exc)
        await self.wait_closed()
        raise self._closed() from exc

    # ---- sending

    async def send_many(
        self, messages: Iterable[DataLike], *, text: bool | None = None, compress: bool | None = None
    ) -> None:
        """Send every message of an iterable, all of them in one write (64 KiB at a time).

        :param messages: each ``str`` or bytes-like
        :param text, compress: as for :meth:`send`
        :raises ConnectionClosed: the connection is closed
        :raises TypeError: a message is of another type; those before it are sent
        """
        if isinstance(messages, (str, *BYTES_LIKE)):
            raise TypeError(f"messages must be an iterable of messages, not {type(messages).__name__}")
        remaining = iter(messages)
        more = True
        while more:
            await self._wait_for_send_lock()
            try:
                more = self._send_some(remaining, text, compress)
            except ConnectionClosed:
                if self._is_open:
                    raise  # it came out of the iterable: another connection's
                await self._raise_closed()
            if self._writing_paused:
                await self._drain()

    def send_threadsafe(
        self, message: DataLike, *, text: bool | None = None, compress: bool | None = None
    ) -> Future[None]:
        """Send a message from any thread: as :meth:`send`, in a task of the event loop.

        :param message: ``str`` or bytes-like; a ``bytearray`` or ``memoryview`` is copied at once
        :param text, compress: as for :meth:`send`
        :returns: a ``concurrent.futures.Future``, done when :meth:`send` is; it raises what that raises
        :raises RuntimeError: the event loop is closed; the future raises it if the loop is closed before that
        """
        message = lasting(message)

        async def send() -> None:
            await self.send(message, text=text, compress=compress)

        return run_soon(self._loop, send)

    def cork(self) -> AbstractContextManager[None]:
        """``with ws.cork():`` sends the messages of its body together when it ends, 64 KiB at a time; it may be nested.

        The body may await; :meth:`recv` in it does not send the frames that are held back.
        """
        return self.protocol.cork()

    async def _send_slowly(self, message: Any, text: bool | None, override: int) -> None:
        """send() of anything but one frame that leaves at once."""
        if isinstance(message, (str, *BYTES_LIKE)):
            await self._wait_for_send_lock()
            as_text = text is not False if isinstance(message, str) else text is True
            if self._send_frame(message, as_text, True, True, override):
                await self._drain()
        elif isinstance(message, Mapping):
            raise no_message("message", message, "str, bytes-like, or an iterable of them")
        elif isinstance(message, Iterable):
            await self._send_fragments(iter(message), text, override)
        elif isinstance(message, AsyncIterable):
            await self._send_fragments(message.__aiter__(), text, override)
        else:
            raise TypeError("data must be str, bytes, iterable, or async iterable")

    async def _send_fragments(
        self, chunks: Iterator[Any] | AsyncIterator[Any], text: bool | None, override: int
    ) -> None:
        chunk = await _next(chunks)
        if chunk is _END:
            return
        kind = "async iterable" if isinstance(chunks, AsyncIterator) else "iterable"
        kinds: Any = str if isinstance(chunk, str) else BYTES_LIKE
        # A first fragment that cannot be sent is refused before the message has begun.
        if not isinstance(chunk, kinds):
            raise TypeError(f"{kind} must contain bytes or str")
        as_text = text is not False if kinds is str else text is True
        if kinds is str:
            chunk = chunk.encode()
        await self._wait_for_send_lock()
        send_lock = self._send_lock = self._loop.create_future()
        self._sending_fragments = True
        first = True
        try:
            while chunk is not _END:
                if not first and not isinstance(chunk, kinds):
                    raise TypeError(f"{kind} must contain uniform types")
                if self._send_frame(chunk, as_text, first, False, override):
                    await self._drain()
                first = False
                chunk = await _next(chunks)
            must_drain = self._send_frame(b"", as_text, False, True, override)
        except BaseException as exc:
            if self._is_open:
                # The message cannot be completed, and nothing else may be sent before it is.
                self.protocol._fail(1011, "error in fragmented message", exc)
            elif isinstance(exc, ConnectionClosed):
                await self._raise_closed()
            if isinstance(exc, Exception):
                await self.wait_closed()
            raise
        finally:
            self._send_lock = None
            self._sending_fragments = False
            send_lock.set_result(None)
        if must_drain:
            await self._drain()

    async def _wait_for_send_lock(self) -> None:
        """Wait until no fragmented message is being sent; the connection is open then."""
        while self._send_lock is not None:
            await asyncio.shield(self._send_lock)
        if not self._is_open:
            await self._raise_closed()

    async def _drain(self) -> None:
        """Wait until the write buffer has room.

        Nobody resumes writing on a lost connection whose end lies behind messages that the program has yet to receive.
        So the wait looks for that, now and then.
        """
        while self._writing_paused and not self._is_closed:
            if self.protocol.underlying_transport.is_closing():
                await self._raise_closed()
            room = self._loop.create_future()
            self._drains.append(room)
            try:
                await asyncio.wait([room], timeout=_LOOK)
            finally:
                self._drains.remove(room)
        if self._is_closed:
            raise self._closed()

    def _resume_writing(self) -> None:
        for room in self._drains:
            if not room.done():
                room.set_result(None)

    # ---- pings

    async def ping(self, data: DataLike | None = None) -> Awaitable[float]:
        """Send a PING.

        :param data: its payload, at most 125 bytes; random by default
        :returns: a future of the latency in seconds. It may be ignored; it raises :exc:`ConnectionClosed` if the
            connection is closed before the server answers.
        :raises ConnectionClosed: the connection is closed
        :raises ConcurrencyError: another ping with the same `data` waits for its answer
        """
        payload = None if data is None else control_payload(data)
        if not self._is_open:
            await self._raise_closed()
        answer = self._pings.send(payload)
        if self._writing_paused:
            await self._drain()
        return answer

    async def pong(self, data: DataLike = b"") -> None:
        """Send a PONG without a PING before it: a heartbeat in one direction.

        :param data: its payload, at most 125 bytes
        :raises ConnectionClosed: the connection is closed
        """
        payload = control_payload(data)
        if not self._is_open:
            await self._raise_closed()
        self.protocol.send_pong(payload)
        if self._writing_paused:
            await self._drain()

    async def measure_roundtrip_time(self, rounds: int) -> list[float]:
        """Measure how long the server takes to answer a PING.

        :param rounds: how many PINGs to send, one after the other
        :returns: a list of `rounds` times in seconds
        :raises ConnectionClosed: the connection ended meanwhile
        """
        return [await (await self.ping()) for _ in range(rounds)]

    @property
    def latency(self) -> float:
        """The seconds that the server took to answer the last ping; 0.0 before the first answer."""
        return self._pings.latency

    def _pong_received(self, payload: bytes) -> None:
        self._pings.pong_received(payload)

    # ---- closing

    async def close(self, code: int | None = 1000, reason: str = "") -> None:
        """Close the connection, and wait until it is closed: ``close_timeout`` at most.

        Does nothing if the connection is closed. Messages that were received before remain for :meth:`recv`. Messages
        that the server sends while the connection closes can be received, too. But once 1 MiB more waits than
        `max_queue` allows, and no message was taken for a quarter of a second, all later messages are discarded.

        :param code: 1000-1014 as far as they may be sent, or 3000-4999; None sends none
        :param reason: at most 123 bytes in UTF-8
        :raises ProtocolError: `code` or `reason` must not be sent
        """
        if self._is_open:
            if self._send_lock is None:
                try:
                    if code == 0:
                        raise ValueError("close code 0 must not be sent")
                    self.protocol.send_close(code or 0, reason)
                except ValueError as exc:
                    raise ProtocolError(str(exc)) from exc
            else:
                reason = "close during fragmented message"
                self.protocol._fail(1011, reason, ConcurrencyError(reason))
        if not self._is_closed:
            self._read_on()
        await self.wait_closed()

    def _read_on(self, caller: object = None) -> None:
        """Read past a full queue until every caller of this has called :meth:`_read_no_further`."""
        self._reading_on.add(caller)
        super()._read_on()

    def _read_no_further(self, caller: object = None) -> None:
        self._reading_on.discard(caller)
        if not self._reading_on:
            super()._read_no_further()

    def abort(self) -> None:
        """Drop the connection at once, with everything that was not sent yet.

        Messages that were received before remain for :meth:`recv`. Does nothing if the connection is closed.
        """
        self.protocol.abort()

    async def wait_closed(self) -> None:
        """Wait until the connection is closed."""
        if (lost := self._future_of_loss()) is not None:
            await asyncio.shield(lost)

    def _future_of_loss(self) -> asyncio.Future[None] | None:
        """Done when the connection is closed; None if it is."""
        if self._lost is None and not self._is_closed:
            self._lost = self._loop.create_future()
        return self._lost

    def _closed(self) -> ConnectionClosed:
        """The exception of a call on the closed connection."""
        return self.protocol._closed()

    async def _raise_closed(self) -> NoReturn:
        """Raise when it is known why the connection is closed, and at the latest after `close_timeout`: the end may lie
        behind messages that the program has yet to receive."""
        if (lost := self._future_of_loss()) is not None:
            await asyncio.wait([lost], timeout=self._close_timeout)
        raise self._closed()

    def _frames_end(self) -> None:
        self._pings.give_up(self._closed)

    def _connection_lost(self) -> None:
        self._resume_writing()
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(None)


async def _next(chunks: Iterator[Any] | AsyncIterator[Any]) -> Any:
    """The next item, or _END."""
    try:
        return await chunks.__anext__() if isinstance(chunks, AsyncIterator) else next(chunks)
    except (StopIteration, StopAsyncIteration):
        return _END


enter_methods(ClientConnection)
