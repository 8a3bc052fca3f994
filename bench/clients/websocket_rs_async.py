"""websocket-rs' asyncio client. `recv()` returns a view of the frame without a type, which equals bytes. `send()` is a
plain function, so the main rounds are here: in the shared ones it would cost a coroutine."""

from time import perf_counter_ns as now

import websocket_rs

from bench.clients import awaiting
from bench.clients.payloads import asked_flood, request, requests

REQUIRES = "websocket-rs"

view = memoryview  # what the decoders of `objects` take that do not know the library's own views


class Connection:
    """Wraps `send()` and `close()`, so that the shared rounds can await them."""

    def __init__(self, ws):
        self.ws, self.recv, self.recv_raw = ws, ws.recv, ws.recv

    def __aiter__(self):
        return self.ws.__aiter__()

    async def send(self, message):
        self.ws.send(message)

    async def close(self):
        self.ws.close()


async def open_one(url, ssl):
    return Connection(await websocket_rs.connect(url, ssl_context=ssl))


async def request_response(url, size, rounds, ssl=None):
    async def work(connection):
        send, recv, payload = connection.ws.send, connection.recv, request(size)
        first, last = payload[0], payload[-1]
        samples = []
        for _ in range(rounds):
            start = now()
            send(payload)
            reply = await recv()
            samples.append(now() - start)
            awaiting.same(reply, size, first, last)
        return samples

    return await awaiting.run(work, open_one, url, ssl)


async def batch(url, size, count, rounds, ssl=None):
    async def work(connection):
        send, recv, payloads = connection.ws.send, connection.recv, requests(size, count)
        samples = []
        for _ in range(rounds):
            start = now()
            for payload in payloads:
                send(payload)
            for _ in range(count - 1):
                if len(await recv()) != size:
                    raise ValueError("a reply is wrong")
            reply = await recv()
            samples.append(now() - start)
            if bytes(reply) != payloads[-1]:
                raise ValueError("a reply is wrong")
        return samples

    return await awaiting.run(work, open_one, url, ssl)


async def flood(url, size, count, rounds, how="bytes", ssl=None):
    """Makes bytes or str of each message, as the other clients do."""
    ask, payload, done = asked_flood(size, count, how)

    async def work(connection):
        send, recv = connection.ws.send, connection.recv
        samples = []
        for _ in range(rounds):
            left = count
            start = now()
            send(ask)
            if how == "str":
                while (message := str(await recv(), "utf-8")) == payload:
                    left -= 1
            else:
                while (message := bytes(await recv())) == payload:
                    left -= 1
            samples.append(now() - start)
            if left or message != done:
                raise ValueError(f"a wrong reply: {message[:40]!r}")
        return samples

    return await awaiting.run(work, open_one, url, ssl)


_, _, _, _, connect, idle = awaiting.functions(open_one)
