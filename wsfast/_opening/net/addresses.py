"""Connected sockets: name resolution, source address, happy eyeballs, and sockets of the user's own making."""

from __future__ import annotations

import asyncio
import errno
import inspect
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wsfast._common.options import check_address, check_types, count, seconds
from wsfast._engine.tuning import SocketOption, set_options
from wsfast._opening.uri import WebSocketURI

if TYPE_CHECKING:
    from aiohappyeyeballs import AddrInfoType

    from wsfast._opening.net.resolver import AddressCache, Resolver
    from wsfast._opening.proxy.settings import Proxy

# Gets the parsed URL of the server, or the proxy of the user's that leads there.
SocketFactory = Callable[[Any], Awaitable[socket.socket | None] | socket.socket | None]

# Seconds that an address may take before the next one is tried, too (RFC 8305 section 8).
HAPPY_EYEBALLS_DELAY = 0.25

_CONNECTING = (errno.EINPROGRESS, errno.EINTR, errno.EAGAIN)

FAMILIES = (socket.AF_INET, socket.AF_INET6)

# The keyword arguments of loop.create_connection() that are about TCP, and those about TLS. The last two are
# aiofastnet's.
ARGUMENTS = ("host", "port", "family", "proto", "flags", "local_addr", "happy_eyeballs_delay", "interleave")

TLS_ARGUMENTS = (
    "server_hostname",
    "ssl_handshake_timeout",
    "ssl_shutdown_timeout",
    "ssl_incoming_bio_size",
    "ssl_outgoing_bio_size",
)


def check_arguments(arguments: Mapping[str, Any]) -> None:
    """Refuse wrong values of these two kinds before anything is connected.

    :raises TypeError, ValueError: with the name of the argument
    """
    for name, value in arguments.items():
        if name in ("host", "server_hostname"):
            check_types(str, **{name: value})
        elif name == "port":
            check_types(int, str, port=value)
        elif name == "local_addr":
            check_address(name, value)
        elif name in ("family", "proto", "flags"):
            count(name, value)
        elif name == "interleave":
            count(name, value, none="for the default")
        elif name.startswith("ssl_") and name.endswith("_size"):
            count(name, value, least=1, none="for the default")
        else:  # happy_eyeballs_delay, and the time-outs of TLS
            seconds(name, value, zero=not name.startswith("ssl_"), none="for the default")


async def connect(
    host: str,
    port: int,
    *,
    family: int = 0,
    proto: int = 0,
    flags: int = 0,
    local_addr: tuple[str, int] | None = None,
    happy_eyeballs_delay: float | None = HAPPY_EYEBALLS_DELAY,
    interleave: int | None = None,
    sockopts: Sequence[SocketOption] = (),
    sock: socket.socket | None = None,
    look_up: tuple[Resolver | None, AddressCache | None] | None = None,
    resolved: Callable[[str, Sequence[AddrInfoType]], object] | None = None,
) -> socket.socket:
    """Connect to the first address of `host` that answers; as ``loop.create_connection`` does it.

    :param sockopts: set on each socket before it is bound or connected
    :param sock: of the user's, to connect instead of a new one, to the first address
    :param look_up: the user's, see resolver.py
    :param resolved: called with the name and its addresses before one of them is connected to
    :raises OSError: no address could be resolved, bound or connected, or an option was refused
    """
    loop = asyncio.get_running_loop()
    if sock is not None:
        try:
            return await _connect(loop, sock, host, port, local_addr, look_up, resolved)
        except BaseException:
            sock.close()
            raise

    def new_socket(address: AddrInfoType) -> socket.socket:
        sock = socket.socket(*address[:3])
        try:
            set_options(sock, sockopts)
        except OSError:
            sock.close()
            raise
        return sock

    infos = await resolve(loop, host, port, family, proto, flags, look_up)
    if resolved is not None:
        resolved(host, infos)
    if len(infos) == 1 and local_addr is None:
        sock = new_socket(infos[0])
        try:
            sock.setblocking(False)
            await connect_socket(loop, sock, infos[0][4])
        except BaseException:
            sock.close()
            raise
        return _tuned(sock)
    from aiohappyeyeballs import start_connection

    sock = await start_connection(
        infos,
        local_addr_infos=None
        if local_addr is None
        else await resolve(loop, *local_addr, family, proto, flags),
        happy_eyeballs_delay=happy_eyeballs_delay,
        interleave=interleave,
        loop=loop,
        socket_factory=new_socket,
    )
    return tuned(sock)


