"""The negotiation with a SOCKS proxy, on a socket that is connected to it. python-socks knows the protocols.

Its classes would connect, too, but to the first address only, without the user's socket options, and with a time-out
for each call instead of one for all. So they are told to go there through another proxy, which is the socket itself.
"""

from __future__ import annotations

import socket
import struct
from typing import Any, cast

import python_socks
import python_socks.async_.asyncio

from wsfast._opening.net.network import Network
from wsfast._opening.proxy.settings import Proxy
from wsfast.exceptions import InvalidProxyMessage, ProxyError

__all__ = ["negotiate"]

_TYPES = {
    "socks4": python_socks.ProxyType.SOCKS4,
    "socks4a": python_socks.ProxyType.SOCKS4,
    "socks5": python_socks.ProxyType.SOCKS5,
    "socks5h": python_socks.ProxyType.SOCKS5,
}


async def negotiate(network: Network, sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """Ask for a connection to the server. Nothing is read of what the server sends.

    :raises ProxyError: the proxy refused
    :raises OSError: the connection to the proxy was lost
    """
    try:
        await _Negotiation(network, sock, proxy)._connect(host, port)
    except Exception as exc:
        raise _translated(exc) from _cause(exc)


class _Negotiation(python_socks.async_.asyncio.Proxy):
    """Without a time limit of its own, which would need an event loop."""

    def __init__(self, network: Network, sock: socket.socket, proxy: Proxy) -> None:
        super().__init__(
            _TYPES[proxy.scheme],
            proxy.host,
            proxy.port,
            proxy.username,
            proxy.password,
            rdns=True,  # names are for the proxy to look up; where they are not, there are none
            forward=_Connected(sock),
            loop=cast(Any, network),
        )


# Replies that say that the proxy did not get through, this time: to SOCKS5 (RFC 1928 section 6).
_UNREACHED = (1, 3, 4, 5, 6)


# What python-socks stumbles over: a name that is no UTF-8, say.
_STUMBLES = (ValueError, LookupError, AssertionError, TypeError, struct.error)


def _cause(exc: Exception) -> Exception | None:
    """What failed: an OSError if it was the network, as without a proxy; a loop tries again then."""
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
    return exc  # of the handler of a signal, say


class _Connected(python_socks.async_.asyncio.Proxy):
    """A proxy that leads to the other end of a socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    async def connect(self, *args: object, **kwargs: object) -> socket.socket:
        return self._sock
