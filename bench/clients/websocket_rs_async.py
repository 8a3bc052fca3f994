"""websocket-rs' asyncio client. Its messages have no type, so the checks compare bytes."""

import websocket_rs

from bench.clients import awaiting

REQUIRES = "websocket-rs"
PYTHON = (3, 12)


class Connection:
    """Wraps `send()` and `close()`, which are plain functions, so that the rounds can await them."""

    def __init__(self, ws):
        self.ws, self.recv, self.recv_raw = ws, ws.recv, ws.recv

    def __aiter__(self):
        return self.ws.__aiter__()

    async def send(self, message):
        self.ws.send(message)

    async def close(self):
        self.ws.close()


async def open_one(url, ssl):
    return Connection(await websocket_rs.connect(url, ssl_context=ssl))


async def flood(url, size, count, rounds, how="bytes", ssl=None):
    async def work(ws):
        return await awaiting.flood(ws.send, ws.recv, size, count, rounds, "bytes")

    return await awaiting.run(work, open_one, url, ssl)


request_response, batch, _, _, connect, idle = awaiting.functions(open_one)
