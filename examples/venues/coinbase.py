"""Coinbase Advanced Trade: one channel for each subscription, with a JWT of its own.

A connection without a subscription ends after 5 seconds, 1 second here. A JWT is valid for 2 minutes, and for one
message. ``sequence_num`` counts all messages of a connection, from 0. Each first connection loses one.

Real JWTs are signed by an EC key; here an HMAC has to do.
"""

import asyncio
import base64
import hmac
import itertools
import json
import time

from aiohttp import web
from common import Session, now

SECRET = b"secret"
SUBSCRIBE_WITHIN = 1.0
LEVELS = 7
LOST = 60  # which message

_used = set()  # JWTs


def claims(jwt):
    """What a JWT says; None if it is not valid."""
    try:
        signed, _, signature = jwt.rpartition(".")
        if signature != base64.urlsafe_b64encode(hmac.digest(SECRET, signed.encode(), "sha256")).decode():
            return None
        says = json.loads(base64.urlsafe_b64decode(signed.partition(".")[2]))
    except (ValueError, AttributeError):
        return None
    return says if says["exp"] > time.time() else None


class Feed(Session):
    """/"""

    numbers = itertools.count(1)

    def __init__(self, request):
        super().__init__(request)
        self.number = next(self.numbers)
        self.sequence = itertools.count()
        self.subscriptions = {}
        self.tasks = []

    async def opened(self):
        self.tasks = [asyncio.create_task(self.end())]

    def ended(self):
        for task in self.tasks:
            task.cancel()

    async def end(self):
        await asyncio.sleep(SUBSCRIBE_WITHIN)
        if not self.subscriptions:
            await self.close(1008, "no subscription within 5 seconds")

    async def event(self, channel, event):
        number = next(self.sequence)
        if self.number % 2 == 0 or number != LOST:
            stamp = {"client_id": "", "timestamp": time.time(), "sequence_num": number}
            await self.send({"channel": channel, **stamp, "events": [event]})

    async def take(self, text):
        request = json.loads(text)
        jwt, channel = request.get("jwt"), request["channel"]
        if claims(jwt) is None or jwt in _used:
            await self.send({"type": "error", "message": "authentication failure"})
            return
        _used.add(jwt)
        products = request.get("product_ids", [])
        self.subscriptions[channel] = products or ["heartbeats"]
        await self.event("subscriptions", {"subscriptions": self.subscriptions})
        if channel == "level2":
            n = now()
            updates = [self.level(m) for m in range(n - LEVELS + 1, n + 1)]
            for product in products:
                event = {"type": "snapshot", "product_id": product, "updates": updates}
                await self.event("l2_data", event)
                self.topics.append([product, n])
        elif channel == "heartbeats":
            self.tasks.append(asyncio.create_task(self.beat()))

    async def beat(self):
        for count in itertools.count():
            await asyncio.sleep(1)
            await self.event("heartbeats", {"current_time": time.time(), "heartbeat_counter": count})

    def level(self, m):
        return {"side": "bid", "price_level": f"{100 + m % LEVELS}.0", "new_quantity": str(m)}

    async def update(self, topic, n):
        product, last = topic
        topic[1] = n
        updates = [self.level(m) for m in range(last + 1, n + 1)]
        await self.event("l2_data", {"type": "update", "product_id": product, "updates": updates})


routes = [web.get("/coinbase", Feed.serve)]
