"""An exchange to try a supervised feed with, on this machine: python examples/exchange.py [PORT]

It needs websockets. A client subscribes to order books, ``{"subscribe": "BTC"}``, and gets an acknowledgement, a
snapshot and then updates, whose numbers ``n`` rise by one. It has habits of real exchanges:

- more than 5 messages in a second end the connection with code 1008;
- on the path /restarts a connection ends after 50 updates, with code 1012;
- on the path /announces it says ``{"event": "serverShutdown"}`` after 50 updates, and ends after 150;
- on the path /silent every other connection answers pings, and sends no more updates after the third.
"""

import asyncio
import contextlib
import itertools
import json
import sys
import time
from collections import deque
from urllib.parse import urlsplit

import websockets

TICK = 0.005


class Market:
    """The books. Every connection that has subscribed gets the same updates."""

    def __init__(self):
        self.n = 0
        self.queues = set()

    async def run(self):
        while True:
            await asyncio.sleep(TICK)
            self.n += 1
            for queue in self.queues:
                queue.put_nowait(self.n)


def price(n):
    return 100 + n % 7


class Exchange:
    """Serves the market."""

    def __init__(self):
        self.market = Market()
        self.silent = itertools.cycle([True, False])

    async def __call__(self, connection):
        books, queue = [], asyncio.Queue()
        path = urlsplit(connection.request.path).path
        silent = path == "/silent" and next(self.silent)
        self.market.queues.add(queue)
        sending = asyncio.create_task(self.send(connection, path, silent, books, queue))
        try:
            with contextlib.suppress(websockets.ConnectionClosed):
                await self.receive(connection, books)
        finally:
            sending.cancel()
            self.market.queues.discard(queue)

    async def receive(self, connection, books):
        times = deque(maxlen=6)
        async for message in connection:
            times.append(time.monotonic())
            if len(times) == 6 and times[-1] - times[0] <= 1.0:
                await connection.close(1008, "too many messages")
                return
            asked = json.loads(message)
            if book := asked.get("subscribe"):
                n = self.market.n
                await connection.send(json.dumps({"subscribed": book}))
                await connection.send(json.dumps({"snapshot": book, "n": n, "bid": price(n)}))
                books.append(book)
            elif book := asked.get("unsubscribe"):
                books.remove(book)

    async def send(self, connection, path, silent, books, queue):
        updates = 0
        with contextlib.suppress(websockets.ConnectionClosed):
            while True:
                n = await queue.get()
                if not books:
                    continue
                updates += 1
                for book in list(books):
                    await connection.send(json.dumps({"book": book, "n": n, "bid": price(n)}))
                if silent and updates == 3:
                    return
                if path == "/announces" and updates == 50:
                    await connection.send('{"event": "serverShutdown"}')
                if (path == "/restarts" and updates == 50) or (path == "/announces" and updates == 150):
                    await connection.close(1012, "restart")
                    return


@contextlib.asynccontextmanager
async def exchange(port=0):
    """A running exchange; its URL, without a path."""
    serving = Exchange()
    ticking = asyncio.create_task(serving.market.run())
    try:
        async with websockets.serve(serving, "127.0.0.1", port, compression=None) as server:
            yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        ticking.cancel()


async def main(port=8767):
    async with exchange(port) as url:
        print(url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(*map(int, sys.argv[1:])))
