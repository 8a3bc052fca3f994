import asyncio
import socket

from typing_extensions import disjoint_base

from wsfast._engine.base_transport import BaseTransport
from wsfast._engine.transport import WSTransport

def stamp_receipts(sock: socket.socket) -> None: ...

@disjoint_base
class SocketTransport(BaseTransport):
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        reader: WSTransport,
        kernel_stamps: bool = False,
        session: object = None,
        shutdown_timeout: float | None = None,
    ) -> None: ...
