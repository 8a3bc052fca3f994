"""picows' version of websockets' asyncio client. It offers compression only if the server supports it."""

import picows.websockets.asyncio.client

from bench.clients import awaiting

REQUIRES = "picows"


async def open_one(url, ssl):
    return await picows.websockets.asyncio.client.connect(url, ssl=ssl, max_size=None, compression=None)


request_response, batch, flood, flood_iterated, connect, idle = awaiting.functions(open_one)


async def open_compressed(url, ssl):
    return await picows.websockets.asyncio.client.connect(url, ssl=ssl, max_size=None)


async def deflate(url, size, count, rounds, ssl=None):
    return await awaiting.websockets_deflate(open_compressed, url, size, count, rounds, ssl)
