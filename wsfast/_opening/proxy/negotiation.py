"""From a connection to a proxy to one to the server behind it.

A proxy without TLS gives back the same socket, of which nothing was read that is the server's: it stays in the kernel
for whoever reads the socket next. A proxy with TLS (https) gives back a transport, in which TLS to the server is
another layer; ``connect_tls`` keeps what came too early until the receiver has it.

Whatever fails, nothing is left: neither socket nor transport.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from wsfast._common.upgrade import UpgradeResponse
from wsfast._engine.sockets.tls import TLSSession
from wsfast._opening.net import addresses
from wsfast._opening.proxy.settings import Proxy
from wsfast._opening.proxy.tunnel import TunnelHandshake
from wsfast._opening.route import Route
from wsfast._opening.tls import handshake as tls_handshake
from wsfast.exceptions import InvalidProxyMessage, ProxyError
from wsfast.tls import put_in_python_s_words

__all__ = ["connect", "connect_blocking", "connect_rustls", "connect_tls", "reach", "shake_hands"]

# Bytes per read: a reply's header is far smaller, a refusal's body seldom larger.
_READ = 16 * 1024

_LOST = "the connection to the proxy was lost"


async def reach(
    loop: asyncio.AbstractEventLoop, route: Route, sock: socket.socket | None, arguments: dict[str, Any]
) -> socket.socket:
    """Connect to the proxy; if that is no https proxy, have it connect to the server.

    :param sock: the user's, connected to the proxy or to be
    :param arguments: for `addresses.connect`
    :raises ProxyError: the proxy was not reached, refused, talked rubbish, or hung up
    """
    proxy, host = route.proxy, route.host
    assert proxy is not None
    try:
        if not proxy.resolves:
            route.phase = ("the look-up of", host, ())
            infos = await addresses.resolve(loop, host, route.port, _family(proxy), look_up=route.look_up)
            route.resolved(host, infos)
            host = infos[0][4][0]
        tunnel = route.new_tunnel(host)
        route.phase = ("the connection to the proxy", str(proxy), ())
        if sock is None or not addresses.is_connected(sock):
            try:
                sock = await addresses.connect(
                    proxy.host, proxy.port, sock=sock, look_up=route.look_up, **arguments
                )
            except OSError as exc:
                raise ProxyError(f"cannot connect to the proxy {proxy}: {exc}") from exc
        route.phase = ("the negotiation with the proxy", str(proxy), ())
    except BaseException:
        if sock is not None:
            sock.close()
        raise
    if not proxy.secure:
        await connect(sock, proxy, host, route.port, tunnel)
    return sock


def _family(proxy: Proxy) -> int:
    return socket.AF_INET if proxy.scheme == "socks4" else 0


async def connect(
    sock: socket.socket, proxy: Proxy, host: str, port: int, handshake: TunnelHandshake | None
) -> None:
    """Have an http or SOCKS proxy connect to the server.

    :param sock: connected to the proxy, non-blocking; closed if this fails
    :param host: of the server; an address if the proxy does not look up names (`Proxy.resolves`)
    :param handshake: for an http proxy; None for SOCKS
    :raises ProxyError: the proxy refused (InvalidProxyStatus has its reply), talked rubbish, or hung up
    """
    try:
        if handshake is None:
            from wsfast._opening.proxy import socks

            _check_name(proxy, host)
            await socks.negotiate(sock, proxy, host, port)
        else:
            await _tunnel(sock, handshake)
    except OSError as exc:
        sock.close()
        raise ProxyError(f"{_LOST}: {exc}") from exc
    except BaseException:
        sock.close()
        raise


def connect_blocking(
    sock: socket.socket,
    proxy: Proxy,
    host: str,
    port: int,
    handshake: TunnelHandshake | None,
    left: Callable[[], float | None],
) -> None:
    """As `connect`, for a socket with blocking methods.

    :param left: seconds until the deadline, None without one; raises TimeoutError when it has passed
    :raises TimeoutError: the deadline passed, and the proxy has not refused before
    """
    try:
        if handshake is None:
            from wsfast._opening.proxy import socks

            _check_name(proxy, host)
            socks.negotiate_blocking(sock, proxy, host, port, left)
        else:
            _tunnel_blocking(sock, handshake, left)
        sock.settimeout(None)
    except TimeoutError:
        sock.close()
        raise
    except OSError as exc:
        sock.close()
        raise ProxyError(f"{_LOST}: {exc}") from exc
    except BaseException:
        sock.close()
        raise


def _check_name(proxy: Proxy, host: str) -> None:
    if proxy.resolves:
        return
    version = ipaddress.ip_address(
        host.partition("%")[0]
    ).version  # a ValueError here is the caller's mistake
    if proxy.scheme == "socks4" and version != 4:
        raise ProxyError("SOCKS4 knows no IPv6 addresses")


# CONNECT, on a socket. What arrives is looked at, and only what belongs to the reply is taken.


async def _tunnel(sock: socket.socket, handshake: TunnelHandshake) -> None:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, handshake.request_bytes)
    while True:
        await _readable(loop, sock)
        try:
            peeked = sock.recv(_READ, socket.MSG_PEEK)
        except BlockingIOError:
            continue
        if _take(sock, handshake, peeked):
            return


def _tunnel_blocking(
    sock: socket.socket, handshake: TunnelHandshake, left: Callable[[], float | None]
) -> None:
    try:
        sock.settimeout(left())
        sock.sendall(handshake.request_bytes)
        while True:
            sock.settimeout(left())
            if _take(sock, handshake, sock.recv(_READ, socket.MSG_PEEK)):
                return
    except TimeoutError:
        if handshake.rejection is not None:
            raise handshake.rejection from None
        raise TimeoutError("timed out while waiting for the proxy's reply") from None


def _take(sock: socket.socket, handshake: TunnelHandshake, peeked: bytes) -> bool:
    """Does the tunnel stand? If so, what follows the reply is left in the socket."""
    if not peeked:
        handshake.feed_eof()
    response = handshake.feed(peeked)
    sock.recv(len(peeked) - len(handshake.trailing))
    return response is not None


async def _readable(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
    arrived: asyncio.Future[None] = loop.create_future()
    loop.add_reader(sock, addresses.wake, arrived)
    try:
        await arrived
    finally:
        loop.remove_reader(sock)


# CONNECT, within TLS.


def shake_hands(
    send: Callable[[bytes], object], recv: Callable[[], bytes], handshake: TunnelHandshake
) -> bytes:
    """CONNECT over any blocking stream. Returns what followed the reply.

    :param send: takes all
    :param recv: returns what there is, b"" at the end. Both raise TimeoutError when the deadline has passed.
    """
    try:
        send(handshake.request_bytes)
        while True:
            data = recv()
            if not data:
                handshake.feed_eof()
            if handshake.feed(data) is not None:
                return handshake.trailing
    except TimeoutError:
        if handshake.rejection is not None:
            raise handshake.rejection from None
        raise


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
    :raises ProxyError: the proxy refused (InvalidProxyStatus has its reply), talked rubbish, or hung up
    :raises OSError: TLS with the server failed
    """
    tunnel = _Tunnel(handshake)
    try:
        transport, _ = await create_connection(lambda: tunnel, sock=sock, **proxy_tls)
    except BaseException as exc:
        if tunnel.transport is None:
            sock.close()
        else:  # cancelled, when TLS had just been agreed
            tunnel.transport.abort()
        if isinstance(exc, OSError):
            raise no_tls(exc, proxy_tls["server_hostname"]) from exc
        raise
    meanwhile: _Early = tunnel
    try:
        await tunnel.established
        if tls is not None:
            if tunnel.early:
                raise InvalidProxyMessage(
                    f"{len(tunnel.early)} bytes follow the proxy's reply, where TLS begins"
                )
            arguments = dict(tls)
            meanwhile = _Early()
            transport = await start_tls(transport, meanwhile, arguments.pop("ssl"), **arguments)
        if meanwhile.lost:
            raise ProxyError(_LOST) from meanwhile.lost_by
        transport.set_protocol(receiver)
        receiver.connection_made(transport)
        if meanwhile.early and not transport.is_closing():
            receiver.data_received(bytes(meanwhile.early))
    except BaseException:
        transport.abort()
        raise


