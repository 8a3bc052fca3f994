"""The handshake with an HTTP proxy: CONNECT (RFC 9110 section 9.3.6). No I/O."""

from __future__ import annotations

from wsfast._common.headers import VISIBLE, PlainHeaders, basic_auth, check_value, checked_headers
from wsfast._common.upgrade import UpgradeResponse
from wsfast._opening.http.exchange import Exchange
from wsfast._opening.http.handshake import USER_AGENT
from wsfast._opening.http.reply import Reply
from wsfast._opening.proxy.settings import Proxy
from wsfast.exceptions import InvalidProxyMessage, InvalidProxyStatus

__all__ = ["TunnelHandshake"]

# Headers that this module sets itself, or that would announce a body.
_RESERVED = ("host", "content-length", "transfer-encoding", "connection", "upgrade")


class TunnelHandshake(Exchange):
    """One request for a tunnel.

    After success, ``trailing`` are bytes of the server. Failures raise a ProxyError: InvalidProxyStatus has the reply
    of a proxy that refused, InvalidProxyMessage the reason why its bytes are not a reply.

    :param headers: added to the request; Proxy-Authorization and User-Agent replace those that would be generated from
        `proxy` and `user_agent`
    :raises ValueError: `host` or a header cannot be sent; the text names the header and hides its value
    """

    _whose = "the proxy's"
    _secure = "an https:// proxy"
    _invalid = InvalidProxyMessage
    _too_long = InvalidProxyMessage
    _refused = InvalidProxyStatus

    def __init__(
        self,
        proxy: Proxy,
        host: str,
        port: int,
        *,
        headers: PlainHeaders | None = None,
        user_agent: str | None = USER_AGENT,
    ) -> None:
        name = host.partition("%")[0]  # a zone means nothing to the proxy
        target = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
        if not VISIBLE.fullmatch(target):
            raise ValueError(
                f"host: {host!r} cannot be sent to a proxy: it must be a name or an address, in ASCII"
            )
        fields = [("Host", target)]
        extra = checked_headers("proxy_headers", headers, _RESERVED)
        given = {name.lower() for name, _ in extra}
        if user_agent is not None and "user-agent" not in given:
            fields.append(("User-Agent", check_value("user_agent_header", user_agent)))
        if proxy.user_info is not None and "proxy-authorization" not in given:
            fields.append(("Proxy-Authorization", basic_auth(*proxy.user_info)))
        lines = [f"CONNECT {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields + extra)]
        super().__init__("\r\n".join([*lines, "", ""]).encode())
        self._encrypted = proxy.secure

    def _agrees(self, reply: Reply, response: UpgradeResponse) -> bool:
        if reply.version not in (b"HTTP/1.0", b"HTTP/1.1"):
            raise InvalidProxyMessage(
                f"unsupported HTTP version of the proxy: {reply.version.decode('ascii')}"
            )
        if reply.status == 101:
            raise InvalidProxyMessage("the proxy switches to another protocol, which nobody asked for")
        # Whatever the headers say about a body: there is none (RFC 9110 section 9.3.6).
        return reply.status < 300
