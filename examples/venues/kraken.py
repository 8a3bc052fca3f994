"""Kraken v2: a book with a checksum; executions, with a token by REST.

The book of each first connection has an error: one update is lost, so that the checksum is wrong from there on. A token
is valid for 15 minutes, and must be used for the first time in that time; here each is valid once.
"""

import asyncio
import itertools
import json
import time
import zlib

from aiohttp import web
from common import TICK, Rate, Session, now

SYMBOLS = ("BTC/USD", "ETH/USD")
LEVELS = 7
LOST = 40  # which update

_tokens = set()  # that were not used


def book(n):
    """Price and quantity of each level after the update `n`."""
    return {100 + m % LEVELS: m for m in range(n - LEVELS + 1, n + 1)}


def level(price, quantity):
    return {"price": float(price), "qty": float(quantity)}


def checksum(n):
    """CRC32 of the digits of the best 10 asks, of which there are none, and the best 10 bids."""
    digits = "".join(f"{price}0{quantity}0" for price, quantity in sorted(book(n).items(), reverse=True))
    return zlib.crc32(digits.encode())


class Public(Session):
    """/v2"""

    connects = Rate(150, 600)
    ids = itertools.count(1)

    def __init__(self, request):
        super().__init__(request)
        self.id = next(self.ids)
        self.sent = 0

    async def opened(self):
        data = {"system": "online", "api_version": "v2", "connection_id": self.id}
        await self.send({"channel": "status", "type": "update", "data": [data]})
        self.beating = asyncio.create_task(self.beat())

    def ended(self):
        self.beating.cancel()

    async def beat(self):
        while True:
            await asyncio.sleep(1)
            await self.send({"channel": "heartbeat"})

    async def take(self, text):
        request = json.loads(text)
        params, same = request.get("params", {}), {"method": request["method"]}
        if "req_id" in request:
            same["req_id"] = request["req_id"]
        if request["method"] == "ping":
            await self.send({**same, "method": "pong"})
            return
        for symbol in params.get("symbol", [None]):
            if error := self.error(params, symbol):
                await self.send({**same, "success": False, "error": error, "symbol": symbol})
                continue
            result = {"channel": params["channel"], "symbol": symbol}
            await self.send({**same, "success": True, "result": result})
            await self.subscribed(symbol)

    def error(self, params, symbol):
        return None if symbol in SYMBOLS else f"Currency pair not supported {symbol}"

    async def subscribed(self, symbol):
        n = now()
        data = {
            "symbol": symbol,
            "bids": [level(*one) for one in book(n).items()],
            "asks": [],
            "checksum": checksum(n),
        }
        await self.send({"channel": "book", "type": "snapshot", "data": [data]})
        self.topics.append([symbol, n])

    async def update(self, topic, n):
        symbol, last = topic
        topic[1] = n
        for m in range(last + 1, n + 1):
            self.sent += 1
            if self.id % 2 and self.sent == LOST:
                continue
            change = level(100 + m % LEVELS, m)
            data = {"symbol": symbol, "bids": [change], "asks": [], "checksum": checksum(m)}
            await self.send({"channel": "book", "type": "update", "data": [data]})


class Private(Public):
    """/v2 of another host, here /v2/auth"""

    ids = itertools.count(1)

    @classmethod
    async def token(cls, request):
        """POST /0/private/GetWebSocketsToken"""
        if request.headers.get("API-Key") != "key":
            return web.json_response({"error": ["EAPI:Invalid key"]})
        _tokens.add(token := f"token{next(cls.ids)}")
        return web.json_response({"error": [], "result": {"token": token, "expires": 900}})

    def error(self, params, symbol):
        if params.get("token") not in _tokens:
            return "ESession:Invalid session"
        _tokens.remove(params["token"])
        return None

    async def subscribed(self, symbol):
        self.topics.append("executions")
        await self.send({"channel": "executions", "type": "snapshot", "data": [], "sequence": 1})
        self.sent = 1

    async def update(self, topic, n):
        if n % int(0.05 / TICK) == 0:
            self.sent += 1
            data = {"exec_type": "trade", "order_id": str(n), "timestamp": time.time()}
            await self.send({"channel": topic, "type": "update", "data": [data], "sequence": self.sent})


routes = [
    web.get("/kraken/v2", Public.serve),
    web.get("/kraken/v2/auth", Private.serve),
    web.post("/kraken/0/private/GetWebSocketsToken", Private.token),
]