def _numeric(host: str, port: int, family: int, proto: int) -> list[AddrInfoType]:
    """What ``getaddrinfo`` says of an IPv4 address, sooner; empty of anything else."""
    if not host[-1:].isdecimal() or family not in (0, socket.AF_INET):
        return []
    try:
        socket.inet_pton(socket.AF_INET, host)
    except (OSError, ValueError):
        return []
    return [(socket.AF_INET, socket.SOCK_STREAM, proto or socket.IPPROTO_TCP, "", (host, port))]


async def _connect(
    loop: asyncio.AbstractEventLoop,
    sock: socket.socket,
    host: str,
    port: int,
    local_addr: tuple[str, int] | None,
    look_up: tuple[Resolver | None, AddressCache | None] | None,
    resolved: Callable[[str, Sequence[AddrInfoType]], object] | None,
) -> socket.socket:
    """As `connect`, with a socket of the user's. After a failure it could not try another address everywhere."""
    infos = await resolve(loop, host, port, sock.family, look_up=look_up)
    if resolved is not None:
        resolved(host, infos)
    if local_addr is not None:
        sock.bind((await resolve(loop, *local_addr, sock.family))[0][4])
    await connect_socket(loop, sock, infos[0][4])
    return tuned(sock)


async def connect_socket(loop: asyncio.AbstractEventLoop, sock: socket.socket, address: Any) -> None:
    """As ``loop.sock_connect()``, which looks up even what is no name. `sock` is not blocking."""
    number = sock.connect_ex(address)
    if number in _CONNECTING:
        try:
            await _writable(loop, sock)
        except NotImplementedError:  # the loop knows how to connect, but not how to wait for a socket
            await loop.sock_connect(sock, address)
            return
        number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if number:
        raise OSError(number, f"{os.strerror(number)}: {address[0]} port {address[1]}")


async def _writable(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
    arrived: asyncio.Future[None] = loop.create_future()
    fd = sock.fileno()  # asyncio looks up a number sooner than a socket
    loop.add_writer(fd, wake, arrived)
    try:
        await arrived
    finally:
        loop.remove_writer(fd)


def wake(waiter: asyncio.Future[None]) -> None:
    """Let it go on, unless it was cancelled."""
    if not waiter.done():
        waiter.set_result(None)


def is_connected(sock: socket.socket) -> bool:
    """Has the socket a peer?"""
    try:
        sock.getpeername()
    except OSError:
        return False
    return True


async def from_factory(
    where: WebSocketURI | Proxy, factory: SocketFactory, sockopts: Sequence[SocketOption] = ()
) -> socket.socket | None:
    """The user's socket, connected or not; None if the user made none."""
    made = factory(where)
    sock = await made if inspect.isawaitable(made) else made
    if sock is None:
        return None
    if not isinstance(sock, socket.socket):
        raise TypeError(f"socket_factory must return a socket or None, not {type(sock).__name__}")
    try:
        sock.setblocking(False)
        set_options(sock, sockopts)
        return tuned(sock)
    except BaseException:
        sock.close()
        raise


async def resolve(
    loop: asyncio.AbstractEventLoop,
    host: str,
    port: int,
    family: int = 0,
    proto: int = 0,
    flags: int = 0,
    look_up: tuple[Resolver | None, AddressCache | None] | None = None,
) -> Sequence[AddrInfoType]:
    """The addresses of a name.

    :raises OSError: it has none
    """
    known = _numeric(host, port, family, proto)
    if known:
        return known
    if look_up is not None:
        from wsfast._opening.net import resolver

        own, cache = look_up
        return await resolver.resolve(host, port, family=family, resolver=own, cache=cache)
    where: dict[str, Any] = {"family": family, "type": socket.SOCK_STREAM, "proto": proto}
    try:
        # An address needs no look-up, and so no thread to do it in.
        return socket.getaddrinfo(host, port, flags=flags | socket.AI_NUMERICHOST, **where)
    except socket.gaierror:
        return await loop.getaddrinfo(host, port, flags=flags, **where)


def tuned(sock: socket.socket) -> socket.socket:
    """Send and acknowledge at once; a socket that is not TCP has nothing to tune."""
    return _tuned(sock) if sock.family in FAMILIES else sock


def _tuned(sock: socket.socket) -> socket.socket:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_QUICKACK"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
    return sock
