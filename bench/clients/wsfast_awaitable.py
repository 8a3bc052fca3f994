"""wsfast's awaitable face, with its defaults. The variant `batch_send_many` sends a batch in one call, `busy_poll` does
not sleep."""

import math
from functools import partial

import wsfast.asyncio.client
from bench.clients import awaiting

REQUIRES = "wsfast"


async def open_one(url, ssl, **options):
    options |= {"ssl": ssl} if ssl else {}
    return await wsfast.asyncio.client.connect(url, max_size=None, **options)


async def request_response(url, size, rounds, ssl=None):
    return await awaiting.run(awaiting.websockets_request_response, open_one, url, ssl, size, rounds)


async def request_response_busy_poll(url, size, rounds, ssl=None):
    awake = partial(open_one, busy_poll=math.inf)
    return await awaiting.run(awaiting.websockets_request_response, awake, url, ssl, size, rounds)


async def batch(url, size, count, rounds, ssl=None):
    return await awaiting.run(awaiting.websockets_batch, open_one, url, ssl, size, count, rounds)


async def batch_send_many(url, size, count, rounds, ssl=None):
    async def work(ws):
        return await awaiting.batch(ws.send, ws.recv, size, count, rounds, ws.send_many)

    return await awaiting.run(work, open_one, url, ssl)


async def flood(url, size, count, rounds, how="bytes", ssl=None):
    return await awaiting.run(awaiting.websockets_flood, open_one, url, ssl, size, count, rounds, how)


async def flood_iterated(url, size, count, rounds, how="str", ssl=None):
    """`async for` gives str, whatever `how` says."""
    return await awaiting.run(awaiting.websockets_flood_iterated, open_one, url, ssl, size, count, rounds)


async def connect(url, rounds, ssl=None):
    return await awaiting.openings(open_one, url, rounds, ssl)


async def idle(url, count, after_message, ssl=None):
    return await awaiting.open_many(open_one, url, count, after_message, ssl)
