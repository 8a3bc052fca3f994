import asyncio
import socket
from typing import Any

from typing_extensions import disjoint_base

from wsfast._engine.reader import FrameReader
from wsfast._engine.socket import SocketTransport
from wsfast.tls import TLSInfo

@disjoint_base
class CipherArea: ...

@disjoint_base
class TLSSession:
    def __new__(cls, config: Any, name: bytes) -> TLSSession: ...
    @property
    def is_handshaking(self) -> bool: ...
    @property
    def has_failed(self) -> bool: ...
    @property
    def has_ended(self) -> bool: ...
    def feed(self, received: bytearray) -> None: ...
    def take(self) -> bytes: ...
    def failure(self) -> OSError: ...
    def describe(self) -> TLSInfo: ...

@disjoint_base
class TLSTransport(SocketTransport):
    @property
    def tls(self) -> TLSInfo: ...
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        reader: FrameReader,
        kernel_stamps: bool,
        session: TLSSession,
        shutdown_timeout: float,
    ) -> None: ...
