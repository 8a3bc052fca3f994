"""The awaitable connection: websockets' asyncio client, name for name, on wsfast's engine.

What happens once per connection, or seldom, is here: connecting and reconnecting, fragmented messages, pings, closing.
What happens for every message is in _messaging.pyx (recv and send) and _inbox.pyx (what arrives).
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl as ssl_module
from collections.abc import AsyncIterator, Callable, Generator, Hashable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from wsfast._common.headers import AwaitedHeadersLike, PlainHeaders
from wsfast._common.option_names import NOT_GIVEN, NotGiven, keywords
from wsfast._common.options import NO_LIMIT, Limits, Marks, Overflow, check_types
from wsfast._common.upgrade import UpgradeRequest, UpgradeResponse
from wsfast._engine.transport import WSListener, WSTransport
from wsfast._engine.tuning import Histogram, SocketOption, Tuning
from wsfast._opening.addresses import ARGUMENTS as TCP_ARGUMENTS
from wsfast._opening.addresses import TLS_ARGUMENTS, check_arguments
from wsfast._opening.connector import Connecting
from wsfast._opening.handshake import USER_AGENT
from wsfast._opening.opening import Opening, establish
from wsfast._opening.reconnecting import Delays, LoggerLike, Verdict, backoff, process_exception
from wsfast._opening.route import Route
from wsfast._opening.uri import WebSocketURI
from wsfast.asyncio.connection import ClientConnection
from wsfast.deflate import PerMessageDeflate
from wsfast.tls import TLS, tls_argument

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from wsfast._opening.arguments import AwaitablesOptions, AwaitablesOthers
    from wsfast._opening.credentials import NetrcLike
    from wsfast._opening.resolver import AddressCache, Resolver

__all__ = ["ClientConnection", "backoff", "connect", "process_exception", "unix_connect"]


class connect(Connecting):  # noqa: N801  (websockets' name)
    """Connect to the WebSocket server at `uri`.

    ::

        async with connect(uri) as ws: ...       # closes the connection at the end
        ws = await connect(uri)                  # leaves that to you
        async for ws in connect(uri): ...        # connects again whenever the body ends or continues

    The parameters are those of websockets' ``connect``, with the same defaults, and a few more. Times are in seconds,
    sizes in bytes; None means no limit. For programs that come from picows or :func:`wsfast.ws_connect`, `ssl_context`,
    `max_frame_size`, `extra_headers` and `logger_name` are other names of `ssl`, `max_size`, `additional_headers` and
    `logger`. Both names at once raise TypeError.

    :param uri: ``ws://`` or ``wss://``; credentials in it are sent as Basic authentication
    :param origin: the ``Origin`` header
    :param extensions: offers of compression with other settings than the default ones: each a
        :class:`~wsfast.deflate.PerMessageDeflate` or :class:`~wsfast.deflate.ClientPerMessageDeflateFactory`
    :param subprotocols: offered in order of preference
    :param compression: ``"deflate"``, unless `extensions` does so, or a :class:`~wsfast.deflate.PerMessageDeflate`
        offers to compress messages; None does not
    :param additional_headers: a mapping or pairs, or a function or coroutine function that makes them for each
        attempt to connect
    :param user_agent_header: None sends none
    :param proxy: the URL of a proxy, ``http``, ``https``, ``socks4``, ``socks4a``, ``socks5`` or ``socks5h``; True uses
        the one that the environment or the system names, if they do, and None uses none
    :param process_exception: tells errors after which to reconnect from fatal ones
    :param open_timeout: for DNS, TCP, TLS and upgrade together
    :param ping_interval, ping_timeout: a ping is sent every `ping_interval`, and the connection is closed with code
        1011 if nothing at all is received within `ping_timeout` of it; None turns either off
    :param close_timeout: from the start of closing until the connection is dropped whatever the server does
    :param reconnect_delays: makes the iterator of delays between attempts to reconnect. It begins anew after a
        connection that lived for 5 seconds, and is not asked then; ``Retry-After``, up to an hour, is the least delay.
        When it ends, so does the loop: by the error of the last attempt, if that failed.
    :param max_size: of a received message, or a tuple: of a message and of a fragment; a larger one closes the
        connection with code 1009
    :param max_queue: how many received frames may wait for :meth:`ClientConnection.recv` before reading pauses, or a
        tuple: when it pauses and when it resumes (a quarter by default)
    :param overflow: what happens when more than `max_queue` messages wait: ``"pause"`` stops reading, so the server has
        to wait; ``"drop_oldest"`` and ``"drop_newest"`` drop and count messages; ``"conflate"`` keeps the newest of
        each key; ``"fail"`` ends the connection with :exc:`QueueOverflow`. See :doc:`howto/backpressure` and
        :attr:`ClientConnection.backlog`
    :param conflate_key: for ``"conflate"``: gets the payload of a message as bytes, and returns its key. A message with
        the key None is kept, and no message behind it passes it
    :param on_high_water: gets the connection when the queue has grown above `max_queue`, and again only after it has
        shrunk to its lower mark. The event loop calls it soon
    :param write_limit: how many bytes may wait to be sent before :meth:`ClientConnection.send` waits, or a tuple: when
        it begins to wait and when it goes on
    :param logger: a logger, or the last part of the name ``wsfast.<logger>``; ``wsfast.client`` by default
    :param create_connection: a subclass of :class:`ClientConnection` to make
    :param write_policy: ``"gather"`` sends the first message of an event loop iteration at once, and those that follow
        together when the iteration ends; ``"immediate"`` sends every message at once
    :param busy_poll: for how long the event loop does not sleep after something was sent or received, and the socket is
        read without waiting to be told; ``math.inf`` for ever, 0 not at all. See :doc:`latency` for what it costs.
    :param proxy_ssl, proxy_server_hostname: as `ssl` and `server_hostname`, for an ``https`` proxy
    :param proxy_headers: a mapping or pairs, added to the request to an ``http`` or ``https`` proxy
    :param resolver: a function or coroutine function that gets a name and a port, and returns IP addresses as str
    :param address_cache: a :class:`wsfast.AddressCache`, which knows the addresses of names while DNS is down
    :param netrc: a file with credentials, or True for ``$NETRC`` or ``~/.netrc``: those of the host of `uri` are sent
        as Basic authentication, unless `uri` or `additional_headers` have some
    :param timestamps: ``"user"`` keeps when each message was received, and how, as
        :attr:`ClientConnection.last_message`; ``"kernel"`` also when the kernel received its bytes, on plain TCP only
    :param max_read_size, quickack, so_busy_poll, sockopts, ping_histogram: as for :func:`wsfast.ws_connect`
    :param ssl: for ``wss``: True, an ``ssl.SSLContext`` or a :class:`wsfast.TLS`; True is the default
    :param sock: a connected socket, or one to connect. It is the connection's, and is closed if connecting fails. It
        remains the caller's if an argument is refused before
    :param host, port: connect there instead; `uri` still says what is sent as Host and by SNI
    :param local_addr: host and port of this end; `source_address` is another name of it
    :param family, proto, flags, happy_eyeballs_delay, interleave: as for ``loop.create_connection``
    :param server_hostname, ssl_handshake_timeout, ssl_shutdown_timeout: the same
    :param ssl_incoming_bio_size, ssl_outgoing_bio_size: bytes of aiofastnet's buffers for TLS
    :param all_errors: accepted for compatibility with websockets

    :raises InvalidURI: `uri` is no WebSocket URI
    :raises InvalidHandshake: the server did not agree; :class:`InvalidStatus` has its reply
    :raises TimeoutError: `open_timeout` passed
    :raises OSError: DNS, TCP or TLS failed
    """

    @keywords(
        {
            "ssl_context": "ssl",
            "proxy_ssl_context": "proxy_ssl",
            "max_frame_size": "max_size",
            "extra_headers": "additional_headers",
            "logger_name": "logger",
            "source_address": "local_addr",
        },
        passed_on=("ssl", "sock", *TCP_ARGUMENTS, *TLS_ARGUMENTS, "all_errors"),
    )
    def __init__(
        self,
        uri: str,
        *,
        origin: str | None = None,
        extensions: Sequence[PerMessageDeflate] | None = None,
        subprotocols: Sequence[str] | None = None,
        compression: str | PerMessageDeflate | None = "deflate",
        additional_headers: AwaitedHeadersLike | None = None,
        user_agent_header: str | None = USER_AGENT,
        proxy: str | bool | None = True,
        process_exception: Verdict = process_exception,
        open_timeout: float | None = 10,
        ping_interval: float | None = 20,
        ping_timeout: float | None = 20,
        close_timeout: float | None = 10,
        reconnect_delays: Delays = backoff,
        max_size: Marks = 2**20,
        max_queue: Marks = 16,
        write_limit: int | tuple[int, int | None] = 2**15,
        logger: LoggerLike | str | None = None,
        create_connection: Callable[..., ClientConnection] | None = None,
        write_policy: str = "gather",
        busy_poll: float = 0,
        proxy_ssl: ssl_module.SSLContext | TLS | Literal[True] | NotGiven | None = NOT_GIVEN,
        proxy_server_hostname: str | None = None,
        proxy_headers: PlainHeaders | None = None,
        resolver: Resolver | None = None,
        address_cache: AddressCache | None = None,
        netrc: NetrcLike = None,
        timestamps: str | None = None,
        max_read_size: int | None = None,
        quickack: bool = False,
        so_busy_poll: int = 0,
        sockopts: Sequence[SocketOption] = (),
        ping_histogram: Histogram | None = None,
        overflow: str = "pause",
        conflate_key: Callable[[bytes], Hashable] | None = None,
        on_high_water: Callable[[ClientConnection], object] | None = None,
        **kwargs: Unpack[AwaitablesOthers],
    ) -> None:
        super().__init__(
            uri,
            origin=origin,
            extensions=extensions,
            subprotocols=subprotocols,
            compression=compression,
            additional_headers=additional_headers,
            user_agent_header=user_agent_header,
            proxy=proxy,
            proxy_arguments={
                "proxy_ssl": proxy_ssl,
                "proxy_server_hostname": proxy_server_hostname,
                "proxy_headers": proxy_headers,
            },
            process_exception=process_exception,
            open_timeout=open_timeout,
            close_timeout=close_timeout,
            ping_interval=ping_interval,
            ping_timeout=ping_timeout,
            reconnect_delays=reconnect_delays,
            logger=logger,
            create_connection=create_connection,
            limits=Limits(max_size, max_queue, write_limit),
            tuning=Tuning(
                write_policy=write_policy,
                busy_poll=busy_poll,
                timestamps=timestamps,
                max_read_size=max_read_size,
                quickack=quickack,
                so_busy_poll=so_busy_poll,
                sockopts=sockopts,
                ping_histogram=ping_histogram,
            ),
        )
        self._tuning.check_kernel_stamps(not self.ws_uri.secure)
        self._target = _Target(self.ws_uri, kwargs)
        self._set_routing(
            self._target.tls,
            self._target.bound,
            resolver=resolver,
            address_cache=address_cache,
            netrc=netrc,
            **self._target.names,
        )
        self._overflow = Overflow(overflow, conflate_key, on_high_water, self._limits)
        self._create_connection = ClientConnection if create_connection is None else create_connection

    async def _connect(self) -> ClientConnection:
        connections: list[ClientConnection] = []
        settings: dict[str, Any] = {
            "ping_interval": self._pinging.interval,
            "ping_timeout": self._pinging.timeout,
            "close_timeout": self._timeouts.close,
            "max_queue": self._limits.queue,
            "write_limit": self._limits.write,
            "max_size": (self._limits.message, self._limits.fragment),
            "logger": self.logger,
        }
        if self._tuning.ping_histogram is not None:
            settings["ping_histogram"] = self._tuning.ping_histogram
        if self._overflow.policy != "pause" or self._overflow.on_high_water is not None:
            settings["overflow"] = self._overflow

        def make(route: Route, headers: PlainHeaders | None) -> tuple[WSTransport, Opening]:
            def receiver(request: UpgradeRequest, response: UpgradeResponse) -> WSListener:
                connections.append(self._create_connection(transport, **settings))
                return connections[0].listener

            opening = Opening(self._next_handshake(route, headers), receiver, self.logger, self._tuning)
            transport = WSTransport(
                asyncio.get_running_loop(),
                opening,
                logger=self.logger,
                secure=route.uri.secure,
                max_frame_size=NO_LIMIT,
                auto_pong=True,
                disconnect_on_exception=True,
                close_timeout=self._timeouts.close,
                tuning=self._tuning,
            )
            return transport, opening

        await establish(
            make,
            self._route(),
            self._additional_headers,
            timeouts=self._timeouts,
            socket_factory=self._target.socket_factory(),
            use_aiofastnet=None,
            tuning=self._tuning,
            kwargs=self._target.arguments,
        )
        return connections[0]

    # ... = await connect(...)

    def __await__(self) -> Generator[Any, None, ClientConnection]:
        return self._connect().__await__()

    if not TYPE_CHECKING:  # type checkers find these mistakes themselves

        def __getattr__(self, name):
            if name[:1] != "_" and getattr(ClientConnection, name, None) is not None:
                raise AttributeError(
                    f"connect() has no {name!r}, the connection has: write `ws = await connect(...)` or"
                    " `async with connect(...) as ws`",
                    name=name,
                    obj=self,
                )
            return super().__getattribute__(name)  # raises the error that led here

        def __enter__(self):
            raise TypeError("write `async with connect(...)`, or use wsfast.sync.client.connect for `with`")

        def __exit__(self, *exc_info):
            """Python looks for it before it enters."""

    # async with connect(...) as ...:

    async def __aenter__(self) -> ClientConnection:
        if "connection" in vars(self):
            raise RuntimeError("connect() isn't reentrant")
        self.connection = await self
        return await self.connection.__aenter__()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.connection.__aexit__(exc_type, exc_value, traceback)
        finally:
            del self.connection

    # async for ... in connect(...):

    _sleep = staticmethod(asyncio.sleep)

    async def __aiter__(self) -> AsyncIterator[ClientConnection]:
        attempts = self._attempts()
        while True:
            try:
                async with self as connection:
                    attempts.connected()
                    yield connection
            except Exception as exc:
                delay: float | None = attempts.failed(exc)
            else:
                delay = attempts.ended()
            if delay is None:
                return
            await self._sleep(delay)


def unix_connect(
    path: str | os.PathLike[str] | None = None,
    uri: str | None = None,
    **kwargs: Unpack[AwaitablesOptions],
) -> connect:
    """Connect to a WebSocket server that listens on a Unix socket; for the rest as :class:`connect`.

    :param path: of the socket
    :param uri: ``ws://localhost/``, or ``wss://localhost/`` if there is an `ssl` argument, by default
    """
    if uri is None:
        uri = "ws://localhost/" if kwargs.get("ssl") is None else "wss://localhost/"
    where: dict[str, Any] = {"unix": True, "path": path}
    return connect(uri, **where, **kwargs)


class _Target:
    """The keyword arguments of ``loop.create_connection``, checked."""

    def __init__(self, uri: WebSocketURI, kwargs: Mapping[str, Any]) -> None:
        self.arguments = dict(kwargs)
        self.arguments.pop("all_errors", None)
        self._unix = self.arguments.pop("unix", False)
        self._path = self.arguments.pop("path", None) if self._unix else None
        self._sock: socket.socket | None = self.arguments.pop("sock", None)
        self._taken = False
        if uri.secure and self.arguments.get("ssl", True) is None:
            raise ValueError("ssl=None is incompatible with a wss:// URI")
        self.tls = tls_argument("ssl", self.arguments.pop("ssl", None), uri.secure)
        if self._unix and (self._path is None) == (self._sock is None):
            raise ValueError("path or sock must be given, and only one of them")
        for name in self.arguments:
            if name not in TCP_ARGUMENTS + TLS_ARGUMENTS:
                raise TypeError(f"connect() got an unexpected keyword argument {name!r}")
            if name in TLS_ARGUMENTS and not uri.secure:
                raise ValueError(f"{name} is only meaningful with a wss:// URI")
        check_arguments(self.arguments)
        check_types(socket.socket, sock=self._sock)

    @property
    def bound(self) -> str:
        """The argument that names one connection or one place, or ""."""
        return "sock" if self._sock is not None else "path" if self._unix else ""

    @property
    def names(self) -> dict[str, Any]:
        """The names that replace those of the URI."""
        return {name: self.arguments.get(name) for name in ("host", "port", "server_hostname")}

    def socket_factory(self) -> Callable[[WebSocketURI], Any] | None:
        if self._sock is not None:
            return self._take_sock
        return self._unix_socket if self._unix else None

    def _take_sock(self, uri: WebSocketURI) -> socket.socket | None:
        """A socket serves one connection.

        :raises ValueError: it was used before, or is closed
        """
        if self._taken or self._sock is None or self._sock.fileno() < 0:
            raise ValueError("sock is closed, or was used for another connection")
        self._taken = True
        return self._sock

    async def _unix_socket(self, uri: WebSocketURI) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, os.fspath(self._path))  # type: ignore[arg-type]
        except BaseException:
            sock.close()
            raise
        return sock
