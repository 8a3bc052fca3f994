import asyncio
import socket

from aiofastnet import Transport

from wsfast._reader import FrameReader

class SocketTransport(Transport):
    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, reader: FrameReader) -> None: ...
