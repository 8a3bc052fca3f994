"""Looking up names: by DNS or a function of the user's, and from memory while that is down.

What is looked up has the form of ``socket.getaddrinfo``, whoever did it.
"""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

__all__ = ["AddressCache", "AddressInfo", "Resolver", "resolve", "resolve_blocking"]

AddressInfo = tuple[int, int, int, str, Any]

# Called with host and port; returns IP addresses, as text. The awaitable faces call it in the thread of the loop, and
# await what it returns if that can be awaited: so it is not to block.
Resolver = Callable[[str, int], "Iterable[str] | Awaitable[Iterable[str]]"]

# The answer is that there is no such name, or none with an address. Any other failure says nothing of the name.
_ANSWERS = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


class AddressCache:
    """Where the last connection to each name went. A program makes one, and passes it to all its connections.

    It is asked only if a look-up fails, or takes longer than `patience`; never if the answer is that there is no such
    name. May be used by several threads.

    :param patience: seconds that a look-up may take while there is something to fall back to
    :param size: names that are kept; the one that was used longest ago is dropped
    """

    def __init__(self, *, patience: float = 1.0, size: int = 1024) -> None:
        if not patience > 0 or size < 1:
            raise ValueError(f"patience and size must be positive, not {patience!r} and {size!r}")
        self.patience = patience
        self._size = size
        self._known: OrderedDict[tuple[str, int], tuple[AddressInfo, ...]] = OrderedDict()

    def remember(self, host: str, port: int, infos: Sequence[AddressInfo], connected: Any = None) -> None:
        """To be called when a connection stands. `connected`: the address among `infos` that it has; it becomes the
        first."""
        if infos:
            self._known[host, port] = tuple(sorted(infos, key=lambda info: info[4] != connected))
            self._known.move_to_end((host, port))
            if len(self._known) > self._size:
                self._known.popitem(last=False)

    def recall(self, host: str, port: int, family: int = 0) -> list[AddressInfo]:
        """What is known of the name; empty if nothing is."""
        return [info for info in self._known.get((host, port), ()) if family in (0, info[0])]

    def clear(self) -> None:
        """Forget all."""
        self._known.clear()


async def resolve(
    host: str,
    port: int,
    *,
    family: int = 0,
    resolver: Resolver | None = None,
    cache: AddressCache | None = None,
) -> list[AddressInfo]:
    """The addresses of `host`, of which there is at least one. An address is its own, and nobody is asked.

    :raises OSError: there are none, or they cannot be looked up; what else `resolver` raises is raised
    """
    own = _numeric(host, port, family)
    if own:
        return own
    known = [] if cache is None else cache.recall(host, port, family)
    looking_up = _look_up(host, port, family, resolver)
    if cache is None or not known:
        return await looking_up
    try:
        return await asyncio.wait_for(looking_up, cache.patience)
    except (OSError, asyncio.TimeoutError) as exc:
        if _is_answer(exc):
            raise
        return known


def resolve_blocking(
    host: str,
    port: int,
    *,
    family: int = 0,
    resolver: Resolver | None = None,
    cache: AddressCache | None = None,
    look_up: Callable[..., Sequence[AddressInfo]] = socket.getaddrinfo,
) -> list[AddressInfo]:
    """As `resolve`.

    :param look_up: as ``socket.getaddrinfo``, which knows no deadline: one that does raises TimeoutError
    :raises TypeError: `resolver` is to be awaited
    """
    own = _numeric(host, port, family)
    if own:
        return own
    try:
        if resolver is None:
            return list(look_up(host, port, family, socket.SOCK_STREAM))
        found = resolver(host, port)
        if inspect.isawaitable(found):
            if inspect.iscoroutine(found):
                found.close()
            raise TypeError("resolver must return addresses, and nothing to await, for the blocking client")
        return _infos(host, port, family, found)
    except OSError as exc:
        known = [] if cache is None else cache.recall(host, port, family)
        if not known or _is_answer(exc):
            raise
        return known


async def _look_up(host: str, port: int, family: int, resolver: Resolver | None) -> list[AddressInfo]:
    if resolver is None:
        loop = asyncio.get_running_loop()
        return list(await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM))
    found = resolver(host, port)
    return _infos(host, port, family, await found if inspect.isawaitable(found) else found)


def _is_answer(exc: BaseException) -> bool:
    return isinstance(exc, socket.gaierror) and exc.errno in _ANSWERS


def _numeric(host: str, port: int, family: int) -> list[AddressInfo]:
    try:
        return list(socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, 0, socket.AI_NUMERICHOST))
    except socket.gaierror:
        return []


def _infos(host: str, port: int, family: int, found: Iterable[str]) -> list[AddressInfo]:
    """What the user's function returned, checked."""
    addresses = [found] if isinstance(found, str) else list(found)
    infos: list[AddressInfo] = []
    for address in addresses:
        if not isinstance(address, str):
            raise TypeError(f"resolver must return IP addresses as str, not {address!r}")
        its = _numeric(address, port, 0)
        if not its:
            raise socket.gaierror(socket.EAI_FAIL, f"resolver returned {address!r}, which is no IP address")
        infos.extend(info for info in its if family in (0, info[0]))
    if not infos:
        raise socket.gaierror(socket.EAI_NONAME, f"resolver returned no address of {host}")
    return infos
