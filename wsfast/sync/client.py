"""Blocking connections: websockets' sync client, name for name.

The cold path is the same Python as that of the other faces: URIs, the upgrade request and the judgement of its reply.
The crate gets the connected socket, does TLS, and carries the bytes of the upgrade; so an option, a check or an
exception of the opening is the same everywhere.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import socket
import ssl as ssl_module
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

from wsfast._common.headers import HeadersLike, PlainHeaders, resolve_headers
from wsfast._common.option_names import NOT_GIVEN, OF_ASYNCIO, OF_PICOWS, NotGiven, takes_options
from wsfast._common.options import (
    Limits,
    Marks,
    Pinging,
    Timeouts,
    check_address,
    check_callables,
    check_types,
)
from wsfast._common.upgrade import UpgradeResponse
from wsfast._engine.sockets.socket import stamp_receipts
from wsfast._engine.tuning import SocketOption, Tuning, tuning_of
from wsfast._opening.connector import Connecting, offered
from wsfast._opening.http.handshake import USER_AGENT, ClientHandshake
from wsfast._opening.net.addresses import FAMILIES, check_arguments
from wsfast._opening.net.blocking import Deadline
from wsfast._opening.network_options import Network
from wsfast._opening.reaching import reach_blocking
from wsfast._opening.reconnecting import Delays, LoggerLike, Verdict, backoff, process_exception
from wsfast._opening.route import Route, Routing
from wsfast._opening.uri import WebSocketURI
from wsfast._rust._native import ffi, lib
from wsfast.deflate import PerMessageDeflate
from wsfast.exceptions import InvalidMessage, InvalidProxyMessage, InvalidStatus, ProxyError
from wsfast.sync import ending, openssl
from wsfast.sync.connection import ClientConnection
from wsfast.sync.environment import refuse_gevent
from wsfast.sync.layers import Raw, for_crate, layers
from wsfast.sync.logged import logged
from wsfast.tls import TLS, ClientCert, tls_argument

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from wsfast._opening.arguments import BlockingOptions, BlockingOthers
    from wsfast._opening.proxy.tunnel import TunnelHandshake

__all__ = [
    "ClientConnection",
    "backoff",
    "connect",
    "process_exception",
    "reconnect",
    "unix_connect",
    "unix_reconnect",
]

refuse_gevent()

# The times of reads that the crate notes.
_STAMPS = {None: 0, "user": lib.WST_STAMPS_USER, "kernel": lib.WST_STAMPS_KERNEL}

_TUNING = Tuning(write_policy="immediate")

# The options about finding and reaching an address of the server.
_WHERE = ("host", "port", "family", "local_addr", "happy_eyeballs_delay")

# Bytes of one read of the opening; a reply has some 200.
_READ = 16 * 1024


class reconnect(Connecting):  # noqa: N801  (websockets' name)
    """As :func:`connect`, and connects again whenever the body of the loop ends or continues.

    ::

        for ws in reconnect(uri):
            try:
                ...
            except ConnectionClosed:
                continue

    After an error that may pass it tries again; after others it raises them. It is a context manager, too.

    :param process_exception: tells errors after which to reconnect from fatal ones
    :param reconnect_delays: makes the iterator of delays between attempts to reconnect. It begins anew after a
        connection that lived for 5 seconds, and is not asked then; ``Retry-After``, up to an hour, is the least delay.
        When it ends, so does the loop: by the error of the last attempt, if that failed.
    """

    @takes_options(
        "connect",
        {**OF_PICOWS, **OF_ASYNCIO},
        besides=(*_WHERE, "address", "all_errors", "_unix"),
        objects=(Tuning, Network),
    )
    def __init__(
        self,
        uri: str,
        *,
        sock: socket.socket | None = None,
        ssl: ssl_module.SSLContext | TLS | Literal[True] | None = None,
        server_hostname: str | None = None,
        client_cert: ClientCert | None = None,
        origin: str | None = None,
        extensions: Sequence[PerMessageDeflate] | None = None,
        subprotocols: Sequence[str] | None = None,
        compression: str | PerMessageDeflate | None = "deflate",
        additional_headers: HeadersLike | None = None,
        user_agent_header: str | None = USER_AGENT,
        proxy: str | bool | None = True,
        proxy_ssl: ssl_module.SSLContext | TLS | Literal[True] | NotGiven | None = NOT_GIVEN,
        proxy_server_hostname: str | None = None,
        process_exception: Verdict = process_exception,
        open_timeout: float | None = 10,
        ping_interval: float | None = 20,
        ping_timeout: float | None = 20,
        close_timeout: float | None = 10,
        reconnect_delays: Delays = backoff,
        max_size: Marks = 2**20,
        max_queue: Marks = 16,
        logger: LoggerLike | str | None = None,
        create_connection: Callable[..., ClientConnection] | None = None,
        network: Network | None = None,
        tuning: Tuning | None = None,
        **kwargs: Unpack[BlockingOthers],
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
            limits=Limits(max_size, max_queue),
            tuning=tuning_of(tuning, _TUNING),
        )
        if self._tuning.write_policy == "gather":
            raise ValueError("write_policy='gather': the blocking client has cork() and send_many() instead")
        self._target = _Target(sock, kwargs)
        self._routing = Routing(
            self.ws_uri,
            _tls(self.ws_uri, ssl, server_hostname, client_cert),
            proxy,
            proxy_tls=("proxy_ssl", proxy_ssl),
            proxy_server_hostname=proxy_server_hostname,
            server_hostname=server_hostname,
            network=network,
            bound=self._target.bound,
            **self._target.names,
        )
        check_callables(create_connection=create_connection)
        self._create_connection = create_connection or ClientConnection

    def connect(self) -> ClientConnection:
        """Connect once."""
        refuse_gevent()  # it may have patched since the import
        route = self._route()
        deadline = Deadline(self._timeouts.open)
        while True:
            try:
                return self._connect(route, deadline)
            except InvalidStatus as exc:
                if deadline.is_over:  # amid the body of a redirect
                    raise
                route.follow(exc)
                self.logger.info("redirected to %s://%s", route.uri.scheme, route.uri.netloc)

    def _connect(self, route: Route, deadline: Deadline) -> ClientConnection:
        """Connect to one server, unless it redirects to another one."""
        handshake = self._next_handshake(route, self._made_headers())
        options = _options(self._limits, self._pinging, self._timeouts, self._tuning)
        tls_layers = layers(route)
        route.log(self.logger)
        sock = self._target.connect(route, deadline, self._tuning.socket_options)
        try:
            self._tuning.check_kernel_stamps(not tls_layers and sock.family in FAMILIES)
            ends = sock.getsockname(), sock.getpeername()
            if self._tuning.timestamps == "kernel":
                stamp_receipts(sock)
            sessions = [layer.prepare(sock, deadline) for layer in tls_layers[:1]]
        except BaseException:
            sock.close()
            raise
        # From here on the descriptor is the crate's, and so are the sessions, which must outlive the handle.
        handle = ffi.gc(lib.wst_new(sock.detach(), options), functools.partial(_free, sessions))
        try:
            for layer in tls_layers[:1]:
                layer.begin(handle, sessions[0], deadline)
            early = b""
            if route.proxy is not None and route.proxy.secure:
                early = _tunnel(handle, route, deadline, route.uri.secure)
            for layer in tls_layers[1:]:
                sessions.append(layer.prepare(Raw(handle), deadline))
                layer.begin(handle, sessions[1], deadline, nested=True)
            if self.logger.isEnabledFor(logging.DEBUG):
                from wsfast._opening.http.exchange_log import log_exchange

                log_exchange(handshake, self.logger)
            step = f"the WebSocket handshake with {route.uri.netloc}"
            response = _upgrade(handle, handshake, step, deadline, early)
            kind = self._create_connection
            if self.logger.isEnabledFor(logging.DEBUG) and isinstance(kind, type):
                kind = logged(kind)
            connection: ClientConnection = kind(
                handle,
                request=handshake.request,
                response=response,
                subprotocol=handshake.subprotocol,
                compression=handshake.compression,
                limits=self._limits,
                addresses=ends,
                logger=self.logger,
                pinging=self._pinging,
                close_timeout=self._timeouts.close,
                ping_histogram=self._tuning.ping_histogram,
            )
            connection.tls = tls_layers[-1].info if tls_layers else None
            deflate = handshake.compression is not None
            if (
                lib.wst_open(handle, handshake.trailing, len(handshake.trailing), deflate)
                == lib.WST_NO_MEMORY
            ):
                raise MemoryError
        except BaseException:
            lib.wst_abort(handle)
            raise
        route.connected(ends[1])
        return connection

    def _made_headers(self) -> PlainHeaders | None:
        headers = resolve_headers(self._additional_headers)
        if inspect.isawaitable(headers):
            if inspect.iscoroutine(headers):
                headers.close()  # it was never awaited, on purpose
            raise TypeError(
                "additional_headers: the function must return the headers: there is no event loop to await them in"
            )
        return headers  # type: ignore[no-any-return]

    # with reconnect(...) as ...:

    def __enter__(self) -> ClientConnection:
        if hasattr(self, "connection"):
            raise RuntimeError("connect() isn't reentrant")
        self.connection = self.connect()
        return self.connection.__enter__()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.connection.__exit__(exc_type, exc_value, traceback)
        finally:
            del self.connection

    # for ... in reconnect(...):

    _sleep = staticmethod(time.sleep)

    def __iter__(self) -> Iterator[ClientConnection]:
        attempts = self._attempts()
        while True:
            try:
                with self as connection:
                    attempts.connected()
                    yield connection
            except Exception as exc:
                delay: float | None = attempts.failed(exc)
            else:
                delay = attempts.ended()
            if delay is None:
                return
            self._sleep(delay)


@overload
def connect(
    uri: str, *, legacy: Literal[True] | None = None, **kwargs: Unpack[BlockingOptions]
) -> ClientConnection: ...
@overload
def connect(uri: str, *, legacy: Literal[False], **kwargs: Unpack[BlockingOptions]) -> reconnect: ...
def connect(
    uri: str, *, legacy: bool | None = None, **kwargs: Unpack[BlockingOptions]
) -> ClientConnection | reconnect:
    """Connect to the WebSocket server at `uri`.

    ::

        with connect(uri) as ws: ...     # closes the connection at the end
        ws = connect(uri)                # leaves that to you

    The parameters are those of websockets' sync ``connect``, with the same defaults, and a few more. Times are in
    seconds, sizes in bytes; None means no limit. picows' names of some of them are taken, too: see :doc:`migrating`.

    Where to, and how

    :param uri: ``ws://`` or ``wss://``; credentials in it are sent as Basic authentication
    :param ssl: how to speak TLS: a :class:`wsfast.TLS`, by default one that trusts the system's authorities, or an
        ``ssl.SSLContext``, with which OpenSSL itself speaks, slower
    :param server_hostname: overrides the host of `uri` in the certificate and in SNI
    :param client_cert: as in :class:`wsfast.TLS`, if there is no `ssl`
    :param sock: a connected socket, or one to connect; it is taken over: the object is detached, or closed if
        connecting fails. It remains the caller's if an argument is refused before
    :param proxy: the URL of a proxy, ``http``, ``https``, ``socks4``, ``socks4a``, ``socks5`` or ``socks5h``; True uses
        the one that the environment or the system names, if they do, and None uses none
    :param proxy_ssl, proxy_server_hostname: as `ssl` and `server_hostname`, for an ``https`` proxy
    :param network: a :class:`wsfast.Network`: how names are looked up, and which credentials are sent
    :param kwargs: `host` and `port`, or `address`, a tuple of both, to connect there instead (`uri` still says what is
        sent as Host and by SNI); `local_addr`, host and port of this end; `family`, ``socket.AF_INET`` or ``AF_INET6``
        to use no others; `happy_eyeballs_delay`: after so many seconds the next address of the host is tried beside
        the last one (RFC 8305), None tries one after the other

    The upgrade

    :param origin: the ``Origin`` header
    :param subprotocols: offered in order of preference
    :param additional_headers: a mapping or pairs, or a function that returns them for each attempt to connect
    :param user_agent_header: None sends none
    :param compression: ``"deflate"``, unless `extensions` does so, or a :class:`~wsfast.deflate.PerMessageDeflate`
        offers to compress messages; None does not
    :param extensions: offers of compression with other settings than the default ones: each a
        :class:`~wsfast.deflate.PerMessageDeflate` or :class:`~wsfast.deflate.ClientPerMessageDeflateFactory`

    Times

    :param open_timeout: for DNS, TCP, TLS and upgrade together
    :param close_timeout: from the start of closing until the connection is dropped whatever the server does
    :param ping_interval, ping_timeout: a ping is sent every `ping_interval` while a thread waits in a method, and the
        connection is closed with code 1011 if nothing at all is received within `ping_timeout` of it

    Sizes

    :param max_size: of a received message, or a tuple: of a message and of a fragment; a larger one closes the
        connection with code 1009
    :param max_queue: how many received frames are kept for :meth:`ClientConnection.recv` while a thread waits for
        something else; of a tuple, the first counts

    The rest

    :param tuning: a :class:`wsfast.Tuning`: options that affect latency
    :param logger: a logger, or the last part of the name ``wsfast.<logger>``; ``wsfast.client`` by default
    :param create_connection: a subclass of :class:`ClientConnection` to make
    :param legacy: False returns a :class:`reconnect`
    :param process_exception, reconnect_delays: of the loop over a :class:`reconnect`, as in the awaitable client

    :raises InvalidURI: `uri` is no WebSocket URI
    :raises InvalidHandshake: the server did not agree; :class:`InvalidStatus` has its reply
    :raises TimeoutError: `open_timeout` passed
    :raises OSError: DNS, TCP or TLS failed
    :raises TLSUnavailable: TLS is not possible with this Python; nothing was connected
    """
    connecter = reconnect(uri, **kwargs)
    return connecter if legacy is False else connecter.connect()


def _signature_of_connect() -> inspect.Signature:
    """The signature of `reconnect`, for help() and editors."""
    uri, *options = inspect.signature(reconnect).parameters.values()
    legacy = inspect.signature(connect).parameters["legacy"]
    return inspect.Signature([uri, legacy, *options], return_annotation="ClientConnection")


connect.__signature__ = _signature_of_connect()  # type: ignore[attr-defined]


def unix_reconnect(
    path: str | os.PathLike[str] | None = None, uri: str | None = None, **kwargs: Unpack[BlockingOptions]
) -> reconnect:
    """As :class:`reconnect`, for a server that listens on a Unix socket."""
    if (path is None) == (kwargs.get("sock") is None):
        raise ValueError("path or sock must be given, and only one of them")
    if uri is None:
        uri = "ws://localhost/" if kwargs.get("ssl") is None else "wss://localhost/"
    where: dict[str, Any] = {"_unix": path}
    return reconnect(uri, **where, **kwargs)


@overload
def unix_connect(
    path: str | os.PathLike[str] | None = None,
    uri: str | None = None,
    *,
    legacy: Literal[True] | None = None,
    **kwargs: Unpack[BlockingOptions],
) -> ClientConnection: ...
@overload
def unix_connect(
    path: str | os.PathLike[str] | None = None,
    uri: str | None = None,
    *,
    legacy: Literal[False],
    **kwargs: Unpack[BlockingOptions],
) -> reconnect: ...
def unix_connect(
    path: str | os.PathLike[str] | None = None,
    uri: str | None = None,
    *,
    legacy: bool | None = None,
    **kwargs: Unpack[BlockingOptions],
) -> ClientConnection | reconnect:
    """Connect to a WebSocket server that listens on a Unix socket; for the rest as :func:`connect`.

    :param path: of the socket
    :param uri: ``ws://localhost/``, or ``wss://localhost/`` if there is an `ssl` argument, by default
    """
    connecter = unix_reconnect(path, uri, **kwargs)
    return connecter if legacy is False else connecter.connect()


def _options(limits: Limits, pinging: Pinging, timeouts: Timeouts, tuning: Tuning) -> Any:
    options = ffi.new("wst_options *")
    options.max_message, options.max_fragment = limits.message, limits.fragment
    options.max_queue = -1 if limits.queue[0] is None else limits.queue[0]
    times = (
        ("ping_interval", pinging.interval),
        ("ping_timeout", pinging.timeout),
        ("close_timeout", timeouts.close),
    )
    for name, seconds in times:
        setattr(options, name, -1.0 if seconds is None else seconds)
    options.busy_poll = tuning.busy_poll
    options.max_read = tuning.read_limit
    options.quickack = tuning.quickack
    options.report_pings = tuning.ping_histogram is not None
    options.stamps = _STAMPS[tuning.timestamps]
    return options


def _tls(
    uri: WebSocketURI, ssl: Any, server_hostname: str | None, client_cert: ClientCert | None
) -> ssl_module.SSLContext | TLS | None:
    """The checked TLS settings for the server; None for ws://."""
    ssl = tls_argument("ssl", ssl, uri.secure)
    check_types(str, server_hostname=server_hostname)
    if uri.secure:
        return openssl.settings(ssl, client_cert)
    for name, value in ("server_hostname", server_hostname), ("client_cert", client_cert):
        if value is not None:
            raise ValueError(f"{name} argument is incompatible with a ws:// URI")
    return None


