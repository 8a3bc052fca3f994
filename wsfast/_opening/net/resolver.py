"""Looking up names: by DNS or a function of the user's, and from memory while that is down.

Every look-up returns the form of ``socket.getaddrinfo``.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from wsfast._opening.net.interface import Addresses, AddressInfo, Net

__all__ = ["AddressCache", "LookUp", "Resolver", "resolve"]

# Called with host and port; returns IP addresses, as text, or an awaitable of them. The clients on an event loop call
# it in the loop's thread, so it must not block.
Resolver = Callable[[str, int], "Iterable[str] | Awaitable[Iterable[str]]"]

# DNS answered that the name does not exist, or has no address. Other failures do not tell whether it exists.
_ANSWERS = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


class AddressCache:
    """Remembers the address of the last connection to each name. A program passes one to all its connections.

    It is used only if a look-up fails or takes longer than `patience`; never if DNS answers that the name does not
    exist. Several threads may share it.

    :param patience: seconds that a look-up may take while there is something to fall back to
    :param size: names that are kept; the one that was used longest ago is dropped
    """

    def __init__(self, *, patience: float = 1.0, size: int = 1024) -> None:
        if not patience > 0 or size < 1:
            raise ValueError(f"patience and size must be positive, not {patience!r} and {size!r}")
        self.patience = patience
        self._size = size
        self._known: OrderedDict[tuple[str, int], tuple[AddressInfo, ...]] = OrderedDict()
        self._lock = threading.RLock()  # the handler of a signal may connect, too

    def remember(self, host: str, port: int, infos: Sequence[AddressInfo], connected: Any = None) -> None:
        """Remember the addresses of a name to which a connection is open. `connected`: the address of that connection,
        which becomes the first."""
        if infos:
            addresses = tuple(sorted(infos, key=lambda info: info[4] != connected))
            with self._lock:
                self._known[host, port] = addresses
                self._known.move_to_end((host, port))
                if len(self._known) > self._size:
                    self._known.popitem(last=False)

    def recall(self, host: str, port: int, family: int = 0) -> list[AddressInfo]:
        """The remembered addresses of the name; empty if there are none."""
        with self._lock:
            known = self._known.get((host, port), ())
        return [info for info in known if family in (0, info[0])]

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._known.clear()


# The resolver of the user's, and the memory of addresses.
LookUp = tuple[Resolver | None, AddressCache | None]


async def resolve(
    net: Net,
    host: str,
    port: int,
    family: int = 0,
    proto: int = 0,
    flags: int = 0,
    look_up: LookUp | None = None,
) -> Addresses:
    """Return at least one address of `host`. An address resolves to itself, without a look-up.

    :param look_up: replaces the system; its resolver gets neither `proto` nor `flags`
    :raises OSError: `host` has no address, or cannot be looked up. Other exceptions of a resolver pass through
    """
    own = _numeric(host, port, family, proto, flags)
    if own:
        return own
    if look_up is None:
        return await _system(net, host, port, family, proto, flags)
    resolver, cache = look_up
    known = [] if cache is None else cache.recall(host, port, family)
    asking = _ask(net, host, port, family, resolver)
    if cache is None or not known:
        return await asking
    try:
        return await net.within(cache.patience, asking)
    except (OSError, asyncio.TimeoutError) as exc:
        if _is_answer(exc):
            raise
        return known


async def _ask(net: Net, host: str, port: int, family: int, resolver: Resolver | None) -> Addresses:
    if resolver is None:
        return await _system(net, host, port, family)
    returned = await net.value(resolver(host, port), "resolver must return addresses")
    return _infos(host, port, family, returned)


async def _system(net: Net, host: str, port: int, family: int, proto: int = 0, flags: int = 0) -> Addresses:
    """The system's addresses; its error names the host."""
    try:
        return await net.getaddrinfo(host, port, family, proto, flags)
    except socket.gaierror as exc:
        raise socket.gaierror(exc.errno, f"{exc.strerror}: {host}") from None


def _is_answer(exc: BaseException) -> bool:
    return isinstance(exc, socket.gaierror) and exc.errno in _ANSWERS


def _numeric(host: str, port: int, family: int, proto: int = 0, flags: int = 0) -> Addresses:
    """The addresses of a host that is an address itself; none of a name."""
    if family in (0, socket.AF_INET) and host[-1:].isdecimal():  # sooner than getaddrinfo()
        try:
            socket.inet_pton(socket.AF_INET, host)
            return [(socket.AF_INET, socket.SOCK_STREAM, proto or socket.IPPROTO_TCP, "", (host, port))]
        except (OSError, ValueError):
            pass
    try:
        # An address needs no look-up, and so no thread to do it in.
        return socket.getaddrinfo(
            host, port, family, socket.SOCK_STREAM, proto, flags | socket.AI_NUMERICHOST
        )
    except socket.gaierror:
        return []


def _infos(host: str, port: int, family: int, returned: Iterable[str]) -> list[AddressInfo]:
    """Check the addresses that the user's resolver returned."""
    addresses = [returned] if isinstance(returned, str) else list(returned)
    infos: list[AddressInfo] = []
    for address in addresses:
        if not isinstance(address, str):
            raise TypeError(f"resolver must return IP addresses as str, not {address!r}")
        numeric = _numeric(address, port, 0)
        if not numeric:
            raise socket.gaierror(socket.EAI_FAIL, f"resolver returned {address!r}, which is no IP address")
        infos.extend(info for info in numeric if family in (0, info[0]))
    if not infos:
        raise socket.gaierror(socket.EAI_NONAME, f"resolver returned no address of {host}")
    return infos
