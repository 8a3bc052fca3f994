"""Binance: market streams, a depth stream with its snapshot by REST, and the user stream of USDⓈ-M futures.

A connection takes 5 messages in a second, PINGs and PONGs included. It is valid for 24 hours, 2 seconds here; the event
``serverShutdown`` comes a second before. An address may connect 300 times in 5 minutes. A listenKey is valid for 60
minutes, a second here, unless a PUT prolongs that.
"""

import asyncio
import itertools
import json
import time

from aiohttp import web
from common import TICK, Rate, Session, now

LIFETIME = 2.0
NOTICE = 1.0
KEY_LIFETIME = 1.0
PING_EVERY = 0.5  # 20 seconds
REST_TAKES = 0.05
LEVELS = 7

_valid = {}  # listenKeys, and until when


class Streams(Session):
    """/ws"""

    connects = Rate(300, 300)

    def __init__(self, request):
        super().__init__(request)
        self.messages = Rate(5, 1)
        self.tasks = []

    async def opened(self):
        self.tasks = [asyncio.create_task(self.end()), asyncio.create_task(self.ping())]

    def ended(self):
        for task in self.tasks:
            task.cancel()

    async def end(self):
        await asyncio.sleep(LIFETIME - NOTICE)
        await self.send({"e": "serverShutdown", "E": time.time_ns() // 10**6})
        await asyncio.sleep(NOTICE)
        await self.close(1001, "")

    async def ping(self):
        while True:
            await asyncio.sleep(PING_EVERY)
            await self.ws.ping(b"")

    async def counted(self):
        if self.messages.is_exceeded():
            await self.close(1008, "Too many requests")
            return False
        return True

    async def take(self, text):
        request = json.loads(text)
        if request.get("method") not in ("SUBSCRIBE", "UNSUBSCRIBE"):
            await self.send({"error": {"code": 2, "msg": "Invalid request"}, "id": request.get("id")})
            return
        await self.send({"result": None, "id": request["id"]})
        for topic in request["params"]:
            if request["method"] == "SUBSCRIBE":
                self.topics.append(topic)
            else:
                self.topics.remove(topic)

    async def update(self, topic, n):
        symbol, _, kind = topic.partition("@")
        event = {"E": time.time_ns() // 10**6, "s": symbol.upper()}
        if kind == "trade":
            await self.send({"e": "trade", **event, "t": n, "p": f"{100 + n % LEVELS}.00", "q": "1.0"})
        elif kind.startswith("depth"):
            side = [[f"{100 + n % LEVELS}.00", str(n)]]
            await self.send({"e": "depthUpdate", **event, "U": 2 * n - 1, "u": 2 * n, "b": side, "a": []})


async def depth(request):
    """GET /api/v3/depth: the book as it was when the request came."""
    n = now()
    await asyncio.sleep(REST_TAKES)
    levels = {100 + m % LEVELS: m for m in range(n - LEVELS + 1, n + 1)}
    bids = [[f"{price}.00", str(levels[price])] for price in sorted(levels, reverse=True)]
    return web.json_response({"lastUpdateId": 2 * n, "bids": bids, "asks": []})


class Keys:
    """/fapi/v1/listenKey"""

    numbers = itertools.count(1)

    @classmethod
    async def answer(cls, request):
        if request.headers.get("X-MBX-APIKEY") != "key":
            error = {"code": -2014, "msg": "API-key format invalid."}
            return web.json_response(error, status=401)
        current = [key for key, until in _valid.items() if until > time.monotonic()]
        if request.method == "PUT" and not current:
            return web.json_response({"code": -1125, "msg": "This listenKey does not exist."}, status=400)
        key = current[0] if current else f"key{next(cls.numbers)}"
        _valid[key] = time.monotonic() + KEY_LIFETIME
        return web.json_response({"listenKey": key})


class UserStream(Streams):
    """/ws/<listenKey>: an order is filled every 50 ms, as long as the key is valid."""

    @classmethod
    async def serve(cls, request):
        if _valid.get(request.match_info["key"], 0) < time.monotonic():
            raise web.HTTPBadRequest
        return await super().serve(request)

    async def opened(self):
        self.topics = ["orders"]

    async def update(self, topic, n):
        key, event = self.request.match_info["key"], {"E": time.time_ns() // 10**6}
        if _valid[key] < time.monotonic():
            self.topics = []
            await self.send({"e": "listenKeyExpired", **event, "listenKey": key})
        elif n % int(0.05 / TICK) == 0:
            order = {"s": "BTCUSDT", "S": "BUY", "x": "TRADE", "X": "FILLED", "i": n}
            await self.send({"e": "ORDER_TRADE_UPDATE", **event, "o": order})


routes = [
    web.get("/binance/ws", Streams.serve),
    web.get("/binance/ws/{key}", UserStream.serve),
    web.get("/binance/api/v3/depth", depth),
    web.post("/binance/fapi/v1/listenKey", Keys.answer),
    web.put("/binance/fapi/v1/listenKey", Keys.answer),
]
