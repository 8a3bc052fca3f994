"""Alpaca: real-time stock data. Authenticate first, and have one connection.

The message ``auth`` must come within 10 seconds, 1 second here. Messages are lists.
"""

import asyncio
import itertools
import json

from aiohttp import web
from common import TICK, Session

AUTH_WITHIN = 1.0
MOST_SYMBOLS = 30
ERRORS = {
    400: "invalid syntax",
    401: "not authenticated",
    402: "auth failed",
    403: "already authenticated",
    404: "auth timeout",
    405: "symbol limit exceeded",
    406: "connection limit exceeded",
}


class Stream(Session):
    """/v2/iex"""

    owner = None  # the session that is authenticated
    numbers = itertools.count(1)

    async def opened(self):
        await self.send([{"T": "success", "msg": "connected"}])
        self.waiting = asyncio.create_task(self.end())

    def ended(self):
        self.waiting.cancel()
        if Stream.owner is self:
            Stream.owner = None

    async def end(self):
        await asyncio.sleep(AUTH_WITHIN)
        if Stream.owner is not self:
            await self.fail(404, closes=True)

    async def fail(self, code, *, closes=False):
        await self.send([{"T": "error", "code": code, "msg": ERRORS[code]}])
        if closes:
            await self.close(1000, "")

    async def take(self, text):
        request = json.loads(text)
        action = request.get("action")
        if action == "auth" and Stream.owner is self:
            await self.fail(403)
        elif action == "auth" and Stream.owner is not None:
            await self.fail(406, closes=True)
        elif action == "auth" and (request.get("key"), request.get("secret")) != ("key", "secret"):
            await self.fail(402, closes=True)
        elif action == "auth":
            Stream.owner = self
            await self.send([{"T": "success", "msg": "authenticated"}])
        elif Stream.owner is not self:
            await self.fail(401)
        elif action != "subscribe":
            await self.fail(400)
        elif len(self.topics) + len(request["trades"]) > MOST_SYMBOLS:
            await self.fail(405)
        else:
            self.topics += request["trades"]
            await self.send([{"T": "subscription", "trades": self.topics, "quotes": [], "bars": []}])

    async def update(self, topic, n):
        if n % int(0.02 / TICK) == 0:
            await self.send([{"T": "t", "S": topic, "i": n, "p": 126.55, "s": 1}])


routes = [web.get("/alpaca/v2/iex", Stream.serve)]
