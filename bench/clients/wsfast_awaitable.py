"""wsfast's awaitable face, with its defaults. The variant `batch_send_many` sends a batch with one call. The variant
`many` receives with recv_many(), too. The variant `busy_poll` does not sleep."""

import math
from functools import partial

import wsfast.asyncio.client
from bench.clients import awaiting
from wsfast import TLS, Tuning

REQUIRES = "wsfast"

# worker.py passes the authority as an object of this type. With a context, OpenSSL would encrypt instead of rustls.
tls = TLS


async def open_one(url, ssl, **options):
    options |= {"ssl": ssl} if ssl else {}
    return await wsfast.asyncio.client.connect(url, max_size=None, **options)


open_busy_poll = partial(open_one, tuning=Tuning(busy_poll=math.inf))

request_response, batch, flood, flood_iterated, connect, idle = awaiting.functions(open_one)


async def request_response_busy_poll(url, size, rounds, ssl=None):
    return await awaiting.websockets_request_response(open_busy_poll, url, size, rounds, ssl)


async def batch_send_many(url, size, count, rounds, ssl=None):
    async def work(ws):
        return await awaiting.batch(ws.send, ws.recv, size, count, rounds, ws.send_many)

    return await awaiting.run(work, open_one, url, ssl)


async def batch_many(url, size, count, rounds, ssl=None):
    async def work(ws):
        return await awaiting.batch_many(ws.send_many, ws.recv_many, size, count, rounds)

    return await awaiting.run(work, open_one, url, ssl)


async def flood_many(url, size, count, rounds, how="bytes", ssl=None):
    async def work(ws):
        return await awaiting.flood_many(ws.send, ws.recv_many, size, count, rounds, how)

    return await awaiting.run(work, open_one, url, ssl)


async def deflate(url, size, count, rounds, ssl=None):
    return await awaiting.websockets_deflate(open_one, url, size, count, rounds, ssl)
