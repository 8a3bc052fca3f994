"""The route of an attempt to connect: the proxy, TLS, and the servers of a chain of redirects.

`Routing` has the checked arguments of a ``connect``, of any client. A `Route` is one attempt with them; it leads from
server to server as long as they redirect.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import ssl
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from wsfast._common.headers import PlainHeaders
from wsfast._common.option_names import NOT_GIVEN
from wsfast._common.options import check_types
from wsfast._opening.http.handshake import USER_AGENT
from wsfast._opening.network_options import Network
from wsfast._opening.uri import WebSocketURI
from wsfast.exceptions import InvalidHandshake, InvalidStatus, SecurityError
from wsfast.tls import TLS, as_context, check_tls

if TYPE_CHECKING:
    from wsfast._opening.net.resolver import AddressCache, Resolver
    from wsfast._opening.proxy.settings import Proxy
    from wsfast._opening.proxy.tunnel import TunnelHandshake
    from wsfast._opening.redirects import Redirects

# As socket.getaddrinfo() returns them.
Addresses = Sequence[tuple[Any, Any, Any, Any, Any]]
# Text; or the step, the name of the peer, and its addresses if they are known.
Phase = str | tuple[str, str, Addresses]

__all__ = ["Route", "Routing"]

_LOGGER = logging.getLogger("wsfast.client")

# Systems with settings of proxies outside the environment.
_HAS_SETTINGS = sys.platform in ("darwin", "win32")


def may_name_a_proxy() -> bool:
    """True if the environment or the system may have settings about proxies.

    Each attempt to connect asks, and ``os.environ`` takes a microsecond for each name that it has not.
    """
    data = getattr(os.environ, "_data", None)
    if _HAS_SETTINGS or data is None:
        return True
    # In any case of letters, as urllib.request looks for them.
    return b"_proxy" in b" ".join(data).lower() and any(name[-6:].lower() == b"_proxy" for name in data)


_DEFAULT_NETWORK = Network()


class Routing:
    """The checked options about the server to connect to, and about the proxy and the TLS on the way.

    :param tls: of connections to the server
    :param server_hostname: overrides the name that the server's certificate must have
    :param host, port: override where to connect to
    :param proxy: a URL; True asks the environment and the system; None uses none
    :param proxy_tls: of connections to an https proxy, and its name among the arguments
    :param max_redirects: how many are followed
    :param process_redirect: as `Redirects` has it
    :param network: how names are looked up, and credentials found
    :param bound: ``"sock"`` or ``"path"`` if the connection is bound to such an argument; then no proxy is used
    """

    def __init__(
        self,
        uri: WebSocketURI,
        tls: ssl.SSLContext | TLS | None,
        proxy: object = True,
        *,
        server_hostname: str | None = None,
        host: str | None = None,
        port: int | str | None = None,
        proxy_tls: tuple[str, Any] = ("proxy_ssl", NOT_GIVEN),
        proxy_server_hostname: str | None = None,
        user_agent: str | None = USER_AGENT,
        network: Network | None = None,
        max_redirects: int = 10,
        process_redirect: Callable[[InvalidStatus, WebSocketURI], Exception | str] | None = None,
        bound: str = "",
    ) -> None:
        self.uri = uri
        self.tls = tls
        self.server_hostname = server_hostname
        self.host = host
        self.port = port
        self.proxy: Proxy | bool | None = None
        if proxy is True:
            self.proxy = not bound
        elif proxy is not None:
            from wsfast._opening.proxy.settings import parse_proxy

            self.proxy = parse_proxy(proxy)
        self.user_agent = user_agent
        check_types(Network, network=network)
        self.network = network or _DEFAULT_NETWORK
        self.max_redirects = max_redirects
        self.process_redirect = process_redirect
        self.bound = bound
        self._proxy_tls = proxy_tls
        self.proxy_server_hostname = proxy_server_hostname
        given = proxy_tls[1], proxy_server_hostname, self.network.proxy_headers
        if given != (NOT_GIVEN, None, None) or bound:
            self._check()

    def _check(self) -> None:
        from wsfast._opening.proxy.settings import Proxy

        check_tls(self._proxy_tls[0], self.proxy_tls)
        check_types(str, proxy_server_hostname=self.proxy_server_hostname)
        if isinstance(self.proxy, Proxy):
            if self.bound:
                raise ValueError(f"proxy is incompatible with {self.bound}, which says where to connect to")
            self.check_tls_of(self.proxy)
            if self.proxy.is_socks and self.network.proxy_headers is not None:
                raise ValueError("proxy_headers: SOCKS has no headers")
        self.tunnel(Proxy("http", "localhost", 80), "localhost", 80)

    @property
    def proxy_tls(self) -> Any:
        """The TLS of an https proxy; None is the default, as is websockets' True."""
        given = self._proxy_tls[1]
        return None if given is NOT_GIVEN or given is True else given

    def check_tls_of(self, proxy: Proxy) -> None:
        """Refuse a proxy that has TLS where the program wants none, or the other way round."""
        name, given = self._proxy_tls
        if proxy.secure and given is None:
            raise ValueError(f"{name}=None is incompatible with an https:// proxy")
        if not proxy.secure and (given not in (NOT_GIVEN, None) or self.proxy_server_hostname is not None):
            raise ValueError(f"{name} and proxy_server_hostname are incompatible with {proxy.scheme}://")

    def tunnel(self, proxy: Proxy, host: str, port: int) -> TunnelHandshake:
        """Asks an http or https proxy for a tunnel to the server."""
        from wsfast._opening.proxy.tunnel import TunnelHandshake

        return TunnelHandshake(
            proxy, host, port, headers=self.network.proxy_headers, user_agent=self.user_agent
        )


