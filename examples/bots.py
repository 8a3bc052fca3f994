"""Well-known bots' libraries on wsfast, through a proxy, against an exchange on this machine: python examples/bots.py

It needs trustme and those of gql[websockets], python-binance, cryptofeed and unicorn-binance-websocket-api that are to
be tried; the others are skipped. All four connect by websockets' ``connect``, and get wsfast's instead.
"""

import asyncio
import contextlib
import importlib.metadata
import json
import os
import ssl
import sys

import trustme
import websockets.asyncio.client
import websockets.asyncio.server

import wsfast

opened = []


def connect(*args, **options):
    opened.append(args[0])
    return wsfast.connect(*args, **options)


# Before the libraries are imported: some of them keep the function.
websockets.connect = websockets.asyncio.client.connect = connect

TRADE = {"e": "trade", "s": "BTCUSDT", "p": "42.0"}


async def exchange(connection):
    """Answer subscriptions of GraphQL and of Binance, and send a trade after each."""
    with contextlib.suppress(websockets.ConnectionClosed):
        if connection.subprotocol is None:
            await connection.send(json.dumps(TRADE))
        async for message in connection:
            asked = json.loads(message)
            if asked.get("type") == "connection_init":
                await connection.send('{"type": "connection_ack"}')
            elif asked.get("type") == "subscribe":
                trade = {"type": "next", "id": asked["id"], "payload": {"data": {"trade": TRADE["p"]}}}
                await connection.send(json.dumps(trade))
                await connection.send(json.dumps({"type": "complete", "id": asked["id"]}))
            else:
                await connection.send(json.dumps({"result": None, "id": asked.get("id")}))
                await connection.send(json.dumps(TRADE))


class Proxy:
    """An HTTP proxy, which remembers where it was asked to connect to."""

    def __init__(self):
        self.asked = []

    async def __call__(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).split()
        self.asked.append(head[1].decode())
        host, _, port = head[1].decode().rpartition(":")
        to_server = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pump(reader, to_server[1]), pump(to_server[0], writer))


async def pump(reader, writer):
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    writer.close()


# Each returns a price, the first that it gets.


async def gql(url):
    from gql import Client
    from gql import gql as parse
    from gql.transport.websockets import WebsocketsTransport

    transport = WebsocketsTransport(url=url, subprotocols=["graphql-transport-ws"])
    async with Client(transport=transport) as session:
        async for result in session.subscribe(parse("subscription { trade }")):
            assert "upgrade" in {name.lower() for name in transport.response_headers}
            return result["trade"]
    return None


async def python_binance(url):
    from binance import AsyncClient, BinanceSocketManager

    client = AsyncClient()
    try:
        manager = BinanceSocketManager(client)
        manager.STREAM_URL = url
        async with manager.trade_socket("BTCUSDT") as stream:
            return (await stream.recv())["p"]
    finally:
        await client.close_connection()


async def cryptofeed(url):
    from cryptofeed.connection import WSAsyncConn

    connection = WSAsyncConn(url, "example")
    async with connection.connect():
        async for message in connection.read():
            return json.loads(message)["p"]
    return None


async def unicorn_binance_websocket_api(url):
    from unicorn_binance_websocket_api import BinanceWebSocketApiManager

    def first():
        manager = BinanceWebSocketApiManager(
            exchange="binance.com",
            websocket_base_uri=url,
            warn_on_update=False,
            proxy=os.environ["WSS_PROXY"],
        )
        try:
            manager.create_stream("trade", "btcusdt")
            while not (message := manager.pop_stream_data_from_stream_buffer()):
                pass
            return json.loads(message)["p"]
        finally:
            manager.stop_manager()

    return await asyncio.get_running_loop().run_in_executor(None, first)


async def main(names):
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    serve = websockets.asyncio.server.serve
    options = {"ssl": context, "subprotocols": ["graphql-transport-ws"], "select_subprotocol": pick}
    failed = 0
    with authority.cert_pem.tempfile() as trusted:
        os.environ["SSL_CERT_FILE"] = trusted
        async with serve(exchange, "127.0.0.1", 0, **options) as server:
            url = f"wss://localhost:{server.sockets[0].getsockname()[1]}/"
            proxy = Proxy()
            async with await asyncio.start_server(proxy, "127.0.0.1", 0) as served:
                os.environ["WSS_PROXY"] = f"http://127.0.0.1:{served.sockets[0].getsockname()[1]}"
                for bot in gql, python_binance, cryptofeed, unicorn_binance_websocket_api:
                    failed += await attempt(bot, url, proxy) if not names or bot.__name__ in names else 0
    return failed


async def attempt(bot, url, proxy):
    """Did it fail?"""
    name = bot.__name__.replace("_", "-")
    try:
        version = importlib.metadata.version(name)
        proxy.asked.clear()
        price = await asyncio.wait_for(bot(url), 30)
    except (ImportError, importlib.metadata.PackageNotFoundError) as exc:
        print(f"{name}: skipped: {exc}")
        return False
    ok = price == TRADE["p"] and proxy.asked == [url[len("wss://") : -1]] and opened.pop().startswith(url)
    print(f"{name} {version}: {'ok' if ok else 'failed'}, {price} through {proxy.asked}", flush=True)
    return not ok


def pick(connection, offered):
    return "graphql-transport-ws" if "graphql-transport-ws" in offered else None


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
