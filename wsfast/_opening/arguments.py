"""Options as type checkers see them, where a function takes them as ``**kwargs``. No module imports this at run time.

mypy checks that each option suits the signature that it is passed on to; a test, that none is missing.
"""

from __future__ import annotations

import socket as socket_module
import ssl as ssl_module
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict

from wsfast._common.headers import AwaitedHeadersLike, HeadersLike
from wsfast._common.options import Marks
from wsfast._common.protocol_numbers import WSAutoPingStrategy
from wsfast._engine.tuning import Tuning
from wsfast._opening.net.addresses import SocketFactory
from wsfast._opening.network_options import Network
from wsfast._opening.reconnecting import Delays, LoggerLike, Verdict
from wsfast.deflate import PerMessageDeflate
from wsfast.tls import TLS, ClientCert

_TLSLike = ssl_module.SSLContext | TLS | Literal[True] | None


class Address(TypedDict, total=False):
    """The arguments of ``loop.create_connection`` that all clients have."""

    host: str | None
    port: int | str | None
    family: int
    local_addr: tuple[str, int] | None
    source_address: tuple[str, int] | None
    happy_eyeballs_delay: float | None


class Loops(Address, total=False):
    """The arguments of ``loop.create_connection``."""

    proto: int
    flags: int
    interleave: int | None
    server_hostname: str | None
    ssl_handshake_timeout: float | None
    ssl_shutdown_timeout: float | None
    ssl_incoming_bio_size: int | None
    ssl_outgoing_bio_size: int | None


class ListenersOthers(Loops, total=False):
    """Options that ``ws_connect`` takes besides the options in its signature."""

    ssl: _TLSLike
    proxy_ssl: _TLSLike
    proxy_server_hostname: str | None
    max_size: int | None
    additional_headers: AwaitedHeadersLike | None
    logger: LoggerLike | str | None
    ping_interval: float | None
    ping_timeout: float | None
    read_buffer_init_size: int


class PicowsNames(TypedDict, total=False):
    ssl_context: _TLSLike
    proxy_ssl_context: _TLSLike
    max_frame_size: Marks
    logger_name: LoggerLike | str | None
    all_errors: bool


class AwaitablesOthers(Loops, PicowsNames, total=False):
    """Options that the awaitable ``connect`` takes besides the options in its signature."""

    extra_headers: AwaitedHeadersLike | None


class BlockingOthers(Address, PicowsNames, total=False):
    """Options that ``reconnect`` takes besides the options in its signature."""

    extra_headers: HeadersLike | None
    address: tuple[str, int] | None


class _Common(TypedDict, total=False):
    """The options in all signatures."""

    origin: str | None
    extensions: Sequence[PerMessageDeflate] | None
    subprotocols: Sequence[str] | None
    compression: str | PerMessageDeflate | None
    user_agent_header: str | None
    proxy: str | bool | None
    open_timeout: float | None
    close_timeout: float | None
    network: Network | None
    tuning: Tuning | None


class ListenersOptions(ListenersOthers, _Common, total=False):
    """All options of ``ws_connect``."""

    ssl_context: _TLSLike
    disconnect_on_exception: bool
    websocket_handshake_timeout: float | None
    logger_name: LoggerLike | str | None
    enable_auto_ping: bool
    auto_ping_idle_timeout: float
    auto_ping_reply_timeout: float
    auto_ping_strategy: WSAutoPingStrategy
    enable_auto_pong: bool
    max_frame_size: int | None
    extra_headers: AwaitedHeadersLike | None
    max_redirects: int
    proxy_ssl_context: _TLSLike
    socket_factory: SocketFactory | None
    use_aiofastnet: bool | None


class _WebsocketsNames(_Common, total=False):
    """The options in the signatures of the awaitable ``connect`` and of ``reconnect``."""

    ssl: _TLSLike
    sock: socket_module.socket | None
    proxy_ssl: _TLSLike
    proxy_server_hostname: str | None
    process_exception: Verdict
    ping_interval: float | None
    ping_timeout: float | None
    reconnect_delays: Delays
    max_size: Marks
    max_queue: Marks
    logger: LoggerLike | str | None
    create_connection: Callable[..., Any] | None


class AwaitablesOptions(AwaitablesOthers, _WebsocketsNames, total=False):
    """All options of the awaitable ``connect``."""

    additional_headers: AwaitedHeadersLike | None
    write_limit: int | tuple[int, int | None]
    overflow: Literal["pause", "drop_oldest", "drop_newest", "conflate", "fail"]
    conflate_key: Callable[[bytes], Any] | None
    on_high_water: Callable[[Any], object] | None


class BlockingOptions(BlockingOthers, _WebsocketsNames, total=False):
    """All options of ``reconnect``."""

    additional_headers: HeadersLike | None
    server_hostname: str | None
    client_cert: ClientCert | None
