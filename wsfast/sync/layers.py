"""The layers of TLS beneath a blocking connection: with an https proxy, with the server, or one within the other."""

from __future__ import annotations

import socket
import ssl
from typing import Any, NoReturn

from wsfast._opening.net.blocking import Deadline
from wsfast._opening.route import Route
from wsfast._opening.tls import rustls
from wsfast._opening.tls.handshake import ended_in_tls, not_tls
from wsfast._rust._native import ffi, lib
from wsfast.sync import ending, openssl
from wsfast.tls import TLS, TLSInfo, agreed_by_openssl, agreed_by_rustls, server_name

__all__ = ["Layer", "Raw", "for_crate", "layers"]


def layers(route: Route) -> list[Layer]:
    """The layers from the outside: the proxy's, the server's.

    :raises ValueError, OSError: the settings of one make no sense
    """
    result = []
    if route.proxy is not None and route.proxy.secure:
        result.append(Layer(route.proxy_tls, route.proxy_server_hostname, route.proxy.port, of_proxy=True))
    if route.uri.secure:
        result.append(Layer(route.tls(), route.server_hostname, route.port))
    return result


def for_crate(deadline: Deadline, step: str) -> float:
    """The seconds that are left, as the crate takes them."""
    left = deadline.left(step)
    return -1.0 if left is None else left


class Layer:
    """TLS with one peer: by rustls; or by OpenSSL, for a context of the user's, or for settings that rustls lacks."""

    def __init__(
        self, given: ssl.SSLContext | TLS | None, name: str, port: int, of_proxy: bool = False
    ) -> None:
        rustls.check_openssl()
        self._name = server_name(name)
        self._port = port
        self._of_proxy = of_proxy
        self._step = f"the TLS handshake with {self._name}"
        self.info: TLSInfo | None = None
        """The negotiated TLS parameters; None before the handshake."""
        self._context = given if isinstance(given, ssl.SSLContext) else None
        self._config: Any = None
        if not isinstance(given, ssl.SSLContext):
            self._config = rustls.config_for(given or TLS(), self._name)
            if self._config is None:
                self._context = (given or TLS()).context()

    def prepare(self, sock: socket.socket | Raw, deadline: Deadline) -> Any:
        """Do the part of the handshake before the crate speaks TLS itself. Returns the session for `begin`.

        :param sock: that leads to the peer
        """
        if self._context is None:
            return None
        try:
            wrapped = openssl.openssl_handshake(sock, self._context, self._name, deadline)
            self.info = agreed_by_openssl(wrapped)
            return wrapped
        except TimeoutError as exc:
            raise deadline.passed(self._step) from exc
        except OSError as exc:
            self._failed(exc)

    def begin(self, handle: Any, session: Any, deadline: Deadline, nested: bool = False) -> None:
        """Have the crate speak TLS from now on, perhaps within the TLS that it speaks."""
        try:
            if session is None:
                if nested:
                    data = self._name.encode()
                    _check(handle, lib.wst_tls_nest(handle, self._config, data, len(data), self._port))
                self._rustls_handshake(handle, deadline)
                self.info = _agreed(handle)
            else:
                _check(handle, openssl.adopt(handle, session))
        except TimeoutError:
            raise
        except OSError as exc:
            self._failed(exc)

    def _failed(self, exc: OSError) -> NoReturn:
        if self._of_proxy:
            from wsfast._opening.proxy.negotiation import no_tls

            raise no_tls(exc, self._name) from exc
        raise exc

    def _rustls_handshake(self, handle: Any, deadline: Deadline) -> None:
        data = self._name.encode()
        result = lib.WST_INTERRUPTED
        while result == lib.WST_INTERRUPTED:
            left = for_crate(deadline, self._step)
            result = lib.wst_tls_handshake(handle, self._config, data, len(data), self._port, left)
        if result == lib.WST_TIMEOUT:
            raise deadline.passed(self._step)
        _check(handle, result)


def _agreed(handle: Any) -> TLSInfo:
    """The TLS parameters that rustls has negotiated with the peer of the innermost layer."""
    state = ffi.new("wst_stream_state *")
    lib.wst_tls_describe(handle, state)
    der = ffi.new("char **")
    certificates: list[bytes] = []
    while (size := lib.wst_tls_certificate(handle, len(certificates), der)) >= 0:
        certificates.append(bytes(ffi.buffer(der[0], size)))
    cipher, alpn = ffi.unpack(state.cipher, state.cipher_size), ffi.unpack(state.alpn, state.alpn_size)
    return agreed_by_rustls(state.version, cipher, alpn, state.resumed, certificates)


class Raw:
    """The bytes that the crate sends and receives, as a blocking socket: for `openssl.openssl_handshake`."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._timeout: float | None = None

    def settimeout(self, timeout: float | None) -> None:
        self._timeout = timeout

    def setblocking(self, flag: bool) -> None:
        """Does nothing: the crate decides that."""

    def sendall(self, data: bytes) -> None:
        end = Deadline(self._timeout)
        sent = lib.WST_INTERRUPTED
        while sent == lib.WST_INTERRUPTED:  # and let the handlers of signals run
            sent = lib.wst_send_raw(self._handle, data, len(data), for_crate(end, "sending"))
            data = b""
        if sent:
            self._fail(sent)

    def recv(self, size: int) -> bytes:
        end = Deadline(self._timeout)
        buffer = ffi.new("char[]", size)
        received = lib.WST_INTERRUPTED
        while received == lib.WST_INTERRUPTED:
            received = lib.wst_recv_raw(self._handle, buffer, size, for_crate(end, "receiving"))
        if received == lib.WST_EOF:
            return b""
        if received < 0:
            self._fail(received)
        return bytes(ffi.unpack(buffer, received))

    def _fail(self, result: int) -> NoReturn:
        if result == lib.WST_TIMEOUT:
            raise TimeoutError("timed out")
        raise ending.describe(self._handle).cause or OSError("the connection is closed")


def _check(handle: Any, result: int) -> None:
    """Raise what ended the connection, if it has ended."""
    if result == lib.WST_EOF:
        raise ended_in_tls()
    if result:
        cause = ending.describe(handle).cause or OSError("the connection is closed")
        if "InvalidContentType" in str(cause):  # rustls' word for it
            raise not_tls() from cause
        raise cause
