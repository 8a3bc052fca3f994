"""Transports for TCP and TLS: wsfast's own, aiofastnet's, or the event loop's."""

from __future__ import annotations

import asyncio
import functools
import inspect
import socket
import ssl
import sys
import weakref
from collections.abc import Callable, Mapping
from typing import Any, cast

from wsfast._engine.sockets.socket import SocketTransport
from wsfast._engine.sockets.tls_transport import TLSSession, TLSTransport
from wsfast._engine.transport import WSTransport
from wsfast._engine.tuning import Tuning
from wsfast._opening.net import addresses
from wsfast._opening.net.addresses import SocketFactory
from wsfast._opening.net.loop import LoopNet
from wsfast._opening.net.sockets import prepare
from wsfast._opening.net.uvloop_resets import LoopProxy, of_transports
from wsfast._opening.reaching import reach
from wsfast._opening.route import Route
from wsfast._opening.tls import rustls
from wsfast._opening.tls.handshake import ended_in_tls, not_tls, rustls_handshake
from wsfast.exceptions import InvalidProxy
from wsfast.tls import TLS, put_in_python_s_words, server_name


async def open_transport(
    loop: asyncio.AbstractEventLoop,
    transport: WSTransport,
    route: Route,
    socket_factory: SocketFactory | None,
    use_aiofastnet: bool | None,
    tuning: Tuning,
    kwargs: Mapping[str, Any],
) -> None:
    """Connect TCP and TLS, perhaps through a proxy, and make `transport` the protocol of the connection.

    :param kwargs: arguments about TCP and TLS; those that `route` knows better are ignored
    """
    context = route.context()
    tcp: dict[str, Any] = {"sockopts": tuning.socket_options}
    tls: dict[str, Any] = {}
    for name, value in kwargs.items():
        (tcp if name in addresses.ARGUMENTS else tls)[name] = value
    tcp.pop("host", None), tcp.pop("port", None)
    sock = None
    if socket_factory is not None:
        sock = await _socket_of_user(route, socket_factory, tuning)
    sock = await reach(LoopNet(loop), route, sock, tcp)
    if route.proxy is not None and route.proxy.secure:
        await _through_tls(loop, transport, route, sock, context, use_aiofastnet, tuning, tls)
        return
    try:
        fast = _can_use_aiofastnet(loop, sock, context, use_aiofastnet)
        if tuning.timestamps is not None:
            tuning.check_kernel_stamps(fast and context is None and sock.family in addresses.FAMILIES)
        if fast and context is None:
            SocketTransport(of_transports(loop), sock, transport, tuning.timestamps == "kernel")
            return
        if context is not None:
            tls["server_hostname"] = server_name(route.server_hostname)
            route.phase = ("the TLS handshake with", tls["server_hostname"], route.addresses)
        if route.uri.secure and _may_use_rustls(loop, sock, use_aiofastnet, route.tls()):
            config = rustls.config_for(_settings(route.tls()), tls["server_hostname"])
            if config is not None:
                await _by_rustls(loop, transport, config, sock, route.port, tls)
                return
        connect: Any = loop.create_connection
        if fast:
            import aiofastnet  # for a context of the user's only

            connect = functools.partial(aiofastnet.create_connection, _quiet(loop, transport))
        try:
            await connect(lambda: transport, sock=sock, ssl=context, **tls)
        except ssl.SSLCertVerificationError as exc:
            put_in_python_s_words(exc, tls["server_hostname"])
            raise
    except BaseException as exc:
        sock.close()
        explained = None if context is None else _explained(exc)
        if explained is not None:
            raise explained from exc
        raise


def _may_use_rustls(
    loop: asyncio.AbstractEventLoop,
    sock: socket.socket,
    use_aiofastnet: bool | None,
    *given: ssl.SSLContext | TLS | None,
) -> bool:
    """False with an SSLContext of the user's, and if the OpenSSL that verifies certificates cannot be found."""
    if any(isinstance(tls, ssl.SSLContext) for tls in given) or rustls.load_openssl() is not None:
        return False
    return _can_use_aiofastnet(loop, sock, None, use_aiofastnet)


def _settings(given: ssl.SSLContext | TLS | None) -> TLS:
    assert not isinstance(given, ssl.SSLContext)
    return given or TLS()


# Seconds, as asyncio's.
_SHUTDOWN_TIMEOUT = 30.0


