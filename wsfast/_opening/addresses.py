"""Connected sockets: name resolution, source address, happy eyeballs, and sockets of the user's own making."""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from aiohappyeyeballs import AddrInfoType, start_connection

from wsfast._engine.tuning import SocketOption, set_options
from wsfast._opening.uri import WebSocketURI
from wsfast.options import check_address, check_types, count, seconds

SocketFactory = Callable[[WebSocketURI], Awaitable[socket.socket | None] | socket.socket | None]

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
    happy_eyeballs_delay: float | None = None,
    interleave: int | None = None,
    sockopts: Sequence[SocketOption] = (),
) -> socket.socket:
    """Connect to the first address of `host` that answers; as ``loop.create_connection`` does it.

    :param sockopts: set on each socket before it is bound or connected
    :raises OSError: no address could be resolved, bound or connected, or an option was refused
    """
    loop = asyncio.get_running_loop()

    def new_socket(address: AddrInfoType) -> socket.socket:
        sock = socket.socket(*address[:3])
        try:
            set_options(sock, sockopts)
        except OSError:
            sock.close()
            raise
        return sock

    sock = await start_connection(
        await _resolve(loop, host, port, family, proto, flags),
        local_addr_infos=None
        if local_addr is None
        else await _resolve(loop, *local_addr, family, proto, flags),
        happy_eyeballs_delay=happy_eyeballs_delay,
        interleave=interleave,
        loop=loop,
        socket_factory=new_socket,
    )
    return tuned(sock)


async def from_factory(
    uri: WebSocketURI, factory: SocketFactory, sockopts: Sequence[SocketOption] = ()
) -> socket.socket | None:
    """The user's socket, connected to the server unless it was already; None if the user made none."""
    made = factory(uri)
    sock = await made if inspect.isawaitable(made) else made
    if sock is None:
        return None
    if not isinstance(sock, socket.socket):
        raise TypeError(f"socket_factory must return a socket or None, not {type(sock).__name__}")
    try:
        sock.setblocking(False)
        set_options(sock, sockopts)
        try:
            sock.getpeername()
        except OSError:
            loop = asyncio.get_running_loop()
            addresses = await _resolve(loop, uri.host, uri.port, sock.family, 0, 0)
            await loop.sock_connect(sock, addresses[0][4])
        return tuned(sock)
    except BaseException:
        sock.close()
        raise


async def _resolve(
    loop: asyncio.AbstractEventLoop, host: str, port: int, family: int, proto: int, flags: int
) -> Sequence[AddrInfoType]:
    where: dict[str, Any] = {"family": family, "type": socket.SOCK_STREAM, "proto": proto}
    try:
        # An address needs no look-up, and so no thread to do it in.
        return socket.getaddrinfo(host, port, flags=flags | socket.AI_NUMERICHOST, **where)
    except socket.gaierror:
        return await loop.getaddrinfo(host, port, flags=flags, **where)


def tuned(sock: socket.socket) -> socket.socket:
    """Send and acknowledge at once; a socket that is not TCP has nothing to tune."""
    if sock.family in FAMILIES:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_QUICKACK"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
    return sock