class _Target:
    """The address to connect to, and the options of the sockets, checked."""

    def __init__(self, sock: socket.socket | None, kwargs: Mapping[str, Any]) -> None:
        check_types(socket.socket, sock=sock)
        self._sock = sock
        arguments = dict(kwargs)
        self._unix = "_unix" in arguments
        self._path: Any = arguments.pop("_unix", None)
        address = arguments.pop("address", None)
        check_address("address", address)
        if address is not None:
            for name in ("host", "port"):
                if arguments.get(name) is not None:
                    raise TypeError(f"address and {name} cannot be combined: give one of them")
            arguments["host"], arguments["port"] = address[:2]
        arguments.pop("all_errors", None)  # an error names the last address that failed
        check_arguments(arguments)
        self._arguments = arguments

    @property
    def bound(self) -> str:
        """The argument that names one connection or one place, or ""."""
        return "sock" if self._sock is not None else "path" if self._unix else ""

    @property
    def names(self) -> dict[str, Any]:
        """The names that replace those of the URI."""
        return {name: self._arguments.get(name) for name in ("host", "port")}

    def connect(self, route: Route, deadline: Deadline, sockopts: Sequence[SocketOption]) -> socket.socket:
        """A connected socket."""
        sock, self._sock = self._sock, None
        if sock is not None and sock.fileno() < 0:
            raise ValueError("sock is closed, or was used for another connection")
        path = None if self._path is None else os.fspath(self._path)
        arguments = {name: self._arguments[name] for name in _WHERE[2:] if name in self._arguments}
        return reach_blocking(route, deadline, sock, path, sockopts, **arguments)