async def _by_rustls(
    loop: asyncio.AbstractEventLoop,
    transport: WSTransport,
    config: Any,
    sock: socket.socket,
    port: int,
    tls: dict[str, Any],
) -> None:
    timeout = tls.get("ssl_handshake_timeout")
    session = await rustls_handshake(loop, sock, config, tls["server_hostname"], port, timeout)
    _start(loop, transport, sock, session, tls)


def _start(
    loop: asyncio.AbstractEventLoop,
    transport: WSTransport,
    sock: socket.socket,
    session: TLSSession,
    tls: dict[str, Any],
) -> None:
    shutdown = tls.get("ssl_shutdown_timeout")
    limit = _SHUTDOWN_TIMEOUT if shutdown is None else shutdown
    TLSTransport(of_transports(loop), sock, transport, False, session, limit)


async def _socket_of_user(route: Route, factory: SocketFactory, tuning: Tuning) -> socket.socket | None:
    """Call `socket_factory`. A socket to the server replaces a proxy that only the environment names."""
    route.phase = "socket_factory"
    where = route.uri if route.proxy is None or route.is_from_settings else route.proxy
    returned = factory(where)
    sock = await returned if inspect.isawaitable(returned) else returned
    if sock is None:
        return None
    if not isinstance(sock, socket.socket):
        raise TypeError(f"socket_factory must return a socket or None, not {type(sock).__name__}")
    if where is route.uri:
        route.proxy = None
    return prepare(sock, tuning.socket_options)


async def _through_tls(
    loop: asyncio.AbstractEventLoop,
    transport: WSTransport,
    route: Route,
    sock: socket.socket,
    context: ssl.SSLContext | None,
    use_aiofastnet: bool | None,
    tuning: Tuning,
    tls: dict[str, Any],
) -> None:
    """Have an https proxy connect to the server. Closes the socket, which leads to the proxy, if that fails."""
    from wsfast._opening.proxy import negotiation

    tunnel = route.tunnel
    assert tunnel is not None
    try:
        tuning.check_kernel_stamps(False)
        configs = _configs_of_rustls(loop, sock, route, use_aiofastnet)
        if configs is not None:
            await _through_rustls(loop, transport, route, sock, configs, tls)
            return
        outer = route.proxy_context()
        fast = all(_can_use_aiofastnet(loop, sock, each, use_aiofastnet) for each in (outer, context))
        if context is not None and not fast and sys.version_info < (3, 13):
            raise InvalidProxy(
                str(route.proxy),
                "wss:// through it needs Python 3.13, or aiofastnet, which cannot use an SSLContext that logs its"
                " keys or is of a derived class",
            )
        proxy_tls = {"ssl": outer, "server_hostname": server_name(route.proxy_server_hostname)}
        if context is not None:
            tls |= {"ssl": context, "server_hostname": server_name(route.server_hostname)}
    except BaseException:
        sock.close()
        raise
    create: Any = loop.create_connection
    start: Any = loop.start_tls
    if fast:
        import aiofastnet

        create = functools.partial(aiofastnet.create_connection, _quiet(loop, transport))
        start = functools.partial(aiofastnet.start_tls, _quiet(loop, transport))
    try:
        await negotiation.connect_tls(create, start, sock, tunnel, transport, proxy_tls, tls or None)
    except ssl.SSLCertVerificationError as exc:
        put_in_python_s_words(exc, tls["server_hostname"])
        raise


def _configs_of_rustls(
    loop: asyncio.AbstractEventLoop, sock: socket.socket, route: Route, use_aiofastnet: bool | None
) -> tuple[Any, Any] | None:
    """The settings of rustls for the proxy, and for a secure server. None if rustls does not encrypt both."""
    given = route.tls() if route.uri.secure else None
    if not _may_use_rustls(loop, sock, use_aiofastnet, route.proxy_tls, given):
        return None
    outer = rustls.config_for(_settings(route.proxy_tls), server_name(route.proxy_server_hostname))
    if not route.uri.secure:
        return outer and (outer, None)
    inner = rustls.config_for(_settings(given), server_name(route.server_hostname))
    return outer and inner and (outer, inner)


async def _through_rustls(
    loop: asyncio.AbstractEventLoop,
    transport: WSTransport,
    route: Route,
    sock: socket.socket,
    configs: tuple[Any, Any],
    tls: dict[str, Any],
) -> None:
    from wsfast._opening.proxy import negotiation

    outer, inner = configs
    timeout = tls.get("ssl_handshake_timeout")
    assert route.tunnel is not None and route.proxy is not None
    proxy = server_name(route.proxy_server_hostname)
    session = await negotiation.connect_rustls(loop, sock, outer, proxy, route.proxy.port, route.tunnel)
    if inner is not None:
        negotiation.check_nothing_follows(route.tunnel.trailing)
        name = server_name(route.server_hostname)
        route.phase = ("the TLS handshake with", name, ())
        session = await rustls_handshake(loop, sock, inner, name, route.port, timeout, session)
    _start(loop, transport, sock, session, tls)


