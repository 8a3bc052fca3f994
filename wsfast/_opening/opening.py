"""Opens connections: DNS, TCP, TLS and upgrade, under one deadline. What happens here happens once per connection."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import socket
import ssl
import sys
from collections.abc import Callable, Sequence
from typing import Any, Optional, Union, cast

import aiofastnet

from wsfast import deflate
from wsfast._engine.messages import Messages
from wsfast._engine.socket import SocketTransport
from wsfast._engine.transport import WSListener, WSTransport
from wsfast._engine.tuning import Histogram, SocketOption, Tuning
from wsfast._engine.writer import mask_kernel
from wsfast._opening import addresses
from wsfast._opening.addresses import SocketFactory
from wsfast._opening.handshake import ClientHandshake, HeadersLike, UpgradeRequest, UpgradeResponse
from wsfast._opening.resets import LoopProxy, of_transports
from wsfast._opening.uri import WebSocketURI, parse_uri
from wsfast.codes import WSAutoPingStrategy
from wsfast.exceptions import InvalidHandshake, InvalidStatus
from wsfast.options import Limits, Pinging, Timeouts, check_bools, check_callables, check_logger, count
from wsfast.tls import TLS, as_context, check_tls, put_in_python_s_words, server_name

if sys.version_info >= (3, 11):
    from asyncio import timeout as deadline
else:
    from async_timeout import timeout as deadline

ListenerFactory = Callable[[], WSListener] | Callable[[UpgradeRequest, UpgradeResponse], WSListener]
LoggerLike = Optional[Union[str, logging.Logger, "logging.LoggerAdapter[Any]"]]  # noqa: UP045 - a string has no |

# Bytes that are read at once until the connection is open: a reply is some 200, and a hostile one is to keep the event
# loop for a millisecond at a time, at most.
_READ_WHILE_OPENING = 4 * 1024

_REDIRECTS = (301, 302, 303, 307, 308)


async def ws_connect(
    ws_listener_factory: ListenerFactory,
    url: str,
    *,
    ssl_context: ssl.SSLContext | TLS | None = None,
    disconnect_on_exception: bool = True,
    websocket_handshake_timeout: float | None = 5,
    open_timeout: float | None = 10,
    close_timeout: float | None = 10,
    logger_name: LoggerLike = None,
    enable_auto_ping: bool = False,
    auto_ping_idle_timeout: float = 10,
    auto_ping_reply_timeout: float = 10,
    auto_ping_strategy: WSAutoPingStrategy = WSAutoPingStrategy.PING_WHEN_IDLE,
    enable_auto_pong: bool = True,
    max_frame_size: int | None = 10 * 1024 * 1024,
    extra_headers: HeadersLike | None = None,
    subprotocols: Sequence[str] | None = None,
    max_redirects: int = 5,
    proxy: str | None = None,
    proxy_ssl_context: ssl.SSLContext | None = None,
    read_buffer_init_size: int = 16 * 1024,
    socket_factory: SocketFactory | None = None,
    use_aiofastnet: bool | None = None,
    write_policy: str = "immediate",
    busy_poll: float = 0,
    timestamps: str | None = None,
    max_read_size: int | None = None,
    quickack: bool = False,
    so_busy_poll: int = 0,
    sockopts: Sequence[SocketOption] = (),
    ping_histogram: Histogram | None = None,
    compression: str | deflate.PerMessageDeflate | None = None,
    **kwargs: Any,
) -> tuple[WSTransport, WSListener]:
    """Connect to a WebSocket server and deliver what it sends to a listener.

    The parameters are those of picows' ``ws_connect``, and a few more. Times are in seconds; None means no limit.

    :param ws_listener_factory: called without arguments, or, if it takes two, with the upgrade request and response,
        once the server has agreed; returns the :class:`WSListener`
    :param url: ``ws://`` or ``wss://``; credentials in it are sent as Basic authentication
    :param ssl_context: for ``wss``: an ``ssl.SSLContext`` or a :class:`wsfast.TLS`; by default one that trusts the
        system's authorities
    :param disconnect_on_exception: False logs an exception of ``on_ws_frame`` and goes on, instead of closing
    :param websocket_handshake_timeout: for the upgrade alone, once TCP and TLS are up
    :param open_timeout: for everything: DNS, TCP, TLS and upgrade
    :param close_timeout: from the first CLOSE frame, or :meth:`WSTransport.disconnect`, until the connection is dropped
        whatever the server does
    :param logger_name: a logger, or the last part of the name ``wsfast.<logger_name>``; ``wsfast.client`` by default
    :param enable_auto_ping: ping the server, and end the connection if it shows no sign of life
    :param auto_ping_idle_timeout: how long nothing must have been received before a ping is sent or, with
        ``PING_PERIODICALLY``, the time between pings
    :param auto_ping_reply_timeout: how long to wait then for any byte; at most `auto_ping_idle_timeout`
    :param enable_auto_pong: answer PING frames; if False, they are delivered
    :param max_frame_size: bytes of payload in a received frame; for a listener that overrides
        :meth:`WSListener.on_ws_message`, of a message, decompressed. A longer one ends the connection with code 1009.
    :param extra_headers: a mapping or pairs, added to the request; ``Host`` replaces the one from `url`
    :param subprotocols: offered in order of preference; see :attr:`WSTransport.subprotocol`
    :param max_redirects: redirects are not followed yet: a server that answers with one raises NotImplementedError, or
        InvalidStatus if this is 0
    :param proxy, proxy_ssl_context: not implemented yet
    :param read_buffer_init_size: accepted for picows' sake; connections share a read buffer, so none is sized by it
    :param socket_factory: a function or coroutine function that gets the parsed `url` and returns a socket, connected
        or not, or None for the usual way
    :param use_aiofastnet: False uses the event loop's own transports, which are slower
    :param write_policy: ``"immediate"`` writes every frame at once; ``"gather"`` writes the first frame of an event
        loop iteration at once, and those that follow together when the iteration ends
    :param busy_poll: for how long the event loop does not sleep after something was sent or received, and the socket is
        read without waiting to be told; ``math.inf`` for ever, 0 not at all. See :doc:`latency` for what it costs.
    :param timestamps: ``"user"`` sets :attr:`WSFrame.recv_time_ns`, ``"kernel"`` also :attr:`WSFrame.kernel_time_ns`,
        on plain TCP only
    :param max_read_size: bytes to read at once, at most; 256 KiB by default. Their frames are all delivered before
        anything else happens.
    :param quickack: tell the kernel after every read to acknowledge at once, which costs a system call per read;
        otherwise it is told once, and forgets it when it sees fit
    :param so_busy_poll: ``SO_BUSY_POLL``, in microseconds: the kernel asks the network card itself before it sleeps
    :param sockopts: tuples ``(level, name, value)`` for ``setsockopt``, set before the socket is connected
    :param ping_histogram: gets the round-trip time of every answered PING in nanoseconds by ``record_value(ns)``;
        such as ``HdrHistogram`` of the package hdrhistogram, ``pip install wsfast[histogram]``
    :param compression: ``"deflate"``, or a :class:`~wsfast.deflate.PerMessageDeflate`, offers to compress messages;
        only for a listener that overrides :meth:`WSListener.on_ws_message`
    :param kwargs: for ``loop.create_connection``: ``local_addr``, ``server_hostname``, ``family``,
        ``happy_eyeballs_delay``, ``ssl_handshake_timeout``...

    :returns: the transport and the listener
    :raises InvalidURI: `url` is no WebSocket URL
    :raises InvalidHandshake: the server did not agree; :class:`InvalidStatus` has its reply
    :raises TimeoutError: a deadline passed
    :raises OSError: DNS, TCP or TLS failed, or a socket option was refused
    """
    uri = parse_uri(url)
    if proxy is not None or proxy_ssl_context is not None:
        raise NotImplementedError("proxy: connecting through a proxy is not implemented yet")
    for name in kwargs:
        if name in ("ssl", "sock"):
            raise TypeError(f"{name}: use ssl_context= or socket_factory= instead")
        if name not in addresses.ARGUMENTS + addresses.TLS_ARGUMENTS:
            raise TypeError(f"ws_connect() got an unexpected keyword argument {name!r}")
        if name in addresses.TLS_ARGUMENTS and not uri.secure:
            raise ValueError(f"{name} is only meaningful with wss")
    addresses.check_arguments(kwargs)
    check_bools(disconnect_on_exception=disconnect_on_exception, enable_auto_pong=enable_auto_pong)
    if use_aiofastnet is not None:
        check_bools(use_aiofastnet=use_aiofastnet)
    if not callable(ws_listener_factory):
        raise TypeError(f"ws_listener_factory must be callable, not {ws_listener_factory!r}")
    check_callables(socket_factory=socket_factory)
    check_tls("ssl_context", ssl_context)
    max_payload = Limits.of_frames(max_frame_size)
    count("max_redirects", max_redirects)
    count("read_buffer_init_size", read_buffer_init_size)
    timeouts = Timeouts(open_timeout, close_timeout, websocket_handshake_timeout)
    pinging = Pinging.of_listener(
        enable_auto_ping, auto_ping_idle_timeout, auto_ping_reply_timeout, auto_ping_strategy
    )
    tuning = Tuning(
        write_policy=write_policy,
        busy_poll=busy_poll,
        timestamps=timestamps,
        max_read_size=max_read_size,
        quickack=quickack,
        so_busy_poll=so_busy_poll,
        sockopts=sockopts,
        ping_histogram=ping_histogram,
    )
    if timestamps == "kernel" and uri.secure:
        raise ValueError("timestamps='kernel' needs plain TCP: the kernel knows no records of TLS")
    offers = deflate.offers(compression, None)
    handshake = ClientHandshake(
        uri, subprotocols=subprotocols, extra_headers=extra_headers, compression=offers
    )
    listeners: list[WSListener] = []

    def receiver(request: UpgradeRequest, response: UpgradeResponse) -> WSListener:
        listeners.append(_make_listener(ws_listener_factory, request, response))
        return receiver_of(listeners[0], transport, compressed=bool(offers))

    opening = Opening(handshake, receiver, _logger(logger_name), tuning, pinging)
    loop = asyncio.get_running_loop()
    context = as_context(ssl_context) if uri.secure else None
    transport = WSTransport(
        loop,
        opening,
        logger=opening.logger,
        secure=uri.secure,
        max_frame_size=max_payload,
        auto_pong=enable_auto_pong,
        disconnect_on_exception=disconnect_on_exception,
        close_timeout=timeouts.close,
        tuning=tuning,
    )
    try:
        await establish(
            transport,
            opening,
            uri,
            context,
            timeouts=timeouts,
            socket_factory=socket_factory,
            use_aiofastnet=use_aiofastnet,
            tuning=tuning,
            kwargs=kwargs,
        )
    except InvalidStatus as exc:
        if max_redirects > 0:
            refuse_redirect(exc)
        raise
    return transport, listeners[0]


async def establish(
    transport: WSTransport,
    opening: Opening,
    uri: WebSocketURI,
    context: ssl.SSLContext | None,
    *,
    timeouts: Timeouts,
    socket_factory: SocketFactory | None,
    use_aiofastnet: bool | None,
    tuning: Tuning,
    kwargs: dict[str, Any],
) -> None:
    """Everything from DNS to the server's agreement. Whatever it raises, nothing is left behind."""
    loop = asyncio.get_running_loop()
    try:
        async with deadline(timeouts.open):
            await _connect(loop, transport, uri, context, socket_factory, use_aiofastnet, tuning, kwargs)
            async with deadline(timeouts.handshake):
                await opening.opened
    except asyncio.TimeoutError as exc:
        opening.abandon()
        if isinstance(exc.__context__, asyncio.CancelledError):
            rejected = opening.rejected()
            if rejected is not None:
                raise rejected from exc
            raise TimeoutError(f"{opening.phase} took too long") from exc
        raise
    except BaseException:
        opening.abandon()
        raise


