"""aiohttp's WebSocket client. Its messages have a type, which `receive_bytes()` and `receive_str()` check."""

import importlib

import aiohttp

from bench.clients import awaiting

REQUIRES = "aiohttp"


class Connection:
    """A WebSocket and its session."""

    def __init__(self, session, ws):
        self.session, self.ws = session, ws
        self.send, self.recv, self.recv_raw = ws.send_bytes, ws.receive_bytes, ws.receive_str

    async def __aiter__(self):
        async for message in self.ws:
            yield message.data

    async def close(self):
        await self.ws.close()
        await self.session.close()


async def open_one(url, ssl):
    session = aiohttp.ClientSession()
    return Connection(session, await session.ws_connect(url, ssl=ssl or True, max_msg_size=0))


async def request_response(url, size, rounds, ssl=None):
    async def work(connection):
        return await awaiting.request_response(connection.send, connection.recv, size, rounds)

    return await awaiting.run(work, open_one, url, ssl)


async def batch(url, size, count, rounds, ssl=None):
    async def work(connection):
        return await awaiting.batch(connection.send, connection.recv, size, count, rounds)

    return await awaiting.run(work, open_one, url, ssl)


async def flood(url, size, count, rounds, how="str", ssl=None):
    """The frames are text, and aiohttp returns text only as str."""

    async def work(connection):
        return await awaiting.flood(
            connection.ws.send_str, connection.ws.receive_str, size, count, rounds, "str"
        )

    return await awaiting.run(work, open_one, url, ssl)


async def deflate(url, size, count, rounds, ssl=None):
    async def open_compressed(url, ssl):
        session = aiohttp.ClientSession()
        return Connection(session, await session.ws_connect(url, compress=15, max_msg_size=0))

    async def work(connection):
        return await awaiting.deflate(connection.send, connection.ws.receive_str, size, count, rounds)

    return await awaiting.run(work, open_compressed, url, ssl)


async def deflate_zlib_ng(url, size, count, rounds, ssl=None):
    aiohttp.set_zlib_backend(importlib.import_module("zlib_ng.zlib_ng"))
    return await deflate(url, size, count, rounds, ssl)


async def deflate_isal(url, size, count, rounds, ssl=None):
    aiohttp.set_zlib_backend(importlib.import_module("isal.isal_zlib"))
    return await deflate(url, size, count, rounds, ssl)


async def connect(url, rounds, ssl=None):
    return await awaiting.openings(open_one, url, rounds, ssl)


async def idle(url, count, after_message, ssl=None):
    return await awaiting.open_many(open_one, url, count, after_message, ssl)
