"""The awaitable connection: websockets' asyncio client, name for name, on wsfast's engine.

The code that runs once per connection, or seldom, is here: connecting and reconnecting, fragmented messages, pings,
closing. The code that runs for every message is in _messaging.pyx (recv and send) and _inbox.pyx (received frames).
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
from wsfast._common.option_names import NOT_GIVEN, OF_ASYNCIO, OF_PICOWS, NotGiven, takes_options
from wsfast._common.options import (
    NO_LIMIT,
    Limits,
    Marks,
    Overflow,
    Pinging,
    Timeouts,
    check_callables,
    check_types,
)
from wsfast._common.upgrade import UpgradeRequest, UpgradeResponse
from wsfast._engine.transport import WSListener, WSTransport
from wsfast._engine.tuning import Tuning, tuning_of
from wsfast._opening.connector import Connecting, offered
from wsfast._opening.http.handshake import USER_AGENT
from wsfast._opening.net.addresses import ARGUMENTS as TCP_ARGUMENTS
from wsfast._opening.net.addresses import TLS_ARGUMENTS, check_arguments
from wsfast._opening.network_options import Network
from wsfast._opening.opening import Opening, establish
from wsfast._opening.reconnecting import Delays, LoggerLike, Verdict, backoff, process_exception
from wsfast._opening.route import Route, Routing
from wsfast._opening.uri import WebSocketURI
from wsfast.asyncio.connection import ClientConnection
from wsfast.deflate import PerMessageDeflate
from wsfast.tls import TLS, tls_argument

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from wsfast._opening.arguments import AwaitablesOptions, AwaitablesOthers

__all__ = ["ClientConnection", "backoff", "connect", "process_exception", "unix_connect"]

_TUNING = Tuning(write_policy="gather")


class connect(Connecting):  # noqa: N801  (websockets' name)
    """Connect to the WebSocket server at `uri`.

    ::

        async with connect(uri) as ws: ...       # closes the connection at the end
        ws = await connect(uri)                  # leaves that to you
        async for ws in connect(uri): ...        # connects again whenever the body ends or continues

    The parameters are those of websockets' ``connect``, with the same defaults, and a few more. Times are in seconds,
    sizes in bytes; None means no limit. picows' names of some of them are taken, too: see :doc:`migrating`.

    Where to, and how

    :param uri: ``ws://`` or ``wss://``; credentials in it are sent as Basic authentication
    :param ssl: for ``wss``: True, an ``ssl.SSLContext`` or a :class:`wsfast.TLS`; True is the default
    :param sock: a connected socket, or one to connect. It is the connection's, and is closed if connecting fails. It
        remains the caller's if an argument is refused before
    :param proxy: the URL of a proxy, ``http``, ``https``, ``socks4``, ``socks4a``, ``socks5`` or ``socks5h``; True uses
        the one that the environment or the system names, if they do, and None uses none
    :param proxy_ssl, proxy_server_hostname: as `ssl` and `server_hostname`, for an ``https`` proxy
    :param network: a :class:`wsfast.Network`: how names are looked up, and which credentials are sent
    :param kwargs: as for ``loop.create_connection``: `host` and `port` to connect there instead (`uri` still says what
        is sent as Host and by SNI), `local_addr`, `family`, `proto`, `flags`, `happy_eyeballs_delay`, `interleave`,
        `server_hostname`, `ssl_handshake_timeout`, `ssl_shutdown_timeout`; and the sizes of aiofastnet's buffers for
        TLS, `ssl_incoming_bio_size`, `ssl_outgoing_bio_size`

    The upgrade

    :param origin: the ``Origin`` header
    :param subprotocols: offered in order of preference
    :param additional_headers: a mapping or pairs, or a function or coroutine function that makes them for each
        attempt to connect
    :param user_agent_header: None sends none
    :param compression: ``"deflate"``, unless `extensions` does so, or a :class:`~wsfast.deflate.PerMessageDeflate`
        offers to compress messages; None does not
    :param extensions: offers of compression with other settings than the default ones: each a
        :class:`~wsfast.deflate.PerMessageDeflate` or :class:`~wsfast.deflate.ClientPerMessageDeflateFactory`

    Times

    :param open_timeout: for DNS, TCP, TLS and upgrade together
    :param close_timeout: from the start of closing until the connection is dropped whatever the server does
    :param ping_interval, ping_timeout: a ping is sent every `ping_interval`, and the connection is closed with code
        1011 if nothing at all is received within `ping_timeout` of it; None turns either off

    Sizes, and what happens beyond them

    :param max_size: of a received message, or a tuple: of a message and of a fragment; a larger one closes the
        connection with code 1009
    :param max_queue: how many received frames may wait for :meth:`ClientConnection.recv` before reading pauses, or a
        tuple: when it pauses and when it resumes (a quarter by default)
    :param write_limit: how many bytes may wait to be sent before :meth:`ClientConnection.send` waits, or a tuple: when
        it begins to wait and when it goes on
    :param overflow: what happens when more than `max_queue` messages wait: ``"pause"`` stops reading, so the server has
        to wait; ``"drop_oldest"`` and ``"drop_newest"`` drop and count messages; ``"conflate"`` keeps the newest of
        each key; ``"fail"`` ends the connection with :exc:`QueueOverflow`. See :doc:`howto/backpressure` and
        :attr:`ClientConnection.backlog`
    :param conflate_key: for ``"conflate"``: gets the payload of a message as bytes, and returns its key. A message with
        the key None is kept, and no message behind it passes it
    :param on_high_water: gets the connection when the queue has grown above `max_queue`, and again only after it has
        shrunk to its lower mark. The event loop calls it soon

    Connecting again

    :param process_exception: tells errors after which to reconnect from fatal ones
    :param reconnect_delays: makes the iterator of delays between attempts to reconnect. It begins anew after a
        connection that lived for 5 seconds, and is not asked then; ``Retry-After``, up to an hour, is the least delay.
        When it ends, so does the loop: by the error of the last attempt, if that failed.

    The rest

    :param tuning: a :class:`wsfast.Tuning`: options that affect latency
    :param logger: a logger, or the last part of the name ``wsfast.<logger>``; ``wsfast.client`` by default
    :param create_connection: a subclass of :class:`ClientConnection` to make

    :raises InvalidURI: `uri` is no WebSocket URI
    :raises InvalidHandshake: the server did not agree; :class:`InvalidStatus` has its reply
    :raises TimeoutError: `open_timeout` passed
    :raises OSError: DNS, TCP or TLS failed
    """

    @takes_options(
        "connect",
        {**OF_PICOWS, **OF_ASYNCIO},
        besides=(*TCP_ARGUMENTS, *TLS_ARGUMENTS, "all_errors", "_unix"),
        objects=(Tuning, Network),
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
        ssl: ssl_module.SSLContext | TLS | Literal[True] | NotGiven | None = NOT_GIVEN,
        sock: socket.socket | None = None,
        proxy_ssl: ssl_module.SSLContext | TLS | Literal[True] | NotGiven | None = NOT_GIVEN,
        proxy_server_hostname: str | None = None,
        overflow: Literal["pause", "drop_oldest", "drop_newest", "conflate", "fail"] = "pause",
        conflate_key: Callable[[bytes], Hashable] | None = None,
        on_high_water: Callable[[ClientConnection], object] | None = None,
        network: Network | None = None,
        tuning: Tuning | None = None,
        **kwargs: Unpack[AwaitablesOthers],
    ) -> None:
        super().__init__(
            uri,
            offered=offered(origin, subprotocols, compression, extensions),
            additional_headers=additional_headers,
            user_agent_header=user_agent_header,
            process_exception=process_exception,
            reconnect_delays=reconnect_delays,
            logger=logger,
            timeouts=Timeouts(open_timeout, close_timeout),
            pinging=Pinging(ping_interval, ping_timeout),
            limits=Limits(max_size, max_queue, write_limit),
            tuning=tuning_of(tuning, _TUNING),
        )
        self._target = _Target(self.ws_uri, ssl, sock, kwargs)
        self._routing = Routing(
            self.ws_uri,
            self._target.tls,
            proxy,
            proxy_tls=("proxy_ssl", proxy_ssl),
            proxy_server_hostname=proxy_server_hostname,
            network=network,
            bound=self._target.bound,
            **self._target.names,
        )
        self._overflow = Overflow(overflow, conflate_key, on_high_water, self._limits)
        check_callables(create_connection=create_connection)
        self._create_connection = create_connection or ClientConnection

    async def _connect(self) -> ClientConnection:
        connections: list[ClientConnection] = []
        settings: dict[str, Any] = {
            "limits": self._limits,
            "pinging": self._pinging,
            "close_timeout": self._timeouts.close,
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
    where: dict[str, Any] = {"_unix": path}
    return connect(uri, **where, **kwargs)


class _Target:
    """The keyword arguments of ``loop.create_connection``, checked."""

    def __init__(
        self, uri: WebSocketURI, ssl: Any, sock: socket.socket | None, kwargs: Mapping[str, Any]
    ) -> None:
        self.arguments = dict(kwargs)
        self.arguments.pop("all_errors", None)
        self._unix = "_unix" in self.arguments
        self._path = self.arguments.pop("_unix", None)
        self._sock = sock
        self._taken = False
        if uri.secure and ssl is None:
            raise ValueError("ssl=None is incompatible with a wss:// URI")
        self.tls = tls_argument("ssl", None if ssl is NOT_GIVEN else ssl, uri.secure)
        if self._unix and (self._path is None) == (sock is None):
            raise ValueError("path or sock must be given, and only one of them")
        for name in self.arguments:
            if name in TLS_ARGUMENTS and not uri.secure:
                raise ValueError(f"{name} is only meaningful with a wss:// URI")
        check_arguments(self.arguments)
        check_types(socket.socket, sock=sock)

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
            await asyncio.get_running_loop().sock_connect(sock, os.fspath(self._path))
        except BaseException:
            sock.close()
            raise
        return sock
