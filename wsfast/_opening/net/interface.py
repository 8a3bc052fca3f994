"""The network as opening a connection needs it: by an event loop, or by calls that block.

The opening is written once, as coroutines over this interface. `LoopNet` suspends them until the loop wakes them;
`BlockingNet` never does, so that a plain ``send(None)`` runs a coroutine to its end. Sockets do not block.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Coroutine, Sequence
from socket import socket
from typing import Any, Protocol, TypeVar

__all__ = ["AddressInfo", "Addresses", "Net"]

T = TypeVar("T")

# As socket.getaddrinfo() returns them.
AddressInfo = tuple[int, int, int, str, Any]
Addresses = Sequence[AddressInfo]


class Net(Protocol):
    """A deadline ends each method by an exception that is no OSError."""

    async def getaddrinfo(self, host: str, port: int, family: int, proto: int, flags: int) -> Addresses:
        """Ask the system for the addresses of a name.

        :raises OSError: there are none
        """

    async def within(self, seconds: float, step: Coroutine[Any, Any, T]) -> T:
        """The result of `step`.

        :raises asyncio.TimeoutError: it took longer
        """

    async def value(self, returned: Awaitable[T] | T, name: str) -> T:
        """The value that the user's function `name` returned, perhaps to be awaited.

        :raises TypeError: there is no event loop to await it in
        """

    async def first_writable(self, fds: Collection[int], seconds: float | None) -> int | None:
        """Wait until one of these descriptors is writable, or has failed. None if that takes longer."""

    async def readable(self, sock: socket) -> None:
        """Wait until there is something to read."""

    # Named as the methods of a loop, for python-socks.

    async def sock_sendall(self, sock: socket, data: bytes) -> None:
        """Send all of `data`."""

    async def sock_recv(self, sock: socket, size: int) -> bytes:
        """Receive `size` bytes at most; ``b""`` at the end."""
