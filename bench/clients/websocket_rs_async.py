"""websocket-rs' asyncio client. Its messages do not say whether they are text: they are compared as bytes."""

import websocket_rs.async_client

from bench.clients import awaiting

REQUIRES = "websocket-rs"
PYTHON = (3, 12)


async def open_one(url, ssl):
    return await websocket_rs.async_client.connect(url)


async def request_response(url, size, rounds, ssl=None):
    return await awaiting.run(awaiting.websockets_request_response, open_one, url, ssl, size, rounds)


async def batch(url, size, count, rounds, ssl=None):
    return await awaiting.run(awaiting.websockets_batch, open_one, url, ssl, size, count, rounds)
