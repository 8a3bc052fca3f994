"""The works of clients that block.

A blocking client sends a whole batch or window before it reads. If the messages are more than both ends' socket buffers
hold, the client and the server wait for each other for ever, so those sizes have no row (contenders.py).
"""

import time
from time import perf_counter_ns as now

from bench.clients.payloads import asked_flood, request, requests, sizes, ticks
from bench.workloads import decoder, recv_raw, stamped

ARRIVING = 0.05  # seconds until all messages of `queued` have come: not timed


def on_one(work, client, url, ssl):
    """Run `work(connection)`, and close the connection."""
    connection = client.open_one(url, ssl)
    try:
        return work(connection)
    finally:
        connection.close()


def same(reply, size, first, last):
    if len(reply) != size or reply[0] != first or reply[-1] != last:
        raise ValueError(f"a wrong reply: {len(reply)} bytes, {bytes(reply)[:40]!r}")


def round_trip(ws, payload):
    """The nanoseconds of a round trip; checking the reply is not timed."""
    start = now()
    ws.send(payload)
    reply = ws.recv()
    took = now() - start
    same(reply, len(payload), payload[0], payload[-1])
    return took


def window(client, url, size, count, rounds, ssl=None):
    """Keeps `count` messages unanswered: each reply sends the next message."""

    def work(ws):
        payload = request(size)
        send, recv = ws.send, ws.recv
        starts, samples = [], []
        for _ in range(min(count, rounds)):
            starts.append(now())
            send(payload)
        for number in range(rounds):
            reply = recv()
            end = now()
            samples.append((starts[number], stamped(reply, payload), end))
            if len(starts) < rounds:
                starts.append(now())
                send(payload)
        return samples

    return on_one(work, client, url, ssl)


def one_way(client, url, size, rounds, ssl=None):
    """A round trip, split by the server's stamp."""
    return window(client, url, size, 1, rounds, ssl)


def batch(client, url, size, count, rounds, ssl=None):
    def work(ws):
        payloads = requests(size, count)
        samples = []
        for _ in range(rounds):
            start = now()
            for payload in payloads:
                ws.send(payload)
            for _ in range(count - 1):
                if len(ws.recv()) != size:
                    raise ValueError("a reply is wrong")
            reply = ws.recv()
            samples.append(now() - start)
            if bytes(reply) != payloads[-1]:
                raise ValueError("a reply is wrong")
        return samples

    return on_one(work, client, url, ssl)


def flood(client, url, size, count, rounds, how="bytes", ssl=None):
    def work(ws):
        ask, payload, done = asked_flood(size, count, how)
        recv = ws.recv
        samples = []
        for _ in range(rounds):
            left = count
            start = now()
            ws.send(ask)
            while (message := recv()) == payload:
                left -= 1
            samples.append(now() - start)
            if left or message != done:
                raise ValueError(f"a wrong reply: {message[:40]!r}")
        return samples

    return on_one(work, client, url, ssl)


def queued(client, url, size, count, rounds, ssl=None):
    """Receives `count` messages that have arrived before the first `recv()`."""

    def work(ws):
        ask, payload, done = asked_flood(size, count)
        samples = []
        for _ in range(rounds):
            ws.send(ask)
            time.sleep(ARRIVING)
            left = count
            start = now()
            while (message := ws.recv()) == payload:
                left -= 1
            samples.append(now() - start)
            if left or message != done:
                raise ValueError(f"a wrong reply: {message[:40]!r}")
        return samples

    return on_one(work, client, url, ssl)


def error(recv):
    """The nanoseconds of one `recv()` on a closed connection."""
    start = now()
    try:
        recv()
    except Exception:
        return now() - start
    raise ValueError("recv() on a closed connection raised nothing")


def errors(client, url, rounds, ssl=None):
    ws = client.open_one(url, ssl)
    ws.close()
    return [error(ws.recv) for _ in range(rounds)]


def mixed(client, url, size, rounds, ssl=None):
    """Nine round trips, then one `recv()` on a connection that is closed: one round is one of the ten."""
    closed = client.open_one(url, ssl)
    closed.close()

    def work(ws):
        payload = request(size)
        samples = []
        for number in range(rounds):
            samples.append(error(closed.recv) if number % 10 == 9 else round_trip(ws, payload))
        return samples

    return on_one(work, client, url, ssl)


def varied(client, url, size, upto, rounds, ssl=None):
    """Round trips of random sizes between `size` and `upto` bytes, the same sizes for every client."""

    def work(ws):
        whole = request(upto)
        return [round_trip(ws, whole[:length]) for length in sizes(size, upto, rounds)]

    return on_one(work, client, url, ssl)


def objects(client, url, size, count, rounds, how="msgspec", ssl=None):
    """From the JSON of an order-book update on the wire to a Python object."""

    def work(ws):
        decode, recv = decoder(how), recv_raw(ws)
        expected = [decode(tick)["u"] for tick in ticks(size, count)]
        samples = []
        for _ in range(rounds):
            start = now()
            ws.send(b"MORE")
            for update in expected:
                if decode(recv())["u"] != update:
                    raise ValueError("a wrong reply")
            samples.append(now() - start)
            recv()
        return samples

    return on_one(work, client, url, ssl)


def answers(client, url, ssl=None):
    """Sends back every frame until the server hangs up."""
    ws = client.open_one(url, ssl)
    while True:
        try:
            message = ws.recv()
        except Exception:
            return
        ws.send(message)
