"""websocket-rs' callback, its fastest mode: `connect(on_message=)` calls it with each message while it reads.

The callback gets no connection and has no base class, so the shared works of listeners are not for it.
"""

from time import perf_counter_ns as now

import websocket_rs

from bench.clients import listening
from bench.clients.payloads import asked_flood, request, requests

REQUIRES = "websocket-rs"


class Rounds(listening.Rounds):
    """A subclass defines `on_message(message)`."""

    async def run(self, url, ssl):
        self.ws = await websocket_rs.connect(url, ssl_context=ssl, on_message=self.on_message)
        self.next(self.ws)
        try:
            return await self.done
        finally:
            self.ws.close()

    def wrong(self, message):
        if not self.done.done():
            self.done.set_exception(ValueError(f"a wrong reply: {len(message)} bytes, {message[:40]!r}"))


async def request_response(url, size, rounds, ssl=None):
    payload = request(size)
    first, last = payload[0], payload[-1]

    class Trips(Rounds):
        def begin(self, ws):
            self.start = now()
            ws.send(payload)

        def on_message(self, reply):
            self.samples.append(now() - self.start)
            if len(reply) != size or reply[0] != first or reply[-1] != last:
                self.wrong(reply)
            else:
                self.next(self.ws)

    return await Trips(rounds).run(url, ssl)


async def batch(url, size, count, rounds, ssl=None):
    payloads = requests(size, count)
    left = 0

    class Batches(Rounds):
        def begin(self, ws):
            nonlocal left
            left = count
            self.start = now()
            for payload in payloads:
                ws.send(payload)

        def on_message(self, reply):
            nonlocal left
            left -= 1
            if len(reply) != size:
                self.wrong(reply)
            elif not left:
                self.samples.append(now() - self.start)
                if bytes(reply) != payloads[-1]:
                    self.wrong(reply)
                else:
                    self.next(self.ws)

    return await Batches(rounds).run(url, ssl)


async def flood(url, size, count, rounds, how="bytes", ssl=None):
    ask, payload, done = asked_flood(size, count, how)
    left = 0

    class Flood(Rounds):
        def begin(self, ws):
            nonlocal left
            left = count
            self.start = now()
            ws.send(ask)

        def end(self, message):
            self.samples.append(now() - self.start)
            if left or message != done:
                self.wrong(message)
            else:
                self.next(self.ws)

    class AsBytes(Flood):
        def on_message(self, message):
            nonlocal left
            if (message := bytes(message)) == payload:
                left -= 1
            else:
                self.end(message)

    class AsStr(Flood):
        def on_message(self, message):
            nonlocal left
            if (message := str(message, "utf-8")) == payload:
                left -= 1
            else:
                self.end(message)

    return await {"bytes": AsBytes, "str": AsStr}[how](rounds).run(url, ssl)


async def connect(url, rounds, ssl=None):
    samples = []
    for _ in range(rounds):
        start = now()
        ws = await websocket_rs.connect(url, ssl_context=ssl, on_message=bytes)
        samples.append(now() - start)
        ws.close()
    return samples
