"""Hides secrets in texts that show URLs and headers, and in headers that follow a redirect. No I/O.

Each part of a URL but its scheme, host and port may be a secret: credentials, a key in the path, a token in the query.
Exchanges name their headers as they like. So these functions know what is harmless, and hide or keep back the rest.
"""

from __future__ import annotations

import re

__all__ = ["HIDDEN", "is_name", "may_follow", "shown", "shown_subprotocol", "shown_target", "shown_value"]

HIDDEN = "***"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:)?//")
# [userinfo@]host[:port]. In text that looks otherwise, nothing tells a password from a host.
_AUTHORITY = re.compile(r"([^/?#\\\s]*@)?((?:\[[\w:.%~-]*\]|[\w.-]*)(?::[0-9]*)?)(?=[/?#]|\Z)")

# Parts of a path with parameters or with so many characters: a listen key of Binance has 64 of them, a key of Infura
# 32, and names of streams have fewer.
_SECRET_IN_PATH = re.compile(r"[^/;]{25,}|;.*", re.DOTALL)

# The program's headers that a request to another server may have: none that is about the first server.
_FOLLOWING = {
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "cache-control",
    "origin",
    "pragma",
}
_FOLLOWING |= {"sec-websocket-extensions", "user-agent"}

# Headers that may be logged with any value: those of the handshake, and those that describe a reply.
_HARMLESS = _FOLLOWING | {
    "allow",
    "connection",
    "content-encoding",
    "content-language",
    "content-length",
    "content-type",
}
_HARMLESS |= {
    "date",
    "expires",
    "host",
    "keep-alive",
    "proxy-connection",
    "retry-after",
    "sec-websocket-accept",
}
_HARMLESS |= {
    "sec-websocket-key",
    "sec-websocket-version",
    "server",
    "strict-transport-security",
    "transfer-encoding",
}
_HARMLESS |= {"upgrade", "vary", "via"}

# A subprotocol may carry a credential, since browsers can send no other header. Names are made of words and numbers of
# versions, such as graphql-transport-ws, wamp.2.json and MBWS.huawei.com.
_NAME = re.compile(r"(?:v?[0-9]{1,3}|(?:[A-Za-z]?[a-z]{0,19}|[A-Z]{1,5})[0-9]{0,2})(?:[._/+-]|\Z)")
_TELLING = re.compile(
    r"auth|cookie|token|ticket|key|secret|sign|\bsig\b|pass|pwd|hmac|credential|session|jwt|bearer|csrf|xsrf|otp",
    re.I,
)


def shown(url: str) -> str:
    """The URL as a text may show it. It need not be valid, and may have been through here before."""
    scheme = _SCHEME.match(url)
    start = scheme[0] if scheme else ""
    authority = _AUTHORITY.match(url, len(start))
    if authority is None:
        return f"{start}{HIDDEN}"
    return (
        f"{start}{HIDDEN + '@' if authority[1] else ''}{authority[2]}{shown_target(url[authority.end() :])}"
    )


def shown_target(target: str) -> str:
    """Path and query, as `shown` has them."""
    path, mark = re.findall(r"\A([^?#]*)([?#]?)", target)[0]
    if "@" in path:  # perhaps that of a password which has a slash
        path = f"/{HIDDEN}@{path.rpartition('@')[2]}"
    return f"{_SECRET_IN_PATH.sub(HIDDEN, path)}{mark}{HIDDEN if mark else ''}"


def shown_value(name: str, value: str) -> str:
    """The value of a header as the log may show it."""
    if name.lower() == "sec-websocket-protocol":
        return ", ".join(shown_subprotocol(token.strip()) for token in value.split(","))
    return value if name.lower() in _HARMLESS else HIDDEN


def shown_subprotocol(subprotocol: str) -> str:
    """The subprotocol as a text may show it."""
    return subprotocol if is_name(subprotocol) else HIDDEN


def may_follow(name: str) -> bool:
    """True if a redirect to another origin may take this header of the program along."""
    return name.lower() in _FOLLOWING


def is_name(subprotocol: str) -> bool:
    """True if this is the name of a subprotocol, and not a secret sent as one."""
    end = 0
    while end < len(subprotocol):
        part = _NAME.match(subprotocol, end)
        if part is None or part.end() == end:
            return False
        end = part.end()
    return _TELLING.search(subprotocol) is None
