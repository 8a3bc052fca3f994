"""The works of clients with `await send()` and `await recv()`."""

import asyncio
from time import perf_counter_ns as now

from bench.clients import awaiting
from bench.clients.payloads import asked_flood, request, sizes, ticks
from bench.workloads import decoder, recv_raw, stamped, trips

ARRIVING = 0.05  # seconds until all messages of `queued` have come: not timed


async def window(client, url, size, count, rounds, ssl=None):
    """Keeps `count` messages unanswered: each reply sends the next message."""

    async def work(ws):
        payload = request(size)
        send, recv = ws.send, ws.recv
        starts, samples = [], []
        for _ in range(min(count, rounds)):
            starts.append(now())
            await send(payload)
        for number in range(rounds):
            reply = await recv()
            end = now()
            samples.append((starts[number], stamped(reply, payload), end))
            if len(starts) < rounds:
                starts.append(now())
                await send(payload)
        return samples

    return await awaiting.run(work, client.open_one, url, ssl)


async def one_way(client, url, size, rounds, ssl=None):
    """A round trip, split by the server's stamp."""
    return await window(client, url, size, 1, rounds, ssl)


async def fan_in(client, url, size, count, rounds, ssl=None):
    """`count` connections at once, each with one round trip after another."""
    payload = request(size)
    first, last = payload[0], payload[-1]
    connections = [await client.open_one(url, ssl) for _ in range(count)]

    async def trade(send, recv):
        for _ in range(trips(count)):
            await send(payload)
            awaiting.same(await recv(), size, first, last)

    samples = []
    for _ in range(rounds):
        start = now()
        await asyncio.gather(*[trade(ws.send, ws.recv) for ws in connections])
        samples.append(now() - start)
    for ws in connections:
        await ws.close()
    return samples


async def queued(client, url, size, count, rounds, ssl=None):
    """Receives `count` messages that have arrived before the first `recv()`."""

    async def work(ws):
        ask, payload, done = asked_flood(size, count)
        recv = ws.recv
        samples = []
        for _ in range(rounds):
            await ws.send(ask)
            await asyncio.sleep(ARRIVING)
            left = count
            start = now()
            while (message := await recv()) == payload:
                left -= 1
            samples.append(now() - start)
            if left or message != done:
                raise ValueError(f"a wrong reply: {message[:40]!r}")
        return samples

    return await awaiting.run(work, client.open_one, url, ssl)


async def queued_iterated(client, url, size, count, rounds, ssl=None):
    """The same with `async for`."""

    async def work(ws):
        ask, payload, done = asked_flood(size, count)
        samples, left = [], count
        await ws.send(ask)
        await asyncio.sleep(ARRIVING)
        start = now()
        async for message in ws:
            if message == payload:
                left -= 1
                continue
            samples.append(now() - start)
            if left or message != done:
                raise ValueError(f"a wrong reply: {message[:40]!r}")
            if len(samples) == rounds:
                break
            left = count
            await ws.send(ask)
            await asyncio.sleep(ARRIVING)
            start = now()
        return samples

    return await awaiting.run(work, client.open_one, url, ssl)


async def error(recv):
    """The nanoseconds of one `recv()` on a closed connection."""
    start = now()
    try:
        await recv()
    except Exception:
        return now() - start
    raise ValueError("recv() on a closed connection raised nothing")


async def errors(client, url, rounds, ssl=None):
    ws = await client.open_one(url, ssl)
    await ws.close()
    return [await error(ws.recv) for _ in range(rounds)]


async def mixed(client, url, size, rounds, ssl=None):
    """Nine round trips, then one `recv()` on a connection that is closed: one round is one of the ten."""
    closed = await client.open_one(url, ssl)
    await closed.close()

    async def work(ws):
        payload = request(size)
        samples = []
        for number in range(rounds):
            if number % 10 == 9:
                samples.append(await error(closed.recv))
            else:
                start = now()
                await ws.send(payload)
                reply = await ws.recv()
                samples.append(now() - start)
                awaiting.same(reply, size, payload[0], payload[-1])
        return samples

    return await awaiting.run(work, client.open_one, url, ssl)


async def varied(client, url, size, upto, rounds, ssl=None):
    """Round trips of random sizes between `size` and `upto` bytes, the same sizes for every client."""

    async def work(ws):
        whole = request(upto)
        send, recv = ws.send, ws.recv
        samples = []
        for length in sizes(size, upto, rounds):
            payload = whole[:length]
            start = now()
            await send(payload)
            reply = await recv()
            samples.append(now() - start)
            awaiting.same(reply, length, payload[0], payload[-1])
        return samples

    return await awaiting.run(work, client.open_one, url, ssl)


async def objects(client, url, size, count, rounds, how="msgspec", ssl=None):
    """From the JSON of an order-book update on the wire to a Python object."""

    async def work(ws):
        decode, recv = decoder(how, getattr(client, "view", None)), recv_raw(ws)
        expected = [decode(tick)["u"] for tick in ticks(size, count)]
        samples = []
        for _ in range(rounds):
            start = now()
            await ws.send(b"MORE")
            for update in expected:
                if decode(await recv())["u"] != update:
                    raise ValueError("a wrong reply")
            samples.append(now() - start)
            await recv()
        return samples

    return await awaiting.run(work, client.open_one, url, ssl)


async def answers(client, url, ssl=None):
    """Sends back every frame until the server hangs up."""
    ws = await client.open_one(url, ssl)
    send, recv = ws.send, ws.recv
    while True:
        try:
            message = await recv()
        except Exception:
            return
        await send(bytes(message))  # websocket-rs receives what it cannot send
