"""The layers of TLS beneath a blocking connection: with an https proxy, with the server, or one within the other."""

from __future__ import annotations

import socket
import ssl
from typing import Any, NoReturn

from wsfast._opening.blocking import Deadline
from wsfast._opening.route import Route
from wsfast._opening.transports import ended_in_tls, not_tls
from wsfast.exceptions import InvalidProxy
from wsfast.sync import ending, tls
from wsfast.sync._native import lib
from wsfast.tls import TLS, server_name

__all__ = ["Layer", "for_crate", "layers"]


def layers(route: Route) -> list[Layer]:
    """From the outside: that of the proxy, that of the server.

    :raises ValueError, OSError: the settings of one make no sense
    """
    found = []
    if route.proxy is not None and route.proxy.secure:
        found.append(Layer(route.proxy_tls, route.proxy_server_hostname, of_proxy=True))
    if route.uri.secure:
        found.append(Layer(route.tls(), route.server_hostname))
    if len(found) > 1:
        raise InvalidProxy(
            str(route.proxy),
            "the blocking client cannot speak wss:// through an https:// proxy: use an http:// one, or another face",
        )
    return found


def for_crate(deadline: Deadline, step: str) -> float:
    """The seconds that are left, as the crate takes them."""
    left = deadline.left(step)
    return -1.0 if left is None else left


class Layer:
    """By rustls, or with a context of the user's by OpenSSL."""

    def __init__(self, given: ssl.SSLContext | TLS | None, name: str, of_proxy: bool = False) -> None:
        self._name = server_name(name)
        self._of_proxy = of_proxy
        self._context = given if isinstance(given, ssl.SSLContext) else None
        self._config = None if isinstance(given, ssl.SSLContext) else tls.config(given or TLS())

    def prepare(self, sock: socket.socket, deadline: Deadline) -> Any:
        """What is to be done before the crate gets the socket. Returns what `begin` wants."""
        if self._context is None:
            return None
        try:
            return tls.shake_hands(sock, self._context, self._name, deadline)
        except TimeoutError:
            raise
        except OSError as exc:
            self._failed(exc)

    def begin(self, handle: Any, session: Any, deadline: Deadline) -> None:
        """Have the crate speak TLS from now on."""
        try:
            if session is None:
                self._shake_hands(handle, deadline)
            else:
                _check(handle, tls.adopt(handle, session))
        except TimeoutError:
            raise
        except OSError as exc:
            self._failed(exc)

    def _failed(self, exc: OSError) -> NoReturn:
        if self._of_proxy:
            from wsfast._opening.proxied import no_tls

            raise no_tls(exc, self._name) from exc
        raise exc

    def _shake_hands(self, handle: Any, deadline: Deadline) -> None:
        step = f"the TLS handshake with {self._name}"
        data = self._name.encode()
        result = lib.WST_INTERRUPTED
        while result == lib.WST_INTERRUPTED:
            left = for_crate(deadline, step)
            result = lib.wst_tls_handshake(handle, self._config, data, len(data), left)
        if result == lib.WST_TIMEOUT:
            raise deadline.passed(step)
        _check(handle, result)


def _check(handle: Any, result: int) -> None:
    """Raise what ended the connection, if it has ended."""
    if result == lib.WST_EOF:
        raise ended_in_tls()
    if result:
        cause = ending.describe(handle).cause or OSError("the connection is closed")
        if "InvalidContentType" in str(cause):  # rustls' word for it
            raise not_tls() from cause
        raise cause
