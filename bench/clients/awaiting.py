"""The coroutines for every library with send() and recv(), so that all libraries run the same Python code.

A library's file connects, and passes its `recv` and `send` if they have other names. Methods that are called for every
message are locals of the function.
"""

from functools import partial
from time import perf_counter_ns as now

from bench.clients.payloads import asked_flood, request, requests, ticks


def same(reply, size, first, last):
    if len(reply) != size or reply[0] != first or reply[-1] != last:
        raise ValueError(f"a wrong reply: {len(reply)} bytes, {bytes(reply)[:40]!r}")


async def request_response(send, recv, size, rounds):
    payload = request(size)
    first, last = payload[0], payload[-1]
    samples = []
    for _ in range(rounds):
        start = now()
        await send(payload)
        reply = await recv()
        samples.append(now() - start)
        same(reply, size, first, last)
    return samples


async def batch(send, recv, size, count, rounds, send_all=None):
    """`send_all(payloads)`, if given, sends the batch with one call."""
    payloads = requests(size, count)
    samples = []
    for _ in range(rounds):
        start = now()
        if send_all is None:
            for payload in payloads:
                await send(payload)
        else:
            await send_all(payloads)
        for _ in range(count - 1):
            if len(await recv()) != size:
                raise ValueError("a reply is wrong")
        reply = await recv()
        samples.append(now() - start)
        if bytes(reply) != payloads[-1]:
            raise ValueError("a reply is wrong")
    return samples


async def flood(send, recv, size, count, rounds, how):
    """`recv` returns bytes of BINARY and str of TEXT. `how` says which of them comes."""
    ask, payload, done = asked_flood(size, count, how)
    samples = []
    for _ in range(rounds):
        left = count
        start = now()
        await send(ask)
        while True:
            message = await recv()
            if message != payload:
                break
            left -= 1
        samples.append(now() - start)
        if left or message != done:
            raise ValueError(f"a wrong reply: {message[:40]!r}")
    return samples


async def flood_iterated(send, messages, size, count, rounds, how):
    """The same flood with `async for`."""
    ask, payload, done = asked_flood(size, count, how)
    samples = []
    left = count
    start = now()
    await send(ask)
    async for message in messages:
        if message == payload:
            left -= 1
            continue
        samples.append(now() - start)
        if left or message != done:
            raise ValueError(f"a wrong reply: {message[:40]!r}")
        if len(samples) == rounds:
            return samples
        left = count
        start = now()
        await send(ask)
    raise ConnectionError("the connection ended before the rounds did")


async def flood_many(send, recv_many, size, count, rounds, how):
    """The same flood, in lists of messages."""
    ask, payload, done = asked_flood(size, count, how)
    samples = []
    for _ in range(rounds):
        left = count
        last = None
        start = now()
        await send(ask)
        while last is None:
            for message in await recv_many():
                if message == payload:
                    left -= 1
                else:
                    last = message
        samples.append(now() - start)
        if left or last != done:
            raise ValueError(f"a wrong reply: {last[:40]!r}")
    return samples


async def batch_many(send_many, recv_many, size, count, rounds):
    """One call sends a batch, and the replies come in lists."""
    payloads = requests(size, count)
    samples = []
    for _ in range(rounds):
        left = count
        start = now()
        await send_many(payloads)
        while left:
            for reply in await recv_many():
                left -= 1
                if len(reply) != size:
                    raise ValueError("a reply is wrong")
        samples.append(now() - start)
        if reply != payloads[-1]:
            raise ValueError("a reply is wrong")
    return samples


async def deflate(send, recv, size, count, rounds):
    """`recv` returns str."""
    updates = [update.decode() for update in ticks(size, count)]
    samples = []
    for _ in range(rounds):
        start = now()
        await send(b"MORE")
        for update in updates:
            if await recv() != update:
                raise ValueError("a wrong reply")
        done = await recv()
        samples.append(now() - start)
        if done != "DONE":
            raise ValueError(f"a wrong reply: {done[:40]!r}")
    return samples


async def openings(connect, url, rounds, ssl=None):
    """Time only the opening. Each connection is closed before the next one is opened."""
    samples = []
    for _ in range(rounds):
        start = now()
        connection = await connect(url, ssl)
        samples.append(now() - start)
        await connection.close()
    return samples


async def open_many(connect, url, count, after_message, ssl):
    """Connections that stay open, each after one echoed message if `after_message` is set."""
    opened = []
    for number in range(count):
        connection = await connect(url, ssl)
        opened.append(connection)
        if after_message:
            await connection.send(request(512, number))
            if await connection.recv() != request(512, number):
                raise ValueError("an echo is wrong")
    return opened


async def run(work, connect, url, ssl, *args):
    """Run `work(connection, *args)` on one connection, and return its samples."""
    connection = await connect(url, ssl)
    try:
        return await work(connection, *args)
    finally:
        await connection.close()


# The functions of a client's file for libraries with websockets' names. The first argument is its `open_one(url, ssl)`.


async def websockets_request_response(open_one, url, size, rounds, ssl=None):
    async def work(ws):
        return await request_response(ws.send, ws.recv, size, rounds)

    return await run(work, open_one, url, ssl)


async def websockets_batch(open_one, url, size, count, rounds, ssl=None):
    async def work(ws):
        return await batch(ws.send, ws.recv, size, count, rounds)

    return await run(work, open_one, url, ssl)


async def websockets_flood(open_one, url, size, count, rounds, how="bytes", ssl=None):
    async def work(ws):
        return await flood(ws.send, ws.recv, size, count, rounds, how)

    return await run(work, open_one, url, ssl)


async def websockets_deflate(open_one, url, size, count, rounds, ssl=None):
    async def work(ws):
        return await deflate(ws.send, ws.recv, size, count, rounds)

    return await run(work, open_one, url, ssl)


async def websockets_flood_iterated(open_one, url, size, count, rounds, how="bytes", ssl=None):
    async def work(ws):
        return await flood_iterated(ws.send, ws, size, count, rounds, how)

    return await run(work, open_one, url, ssl)


def functions(open_one):
    """The functions of a client's file, in the order of the assignments in those files."""
    of_websockets = (
        websockets_request_response,
        websockets_batch,
        websockets_flood,
        websockets_flood_iterated,
        openings,
        open_many,
    )
    return [partial(function, open_one) for function in of_websockets]
