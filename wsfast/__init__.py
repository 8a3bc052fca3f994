"""wsfast: a fast WebSocket client for Python."""

from typing import TYPE_CHECKING, Any

from wsfast._common.closing import WSCloseHandshake, WSCloseInfo, WSDisconnectInfo
from wsfast._common.protocol_numbers import WSAutoPingStrategy, WSCloseCode, WSMsgType
from wsfast._common.upgrade import (
    UpgradeRequest,
    UpgradeResponse,
    WSUpgradeRequest,
    WSUpgradeResponse,
    WSUpgradeResponseWithListener,
)
from wsfast._common.version import VERSION
from wsfast._engine import (  # first: it says clearly why the compiled modules do not load
    WSListener,
    WSTransport,
)
from wsfast._engine.frames.frame import WSFrame
from wsfast._engine.frames.inspection import WSMessageInfo, WSStats
from wsfast._engine.transport import mask_kernel
from wsfast._engine.tuning import Tuning
from wsfast._opening.net.resolver import AddressCache
from wsfast._opening.network_options import Network
from wsfast._opening.uri import WebSocketURI, WSParsedURL
from wsfast.asyncio.client import connect
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
from wsfast.listener import ws_connect
from wsfast.tls import TLS

if TYPE_CHECKING:
    from wsfast.supervisor import supervise

__version__ = VERSION

__all__ = [
    "TLS",
    "AddressCache",
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
    "Network",
    "PayloadTooBig",
    "ProtocolError",
    "Tuning",
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
    "WSMessageInfo",
    "WSMsgType",
    "WSParsedURL",
    "WSProtocolError",
    "WSStats",
    "WSTransport",
    "WSUpgradeRequest",
    "WSUpgradeResponse",
    "WSUpgradeResponseWithListener",
    "WebSocketException",
    "WebSocketURI",
    "__version__",
    "connect",
    "mask_kernel",
    "supervise",
    "ws_connect",
]

if not TYPE_CHECKING:  # or no name would be wrong

    def __getattr__(name: str) -> Any:
        """Names that few programs use are imported with their first use."""
        if name != "supervise":
            from importlib.util import find_spec

            module = name[0] != "_" and find_spec(f"{__name__}.{name}")
            hint = f": write `import {__name__}.{name}`" if module else ""
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
        from wsfast.supervisor import supervise

        globals()[name] = supervise
        return supervise
