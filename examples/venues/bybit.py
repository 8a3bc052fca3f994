"""Bybit v5: public topics, and private ones after the operation ``auth``.

An address may connect 500 times in 5 minutes. A request for spot topics has 10 arguments at most. A connection
without a ``ping`` for 10 minutes, 3 seconds here, is cut off.
"""

import hashlib
import hmac
import itertools
import json
import time

from aiohttp import web
from common import TICK, Rate, Session

SECRET = b"secret"
SYMBOLS = ("BTCUSDT", "ETHUSDT")


class Public(Session):
    """/v5/public/spot"""

    connects = Rate(500, 300)
    refusal = web.HTTPForbidden
    idle = 3.0
    numbers = itertools.count(1)

    def __init__(self, request):
        super().__init__(request)
        self.reply = {"conn_id": f"c{next(self.numbers)}"}

    async def take(self, text):
        request = json.loads(text)
        op, args = request["op"], request.get("args", [])
        reply = {"success": True, "ret_msg": op, **self.reply, "op": op}
        if "req_id" in request:
            reply["req_id"] = request["req_id"]
        if op == "ping":
            reply["ret_msg"] = "pong"
        elif op == "subscribe" and (error := self.error(args)):
            reply.update(success=False, ret_msg=error)
        elif op == "subscribe":
            self.topics += args
        await self.send(reply)

    def error(self, topics):
        if len(topics) > 10:
            return "args size >10"
        unknown = [topic for topic in topics if topic.split(".")[-1] not in SYMBOLS]
        return f"error:handler not found,topic:{unknown[0]}" if unknown else None

    async def update(self, topic, n):
        trade = {
            "T": time.time_ns() // 10**6,
            "s": topic.split(".")[-1],
            "S": "Buy",
            "p": "100.5",
            "i": str(n),
        }
        await self.send({"topic": topic, "type": "snapshot", "ts": trade["T"], "data": [trade]})


class Private(Public):
    """/v5/private: an order is filled every 50 ms."""

    is_authorized = False

    async def take(self, text):
        request = json.loads(text)
        reply = {"req_id": request.get("req_id", ""), **self.reply}
        if request["op"] == "ping":
            await self.send({**reply, "op": "pong", "args": [str(time.time_ns() // 10**6)]})
        elif request["op"] == "auth":
            key, expires, signature = request["args"]
            expected = hmac.new(SECRET, f"GET/realtime{expires}".encode(), hashlib.sha256).hexdigest()
            self.is_authorized = (
                key == "key" and expires > time.time() * 1000 and hmac.compare_digest(signature, expected)
            )
            why = "" if self.is_authorized else "Params Error"
            await self.send({**reply, "success": self.is_authorized, "ret_msg": why, "op": "auth"})
        else:
            await super().take(text)

    def error(self, topics):
        return None if self.is_authorized else "Request not authorized"

    async def update(self, topic, n):
        if n % int(0.05 / TICK) == 0:
            order = {"orderId": str(n), "orderStatus": "Filled", "symbol": "BTCUSDT"}
            await self.send({"id": str(n), "topic": topic, "creationTime": n, "data": [order]})


routes = [web.get("/bybit/v5/public/spot", Public.serve), web.get("/bybit/v5/private", Private.serve)]
