"""Opens connections: DNS, TCP, TLS and upgrade, under one deadline."""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any

from wsfast._common.headers import AwaitedHeadersLike, PlainHeaders, resolve_headers
from wsfast._common.logging import guarded
from wsfast._common.options import Pinging, Timeouts, in_words
from wsfast._common.upgrade import UpgradeRequest, UpgradeResponse
from wsfast._engine.transport import WSListener, WSTransport, mask_kernel
from wsfast._engine.tuning import Tuning
from wsfast._opening.http.handshake import ClientHandshake
from wsfast._opening.net.addresses import SocketFactory
from wsfast._opening.net.transports import open_transport
from wsfast._opening.route import Route
from wsfast.exceptions import InvalidHandshake, InvalidStatus

if sys.version_info >= (3, 11):
    from asyncio import timeout_at as deadline_at
else:
    from async_timeout import timeout_at as deadline_at

# Bytes that are read at once until the connection is open: a reply is some 200, and a hostile one is to keep the event
# loop for a millisecond at a time, at most.
_READ_WHILE_OPENING = 4 * 1024


async def establish(
    make: Callable[[Route, PlainHeaders | None], tuple[WSTransport, Opening]],
    route: Route,
    headers: AwaitedHeadersLike | None,
    *,
    timeouts: Timeouts,
    socket_factory: SocketFactory | None,
    use_aiofastnet: bool | None,
    tuning: Tuning,
    kwargs: Mapping[str, Any],
) -> None:
    """Connect, and follow redirects until a server agrees. If this raises, nothing is left behind.

    :param make: makes the transport and the `Opening` for the next server, with these headers
    :param headers: the program's, or a function that makes them for each server
    """
    loop = asyncio.get_running_loop()
    # Keeps the task alive. If the collector closes this coroutine, the deadline may hold the last reference to the
    # task. It would release the task during the run, and CPython crashes when the task then closes the coroutine again.
    task = asyncio.current_task()  # noqa: F841
    end = None if timeouts.open is None else loop.time() + timeouts.open
    while True:
        transport, opening = make(route, await _resolve_headers(headers, end, timeouts))
        route.log(opening.logger)
        try:
            async with deadline_at(end):
                await open_transport(loop, transport, route, socket_factory, use_aiofastnet, tuning, kwargs)
            await opening.agreed(loop, end, timeouts.handshake)
            if route.look_up is not None:
                route.connected(transport.underlying_transport.get_extra_info("peername"))
            return
        except asyncio.TimeoutError as exc:
            opening.abandon()
            if not isinstance(exc, _TooLateError) and not isinstance(exc.__context__, asyncio.CancelledError):
                raise
            rejected = opening.rejection or route.refusal()
            if rejected is not None:
                raise rejected from exc
            if opening.has_begun:
                route.phase = ("the WebSocket handshake with", route.uri.host, route.addresses)
            limit = f"open_timeout is {in_words(timeouts.open)}"
            if isinstance(exc, _TooLateError) and opening.has_own_limit:
                limit = f"websocket_handshake_timeout is {in_words(timeouts.handshake)}"
            raise TimeoutError(f"{route.phase_text()} took too long: {limit}") from exc
        except InvalidStatus as exc:
            opening.abandon()
            route.follow(exc)
            opening.logger.info("redirected to %s://%s", route.uri.scheme, route.uri.netloc)
        except BaseException:
            opening.abandon()
            raise


async def _resolve_headers(
    headers: AwaitedHeadersLike | None, end: float | None, timeouts: Timeouts
) -> PlainHeaders | None:
    making = resolve_headers(headers)
    if inspect.isawaitable(making):
        try:
            async with deadline_at(end):
                making = await making
        except asyncio.TimeoutError as exc:
            if not isinstance(exc.__context__, asyncio.CancelledError):
                raise  # the program's own
            limit = f"open_timeout is {in_words(timeouts.open)}"
            raise TimeoutError(f"making the headers took too long: {limit}") from exc
    return making  # type: ignore[no-any-return]


class _TooLateError(asyncio.TimeoutError):
    """The server has not agreed in time."""


