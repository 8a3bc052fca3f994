"""wsfast: the fastest WebSocket client for Python."""

from wsfast import _binding as _binding  # first: it says clearly why the compiled modules do not load
from wsfast._engine import WSListener, WSTransport
from wsfast._frame import WSFrame
from wsfast._writer import mask_kernel
from wsfast.asyncio.client import connect
from wsfast.closing import WSCloseHandshake, WSCloseInfo, WSDisconnectInfo
from wsfast.codes import WSAutoPingStrategy, WSCloseCode, WSMsgType
from wsfast.exceptions import (
    ConnectionClosed,
    ConnectionClosedError,
    ConnectionClosedOK,
    InvalidHandshake,
    InvalidHeader,
    InvalidMessage,
    InvalidStatus,
    InvalidText,
    InvalidUpgrade,
    InvalidURI,
    KeepaliveTimeout,
    NegotiationError,
    PayloadTooBig,
    ProtocolError,
    WebSocketException,
    WSError,
    WSHandshakeError,
    WSInvalidHeaderError,
    WSInvalidMessageError,
    WSInvalidStatusError,
    WSInvalidUpgradeError,
    WSInvalidURL,
    WSProtocolError,
)
from wsfast.handshake import UpgradeRequest, UpgradeResponse, WSUpgradeRequest, WSUpgradeResponse
from wsfast.opening import ws_connect
from wsfast.stats import WSStats
from wsfast.tls import TLS
from wsfast.uri import WebSocketURI, WSParsedURL

__all__ = [
    "TLS",
    "ConnectionClosed",
    "ConnectionClosedError",
    "ConnectionClosedOK",
    "InvalidHandshake",
    "InvalidHeader",
    "InvalidMessage",
    "InvalidStatus",
    "InvalidText",
    "InvalidURI",
    "InvalidUpgrade",
    "KeepaliveTimeout",
    "NegotiationError",
    "PayloadTooBig",
    "ProtocolError",
    "UpgradeRequest",
    "UpgradeResponse",
    "WSAutoPingStrategy",
    "WSCloseCode",
    "WSCloseHandshake",
    "WSCloseInfo",
    "WSDisconnectInfo",
    "WSError",
    "WSFrame",
    "WSHandshakeError",
    "WSInvalidHeaderError",
    "WSInvalidMessageError",
    "WSInvalidStatusError",
    "WSInvalidURL",
    "WSInvalidUpgradeError",
    "WSListener",
    "WSMsgType",
    "WSParsedURL",
    "WSProtocolError",
    "WSStats",
    "WSTransport",
    "WSUpgradeRequest",
    "WSUpgradeResponse",
    "WebSocketException",
    "WebSocketURI",
    "connect",
    "mask_kernel",
    "ws_connect",
]
