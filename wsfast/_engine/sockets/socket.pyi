import asyncio
import socket

from typing_extensions import disjoint_base

from wsfast._engine.frames.reader import FrameReader
from wsfast._engine.sockets.base import BaseTransport

def stamp_receipts(sock: socket.socket) -> None: ...

@disjoint_base
class SocketTransport(BaseTransport):
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        reader: FrameReader,
        kernel_stamps: bool = False,
        session: object = None,
        shutdown_timeout: float | None = None,
    ) -> None: ...
