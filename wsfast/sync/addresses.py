"""Connected sockets for the blocking client: name resolution, source address, happy eyeballs.

The options mean what they mean to the other faces, and are checked where theirs are (_opening/addresses.py).
"""

from __future__ import annotations

import itertools
import os
import selectors
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from wsfast._engine.tuning import SocketOption, set_options

__all__ = ["connect", "connect_to"]

# How many seconds are left for a step of the opening; None is without end. Raises TimeoutError when none is.
Left = Callable[[str], float | None]

_STEP = "the TCP connection"
_Address = tuple[int, Any]


def connect(
    host: str,
    port: int | str,
    left: Left,
    *,
    family: int = 0,
    local_addr: tuple[str, int] | None = None,
    happy_eyeballs_delay: float | None = None,
    sockopts: Sequence[SocketOption] = (),
) -> socket.socket:
    """Connect to the first address of `host` that answers.

    :param happy_eyeballs_delay: after so many seconds, or when it fails, the next address is tried beside the last one
        (RFC 8305); None tries one after the other
    :param sockopts: set on each socket before it is bound or connected
    :raises OSError: no address could be resolved, bound or connected, or an option was refused
    :raises TimeoutError: `left` says so
    """
    found = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
    addresses: list[_Address] = [(kind, address) for kind, _, _, _, address in found]
    if happy_eyeballs_delay is not None and len(addresses) > 1:
        return _race(_interleaved(addresses), left, local_addr, happy_eyeballs_delay, sockopts)
    failure: OSError | None = None
    for kind, address in addresses:
        try:
            return connect_to(kind, address, left, local_addr, sockopts)
        except TimeoutError:
            raise
        except OSError as exc:
            failure = exc
    raise failure or OSError(f"{host} has no address")


def connect_to(
    family: int, address: Any, left: Left, local_addr: Any = None, sockopts: Sequence[SocketOption] = ()
) -> socket.socket:
    """Connect to one address."""
    sock = _new_socket(family, local_addr, sockopts)
    try:
        sock.settimeout(left(_STEP))
        sock.connect(address)
    except TimeoutError as exc:
        sock.close()
        raise TimeoutError(f"timed out during {_STEP}") from exc
    except BaseException:
        sock.close()
        raise
    return sock


def _new_socket(family: int, local_addr: Any, sockopts: Sequence[SocketOption]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        set_options(sock, sockopts)
        if local_addr is not None:
            sock.bind(tuple(local_addr))
    except BaseException:
        sock.close()
        raise
    return sock


def _interleaved(addresses: Iterable[_Address]) -> list[_Address]:
    """By turns of each family, the first one first (RFC 8305 section 4)."""
    families: dict[int, list[_Address]] = {}
    for address in addresses:
        families.setdefault(address[0], []).append(address)
    rounds = itertools.zip_longest(*families.values())
    return [address for row in rounds for address in row if address is not None]


def _race(
    addresses: list[_Address], left: Left, local_addr: Any, delay: float, sockopts: Sequence[SocketOption]
) -> socket.socket:
    """Connect to the address that answers first; a new attempt begins every `delay`, or when one fails."""
    failure: OSError | None = None
    attempts: set[socket.socket] = set()
    with selectors.DefaultSelector() as selector:
        try:
            while addresses or attempts:
                if addresses:
                    family, address = addresses.pop(0)
                    try:
                        sock = _new_socket(family, local_addr, sockopts)
                    except OSError as exc:
                        failure = exc
                        continue
                    attempts.add(sock)
                    selector.register(sock, selectors.EVENT_WRITE)
                    sock.setblocking(False)
                    sock.connect_ex(address)  # which is told by SO_ERROR
                remaining = left(_STEP)
                wait = remaining if not addresses else delay if remaining is None else min(delay, remaining)
                for key, _ in selector.select(wait):
                    sock = key.fileobj  # type: ignore[assignment]
                    errno = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    attempts.discard(sock)
                    if errno == 0:
                        return sock
                    failure = OSError(errno, os.strerror(errno))
                    selector.unregister(sock)
                    sock.close()
        finally:
            for sock in attempts:
                sock.close()
    raise failure or OSError("no address answers")
