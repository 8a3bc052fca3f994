"""The negotiation with a SOCKS proxy, on a socket that is connected to it. python-socks knows the protocols.

Its classes would connect, too, but to the first address only and without the user's socket options. So they go there
through another proxy, which is the connected socket itself.
"""

from __future__ import annotations

import socket
import struct
from typing import Any, cast

import python_socks
import python_socks.async_.asyncio

from wsfast._opening.net.interface import Net
from wsfast._opening.proxy.settings import Proxy
from wsfast.exceptions import InvalidProxyMessage, ProxyError

__all__ = ["negotiate"]

_TYPES = {
    "socks4": python_socks.ProxyType.SOCKS4,
    "socks4a": python_socks.ProxyType.SOCKS4,
    "socks5": python_socks.ProxyType.SOCKS5,
    "socks5h": python_socks.ProxyType.SOCKS5,
}


async def negotiate(net: Net, sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """Ask for a connection to the server. The server's bytes are not read.

    :raises ProxyError: the proxy refused
    :raises OSError: the connection to the proxy was lost
    """
    try:
        await _Negotiation(net, sock, proxy)._connect(host, port)
    except Exception as exc:
        raise _translated(exc) from _cause(exc)


class _Negotiation(python_socks.async_.asyncio.Proxy):
    """Without a time limit of its own, which would need an event loop."""

    def __init__(self, net: Net, sock: socket.socket, proxy: Proxy) -> None:
        super().__init__(
            _TYPES[proxy.scheme],
            proxy.host,
            proxy.port,
            proxy.username,
            proxy.password,
            rdns=True,  # the proxy looks up names; for the others the client has done so
            forward=_Connected(sock),
            loop=cast(Any, net),
        )


# Replies of a SOCKS5 proxy that could not reach the server this time (RFC 1928 section 6).
_UNREACHED = (1, 3, 4, 5, 6)


# Exceptions of python-socks for a reply that it cannot read, such as a name that is not UTF-8.
_STUMBLES = (ValueError, LookupError, AssertionError, TypeError, struct.error)


def _cause(exc: Exception) -> Exception | None:
    """The cause to chain: an OSError if the network failed, as without a proxy, so that a loop tries again."""
    if _translated(exc) is exc:
        return exc.__cause__  # type: ignore[return-value]
    if isinstance(exc, python_socks.ProxyError):
        if exc.error_code in _UNREACHED:
            return ConnectionError(str(exc))
        if not hasattr(exc.__cause__, "error_code"):  # no reply, but too little of one
            return EOFError(str(exc))
    return exc


def _translated(exc: Exception) -> Exception:
    if isinstance(exc, OSError):
        return exc
    if isinstance(exc, python_socks.ProxyError):
        return ProxyError(f"the SOCKS proxy did not connect: {exc}")
    if isinstance(exc, _STUMBLES):
        return InvalidProxyMessage(f"the SOCKS proxy's reply isn't valid: {exc}")
    return exc  # such as an exception of a signal handler


class _Connected(python_socks.async_.asyncio.Proxy):
    """A proxy that leads to the other end of a socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    async def connect(self, *args: object, **kwargs: object) -> socket.socket:
        return self._sock