class _LoopOfTLS(LoopProxy):
    """An event loop as aiofastnet's TLS gets it.

    aiofastnet 1.2 reports a connection that ends during the handshake to the loop's exception handler, too, and the
    exception as a class, which handlers do not expect. The caller of connect() gets the error anyway.

    When reading resumes, aiofastnet waits for the socket even if it has bytes that are not decrypted yet. If the server
    sends nothing more, that wait would never end.

    aiofastnet logs inside its callbacks, and a log handler may poll: the receiver is notified while they run.
    """

    _reads = False

    def __init__(self, loop: asyncio.AbstractEventLoop, receiver: WSTransport) -> None:
        super().__init__(loop)
        self._receiver = weakref.ref(receiver)  # it keeps aiofastnet's transport, which keeps this object

    def _notifying(self, callback: Callable[..., object]) -> Callable[..., object]:
        """Wrap `callback`, so that the receiver knows while it runs."""
        receiver = self._receiver()
        return callback if receiver is None else functools.partial(receiver._run_beneath, callback)

    def call_soon(self, callback: Callable[..., object], *args: Any, **kwargs: Any) -> asyncio.Handle:
        return self._loop.call_soon(self._notifying(callback), *args, **kwargs)

    def add_writer(self, fd: int, write: Callable[[], object]) -> None:
        self._loop.add_writer(fd, self._notifying(write))

    def add_reader(self, fd: int, read: Callable[[], object]) -> None:
        self._loop.add_reader(fd, self._notifying(read))
        if self._reads:  # again
            self.call_soon(read.__self__._retry_ssl_read)  # type: ignore[attr-defined]
        self._reads = True

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), type):
            self._loop.call_exception_handler(context)


def _quiet(loop: asyncio.AbstractEventLoop, receiver: WSTransport) -> asyncio.AbstractEventLoop:
    return cast("asyncio.AbstractEventLoop", _LoopOfTLS(of_transports(loop), receiver))


# OpenSSL's reasons for a first record that is not TLS.
_NO_RECORD = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "UNKNOWN_PROTOCOL",
    "HTTP_REQUEST",
    "PACKET_LENGTH_TOO_LONG",
)


def _explained(exc: BaseException) -> ssl.SSLError | None:
    """Return an error with a readable message for an error of the TLS handshake that has none."""
    reason = getattr(exc, "reason", None)
    if isinstance(exc, ssl.SSLError) and reason in _NO_RECORD:
        return not_tls()
    if isinstance(exc, ssl.SSLError) and not str(exc):
        return type(exc)(ssl.SSL_ERROR_SSL, f"[SSL: {reason}]")
    if isinstance(exc, ConnectionResetError) and exc.errno is None:
        return ended_in_tls()
    return None


def _can_use_aiofastnet(
    loop: asyncio.AbstractEventLoop,
    sock: socket.socket,
    context: ssl.SSLContext | None,
    use_aiofastnet: bool | None,
) -> bool:
    """False if a connection must use the loop's own transports, which copy the bytes they receive, and call no C.

    A loop without add_reader cannot notify aiofastnet when a socket is readable. And aiofastnet 1.2 crashes the process
    if OpenSSL logs its keys or calls back, and ignores methods overridden in subclasses of SSLContext.
    """
    if context is not None and not _is_plain(context):
        return False
    if use_aiofastnet is not None:
        return use_aiofastnet
    if type(loop) in _can_read:
        return True
    try:
        # The socket has no reader yet, so this only asks whether the loop knows how. It must be a real descriptor:
        # loops differ in their answers to other numbers.
        loop.remove_reader(sock.fileno())
    except (NotImplementedError, AttributeError):
        return False
    _can_read.add(type(loop))
    return True


# Classes of loops that have been asked, and know how to tell when a socket is readable.
_can_read: set[type] = set()


def _is_plain(context: ssl.SSLContext) -> bool:
    """True if all settings are in the SSL_CTX, and OpenSSL calls no Python."""
    calls = getattr(context, "_msg_callback", None)
    return type(context) is ssl.SSLContext and context.keylog_filename is None and calls is None