def _free(sessions: list[Any], handle: Any) -> None:
    """Free the handle. `sessions`: kept until then."""
    lib.wst_free(handle)


def _tunnel(handle: Any, route: Route, deadline: Deadline, secure: bool) -> bytes:
    """CONNECT, within the TLS of an https proxy. Returns what followed the reply.

    :param secure: TLS with the server is next
    """
    from wsfast._opening.proxy.negotiation import check_nothing_follows

    tunnel = route.tunnel
    assert tunnel is not None
    try:
        _upgrade(handle, tunnel, f"the negotiation with the proxy {route.proxy}", deadline)
    except TimeoutError:
        raise
    except (OSError, InvalidMessage) as exc:
        raise ProxyError(f"the connection to the proxy was lost: {exc}") from exc
    if secure:
        check_nothing_follows(tunnel.trailing)
    return tunnel.trailing


def _upgrade(
    handle: Any,
    handshake: ClientHandshake | TunnelHandshake,
    step: str,
    deadline: Deadline,
    early: bytes = b"",
) -> UpgradeResponse:
    """Send a request, and judge the reply, of which `early` came before."""
    request = handshake.request_bytes
    received: int = lib.WST_INTERRUPTED
    while received == lib.WST_INTERRUPTED:  # and let the handlers of signals run
        received = lib.wst_send_raw(handle, request, len(request), for_crate(deadline, step))
        request = b""
    response = handshake.feed(early)
    buffer = ffi.new("char[]", _READ)
    while response is None and (received >= 0 or received == lib.WST_INTERRUPTED):
        try:
            left = for_crate(deadline, step)
        except TimeoutError:
            received = lib.WST_TIMEOUT
            break
        received = lib.wst_recv_raw(handle, buffer, _READ, left)
        if received > 0:
            response = handshake.feed(ffi.unpack(buffer, received))
    if response is not None:
        return response
    if received == lib.WST_EOF:
        handshake.feed_eof()
    if received == lib.WST_TIMEOUT:
        try:
            handshake.feed_eof()
        except (InvalidMessage, InvalidProxyMessage):
            # Nothing, or not enough of a reply to call it a rejection.
            raise deadline.passed(step) from None
    cause = ending.describe(handle).cause
    if isinstance(cause, OSError):
        raise cause
    raise InvalidMessage("the connection was lost during the opening handshake") from cause