class Route:
    """One attempt to connect.

    Attributes:
        uri: of the server to ask next.
        proxy: that leads there, or None.
        tunnel: the handshake with the proxy, once it has begun.
        phase: the current step, for errors; `phase_text` makes text of it.

    """

    __slots__ = (
        "_addresses",
        "_logger",
        "_looked_up",
        "_redirects",
        "_routing",
        "phase",
        "proxy",
        "tunnel",
        "uri",
    )

    def __init__(self, routing: Routing) -> None:
        self._routing = routing
        self._redirects: Redirects | None = None
        self._logger: Any = _LOGGER
        self.uri = routing.uri
        self._begin()

    def _begin(self) -> None:
        self.phase: Phase = "connecting"
        self.tunnel: TunnelHandshake | None = None
        self.proxy: Proxy | None = None
        self._addresses: Addresses = ()
        self._looked_up: tuple[str, int] | None = None
        self._find_proxy()

    def _find_proxy(self) -> None:
        proxy = self._routing.proxy
        if isinstance(proxy, bool):
            if proxy and may_name_a_proxy():
                from wsfast._opening.proxy.settings import proxy_of_settings

                self.proxy = proxy_of_settings(self.uri.secure, self.host, self.port)
                if self.proxy is not None:
                    self._routing.check_tls_of(self.proxy)
        else:
            self.proxy = proxy

    def log(self, logger: Any) -> None:
        """Log the proxy, and the exchange with it."""
        self._logger = logger
        if self.proxy is not None:
            by = ", which the environment or the system names" if self.is_from_settings else ""
            logger.info("connecting to %s through the proxy %s%s", self.uri.netloc, str(self.proxy), by)

    # ---- where

    @property
    def host(self) -> str:
        """The host to connect to: that of `uri`, unless an argument overrides it."""
        return self._routing.host or self.uri.host

    @property
    def port(self) -> int:
        """The port to connect to: that of `uri`, unless an argument overrides it."""
        port = self._routing.port
        if isinstance(port, str):
            import socket

            return int(port) if port.isdecimal() else socket.getservbyname(port, "tcp")
        return self.uri.port if port is None else port

    @property
    def is_from_settings(self) -> bool:
        """True if the environment or the system named the proxy."""
        return self._routing.proxy is True

    def resolved(self, host: str, infos: Addresses) -> None:
        """Note the addresses of the server's name, before anything is sent there.

        :raises SecurityError: a public server redirects into a private network
        """
        self.phase = ("the TCP connection to", host, infos)
        self._addresses = infos
        self._looked_up = (host, self.port)
        if self._redirects is not None:
            for info in infos:
                self._redirects.check_address(info[4][0])

    @property
    def addresses(self) -> Addresses:
        """The known addresses of the server."""
        return self._addresses

    def refusal(self) -> InvalidHandshake | None:
        """The proxy's refusal, while its body is still arriving; else None."""
        return None if self.tunnel is None else self.tunnel.rejection

    @property
    def look_up(self) -> tuple[Resolver | None, AddressCache | None] | None:
        """The user's resolver and cache; None if the system alone looks up names."""
        network = self._routing.network
        if network.resolver is None and network.address_cache is None:
            return None
        return network.resolver, network.address_cache

    def connected(self, address: Any) -> None:
        """Remember the address of the server, which has agreed, if the user has a cache."""
        cache = self._routing.network.address_cache
        if cache is not None and self._looked_up is not None:
            cache.remember(*self._looked_up, self._addresses, address)

    def connected_by_user(self, sock: Any) -> None:
        """Note the address of a socket that the user has connected, as `resolved` does for others."""
        import socket

        if sock.family in (socket.AF_INET, socket.AF_INET6):
            address = sock.getpeername()
            self.resolved(address[0], [(sock.family, sock.type, sock.proto, "", address)])
        else:
            self._addresses = [(sock.family, sock.type, sock.proto, "", ("localhost",))]

    def phase_text(self) -> str:
        """The current step as text, for the error of a deadline."""
        if isinstance(self.phase, str):
            return self.phase
        step, name, infos = self.phase
        addresses = ", ".join(" port ".join(map(str, info[4][:2])) for info in infos)
        if not addresses:
            return f"{step} {name}"
        return f"{step} {addresses}" if infos[0][4][0] == name else f"{step} {name} ({addresses})"

    # ---- how

    @property
    def crossed(self) -> bool:
        """True if a redirect has led to another origin."""
        return self._redirects is not None and self._redirects.crossed

    def context(self) -> ssl.SSLContext | None:
        """The TLS of the server; None if it has none."""
        return as_context(self.tls()) if self.uri.secure else None

    def tls(self) -> ssl.SSLContext | TLS | None:
        """The TLS settings of the user, but without a client certificate that was meant for another origin."""
        tls = self._routing.tls
        if not self.crossed or tls is None:
            return tls
        if isinstance(tls, TLS):
            return dataclasses.replace(tls, client_cert=None)
        from wsfast._opening.tls.client_certificate import has_client_certificate

        if has_client_certificate(tls):
            raise SecurityError(
                "cannot follow the redirect to another origin with an SSLContext that has, or may have, a client's"
                " certificate: the server there would get it"
            )
        return tls

    @property
    def server_hostname(self) -> str:
        """The name that the server's certificate must have. The user's own holds for one origin only."""
        return (None if self.crossed else self._routing.server_hostname) or self.uri.host

    @property
    def credentials(self) -> tuple[str, str] | None:
        """The credentials of a .netrc file, for the origin of the URI. None if the file has none, or the URI
        has its own."""
        netrc = self._routing.network.netrc
        if not netrc or self.crossed or self.uri.user_info is not None:
            return None
        from wsfast._opening.credentials import from_netrc

        return from_netrc(netrc, self.uri.host)

    def headers(self, headers: PlainHeaders | None) -> PlainHeaders | None:
        """The user's headers, without those that must not go to another origin."""
        return headers if self._redirects is None else self._redirects.headers(headers)

    def subprotocols(self, subprotocols: Sequence[str] | None) -> Sequence[str] | None:
        """The user's subprotocols, without those that must not go to another origin."""
        return subprotocols if self._redirects is None else self._redirects.subprotocols(subprotocols)

    def new_tunnel(self, host: str) -> TunnelHandshake | None:
        """The handshake with the proxy; None if it is a SOCKS proxy.

        :param host: of the server
        """
        assert self.proxy is not None
        if not self.proxy.is_socks:
            from wsfast._opening.http.exchange_log import log_exchange

            self.tunnel = self._routing.tunnel(self.proxy, host, self.port)
            log_exchange(self.tunnel, self._logger)
        return self.tunnel

    def proxy_context(self) -> ssl.SSLContext:
        """The TLS of an https proxy."""
        return as_context(self._routing.proxy_tls)

    @property
    def proxy_tls(self) -> ssl.SSLContext | TLS | None:
        """The TLS of an https proxy, as the user gave it."""
        tls: ssl.SSLContext | TLS | None = self._routing.proxy_tls
        return tls

    @property
    def proxy_server_hostname(self) -> str:
        """The name that the proxy's certificate must have."""
        assert self.proxy is not None
        return self._routing.proxy_server_hostname or self.proxy.host

    # ---- whereto

    def follow(self, rejection: InvalidStatus) -> None:
        """Continue with the server that this one redirects to.

        :raises InvalidStatus: it does not redirect
        :raises InvalidHandshake: it leads nowhere, or must not be followed
        """
        from wsfast._opening.redirects import Redirects, is_public

        routing = self._routing
        if self._redirects is None:
            self._redirects = Redirects(
                self.uri,
                limit=routing.max_redirects,
                process_redirect=routing.process_redirect,
                bound="sock" if routing.bound == "sock" else self._bound(),
            )
        addresses = [info[4][0] for info in self._addresses]
        # A name with private and public addresses counts as public.
        peer = next((address for address in addresses if is_public(address)), None)
        self._redirects.follow(rejection, peer or next(iter(addresses), None))
        self.uri = self._redirects.uri
        self._begin()

    def _bound(self) -> str:
        routing = self._routing
        named = ("path", routing.bound), ("host", routing.host), ("port", routing.port)
        return next((name for name, value in named if value), "")
