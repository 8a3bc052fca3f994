"""Options as type checkers see them, where a function takes them as ``**kwargs``. No module imports this at run time.

mypy checks that each option suits the signature that it is passed on to; a test, that none is missing.
"""

from __future__ import annotations

import socket as socket_module
import ssl as ssl_module
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict

from wsfast._common.headers import AwaitedHeadersLike, HeadersLike, PlainHeaders
from wsfast._common.options import Marks
from wsfast._engine.tuning import Histogram, SocketOption
from wsfast._opening.credentials import NetrcLike
from wsfast._opening.net.resolver import AddressCache, Resolver
from wsfast._opening.reconnecting import Delays, LoggerLike, Verdict
from wsfast.deflate import PerMessageDeflate
from wsfast.tls import TLS, ClientCert

_TLSLike = ssl_module.SSLContext | TLS | Literal[True] | None


class Address(TypedDict, total=False):
    """The arguments of ``loop.create_connection`` that all faces have."""

    host: str | None
    port: int | str | None
    family: int
    local_addr: tuple[str, int] | None
    happy_eyeballs_delay: float | None


class Loops(Address, total=False):
    """The arguments of ``loop.create_connection``."""

    source_address: tuple[str, int] | None
    proto: int
    flags: int
    interleave: int | None
    server_hostname: str | None
    ssl_handshake_timeout: float | None
    ssl_shutdown_timeout: float | None
    ssl_incoming_bio_size: int | None
    ssl_outgoing_bio_size: int | None


class ListenersOthers(Loops, total=False):
    """What ``ws_connect`` takes besides the options in its signature."""

    ssl: _TLSLike
    proxy_ssl: _TLSLike
    max_size: int | None
    additional_headers: AwaitedHeadersLike | None
    logger: LoggerLike | str | None


class PicowsNames(TypedDict, total=False):
    ssl_context: _TLSLike
    proxy_ssl_context: _TLSLike
    max_frame_size: Marks
    logger_name: LoggerLike | str | None
    all_errors: bool


class AwaitablesOthers(Loops, PicowsNames, total=False):
    """What the awaitable ``connect`` takes besides the options in its signature."""

    ssl: _TLSLike
    sock: socket_module.socket | None
    extra_headers: AwaitedHeadersLike | None


class BlockingOthers(PicowsNames, total=False):
    """What ``reconnect`` takes besides the options in its signature."""

    extra_headers: HeadersLike | None
    source_address: tuple[str, int] | None
    address: tuple[str, int] | None


class Named(TypedDict, total=False):
    """The options in the signatures of the awaitable ``connect`` and of ``reconnect``."""

    origin: str | None
    extensions: Sequence[PerMessageDeflate] | None
    subprotocols: Sequence[str] | None
    compression: str | PerMessageDeflate | None
    user_agent_header: str | None
    proxy: str | bool | None
    proxy_ssl: _TLSLike
    proxy_server_hostname: str | None
    proxy_headers: PlainHeaders | None
    resolver: Resolver | None
    address_cache: AddressCache | None
    netrc: NetrcLike
    process_exception: Verdict
    open_timeout: float | None
    ping_interval: float | None
    ping_timeout: float | None
    close_timeout: float | None
    reconnect_delays: Delays
    max_size: Marks
    max_queue: Marks
    busy_poll: float
    logger: LoggerLike | str | None
    create_connection: Callable[..., Any] | None
    timestamps: str | None
    max_read_size: int | None
    quickack: bool
    so_busy_poll: int
    sockopts: Sequence[SocketOption]
    ping_histogram: Histogram | None


class AwaitablesOptions(AwaitablesOthers, Named, total=False):
    """All options of the awaitable ``connect``."""

    additional_headers: AwaitedHeadersLike | None
    write_limit: int | tuple[int, int | None]
    write_policy: str
    overflow: str
    conflate_key: Callable[[bytes], Any] | None
    on_high_water: Callable[[Any], object] | None


class BlockingOptions(BlockingOthers, Named, Address, total=False):
    """All options of ``reconnect``."""

    additional_headers: HeadersLike | None
    sock: socket_module.socket | None
    ssl: _TLSLike
    server_hostname: str | None
    client_cert: ClientCert | None