def refuse_redirect(exc: InvalidStatus) -> None:
    """Redirects are not followed yet: say so, instead of calling the reply a rejection."""
    if exc.response.status_code in _REDIRECTS:
        location = exc.response.headers.get("Location")
        raise NotImplementedError(
            f"redirects are not followed yet: the server redirects to {location!r}"
        ) from exc


class Opening:
    """Sends the upgrade request on a new connection and judges the reply. WSTransport calls it until it is OPEN.

    `receiver`: called once the server has agreed; makes what the connection delivers to
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
        self.phase = "connecting"
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: WSTransport) -> None:
        self._transport = transport
        self.phase = "the WebSocket handshake"
        transport._read_at_most(min(_READ_WHILE_OPENING, self._tuning.max_read_size))
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
            self._transport._read_at_most(self._tuning.max_read_size)
            if self._handshake.compression is not None:
                self._transport._compress(self._handshake.compression)
            receiver = self._make_receiver(self._handshake.request, response)
        except BaseException as exc:
            self._failed(exc)
            if isinstance(exc, (KeyboardInterrupt, SystemExit)):
                raise
            return 0
        transport = self._transport
        # Who negotiates an extension by hand, in extra_headers, gets the bits that it may use.
        by_hand = self._handshake.extensions_header and self._handshake.compression is None
        rsv_allowed = 0x70 if by_hand else 0
        transport._open(receiver, self._handshake.request, response, self._handshake.subprotocol, rsv_allowed)
        self.opened.set_result(None)
        if self.logger.isEnabledFor(logging.INFO):
            beneath = transport.underlying_transport
            self.logger.info(
                "connected: %s -> %s, masks by %s",
                beneath.get_extra_info("sockname"),
                beneath.get_extra_info("peername"),
                mask_kernel,
            )
        ping = self._pinging
        if ping is not None and ping.interval is not None:
            transport._keep_alive(ping.interval, ping.timeout, ping.strategy)
        return len(self._handshake.trailing)

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

    def rejected(self) -> InvalidStatus | None:
        """The server has said no, but its explanation has not ended yet."""
        try:
            self._handshake.feed_eof()
        except InvalidStatus as rejected:
            return rejected
        except (InvalidHandshake, RuntimeError):  # too little of a reply; or the handshake is over
            return None

    def abandon(self) -> None:
        """ws_connect() raises: leave nothing behind."""
        if self.opened.done() and not self.opened.cancelled():
            self.opened.exception()  # retrieved, or asyncio complains
        self.opened.cancel()
        if self._transport is not None and not self._transport.is_disconnected:
            self._transport.abort()

    def _failed(self, exc: BaseException) -> None:
        assert self._transport is not None
        self.opened.set_exception(exc)
        self._transport.abort()


async def _connect(
    loop: asyncio.AbstractEventLoop,
    transport: WSTransport,
    uri: WebSocketURI,
    context: ssl.SSLContext | None,
    socket_factory: SocketFactory | None,
    use_aiofastnet: bool | None,
    tuning: Tuning,
    kwargs: dict[str, Any],
) -> None:
    """Connect TCP and TLS, and make `transport` the protocol of the connection."""
    target = {"host": uri.host, "port": uri.port, "sockopts": tuning.sockopts}
    target.update((name, kwargs.pop(name)) for name in addresses.ARGUMENTS if name in kwargs)
    sock = None if socket_factory is None else await addresses.from_factory(uri, socket_factory, tuning.sockopts)
    if sock is None:
        sock = await addresses.connect(**target)  # type: ignore[arg-type]
    try:
        fast = _can_use_aiofastnet(loop, sock, context, use_aiofastnet)
        if tuning.timestamps == "kernel" and not (fast and sock.family in addresses.FAMILIES):
            raise ValueError("timestamps='kernel' needs a TCP socket that wsfast itself reads")
        if fast and context is None:
            SocketTransport(of_transports(loop), sock, transport, tuning.timestamps == "kernel")
            return
        if context is not None:
            kwargs["server_hostname"] = server_name(kwargs.get("server_hostname") or uri.host)
        connect = (
            functools.partial(aiofastnet.create_connection, _quiet(loop)) if fast else loop.create_connection
        )
        try:
            await connect(lambda: transport, sock=sock, ssl=context, **kwargs)
        except ssl.SSLCertVerificationError as exc:
            put_in_python_s_words(exc, kwargs["server_hostname"])
            raise
    except BaseException as exc:
        sock.close()
        explained = None if context is None else _explained(exc)
        if explained is not None:
            raise explained from exc
        raise


class _LoopOfTLS(LoopProxy):
    """An event loop as aiofastnet's TLS gets it.

    aiofastnet 1.2 reports a connection that ends during the handshake to the loop, too, and the exception as a class,
    at which handlers stumble. Whoever connects is told anyway.

    When reading resumes, it waits for the socket, whatever it has read and not decrypted: a server that has no more to
    say would be waited for without end.
    """

    _reads = False

    def add_reader(self, fd: int, read: Callable[[], object]) -> None:
        self._loop.add_reader(fd, read)
        if self._reads:  # again
            self._loop.call_soon(read.__self__._retry_ssl_read)  # type: ignore[attr-defined]
        self._reads = True

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), type):
            self._loop.call_exception_handler(context)


def _quiet(loop: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
    return cast("asyncio.AbstractEventLoop", _LoopOfTLS(of_transports(loop)))


# What OpenSSL calls a first record that is none of TLS.
_NO_RECORD = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "UNKNOWN_PROTOCOL",
    "HTTP_REQUEST",
    "PACKET_LENGTH_TOO_LONG",
)


def _explained(exc: BaseException) -> ssl.SSLError | None:
    """What the TLS handshake ended with, in words, if that has none."""
    reason = getattr(exc, "reason", None)
    if isinstance(exc, ssl.SSLError) and reason in _NO_RECORD:
        return not_tls()
    if isinstance(exc, ssl.SSLError) and not str(exc):
        return type(exc)(ssl.SSL_ERROR_SSL, f"[SSL: {reason}]")
    if isinstance(exc, ConnectionResetError) and exc.errno is None:
        return ended_in_tls()
    return None


def not_tls() -> ssl.SSLError:
    """The server answered in something else than TLS."""
    return ssl.SSLError(ssl.SSL_ERROR_SSL, "the server does not speak TLS: is it a ws:// server?")


def ended_in_tls() -> ssl.SSLError:
    """The server closed the connection before TLS was agreed."""
    return ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "the server closed the connection during the TLS handshake")


def _can_use_aiofastnet(
    loop: asyncio.AbstractEventLoop, sock: socket.socket, context: ssl.SSLContext | None, wanted: bool | None
) -> bool:
    """False if the loop's own transports must do: they copy what they receive, and call no C.

    A loop without add_reader (asyncio's Proactor on Windows, say) cannot tell aiofastnet when a socket is readable. And
    aiofastnet 1.2 crashes the process when OpenSSL is to log its keys or to call back, and passes by the methods of a
    class that is derived from SSLContext.
    """
    if context is not None and not _is_plain(context):
        return False
    if wanted is not None:
        return wanted
    try:
        # Nobody reads it yet, so this only asks whether the loop knows how. What loops say of a number that is no
        # descriptor differs.
        loop.remove_reader(sock.fileno())
    except (NotImplementedError, AttributeError):
        return False
    return True


def _is_plain(context: ssl.SSLContext) -> bool:
    """Is it all in the SSL_CTX, and does that call no Python?"""
    calls = getattr(context, "_msg_callback", None)
    return type(context) is ssl.SSLContext and context.keylog_filename is None and calls is None


def _make_listener(
    factory: ListenerFactory, request: UpgradeRequest, response: UpgradeResponse
) -> WSListener:
    listener = factory(request, response) if _takes_two(factory) else factory()  # type: ignore[call-arg]
    if not isinstance(listener, WSListener):
        raise TypeError(f"ws_listener_factory must return a WSListener, not {type(listener).__name__}")
    return listener


def receiver_of(listener: WSListener, transport: WSTransport, compressed: bool) -> WSListener:
    """What to deliver to: the listener, or what makes messages for it."""
    by_class = type(listener).on_ws_message is not WSListener.on_ws_message
    if by_class or "on_ws_message" in getattr(listener, "__dict__", ()):
        return Messages(listener, transport)
    if compressed:
        raise TypeError(f"compression: {type(listener).__name__} does not override on_ws_message()")
    return listener


def _takes_two(factory: ListenerFactory) -> bool:
    """Does the factory take the request and the response? Decided by its signature, so that a TypeError that it raises
    is not mistaken for a wrong call."""
    if isinstance(factory, type) and factory.__init__ is WSListener.__init__:  # type: ignore[misc]
        return False
    try:
        inspect.signature(factory).bind(None, None)
    except (TypeError, ValueError):
        return False
    return True


def _logger(name: LoggerLike) -> Any:
    if name is None or isinstance(name, str):
        return logging.getLogger(f"wsfast.{name or 'client'}")
    check_logger("logger_name", name)
    return name
