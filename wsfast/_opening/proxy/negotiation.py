"""Asks a proxy to connect to the server.

With a proxy that has no TLS the result is the same socket. The server's first bytes are not read from it: they stay in
the kernel. With an https proxy the result is TLS, in which TLS to the server is another layer; bytes that arrive early
are kept for the receiver.

On failure neither socket nor transport is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from wsfast._engine.sockets.tls_transport import TLSSession
from wsfast._opening.net.interface import Net
from wsfast._opening.net.resolver import resolve
from wsfast._opening.net.sockets import connect_socket, is_connected
from wsfast._opening.proxy.settings import Proxy
from wsfast._opening.proxy.tunnel import TunnelHandshake
from wsfast._opening.route import Route
from wsfast._opening.tls import handshake as tls_handshake
from wsfast.exceptions import InvalidProxyMessage, ProxyError
from wsfast.tls import put_in_python_s_words

__all__ = ["check_nothing_follows", "connect_rustls", "connect_through", "connect_tls", "negotiate", "no_tls"]

# Bytes per read: a reply's header is far smaller, a refusal's body seldom larger.
_READ = 16 * 1024

_LOST = "the connection to the proxy was lost"


async def connect_through(
    net: Net, route: Route, sock: socket.socket | None, options: dict[str, Any]
) -> socket.socket:
    """Connect to the proxy; if that is no https proxy, have it connect to the server.

    :param sock: the user's, connected to the proxy or to be
    :param options: for `sockets.connect_socket`
    :raises ProxyError: the proxy was not reached, refused, sent an invalid reply, or hung up
    """
    proxy, host = route.proxy, route.host
    assert proxy is not None
    if not proxy.resolves:
        route.phase = ("the look-up of", host, ())
        family = socket.AF_INET if proxy.scheme == "socks4" else 0
        infos = await resolve(net, host, route.port, family, look_up=route.look_up)
        route.resolved(host, infos)
        host = infos[0][4][0]
    tunnel = route.new_tunnel(host)
    route.phase = ("the connection to the proxy", str(proxy), ())
    if sock is None or not is_connected(sock):
        try:
            sock = await connect_socket(
                net, proxy.host, proxy.port, sock=sock, look_up=route.look_up, **options
            )
        except OSError as exc:
            raise ProxyError(f"cannot connect to the proxy {proxy}: {exc}") from exc
    route.phase = ("the negotiation with the proxy", str(proxy), ())
    if not proxy.secure:
        await negotiate(net, sock, proxy, host, route.port, tunnel)
    return sock


async def negotiate(
    net: Net,
    sock: socket.socket,
    proxy: Proxy,
    host: str,
    port: int,
    handshake: TunnelHandshake | None,
) -> None:
    """Have an http or SOCKS proxy connect to the server.

    :param sock: connected to the proxy, non-blocking; closed if this fails
    :param host: of the server; an address if the proxy does not look up names (`Proxy.resolves`)
    :param handshake: for an http proxy; None for SOCKS
    :raises ProxyError: the proxy refused (InvalidProxyStatus has its reply), sent an invalid reply, or hung up
    """
    try:
        if handshake is not None:
            await _ask(_PeekedSocket(net, sock), handshake)
            return
        from wsfast._opening.proxy import socks

        if not proxy.resolves:
            # A ValueError here is the caller's mistake.
            version = ipaddress.ip_address(host.partition("%")[0]).version
            if proxy.scheme == "socks4" and version != 4:
                raise ProxyError("SOCKS4 knows no IPv6 addresses")
        await socks.negotiate(net, sock, proxy, host, port)
    except OSError as exc:
        sock.close()
        raise ProxyError(f"{_LOST}: {exc}") from exc
    except BaseException:
        sock.close()
        raise


# ---- CONNECT


class _Stream(Protocol):
    """Bytes from and to the proxy."""

    async def send(self, data: bytes) -> None:
        """Send all of `data`."""

    async def receive(self) -> bytes:
        """Return the bytes that have arrived; ``b""`` at the end."""

    def put_back(self, data: bytes) -> None:
        """Leave the last bytes received to the next reader."""


async def _ask(stream: _Stream, handshake: TunnelHandshake) -> None:
    """Send CONNECT, and judge the reply."""
    try:
        await stream.send(handshake.request_bytes)
        response = None
        while response is None:
            data = await stream.receive()
            if not data:
                handshake.feed_eof()
            response = handshake.feed(data)
    except OSError as exc:
        raise handshake.rejection or ProxyError(f"{_LOST}: {exc}") from exc
    stream.put_back(handshake.trailing)


def check_nothing_follows(early: bytes | bytearray) -> None:
    """Refuse bytes of a server with TLS before it was asked: in its handshake the client speaks first.

    :raises InvalidProxyMessage: there are some
    """
    if early:
        raise InvalidProxyMessage(f"{len(early)} bytes follow the proxy's reply, where TLS begins")


class _PeekedSocket:
    """A socket, from which only the bytes of the reply are taken: those of the server stay in the kernel."""

    def __init__(self, net: Net, sock: socket.socket) -> None:
        self._net = net
        self._sock = sock
        self._peeked = 0

    async def send(self, data: bytes) -> None:
        await self._net.sock_sendall(self._sock, data)

    async def receive(self) -> bytes:
        self.put_back(b"")
        while True:
            await self._net.readable(self._sock)
            with contextlib.suppress(BlockingIOError):
                data = self._sock.recv(_READ, socket.MSG_PEEK)
                self._peeked = len(data)
                return data

    def put_back(self, data: bytes) -> None:
        taken = self._peeked - len(data)
        if taken:
            self._sock.recv(taken)
        self._peeked = 0


# ---- CONNECT within TLS


class _TLSSocket:
    """A socket, and TLS by rustls."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, session: TLSSession) -> None:
        self._loop = loop
        self._sock = sock
        self._session = session
        self._ended = False

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._sock, self._session.encrypt(data))

    async def receive(self) -> bytes:
        while True:
            if self._session.has_failed:
                raise self._session.failure() or ConnectionResetError(_LOST)
            if self._ended or self._session.has_ended:
                return b""
            received = await self._loop.sock_recv(self._sock, _READ)
            await asyncio.sleep(0)  # as in tls/handshake.py: between two reads, others run
            self._ended = not received
            data = self._session.decrypt(bytearray(received))
            if data:
                return data

    def put_back(self, data: bytes) -> None:
        self._session.put_back(data)