async def connect_rustls(
    loop: asyncio.AbstractEventLoop,
    sock: socket.socket,
    config: Any,
    name: str,
    port: int,
    handshake: TunnelHandshake,
    *,
    early: bool,
) -> TLSSession:
    """Have an https proxy connect to the server, by rustls. Returns the TLS with the proxy.

    :param sock: connected to the proxy, non-blocking
    :param config: of the crate
    :param name: of the proxy, in its certificate
    :param port: of the proxy
    :param early: the server may speak at once, for it has no TLS. What it says is put back
    :raises ProxyError: the proxy was not trusted, refused, talked rubbish, or hung up
    """
    try:
        session = await tls_handshake.shake_hands(loop, sock, config, name, port, None)
    except OSError as exc:
        raise no_tls(exc, name) from exc
    try:
        await loop.sock_sendall(sock, session.encrypt(handshake.request_bytes))
        response = None
        while response is None:
            received = await loop.sock_recv(sock, _READ)
            said = session.decrypt(bytearray(received))
            if said:
                response = handshake.feed(said)
            if response is None and session.has_failed:
                raise session.failure() or ConnectionResetError(_LOST)
            if response is None and (not received or session.has_ended):
                handshake.feed_eof()
            if response is None:
                await asyncio.sleep(0)  # as in tls/handshake.py: between two reads, others run
    except OSError as exc:
        raise ProxyError(f"{_LOST}: {exc}") from exc
    if handshake.trailing and not early:
        raise InvalidProxyMessage(
            f"{len(handshake.trailing)} bytes follow the proxy's reply, where TLS begins"
        )
    session.put_back(handshake.trailing)
    return session


