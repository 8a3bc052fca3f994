"""A flood that every client gets in reads of the same size: its server is in the client's process.

A server of its own sends while the client reads, so how much a read gets depends on time, and the awaitable client
wakes for each read. Here the server sends a block in each iteration of the event loop, and the client reads two blocks
at a time.

All clocks stand still (machine/still_clock.c). Under valgrind they run some hundred times too fast for the client: it
would look whether other tasks wait after each message, where it does so after 64, and keepalive would send PINGs.
"""

import asyncio
import ctypes
import gc
import importlib
import sys

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Request

from bench.clients.payloads import asked_flood

BLOCK = 16 * 1024  # the kernel takes two of them at once, whatever its buffers


class Server(asyncio.Protocol):
    def __init__(self, size, count):
        self.asked, payload, _ = asked_flood(size, count)
        header = bytes([0x82, size]) if size < 126 else b"\x82\x7e" + size.to_bytes(2, "big")
        self.frame = header + payload
        self.count = count

    def connection_made(self, transport):
        self.transport = transport
        self.connection = WSConnection(ConnectionType.SERVER)

    def data_received(self, data):
        self.connection.receive_data(data)
        for event in self.connection.events():
            if isinstance(event, Request):
                self.transport.write(self.connection.send(AcceptConnection()))
            elif isinstance(event, BytesMessage):
                assert event.data == self.asked, event.data
                self.left = self.count
                self.feed()
            elif isinstance(event, CloseConnection):
                self.transport.write(self.connection.send(event.response()))
                self.transport.close()

    def feed(self):
        if self.left == 0:
            self.transport.write(b"\x82\x04DONE")
            return
        frames = min(self.left, BLOCK // len(self.frame))
        self.left -= frames
        self.transport.write(self.frame * frames)
        asyncio.get_running_loop().call_soon(self.feed)


async def flood(name, variant, size, count):
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Server(size, count), "127.0.0.1", 0)
    client = importlib.import_module(f"bench.clients.{name}")
    function = getattr(client, f"flood_{variant}" if variant else "flood")
    url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    await function(url, size=size, count=count, rounds=1)
    server.close()


def receive(client, size, count):
    name, _, variant = client.partition(":")
    loop = asyncio.SelectorEventLoop()
    loop.run_until_complete(flood(name, variant, size, count))
    loop.close()


def main():
    """Runs under valgrind, uncounted at first. Each flood makes a dump that is named after its number of messages."""
    client, size, library, *counts = sys.argv[1:]
    callgrind = ctypes.CDLL(library)
    receive(client, int(size), 1000)  # imports, and fills caches
    gc.collect()
    gc.disable()
    callgrind.counting_starts()
    for count in counts:
        callgrind.counting_from_zero()
        receive(client, int(size), int(count))
        callgrind.counted_as(count.encode())


if __name__ == "__main__":
    main()
