"""What the fakes share: the market's clock, limits of rates, and one connection of a client."""

import asyncio
import contextlib
import json
import time
from collections import deque

from aiohttp import WSMsgType, web

TICK = 0.005


def now():
    """The number of the last update. All connections agree on it."""
    return int(time.monotonic() / TICK)


async def ticks():
    """The numbers of the updates from now on, each in its time."""
    n = now()
    while True:
        n += 1
        await asyncio.sleep(n * TICK - time.monotonic())
        yield n


class Rate:
    """At most `limit` in any `per` seconds."""

    def __init__(self, limit, per):
        self.limit, self.per, self.times = limit, per, deque()

    def is_exceeded(self):
        """Count one more."""
        at = time.monotonic()
        while self.times and at - self.times[0] > self.per:
            self.times.popleft()
        self.times.append(at)
        return len(self.times) > self.limit


class Session:
    """One connection. A venue says what it does differently."""

    connects = Rate(1000, 1)
    #: The status of a reply to one connect too many.
    refusal = web.HTTPTooManyRequests
    #: Seconds without a message of the client's, after which the connection ends.
    idle = None

    def __init__(self, request):
        self.request = request
        self.ws = web.WebSocketResponse(autoping=False)
        self.topics = []

    @classmethod
    async def serve(cls, request):
        if cls.connects.is_exceeded():
            raise cls.refusal
        self = cls(request)
        await self.ws.prepare(request)
        sending = asyncio.create_task(self.publish())
        try:
            with contextlib.suppress(ConnectionError):
                await self.opened()
                await self.receive()
        finally:
            sending.cancel()
            self.ended()
        return self.ws

    async def receive(self):
        while True:
            try:
                message = await asyncio.wait_for(self.ws.receive(), self.idle)
            except asyncio.TimeoutError:
                return await self.close(4004, "no data received")
            if message.type is WSMsgType.PING:
                await self.ws.pong(message.data)
            elif message.type not in (WSMsgType.TEXT, WSMsgType.PONG):
                return None
            if await self.counted() and message.type is WSMsgType.TEXT:
                await self.take(message.data)

    async def publish(self):
        with contextlib.suppress(ConnectionError):
            async for n in ticks():
                for topic in list(self.topics):
                    await self.update(topic, n)

    async def send(self, message):
        await self.ws.send_str(message if isinstance(message, str) else json.dumps(message))

    async def close(self, code, reason):
        self.topics.clear()
        await self.ws.close(code=code, message=reason.encode())

    async def opened(self):
        """The connection is open."""

    async def counted(self):
        """A frame has come. False if it is one too many."""
        return True

    async def take(self, text):
        """A message has come."""

    async def update(self, topic, n):
        """Send the update `n` of a topic that the client has subscribed to."""

    def ended(self):
        """The connection has ended."""