def no_tls(exc: OSError, name: str) -> ProxyError:
    """TLS with the proxy failed."""
    if isinstance(exc, ssl.SSLCertVerificationError):
        put_in_python_s_words(exc, name)
    return ProxyError(f"no TLS with the proxy {name}: {exc}")


class _Early(asyncio.Protocol):
    """Keeps what arrives before the receiver is there."""

    def __init__(self) -> None:
        self.early = bytearray()
        self.lost = False
        self.lost_by: Exception | None = None

    def data_received(self, data: bytes) -> None:
        self.early += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.lost_by = exc


class _Tunnel(_Early):
    """CONNECT, as a protocol of asyncio."""

    def __init__(self, handshake: TunnelHandshake) -> None:
        super().__init__()
        self._handshake = handshake
        self.transport: Any = None
        self.established: asyncio.Future[UpgradeResponse] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.write(self._handshake.request_bytes)

    def data_received(self, data: bytes) -> None:
        if self.established.done():
            super().data_received(data)
            return
        try:
            response = self._handshake.feed(data)
        except ProxyError as exc:
            self._fail(exc)
            return
        if response is not None:
            self.early += self._handshake.trailing
            self.established.set_result(response)

    def eof_received(self) -> None:
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._end(exc)

    def _end(self, exc: Exception | None) -> None:
        if self.established.done():
            return
        try:
            if isinstance(exc, OSError) and self._handshake.rejection is None:
                raise ProxyError(f"{_LOST}: {exc}") from exc
            self._handshake.feed_eof()
        except ProxyError as failed:
            self._fail(failed)

    def _fail(self, exc: ProxyError) -> None:
        self.established.set_exception(exc)
        self.established.exception()  # retrieved: if nobody waits any more, asyncio need not complain
