"""websockets' asyncio client. It offers compression only if the server supports it."""

import asyncio

import websockets.asyncio.client

from bench.clients import awaiting

REQUIRES = "websockets"


async def open_one(url, ssl):
    return await websockets.asyncio.client.connect(url, ssl=ssl, max_size=None, compression=None)


request_response, batch, flood, flood_iterated, connect, idle = awaiting.functions(open_one)


async def open_compressed(url, ssl):
    return await websockets.asyncio.client.connect(url, ssl=ssl, max_size=None)


async def deflate(url, size, count, rounds, ssl=None):
    return await awaiting.websockets_deflate(open_compressed, url, size, count, rounds, ssl)


async def batch_gather(url, size, count, rounds, ssl=None):
    """A task for each send, as programs do that await `asyncio.gather(*[ws.send(...) ...])`."""

    async def work(ws):
        async def send_all(payloads):
            await asyncio.gather(*map(ws.send, payloads))

        return await awaiting.batch(ws.send, ws.recv, size, count, rounds, send_all)

    return await awaiting.run(work, open_one, url, ssl)
