"""aiohttp's WebSocket client. Its messages have a type, which `receive_bytes()` and `receive_str()` check.

Works that open many connections share one session among them, as aiohttp's documentation recommends.
"""

import importlib
from functools import partial
from types import SimpleNamespace

import aiohttp

from bench.clients import awaiting
from bench.workloads import awaiting as works

REQUIRES = "aiohttp"


class Connection:
    """A WebSocket, and its session if it has one of its own."""

    def __init__(self, ws, session=None):
        self.ws, self.session = ws, session
        self.send, self.recv, self.recv_raw = ws.send_bytes, ws.receive_bytes, ws.receive_str

    async def __aiter__(self):
        async for message in self.ws:
            yield message.data

    async def close(self):
        await self.ws.close()
        if self.session:
            await self.session.close()


async def open_one(url, ssl, **options):
    session = aiohttp.ClientSession()
    return Connection(await session.ws_connect(url, ssl=ssl or True, max_msg_size=0, **options), session)


def new_session():
    """A session for any number of connections: by default it has a hundred at most."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))


async def open_on(session, url, ssl):
    return Connection(await session.ws_connect(url, ssl=ssl or True, max_msg_size=0))


async def request_response(url, size, rounds, ssl=None):
    async def work(connection):
        return await awaiting.request_response(connection.send, connection.recv, size, rounds)

    return await awaiting.run(work, open_one, url, ssl)


async def batch(url, size, count, rounds, ssl=None):
    async def work(connection):
        return await awaiting.batch(connection.send, connection.recv, size, count, rounds)

    return await awaiting.run(work, open_one, url, ssl)


async def flood(url, size, count, rounds, how="bytes", ssl=None):
    async def work(connection):
        recv = connection.ws.receive_str if how == "str" else connection.recv
        return await awaiting.flood(connection.send, recv, size, count, rounds, how)

    return await awaiting.run(work, open_one, url, ssl)


async def objects(url, size, count, rounds, how="msgspec", ssl=None):
    """TEXT arrives as bytes, since the decoders take them."""
    undecoded = SimpleNamespace(open_one=partial(open_one, decode_text=False))
    return await works.objects(undecoded, url, size, count, rounds, how, ssl)


async def fan_in(url, size, count, rounds, ssl=None):
    async with new_session() as session:
        shared = SimpleNamespace(open_one=partial(open_on, session))
        return await works.fan_in(shared, url, size, count, rounds, ssl)


async def deflate(url, size, count, rounds, ssl=None):
    async def work(connection):
        return await awaiting.deflate(connection.send, connection.ws.receive_str, size, count, rounds)

    return await awaiting.run(work, partial(open_one, compress=15), url, ssl)


async def deflate_zlib_ng(url, size, count, rounds, ssl=None):
    aiohttp.set_zlib_backend(importlib.import_module("zlib_ng.zlib_ng"))
    return await deflate(url, size, count, rounds, ssl)


async def deflate_isal(url, size, count, rounds, ssl=None):
    aiohttp.set_zlib_backend(importlib.import_module("isal.isal_zlib"))
    return await deflate(url, size, count, rounds, ssl)


async def connect(url, rounds, ssl=None):
    async with new_session() as session:
        return await awaiting.openings(partial(open_on, session), url, rounds, ssl)


async def idle(url, count, after_message, ssl=None):
    return await awaiting.open_many(partial(open_on, new_session()), url, count, after_message, ssl)
