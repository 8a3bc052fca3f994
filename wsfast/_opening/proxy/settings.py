"""The proxy that leads to a server: from a URL of the user's, or from the environment and the system. No I/O.

The variables are those that websockets reads (``wss_proxy`` or ``ws_proxy``, ``socks_proxy``, ``https_proxy`` and, for
ws, ``http_proxy``), and ``all_proxy`` after them: a user who sets it does not expect a direct connection.
"""

from __future__ import annotations

import ipaddress
import re
import sys
from dataclasses import dataclass, field

from wsfast._opening.uri import parse_uri
from wsfast.exceptions import InvalidProxy, InvalidURI

__all__ = ["Proxy", "parse_proxy", "proxy_of_settings"]

# HTTP's and HTTPS' own, and that of RFC 1928 section 3.
_DEFAULT_PORTS = {"http": 80, "https": 443, "socks4": 1080, "socks4a": 1080, "socks5": 1080, "socks5h": 1080}


@dataclass(frozen=True)
class Proxy:
    """A proxy. ``scheme`` is http, https, socks4, socks4a, socks5 or socks5h; ``host`` as in WebSocketURI; ``port`` is
    always set; ``username`` and ``password`` are decoded, both set or both None. ``str()`` hides them."""

    scheme: str
    host: str
    port: int
    username: str | None = field(default=None, repr=False)  # it may be a token
    password: str | None = field(default=None, repr=False)

    @property
    def user_info(self) -> tuple[str, str] | None:
        """``(username, password)``, or None."""
        return None if self.username is None or self.password is None else (self.username, self.password)

    @property
    def is_socks(self) -> bool:
        """True for the SOCKS schemes."""
        return self.scheme.startswith("socks")

    @property
    def secure(self) -> bool:
        """True if the connection to the proxy itself is TLS."""
        return self.scheme == "https"

    @property
    def resolves(self) -> bool:
        """True if the proxy looks up the server's name. ``socks4`` and ``socks5`` leave that to the client."""
        return self.scheme not in ("socks4", "socks5")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse_proxy(url: object) -> Proxy:
    """Parse the URL of a proxy, ``scheme://[username[:password]@]host[:port]``.

    :raises InvalidProxy: with a reason, and without the credentials
    """
    if not isinstance(url, str):
        raise TypeError(f"proxy must be a URL, True or None, not {type(url).__name__}")
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower()
    if scheme not in _DEFAULT_PORTS:
        raise InvalidProxy(url, "scheme isn't http, https, socks4, socks4a, socks5 or socks5h")
    userinfo, at, address = rest.rpartition("@")
    if at and ":" not in userinfo:
        rest = f"{userinfo}:@{address}"  # a token without a password, or the user ID of SOCKS4
    try:
        # The same rules as for the server's: nothing is repaired silently.
        parts = parse_uri(f"ws://{rest}")
    except InvalidURI as exc:
        raise InvalidProxy(url, exc.msg) from None  # whose text has no credentials
    if parts.path != "/" or parts.query or address.endswith("?"):
        raise InvalidProxy(url, "path and query are meaningless")
    port = parts.port if re.search(r":[0-9]+/?\Z", address) else _DEFAULT_PORTS[scheme]
    proxy = Proxy(scheme, parts.host, port, parts.username, parts.password)
    reason = _unusable_credentials(proxy)
    if reason:
        raise InvalidProxy(url, reason)
    return proxy


def _unusable_credentials(proxy: Proxy) -> str | None:
    """The reason why the credentials cannot be sent, or None."""
    if not proxy.is_socks or proxy.user_info is None:
        return None
    if not all(text.isascii() and len(text) <= 255 for text in proxy.user_info):
        return "username or password has more than 255 characters or one that isn't ASCII, which SOCKS can't send"
    if proxy.scheme in ("socks4", "socks4a"):
        return "SOCKS4 knows no password" if proxy.password else None
    # RFC 1929 section 2: each has at least one byte.
    return None if all(proxy.user_info) else "username or password is empty, which SOCKS5 can't send"


def proxy_of_settings(secure: bool, host: str, port: int) -> Proxy | None:
    """The proxy through which the environment and the system lead to a server; None if they lead there directly.

    :raises InvalidProxy: their value is not the URL of a proxy
    """
    import urllib.request  # it takes as long as the rest of wsfast

    proxies = urllib.request.getproxies()
    names = ("wss", "socks", "https", "all") if secure else ("ws", "socks", "https", "http", "all")
    name = next((name for name in names if proxies.get(name)), None)
    if name is None or _is_exempt(host, port, proxies.get("no", "")):
        return None
    # The system's own exemptions, too.
    if sys.platform in ("darwin", "win32") and urllib.request.proxy_bypass(f"{host}:{port}"):
        return None
    url = proxies[name].strip()
    if "://" not in url:
        url = f"{'socks5h' if name == 'socks' else 'http'}://{url}"
    elif name == "socks" and url.startswith("http://"):  # so it says on macOS
        url = "socks5h" + url[len("http") :]
    try:
        return parse_proxy(url)
    except InvalidProxy as exc:
        reason = f"{exc.msg} (found as {name}_proxy)"
    raise InvalidProxy(url, reason)


def _is_exempt(host: str, port: int, no_proxy: str) -> bool:
    """True if ``no_proxy`` names the server. Its entries are ``*``, names (and all that ends in them, with or without a
    leading dot or ``*.``), addresses and networks (CIDR), each perhaps with a port. Names are not looked up."""
    host = host.lower().rstrip(".")
    address = _address(host)
    for entry in re.split(r"[\s,]+", no_proxy.lower()):
        if entry == "*":
            return True
        name, its_port = _split_port(entry)
        if not name or its_port not in ("", str(port)):
            continue
        if address is not None:
            if _contains(name, address):
                return True
        elif f".{host}".endswith("." + name.removeprefix("*").strip(".")):
            return True
    return False


def _split_port(entry: str) -> tuple[str, str]:
    if entry.startswith("["):
        name, _, port = entry[1:].partition("]")
        return name, port.removeprefix(":")
    if entry.count(":") == 1:
        name, _, port = entry.partition(":")
        return name, port
    return entry, ""


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _contains(network: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    try:
        return address in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
