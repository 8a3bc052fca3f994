"""Connected sockets: source address, happy eyeballs (RFC 8305), and sockets of the user's own making."""

from __future__ import annotations

import errno
import itertools
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

from wsfast._engine.tuning import SocketOption, set_options
from wsfast._opening.net.addresses import FAMILIES, HAPPY_EYEBALLS_DELAY
from wsfast._opening.net.interface import Addresses, AddressInfo, Net
from wsfast._opening.net.resolver import LookUp, resolve

__all__ = ["connect_socket", "connect_to_first", "is_connected", "prepare"]

_QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)

_CONNECTING = (errno.EINPROGRESS, errno.EINTR, errno.EAGAIN)


async def connect_socket(
    net: Net,
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
    look_up: LookUp | None = None,
    resolved: Callable[[str, Addresses], object] | None = None,
) -> socket.socket:
    """Connect to the first address of `host` that answers; as ``loop.create_connection`` does it.

    :param happy_eyeballs_delay: seconds after which the next address is tried beside the last one; None tries it only
        when that has failed
    :param interleave: addresses of the first family before the families take turns
    :param sockopts: set on each socket before it is bound or connected
    :param sock: of the user's, to connect instead of a new one, to the first address
    :param look_up: the user's, see resolver.py
    :param resolved: called with the name and its addresses before one of them is connected to
    :raises OSError: no address could be resolved, bound or connected, or an option was refused
    """
    if sock is not None:
        family, proto, flags = sock.family, 0, 0
    infos = await resolve(net, host, port, family, proto, flags, look_up)
    if resolved is not None:
        resolved(host, infos)
    local: Addresses = ()
    if local_addr is not None:
        local = await resolve(net, *local_addr, family, proto, flags)
    if sock is not None:
        infos = infos[:1]  # after a failure it could not try another address everywhere
    elif len(infos) > 1:
        if interleave is None:
            interleave = 0 if happy_eyeballs_delay is None else 1
        infos = _interleaved(infos, interleave) if interleave else infos
    return await connect_to_first(net, infos, happy_eyeballs_delay, local, sockopts, sock)


async def connect_to_first(
    net: Net,
    infos: Addresses,
    delay: float | None = None,
    local: Addresses = (),
    sockopts: Sequence[SocketOption] = (),
    sock: socket.socket | None = None,
) -> socket.socket:
    """Connect to the address that answers first. The next one is tried when one has failed, or after `delay`.

    :param local: addresses of this end, of which one of the same family is bound
    :param sock: to connect instead of a new one, to a single address
    """
    waiting = list(infos)
    connecting: dict[int, tuple[socket.socket, AddressInfo]] = {}
    failures: list[OSError] = []
    try:
        while waiting or connecting:
            if waiting:
                info = waiting.pop(0)
                try:
                    attempt = socket.socket(*info[:3]) if sock is None else sock
                    _begin(attempt, info, local, sockopts)
                except OSError as exc:
                    failures.append(exc)
                    continue
                connecting[attempt.fileno()] = attempt, info
            fd = await net.first_writable(connecting, delay if waiting else None)
            if fd is None:
                continue
            attempt, info = connecting[fd]
            number = attempt.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if not number:
                if info[0] in FAMILIES:
                    _tune(attempt)
                del connecting[fd]
                return attempt
            failures.append(_error(number, info[4]))
            del connecting[fd]
            attempt.close()
    finally:
        for attempt, _ in connecting.values():
            attempt.close()
    raise _together(failures)


def _interleaved(infos: Addresses, count: int) -> list[AddressInfo]:
    """`count` addresses of the first family, and then one of each family in turn."""
    families: dict[int, list[AddressInfo]] = {}
    for info in infos:
        families.setdefault(info[0], []).append(info)
    of_first = families[infos[0][0]]
    head, of_first[: count - 1] = of_first[: count - 1], []
    turns = itertools.zip_longest(*families.values())
    return head + [info for turn in turns for info in turn if info is not None]


def _begin(
    sock: socket.socket, info: AddressInfo, local: Addresses, sockopts: Sequence[SocketOption]
) -> None:
    """Begin to connect to an address. The socket is closed if that fails."""
    try:
        sock.setblocking(False)
        if sockopts:
            set_options(sock, sockopts)
        if local:
            _bind(sock, [own[4] for own in local if own[0] == info[0]])
        number = sock.connect_ex(info[4])
        if number and number not in _CONNECTING:
            raise _error(number, info[4])
    except BaseException:
        sock.close()
        raise


def _bind(sock: socket.socket, addresses: Sequence[Any]) -> None:
    """Bind to the first of these addresses that this machine has."""
    failure = OSError("local_addr has no address of the family of the server's")
    for address in addresses:
        try:
            sock.bind(address)
            return
        except OSError as exc:
            failure = OSError(exc.errno, f"local_addr {address[0]} port {address[1]}: {exc.strerror}")
    raise failure


def _error(number: int, address: Any) -> OSError:
    where = address if isinstance(address, str) else f"{address[0]} port {address[1]}"
    return OSError(number, f"{os.strerror(number)}: {where}")


def _together(failures: Sequence[OSError]) -> OSError:
    """Return one error for the failures of all addresses."""
    if len(failures) == 1:
        return failures[0]
    if not failures:
        return OSError("the name has no address")
    errnos = {exc.errno for exc in failures}
    text = "; ".join(exc.strerror or str(exc) for exc in failures)
    return OSError(errnos.pop() if len(errnos) == 1 else None, text)


# ---- sockets of the user


def is_connected(sock: socket.socket) -> bool:
    """True if the socket has a peer."""
    try:
        sock.getpeername()
    except OSError:
        return False
    return True


def prepare(sock: socket.socket, sockopts: Sequence[SocketOption]) -> socket.socket:
    """Give a socket of the user's the options of a new one. It is closed if that fails."""
    try:
        sock.setblocking(False)
        set_options(sock, sockopts)
        if sock.family in FAMILIES:
            _tune(sock)
        return sock
    except BaseException:
        sock.close()
        raise


def _tune(sock: socket.socket) -> None:
    """Have the kernel send and acknowledge at once."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if _QUICKACK is not None:
        sock.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
