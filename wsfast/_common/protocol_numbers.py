"""The numbers of the WebSocket protocol: opcodes (RFC 6455 section 5.2) and close codes (section 7.4).

All are ``IntEnum``: a member equals its number, and can be used wherever an ``int`` is expected.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["WSAutoPingStrategy", "WSCloseCode", "WSMsgType", "explain"]


class WSMsgType(IntEnum):
    """The opcode of a frame (RFC 6455 section 5.2)."""

    CONTINUATION = 0x0
    TEXT = 0x1
    BINARY = 0x2
    CLOSE = 0x8
    PING = 0x9
    PONG = 0xA


class WSCloseCode(IntEnum):
    """Why a connection closes (RFC 6455 section 7.4.1 and the IANA WebSocket close code registry).

    ``NO_INFO`` stands for a CLOSE frame without a code, and ``ABNORMAL_CLOSURE`` for a connection that ended
    without a CLOSE frame. Neither is ever put on the wire.
    """

    NO_INFO = 0
    OK = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    UNSUPPORTED_DATA = 1003
    ABNORMAL_CLOSURE = 1006
    INVALID_TEXT = 1007
    POLICY_VIOLATION = 1008
    MESSAGE_TOO_BIG = 1009
    MANDATORY_EXTENSION = 1010
    INTERNAL_ERROR = 1011
    SERVICE_RESTART = 1012
    TRY_AGAIN_LATER = 1013
    BAD_GATEWAY = 1014


class WSAutoPingStrategy(IntEnum):
    """When keepalive pings are sent: only after silence from the peer, or at every interval."""

    PING_WHEN_IDLE = 1
    PING_PERIODICALLY = 2


# 1005, 1006 and 1015 are never sent, but a Close may contain them (RFC 6455 section 7.4.1).
_EXPLANATIONS = {
    1000: "OK",
    1001: "going away",
    1002: "protocol error",
    1003: "unsupported data",
    1005: "no status received [internal]",
    1006: "abnormal closure [internal]",
    1007: "invalid frame payload data",
    1008: "policy violation",
    1009: "message too big",
    1010: "mandatory extension",
    1011: "internal error",
    1012: "service restart",
    1013: "try again later",
    1014: "bad gateway",
    1015: "TLS handshake failure [internal]",
}


def explain(code: int) -> str:
    """The meaning of a close code, in a few words."""
    if 3000 <= code <= 3999:
        return "registered"
    if 4000 <= code <= 4999:
        return "private use"
    return _EXPLANATIONS.get(code, "unknown")
