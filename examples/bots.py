"""Well-known bots' libraries on wsfast, through a proxy, against an exchange on this machine: python examples/bots.py

It needs trustme and those of gql[websockets], python-binance, cryptofeed, unicorn-binance-websocket-api, alpaca-py,
binance-connector and pybit that are to be tried; the others are skipped. The first four connect by websockets'
``connect``, and get wsfast's instead. The others use ``websockets.legacy`` or websocket-client: for them, a name in a
module of theirs is replaced.
"""

import asyncio
import contextlib
import importlib.metadata
import json
import os
import queue
import ssl
import sys
import time
from types import SimpleNamespace

import trustme
import websockets.asyncio.client
import websockets.asyncio.server

import wsfast
import wsfast.sync.client

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
        if connection.request.path == "/alpaca":
            await alpaca(connection)
        elif connection.subprotocol is None:
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


async def alpaca(connection):
    """What Alpaca answers to a login and to a subscription, and a trade."""
    from msgpack import Timestamp, packb

    await connection.send(packb([{"T": "success", "msg": "connected"}]))
    await connection.recv()
    await connection.send(packb([{"T": "success", "msg": "authenticated"}]))
    await connection.recv()
    await connection.send(packb([{"T": "subscription", "trades": ["A"]}]))
    trade = {"T": "t", "S": "A", "i": 1, "x": "V", "p": 42.0, "s": 1, "t": Timestamp(0), "c": [], "z": "A"}
    await connection.send(packb([trade]))


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
    import binance.ws.reconnecting_websocket as stream_module
    from binance import AsyncClient, BinanceSocketManager

    # Its own https_proxy= works by websockets-proxy, whose connection is one of websockets.legacy.
    stream_module.Proxy, stream_module.proxy_connect = SimpleNamespace(from_url=str), connect
    client = AsyncClient(https_proxy=os.environ["WSS_PROXY"])
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


async def alpaca_py(url):
    import alpaca.data.live.websocket as stream_module
    from alpaca.data.live import StockDataStream

    stream_module.websockets_legacy = SimpleNamespace(connect=connect)
    stream = StockDataStream(
        "key", "secret", url_override=f"{url}alpaca", websocket_params={"max_queue": 1024}
    )
    prices = asyncio.Queue()

    async def on_trade(trade):
        await prices.put(str(trade.price))

    stream.subscribe_trades(on_trade, "A")
    running = asyncio.ensure_future(stream._run_forever())
    try:
        return await prices.get()
    finally:
        await stream.stop_ws()
        await stream.close()
        running.cancel()


# The libraries that use websocket-client run a thread for each connection. So does wsfast's blocking client.


class Connection:
    """As much of a connection of websocket-client as binance-connector uses."""

    def __init__(self, url, timeout=None, **_):
        opened.append(url)
        self._ws = wsfast.sync.client.connect(url)
        self._timeout = timeout
        self.send, self.ping = self._ws.send, self._ws.ping

    @property
    def connected(self):
        return self._ws.close_code is None

    def recv_data_frame(self, control_frame):
        try:
            return 1, SimpleNamespace(data=self._ws.recv(self._timeout, decode=False))
        except wsfast.ConnectionClosed as exc:
            return 8, SimpleNamespace(data=exc.reason.encode())

    def send_close(self):
        self._ws.close()


class App:
    """As much of websocket-client's WebSocketApp as pybit uses. It calls ``on_pong`` after each interval, because pybit
    sends Bybit's own ping then."""

    def __init__(self, url, *, on_message, on_open, on_close, on_error, on_pong):
        self._url, self._message, self._open, self._close = url, on_message, on_open, on_close
        self._error, self._pong = on_error, on_pong
        self.sock = None

    def run_forever(self, ping_interval, ping_timeout):
        opened.append(self._url)
        pings = {"ping_interval": ping_interval, "ping_timeout": ping_timeout}
        try:
            with wsfast.sync.client.connect(self._url, **pings) as self._ws:
                self.sock = SimpleNamespace(connected=True)
                self._open(self)
                due = time.monotonic() + ping_interval
                while True:
                    with contextlib.suppress(TimeoutError):
                        self._message(self, self._ws.recv(max(0, due - time.monotonic())))
                    if time.monotonic() >= due:
                        self._pong(self)
                        due += ping_interval
        except wsfast.ConnectionClosed:
            pass
        except Exception as exc:
            self._error(self, exc)
        finally:
            self.sock = None
            self._close(self)

    def send(self, text):
        self._ws.send(text)

    def close(self):
        self._ws.close()


async def binance_connector(url):
    def first():
        import binance.websocket.binance_socket_manager as stream_module

        stream_module.create_connection = Connection
        messages = queue.Queue()
        manager = stream_module.BinanceSocketManager(url, on_message=lambda _, text: messages.put(text))
        manager.start()
        price = json.loads(messages.get(timeout=20))["p"]
        manager.close()
        manager.join()
        return price

    return await asyncio.get_running_loop().run_in_executor(None, first)


async def pybit(url):
    def first():
        import pybit._websocket_stream as stream_module

        stream_module.websocket = SimpleNamespace(WebSocketApp=App, enableTrace=bool)
        messages = queue.Queue()
        manager = stream_module._WebSocketManager(messages.put, "trades", testnet=False)
        manager._connect(url)
        price = messages.get(timeout=20)["p"]
        manager.exit()
        return price

    return await asyncio.get_running_loop().run_in_executor(None, first)


BOTS = (gql, python_binance, cryptofeed, unicorn_binance_websocket_api, alpaca_py, binance_connector, pybit)


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
                for bot in BOTS:
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
