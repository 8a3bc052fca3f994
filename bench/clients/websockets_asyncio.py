"""websockets' asyncio client, without compression: the server has none."""

import websockets.asyncio.client

from bench.clients import awaiting

REQUIRES = "websockets"


async def open_one(url, ssl):
    return await websockets.asyncio.client.connect(url, ssl=ssl, max_size=None, compression=None)


async def request_response(url, size, rounds, ssl=None):
    return await awaiting.run(awaiting.websockets_request_response, open_one, url, ssl, size, rounds)


async def batch(url, size, count, rounds, ssl=None):
    return await awaiting.run(awaiting.websockets_batch, open_one, url, ssl, size, count, rounds)


async def flood(url, size, count, rounds, how="bytes", ssl=None):
    return await awaiting.run(awaiting.websockets_flood, open_one, url, ssl, size, count, rounds, how)


async def flood_iterated(url, size, count, rounds, how="str", ssl=None):
    """`async for` gives str, whatever `how` says."""
    return await awaiting.run(awaiting.websockets_flood_iterated, open_one, url, ssl, size, count, rounds)


async def connect(url, rounds, ssl=None):
    return await awaiting.openings(open_one, url, rounds, ssl)


async def idle(url, count, after_message, ssl=None):
    return await awaiting.open_many(open_one, url, count, after_message, ssl)