async def connect_rustls(
    loop: asyncio.AbstractEventLoop,
    sock: socket.socket,
    config: Any,
    name: str,
    port: int,
    handshake: TunnelHandshake,
) -> TLSSession:
    """Ask an https proxy to connect to the server, by rustls. Returns the TLS with the proxy.

    :param sock: connected to the proxy, non-blocking
    :param config: of the crate
    :param name: of the proxy, in its certificate
    :param port: of the proxy
    :raises ProxyError: the proxy was not trusted, refused, sent an invalid reply, or hung up
    """
    try:
        session = await tls_handshake.rustls_handshake(loop, sock, config, name, port, None)
    except OSError as exc:
        raise no_tls(exc, name) from exc
    await _ask(_TLSSocket(loop, sock, session), handshake)
    return session


async def connect_tls(
    create_connection: Callable[..., Awaitable[tuple[Any, Any]]],
    start_tls: Callable[..., Awaitable[Any]],
    sock: socket.socket,
    handshake: TunnelHandshake,
    receiver: Any,
    proxy_tls: dict[str, Any],
    tls: dict[str, Any] | None,
) -> None:
    """Have an https proxy connect to the server, and make `receiver` the protocol of the connection.

    :param create_connection: the loop's or aiofastnet's, and `start_tls` of the same. With `tls` they must be
        aiofastnet's before Python 3.13: asyncio's do not stack before 3.11, and later leave the socket open when the
        inner TLS fails.
    :param sock: connected to the proxy, non-blocking; closed if this fails
    :param proxy_tls: the keyword arguments of `create_connection` that are about TLS: ``ssl``, a context, and
        ``server_hostname``, perhaps time-outs
    :param tls: the same for the server; None if it is not secure
    :raises ProxyError: the proxy refused (InvalidProxyStatus has its reply), sent an invalid reply, or hung up
    :raises OSError: TLS with the server failed
    """
    stream = _TransportStream()
    try:
        transport, _ = await create_connection(lambda: stream, sock=sock, **proxy_tls)
    except BaseException as exc:
        if stream.transport is None:
            sock.close()
        else:  # cancelled, when TLS had just been agreed
            stream.transport.abort()
        if isinstance(exc, OSError):
            raise no_tls(exc, proxy_tls["server_hostname"]) from exc
        raise
    try:
        await _ask(stream, handshake)
        if tls is not None:
            check_nothing_follows(stream.received)
            arguments = dict(tls)
            stream = _TransportStream()
            transport = await start_tls(transport, stream, arguments.pop("ssl"), **arguments)
        if stream.lost:
            raise ProxyError(_LOST) from stream.lost_by
        transport.set_protocol(receiver)
        receiver.connection_made(transport)
        if stream.received and not transport.is_closing():
            receiver.data_received(bytes(stream.received))
    except BaseException:
        transport.abort()
        raise


class _TransportStream(asyncio.Protocol):
    """A transport, and the bytes that arrive before its receiver is there."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.received = bytearray()
        self.lost = False
        self.lost_by: Exception | None = None
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        self._wake()

    def eof_received(self) -> None:
        self._ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = self._ended = True
        self.lost_by = exc
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def send(self, data: bytes) -> None:
        self.transport.write(data)

    async def receive(self) -> bytes:
        while not self.received and not self._ended:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if not self.received and isinstance(self.lost_by, OSError):
            raise self.lost_by
        data = bytes(self.received)
        self.received.clear()
        return data

    def put_back(self, data: bytes) -> None:
        self.received[:0] = data


def no_tls(exc: OSError, name: str) -> ProxyError:
    """The error for TLS with the proxy that failed."""
    if isinstance(exc, ssl.SSLCertVerificationError):
        put_in_python_s_words(exc, name)
    return ProxyError(f"no TLS with the proxy {name}: {exc}")
