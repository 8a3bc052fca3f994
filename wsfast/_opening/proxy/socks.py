"""The negotiation with a SOCKS proxy, on a socket that is connected to it. python-socks knows the protocols.

Its classes would connect, too, but to the first address only, without the user's socket options, and with a time-out
for each call instead of one for all. So they are told to go there through another proxy, which is the socket itself.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from typing import Any

import python_socks
import python_socks.async_.asyncio
import python_socks.sync

from wsfast._opening.proxy.settings import Proxy
from wsfast.exceptions import InvalidProxyMessage, ProxyError

__all__ = ["negotiate", "negotiate_blocking"]

_TYPES = {
    "socks4": python_socks.ProxyType.SOCKS4,
    "socks4a": python_socks.ProxyType.SOCKS4,
    "socks5": python_socks.ProxyType.SOCKS5,
    "socks5h": python_socks.ProxyType.SOCKS5,
}

# Seconds: the deadline is the caller's, and python-socks would have one of a minute.
_NEVER = 365.0 * 86400


async def negotiate(sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """Ask for a connection to the server. Nothing is read of what the server sends.

    :raises ProxyError: the proxy refused
    :raises OSError: the connection to the proxy was lost
    """
    made = python_socks.async_.asyncio.Proxy(**_arguments(proxy), forward=_Connected(sock))
    try:
        await made.connect(host, port, timeout=_NEVER)
    except Exception as exc:
        raise _translated(exc) from _cause(exc)


def negotiate_blocking(
    sock: socket.socket, proxy: Proxy, host: str, port: int, left: Callable[[], float | None]
) -> None:
    """As `negotiate`.

    :param left: seconds until the deadline, None without one; raises TimeoutError when it has passed
    """
    made = python_socks.sync.Proxy(**_arguments(proxy), forward=_ConnectedBlocking(_Limited(sock, left)))
    try:
        made.connect(host, port, timeout=_NEVER)
    except Exception as exc:
        raise _translated(exc) from _cause(exc)


def _arguments(proxy: Proxy) -> dict[str, Any]:
    return {
        "proxy_type": _TYPES[proxy.scheme],
        "host": proxy.host,
        "port": proxy.port,
        "username": proxy.username,
        "password": proxy.password,
        "rdns": True,  # names are for the proxy to look up; where they are not, there are none
    }


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
    if isinstance(exc, TimeoutError):
        return TimeoutError("timed out during the negotiation with the SOCKS proxy")
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


class _ConnectedBlocking(python_socks.sync.Proxy):
    def __init__(self, sock: Any) -> None:
        self._sock = sock

    def connect(self, *args: object, **kwargs: object) -> Any:
        return self._sock


class _Limited:
    """A socket, of which each call gets what is left of the time."""

    def __init__(self, sock: socket.socket, left: Callable[[], float | None]) -> None:
        self._sock = sock
        self._left = left

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(self._left())
        self._sock.sendall(data)

    def recv(self, size: int) -> bytes:
        self._sock.settimeout(self._left())
        return self._sock.recv(size)

    def close(self) -> None:
        self._sock.close()