class Opening:
    """Sends the upgrade request on a new connection and judges the reply. WSTransport calls it until it is OPEN.

    `receiver`: called once the server has agreed; makes the listener of the connection
    """

    def __init__(
        self,
        handshake: ClientHandshake,
        receiver: Callable[[UpgradeRequest, UpgradeResponse], WSListener],
        logger: Any,
        tuning: Tuning,
        pinging: Pinging | None = None,
    ) -> None:
        self._handshake = handshake
        self._make_receiver = receiver
        self._tuning = tuning
        self._pinging = pinging
        self._transport: WSTransport | None = None
        self.logger = logger
        self.has_own_limit = False  # of time, which ends before that of everything
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: WSTransport) -> None:
        self._transport = transport
        if self.logger.isEnabledFor(logging.DEBUG):
            from wsfast._opening.http.exchange_log import log_exchange

            transport._log_frames(self.logger.debug)
            log_exchange(self._handshake, self.logger)
        transport._read_at_most(min(_READ_WHILE_OPENING, self._tuning.read_limit))
        beneath = transport.underlying_transport
        beneath.write(self._handshake.request_bytes)

    def data_received(self, data: bytes) -> int:
        """Return how many bytes at the end of `data` are already frames."""
        if self.opened.done():
            return 0
        assert self._transport is not None
        try:
            response = self._handshake.feed(data)
            if response is None:
                return 0
            self._transport._read_at_most(self._tuning.read_limit)
            if self._handshake.compression is not None:
                self._transport._compress(self._handshake.compression)
            receiver = self._make_receiver(self._handshake.request, response)
        except BaseException as exc:
            self._failed(exc)
            if isinstance(exc, (KeyboardInterrupt, SystemExit)):
                raise
            return 0
        transport = self._transport
        # A program that negotiates an extension by hand, in extra_headers, gets the RSV bits.
        by_hand = self._handshake.extensions_header and self._handshake.compression is None
        rsv_allowed = 0x70 if by_hand else 0
        transport._open(receiver, self._handshake.request, response, self._handshake.subprotocol, rsv_allowed)
        self.opened.set_result(None)
        ping = self._pinging
        if ping is not None and ping.interval is not None:
            transport._keep_alive(ping.interval, ping.timeout, ping.strategy)
        if self.logger.isEnabledFor(logging.INFO):
            # Later: Ctrl-C in a log handler would lose the frames that came with the reply.
            self.opened.get_loop().call_soon(self._log_connected, transport.underlying_transport)
        return len(self._handshake.trailing)

    def _log_connected(self, beneath: asyncio.Transport) -> None:
        guarded(
            self.logger.info,
            "connected: %s -> %s, masks by %s",
            beneath.get_extra_info("sockname"),
            beneath.get_extra_info("peername"),
            mask_kernel,
        )

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection ended before the handshake did."""
        if self.opened.done():
            return
        if exc is None:
            try:
                self._handshake.feed_eof()
            except Exception as failed:
                exc = failed
        self.opened.set_exception(exc)

    async def agreed(self, loop: asyncio.AbstractEventLoop, end: float | None, limit: float | None) -> None:
        """Wait until the server has agreed, or raise the error.

        :param end: by the clock of the loop; None for no end
        :param limit: seconds; None for no limit
        """
        if limit is not None:
            own_end = loop.time() + limit
            if end is None or own_end < end:
                self.has_own_limit, end = True, own_end
        if end is None or self.opened.done():
            return await self.opened
        timer = loop.call_at(end, self._too_late)
        try:
            await self.opened
        finally:
            timer.cancel()

    def _too_late(self) -> None:
        if not self.opened.done():
            self.opened.set_exception(_TooLateError())

    @property
    def has_begun(self) -> bool:
        """True once the upgrade request was sent."""
        return self._transport is not None

    @property
    def rejection(self) -> InvalidHandshake | None:
        """The server's refusal, while its body is still arriving; else None."""
        return self._handshake.rejection

    def abandon(self) -> None:
        """Close the connection, because the opening failed."""
        if self.opened.done() and not self.opened.cancelled():
            self.opened.exception()  # retrieved, or asyncio complains
        self.opened.cancel()
        if self._transport is not None and not self._transport.is_disconnected:
            self._transport.abort()

    def _failed(self, exc: BaseException) -> None:
        assert self._transport is not None
        if isinstance(exc, StopIteration):  # which a Future does not take
            cause, exc = exc, RuntimeError("a callback raised StopIteration")
            exc.__cause__ = cause
        self.opened.set_exception(exc)
        self._transport.abort()
