"""Where a hostile server redirects to: whatever its Location says, no secret goes to another origin.

Input: a byte that chooses the server that redirects, then the value of its Location.
"""

from __future__ import annotations

from wsfast._common.upgrade import UpgradeResponse
from wsfast._opening.http.handshake import ClientHandshake
from wsfast._opening.redirects import Redirects, is_public
from wsfast._opening.uri import WebSocketURI, parse_uri
from wsfast.exceptions import InvalidHandshake, InvalidStatus

SECRET = "hunter2"
ORIGINS = [
    parse_uri(f"{scheme}://me:{SECRET}@{host}/a/b?c=d")
    for scheme in ("ws", "wss")
    for host in (
        "exchange.example",
        "exchange.example:8443",
        "192.0.2.1",
        "8.8.8.8",
        "[2606:4700::1111]",
        "127.0.0.1",
    )
]
HEADERS = [
    ("Cookie", SECRET),
    ("X-Api-Key", SECRET),
    ("X-Plain", "plain"),
    ("Accept-Language", "plain"),
    ("Host", SECRET),
]


def check(data: bytes) -> None:
    if not data:
        return
    origin = ORIGINS[data[0] % len(ORIGINS)]
    value = bytes(byte for byte in data[1:] if byte not in b"\r\n\0")  # which no header has
    response = UpgradeResponse(b"HTTP/1.1", 302, "Found", b"Location: " + value.strip(b" \t"))
    redirects = Redirects(origin)
    try:
        redirects.follow(InvalidStatus(response), None)
    except InvalidHandshake as exc:
        assert SECRET not in str(exc)  # noqa: PT017
        assert exc.response is response  # noqa: PT017
        assert redirects.uri is origin
        return
    check_target(origin, redirects)


def check_target(origin: WebSocketURI, redirects: Redirects) -> None:
    target = redirects.uri
    assert target.secure or not origin.secure
    assert is_public(target.host) or not is_public(origin.host)
    same = (target.secure, target.host, target.port) == (origin.secure, origin.host, origin.port)
    assert redirects.crossed is not same
    assert target.user_info == (origin.user_info if same else None)
    assert SECRET not in target.uri
    again = parse_uri(target.uri)
    assert (again.secure, again.host, again.port, again.resource_name) == (
        target.secure,
        target.host,
        target.port,
        target.resource_name,
    )
    handshake = ClientHandshake(
        target, extra_headers=redirects.headers(HEADERS if not same else HEADERS[:-1])
    )
    lines = handshake.request_bytes.split(b"\r\n")
    assert lines[0] == f"GET {target.resource_name} HTTP/1.1".encode()
    assert sum(line.lower().startswith(b"host:") for line in lines) == 1
    assert lines[1] == f"Host: {target.netloc}".encode()
    assert b"Accept-Language: plain" in lines
    assert (b"X-Plain: plain" in lines) is same
    if not same:
        assert SECRET.encode() not in handshake.request_bytes
        assert not any(line.lower().startswith((b"authorization:", b"cookie:")) for line in lines)
